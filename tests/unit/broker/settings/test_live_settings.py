"""Live settings: what a permission means, and hours that make sense."""

import pytest

from rockhopper.broker.settings.live_settings import LiveSettings, LiveStoreSettings, check_hours
from rockhopper.broker.settings.setting_fields import SettingError


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
