"""Which modes a store is to have, by its settings."""

import grp
import os

import pytest

from rockhopper.broker.settings.config_file import build_config
from rockhopper.broker.settings.setting_fields import SettingError
from rockhopper.broker.settings.store_modes import Modes, find_modes, use_umask

USERS = {
    "authenticationEnabled": "true",
    "initAuthenticationUser": '{"username": "root", "password": "the secret of root"}',
}
REPLICA = {"haEngine": "etcd://127.0.0.1:1", "brokerIP1": "127.0.0.1", "haReplicaId": "1"}


def test_users_close_the_store_and_a_group_opens_it_for_its_members() -> None:
    own = grp.getgrgid(os.getgid()).gr_name
    assert find_modes(build_config({})) is None
    assert find_modes(build_config(USERS)) == Modes(0o700, 0o600)
    shared = find_modes(build_config(USERS | {"storeGroup": own}))
    assert shared == Modes(0o2750, 0o640, os.getgid(), 0o027)


def test_the_umask_only_closes_more() -> None:
    before = os.umask(0o022)
    try:
        use_umask(build_config({}))
        assert os.umask(0o002) == 0o022
        use_umask(build_config(USERS))
        assert os.umask(0o022) == 0o077
    finally:
        os.umask(before)


@pytest.mark.parametrize(
    ("texts", "told"),
    [({}, "no such group"), (REPLICA, "over the network")],
)
def test_a_group_that_cannot_be_is_refused(texts: dict[str, str], told: str) -> None:
    with pytest.raises(SettingError, match=told):
        find_modes(build_config(USERS | texts | {"storeGroup": "no-such-group"}))
