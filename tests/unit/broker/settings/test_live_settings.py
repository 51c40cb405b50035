"""Live settings: what a permission means, and hours that make sense."""

import pytest

from rockhopper.broker.settings.config_file import apply_live, build_config, change_live, is_live
from rockhopper.broker.settings.live_settings import (
    LIVE_PARTS,
    LivePopSettings,
    LivePullSettings,
    LiveSettings,
    LiveStoreSettings,
    LiveTransactionSettings,
    check_hours,
)
from rockhopper.broker.settings.setting_fields import SettingError, settings_of


@pytest.mark.parametrize(
    ("permission", "readable", "writable"),
    [(0, False, False), (2, False, True), (4, True, False), (6, True, True), (1, False, False)],
)
def test_a_permission_says_what_may_be_done(
    permission: int, readable: bool, writable: bool
) -> None:
    live = LiveSettings(broker_permission=permission)
    assert (live.is_readable, live.is_writable) == (readable, writable)
    live.broker_permission = 6
    assert live.is_readable
    assert live.is_writable


@pytest.mark.parametrize("hours", ["", "04", "0;23", " 4 ; 5 ;"])
def test_hours_from_0_to_23_are_taken(hours: str) -> None:
    check_hours("deleteWhen", hours)


@pytest.mark.parametrize("hours", ["24", "4,5", "noon", "-1", "4;99"])
def test_other_hours_are_refused_by_their_setting(hours: str) -> None:
    with pytest.raises(SettingError, match="deleteWhen"):
        LiveStoreSettings(delete_when=hours)


def test_a_number_out_of_range_is_refused() -> None:
    with pytest.raises(SettingError, match="brokerPermission=8"):
        LiveSettings(broker_permission=8)


@pytest.mark.parametrize(
    ("part", "field", "key"),
    [
        (LivePullSettings, "short_polling_ms", "shortPollingTimeMills"),
        (LivePopSettings, "in_flight_max", "popInflightMessageThreshold"),
        (LiveTransactionSettings, "check_count_max", "transactionCheckMax"),
        (LiveStoreSettings, "query_max_count", "maxMsgsNumBatch"),
    ],
)
def test_each_part_checks_its_own_numbers(part: type, field: str, key: str) -> None:
    with pytest.raises(SettingError, match=f"{key}=0"):
        part(**{field: 0})


def test_a_change_reaches_the_parts_of_the_settings() -> None:
    config = build_config({"popInflightMessageThreshold": "5"})
    kept = (config.live, config.pull, config.pop, config.transactions, config.store.live)
    changes = {
        "brokerPermission": "4",
        "litePullMessageEnable": "false",
        "priorityOrderAsc": "false",
        "transactionCheckMax": "3",
        "maxMessageSize": "1000",
    }
    apply_live(config, change_live(config, changes))
    live, pull, pop, transactions, in_store = kept
    assert live.broker_permission == 4
    assert not pull.lite_pull
    assert not pop.priority_order_asc
    assert pop.in_flight_max == 5, "what was not changed stays"
    assert transactions.check_count_max == 3
    assert in_store.message_size_max_bytes == 1000


def test_every_setting_of_a_live_part_may_change() -> None:
    assert all(is_live(known.key) for part in LIVE_PARTS for _, known in settings_of(part))
