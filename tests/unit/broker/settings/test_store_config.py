"""StoreConfig: sizes in whole entries, one log directory, and every number within its range."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.setting_fields import SettingError, settings_of
from rockhopper.broker.settings.store_config import StoreConfig


@pytest.mark.parametrize(
    ("given", "whole"), [(20, 20), (21, 40), (6_000_000, 6_000_000), (6_000_001, 6_000_020)]
)
def test_consume_queue_files_end_where_an_entry_does(given: int, whole: int) -> None:
    config = StoreConfig(
        root=Path("/s"), consume_queue_file_size_bytes=max(given, 40) if given < 40 else given
    )
    assert config.round_up_sizes().consume_queue_file_size_bytes == max(whole, 40)


@pytest.mark.parametrize("field", [f.name for f, known in settings_of(StoreConfig) if known.least])
def test_every_number_has_its_least(field: str) -> None:
    with pytest.raises(SettingError, match="a whole number"):
        StoreConfig(root=Path("/s"), **{field: 0})  # type: ignore[arg-type]


def test_a_list_of_log_directories_is_refused() -> None:
    StoreConfig(root=Path("/s"), commit_log_directory=Path("/log"))
    with pytest.raises(SettingError, match="expected one directory"):
        StoreConfig(root=Path("/s"), commit_log_directory=Path("/a,/b"))


@pytest.mark.parametrize("hours", ["24", "x", "1;25", "-1"])
def test_hours_that_are_none_are_refused(hours: str) -> None:
    with pytest.raises(SettingError, match="scrubOffPeakWhen"):
        StoreConfig(root=Path("/s"), scrub_off_peak_when=hours)


@pytest.mark.parametrize("hours", ["", "00", "02;03", " 23 ; 4"])
def test_hours_of_the_day_are_taken(hours: str) -> None:
    assert StoreConfig(root=Path("/s"), scrub_off_peak_when=hours).scrub_off_peak_when == hours
