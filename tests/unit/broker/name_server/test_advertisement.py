"""What a replica is to clients: by the engine's view, and by what others have registered."""

import pytest

from rockhopper.broker.name_server.advertisement import ALONE, Advertisement

OWN = "10.0.0.1:10911"


def advertisement(
    elected_in: int, elected_id: int, *running: int, leads_in: int = 0
) -> Advertisement:
    """Of the replica 1."""
    addresses = {number: f"10.0.0.{number}:10911" for number in running}
    return Advertisement(1, leads_in, elected_in, elected_id, addresses)


def shown(found: Advertisement, registered: dict[int, str], epoch: int = 0) -> dict[int, str]:
    return {number: each[7:8] for number, each in found.members(OWN, registered, epoch).items()}


def test_a_broker_of_its_own_is_a_master_in_no_set() -> None:
    assert (ALONE.broker_id, ALONE.is_in_set, ALONE.is_shown) == (0, False, True)


def test_a_leading_replica_is_the_master_and_shows_its_followers() -> None:
    found = advertisement(5, 1, 1, 2, 3, leads_in=5)
    assert (found.broker_id, found.epoch) == (0, 5)
    assert shown(found, {}) == {0: "1", 2: "2", 3: "3"}


def test_a_following_replica_shows_the_master_that_the_engine_names() -> None:
    found = advertisement(5, 2, 1, 2, 3)
    assert (found.broker_id, found.epoch) == (1, 5)
    assert shown(found, {}) == {0: "2", 1: "1", 3: "3"}


def test_a_new_master_is_shown_before_it_has_registered() -> None:
    found = advertisement(6, 3, 1, 2, 3)
    late = {0: "10.0.0.2:10911", 3: "10.0.0.3:10911"}
    assert shown(found, late, 5) == {0: "3", 1: "1", 2: "2"}


def test_who_is_deposed_by_a_later_election_does_not_lead() -> None:
    found = advertisement(6, 2, 1, 2, leads_in=5)
    assert (found.is_leading, found.broker_id, found.epoch) == (False, 1, 6)
    assert shown(found, {}) == {0: "2", 1: "1"}


def test_who_leads_by_a_view_that_has_not_come_yet_leads() -> None:
    found = advertisement(5, 2, 1, 2, leads_in=6)
    assert (found.is_leading, found.epoch) == (True, 6)
    assert shown(found, {0: "10.0.0.2:10911"}, 5) == {0: "1", 2: "2"}


def test_who_is_elected_is_no_master_before_it_leads() -> None:
    found = advertisement(6, 1, 1, 2)
    assert shown(found, {0: "10.0.0.2:10911"}, 5) == {1: "1", 2: "2"}


@pytest.mark.parametrize(("registered_epoch", "is_shown"), [(4, False), (5, True), (6, True)])
def test_a_master_that_the_engine_does_not_reach_is_shown_as_it_registered(
    registered_epoch: int, is_shown: bool
) -> None:
    found = advertisement(5, 2, 1)
    assert shown(found, {0: "10.0.0.2:10911"}, registered_epoch) == (
        {0: "2"} if is_shown else {}
    ) | {1: "1"}


def test_a_master_of_a_later_epoch_is_believed_more_than_an_old_view() -> None:
    found = advertisement(5, 1, 1, 2, leads_in=5)
    assert shown(found, {0: "10.0.0.2:10911"}, 6) == {0: "2", 1: "1"}


def test_without_a_view_only_what_is_registered_is_known() -> None:
    found = advertisement(0, 0)
    assert (found.is_leading, found.epoch) == (False, 0)
    assert shown(found, {0: "10.0.0.2:10911"}, 7) == {0: "2", 1: "1"}


def test_followers_are_hidden_where_the_settings_say_so() -> None:
    following = advertisement(5, 2, 1, 2, 3)._replace(shows_followers=False)
    leading = advertisement(5, 1, 1, 2, leads_in=5)._replace(shows_followers=False)
    assert (following.is_shown, leading.is_shown) == (False, True)
    assert shown(following, {3: "10.0.0.3:10911"}) == {0: "2"}
    assert shown(leading, {3: "10.0.0.3:10911"}) == {0: "1"}
