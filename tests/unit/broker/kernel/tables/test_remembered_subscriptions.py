"""RememberedSubscriptions: what groups subscribed to before the broker stopped."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.kernel.tables.remembered_subscriptions import (
    GROUPS_MAX,
    REMEMBERED_MS,
    RememberedSubscriptions,
)
from rockhopper.broker.store.files.disk import backup_path
from rockhopper.protocol.subscription import Subscription
from tests.support.peers import Clock

RED = {"orders": Subscription("orders", "red", version=7)}


def restarted(path: Path, clock: Clock | None = None) -> RememberedSubscriptions:
    table = RememberedSubscriptions(path, now_ms=clock or Clock())
    table.load()
    return table


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "groups" / "subscriptions.json"
    table = restarted(path)
    table.store_subscriptions("billing", RED, 5)
    table.save()
    return path


def test_a_group_is_known_after_a_restart_and_only_then(path: Path) -> None:
    table = restarted(path)
    assert "billing" in table
    assert table.find("billing", "orders") == RED["orders"]
    assert table.find("billing", "bills") is None
    assert "strangers" not in table
    table.store_subscriptions("new", RED, 0)
    assert "new" not in table


def test_a_fingerprint_stands_for_the_same_subscriptions_only(path: Path) -> None:
    table = restarted(path)
    assert table.find_all("billing", 5) == RED
    assert table.find_all("billing", 6) == {}


def test_after_a_minute_heartbeats_are_what_counts(path: Path) -> None:
    clock = Clock()
    table = restarted(path, clock)
    clock.advance(REMEMBERED_MS + 1)
    assert "billing" not in table
    assert table.find("billing", "orders") is None


def test_a_group_that_does_not_agree_is_forgotten(path: Path) -> None:
    table = restarted(path)
    table.forget("billing")
    assert "billing" not in table
    table.save()
    assert "billing" not in restarted(path)


def test_the_same_again_is_not_saved_again(path: Path) -> None:
    table = restarted(path)
    table.store_subscriptions("billing", RED, 5)
    assert table.is_saved
    table.store_subscriptions("billing", {"orders": Subscription("orders", "blue", version=7)}, 5)
    assert not table.is_saved


def test_members_that_started_at_different_times_write_nothing_in_turn(path: Path) -> None:
    table = restarted(path)
    newer = {"orders": Subscription("orders", "red", version=8)}
    table.store_subscriptions("billing", newer, 6)
    assert not table.is_saved
    table.save()
    for subscriptions, fingerprint in ((RED, 5), (newer, 6), (newer, 5), (newer, 0), (RED, 6)):
        table.store_subscriptions("billing", subscriptions, fingerprint)
        assert table.is_saved
    assert restarted(path).find_all("billing", 6) == newer


def test_the_first_fingerprint_of_the_same_subscriptions_is_kept(path: Path) -> None:
    table = restarted(path)
    table.store_subscriptions("bills", RED, 0)
    table.save()
    table.store_subscriptions("bills", RED, 5)
    assert not table.is_saved
    table.save()
    assert restarted(path).find_all("bills", 5) == RED


def test_the_oldest_of_too_many_goes(tmp_path: Path) -> None:
    table = restarted(tmp_path / "many.json")
    for number in range(GROUPS_MAX + 1):
        table.store_subscriptions(f"group-{number}", {}, 0)
    groups = table.to_json()["groups"]
    assert len(groups) == GROUPS_MAX
    assert "group-0" not in groups


def test_a_damaged_file_is_logged_and_the_broker_starts_without_it(path: Path) -> None:
    for copy in (path, backup_path(path)):
        copy.write_text("[")
    with capture_logs() as logs:
        table = restarted(path)
    assert [line["event"] for line in logs] == ["remembered subscriptions of groups are lost"]
    assert table.to_json() == {"groups": {}}
