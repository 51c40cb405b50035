"""Access: what everybody may do today."""

import pytest

from rockhopper.broker.users.access import CLUSTER, AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.peer import Principal

HERE = [Principal("127.0.0.1"), Principal("127.8.0.1"), Principal("::1")]
ELSEWHERE = Principal("10.0.0.7")


@pytest.mark.parametrize("principal", [*HERE, ELSEWHERE])
@pytest.mark.parametrize("action", [each for each in Action if each is not Action.ADMINISTER])
def test_all_but_administration_is_everybodys(principal: Principal, action: Action) -> None:
    assert AccessRules(remote_admin=False).may(
        principal, action, Resource(ResourceKind.TOPIC, "orders")
    )


@pytest.mark.parametrize("principal", HERE)
def test_administration_is_for_this_host(principal: Principal) -> None:
    assert AccessRules(remote_admin=False).may(principal, Action.ADMINISTER, CLUSTER)


@pytest.mark.parametrize("remote_admin", [True, False])
def test_administration_from_elsewhere_is_what_remote_admin_says(remote_admin: bool) -> None:
    access = AccessRules(remote_admin=remote_admin)
    assert access.may(ELSEWHERE, Action.ADMINISTER, CLUSTER) is remote_admin
