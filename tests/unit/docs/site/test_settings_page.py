"""The page of settings: made of the classes, up to date, whole, and with a sentence for each."""

import pytest

from docs.site import settings_page
from docs.site.settings_page import GROUPS, field_texts, rows_of
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.settings.config_file import change_live, properties_of
from rockhopper.broker.settings.setting_fields import SettingError

ROWS = {row.key: row for configs in GROUPS.values() for row in rows_of(configs)}


def test_the_page_is_up_to_date() -> None:
    current = settings_page.PAGE.read_text(encoding="utf-8")
    assert settings_page.page(current) == current, "run `make pages`"


def test_it_has_each_setting_that_a_broker_tells() -> None:
    shorthand = {"autoCreateTopicEnable"}
    assert set(ROWS) == set(properties_of(BrokerConfig())) - shorthand


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_each_says_what_it_does(row: settings_page.Row) -> None:
    assert row.text.endswith((".", ")"))
    assert not row.cost or row.cost.endswith(".")


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_live_is_what_a_broker_lets_change(row: settings_page.Row) -> None:
    config = BrokerConfig()
    values = properties_of(config)
    other = {"true": "false", "false": "true"}.get(values[row.key], values[row.key] + "1")
    try:
        change_live(config, {row.key: other})
    except SettingError as error:
        is_live = error.allowed != "a change needs a restart of the broker"
        assert is_live == row.is_live
    else:
        assert row.is_live


def test_a_unit_is_the_end_of_the_field_s_name() -> None:
    assert ROWS["flushIntervalCommitLog"].allowed == "ms: 1 to 3,600,000"
    assert ROWS["mappedFileSizeCommitLog"].in_words == " (1 GiB)"
    assert ROWS["brokers"].allowed == "0 to 64"
    assert ROWS["flushDiskType"].allowed == "ASYNC_FLUSH, SYNC_FLUSH"


def test_what_stands_below_a_field_is_its_text() -> None:
    class Config:
        """A configuration."""

        first: int = 1
        """What the first
        does."""
        second: int = 2

    assert field_texts(Config) == {"first": "What the first does."}


def test_what_is_written_by_hand_stays() -> None:
    text = f"by hand\n{settings_page.MARKER}old"
    assert settings_page.page(text).startswith(f"by hand\n{settings_page.MARKER}\n## ")
