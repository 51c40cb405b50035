"""ConsumerGroups and ProducerTable: who is online, who is told of it, and when they are gone."""

from pathlib import Path

from structlog.testing import capture_logs

from rockhopper.broker.kernel.members.consumer_groups import (
    DEPARTED_MEMORY_MS,
    HEARTBEAT_TIMEOUT_MS,
    LOST_MEMORY_MS,
    Client,
    ConsumerGroup,
    ConsumerGroups,
    ConsumeSettings,
)
from rockhopper.broker.kernel.members.producers import ProducerTable
from rockhopper.broker.kernel.tables.remembered_subscriptions import (
    REMEMBERED_MS,
    RememberedSubscriptions,
)
from rockhopper.protocol.subscription import Subscription
from tests.support.peers import Clock, Peer

PUSH = ConsumeSettings()
CHANGED = (40, {"consumerGroup": "billing"})


def client(peer: Peer, client_id: str = "c1") -> Client:
    return Client(peer.connection, client_id, language=0, version=479)


def to(*topics: str, expression: str = "*", version: int = 1) -> dict[str, Subscription]:
    return {topic: Subscription(topic, expression, version=version) for topic in topics}


def groups(clock: Clock | None = None, *, may_notify: bool = True) -> ConsumerGroups:
    return ConsumerGroups(now_ms=clock or Clock(), may_notify=lambda _group: may_notify)


def ids(table: ConsumerGroups, group: str = "billing") -> list[str]:
    online = table.get(group)
    return online.client_ids() if online is not None else []


def test_first_heartbeat_makes_a_member_and_tells_it() -> None:
    table, peer = groups(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    assert ids(table) == ["c1"]
    assert peer.requests == [CHANGED]


def test_same_heartbeat_again_tells_nobody() -> None:
    table, peer = groups(), Peer()
    for _ in range(2):
        table.register("billing", client(peer), PUSH, to("orders"))
    assert peer.requests == [CHANGED]


def test_new_member_is_told_to_the_whole_group_at_once() -> None:
    table, old, new = groups(), Peer(), Peer()
    table.register("billing", client(old), PUSH, to("orders"))
    table.register("billing", client(new, "c2"), PUSH, to("orders"))
    assert old.requests == [CHANGED, CHANGED]
    assert new.requests == [CHANGED]
    assert ids(table) == ["c1", "c2"]


def test_another_topic_is_a_change_and_another_expression_is_none() -> None:
    table, peer = groups(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    table.register("billing", client(peer), PUSH, to("orders", "bills"))
    assert len(peer.requests) == 2
    table.register("billing", client(peer), PUSH, to("orders", "bills", expression="a", version=2))
    assert len(peer.requests) == 2
    subscription = table.subscription("billing", "orders", peer.connection)
    assert subscription is not None
    assert subscription.expression == "a"


def test_closed_socket_counts_at_once() -> None:
    table, gone, rest = groups(), Peer(), Peer()
    table.register("billing", client(gone), PUSH, to("orders"))
    table.register("billing", client(rest, "c2"), PUSH, to("orders"))
    rest.requests.clear()
    gone.hang_up()
    assert ids(table) == ["c2"]
    assert rest.requests == [CHANGED]


def test_closed_socket_leaves_every_group_of_the_client() -> None:
    table, peer = groups(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    table.register("audit", client(peer), PUSH, to("orders"))
    assert len(peer.on_close) == 1
    peer.hang_up()
    assert list(table) == []


def test_goodbye_leaves_one_group_and_tells_the_rest() -> None:
    table, peer, rest = groups(), Peer(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    table.register("audit", client(peer), PUSH, to("orders"))
    table.register("billing", client(rest, "c2"), PUSH, to("orders"))
    rest.requests.clear()
    table.unregister("billing", peer.connection)
    assert ids(table) == ["c2"]
    assert ids(table, "audit") == ["c1"]
    assert rest.requests == [CHANGED]


def test_goodbye_of_a_stranger_changes_nothing() -> None:
    table, peer = groups(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    table.unregister("billing", Peer().connection)
    table.unregister("nobody", peer.connection)
    assert ids(table) == ["c1"]


def after_restart(directory: Path, clock: Clock) -> ConsumerGroups:
    """Groups of a broker that knew "billing" before it stopped."""
    path = directory / "subscriptions.json"
    before = RememberedSubscriptions(path, now_ms=clock)
    before.store_subscriptions("billing", to("orders"), 0)
    before.save()
    remembered = RememberedSubscriptions(path, now_ms=clock)
    remembered.load()
    return ConsumerGroups(now_ms=clock, remembered=remembered)


def test_who_reads_ahead_of_its_heartbeat_is_told_once_that_others_are_back(tmp_path: Path) -> None:
    table, quick, slow = after_restart(tmp_path, Clock()), Peer(), Peer()
    table.register("billing", client(quick), PUSH, to("orders"))
    for _ in range(2):
        table.seen_early("billing", slow.connection)
    assert slow.requests == [CHANGED]
    assert ids(table) == ["c1"]


def test_who_reads_ahead_of_its_heartbeat_is_told_when_others_come_back(tmp_path: Path) -> None:
    table, quick, slow = after_restart(tmp_path, Clock()), Peer(), Peer()
    table.seen_early("billing", slow.connection)
    assert slow.requests == []
    table.register("billing", client(quick), PUSH, to("orders"))
    assert slow.requests == [CHANGED]
    table.register("billing", client(slow, "c2"), PUSH, to("orders"))
    assert slow.requests == [CHANGED] * 2
    assert quick.requests == [CHANGED] * 2


def test_who_reads_ahead_of_its_heartbeat_is_forgotten(tmp_path: Path) -> None:
    clock = Clock()
    table, gone, stranger, quick = after_restart(tmp_path, clock), Peer(), Peer(), Peer()
    table.seen_early("billing", gone.connection)
    gone.hang_up()
    table.seen_early("others", stranger.connection)
    table.seen_early("billing", stranger.connection)
    clock.advance(REMEMBERED_MS + 1)
    table.expire()
    table.register("billing", client(quick), PUSH, to("orders"))
    assert gone.requests == stranger.requests == []
    table.seen_early("billing", stranger.connection)
    assert stranger.requests == []


def test_silence_of_two_minutes_ends_membership_and_the_rest_is_told() -> None:
    clock = Clock()
    table, silent, alive = groups(clock), Peer(), Peer()
    table.register("billing", client(silent), PUSH, to("orders"))
    clock.advance(1)
    table.register("billing", client(alive, "c2"), PUSH, to("orders"))
    alive.requests.clear()
    clock.advance(HEARTBEAT_TIMEOUT_MS)
    table.expire()
    assert ids(table) == ["c2"]
    assert alive.requests == [CHANGED]


def test_silence_just_short_of_two_minutes_is_forgiven() -> None:
    clock = Clock()
    table, peer = groups(clock), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    clock.advance(HEARTBEAT_TIMEOUT_MS)
    table.expire()
    assert ids(table) == ["c1"]


def test_broadcasting_groups_are_told_nothing() -> None:
    table, peer = groups(), Peer()
    table.register(
        "billing", client(peer), ConsumeSettings(message_model="BROADCASTING"), to("orders")
    )
    assert peer.requests == []


def test_groups_that_do_not_want_to_hear_of_changes_are_told_nothing() -> None:
    table, peer = groups(may_notify=False), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    assert peer.requests == []


def test_client_with_two_connections_is_listed_once() -> None:
    table, old, new = groups(), Peer(), Peer()
    table.register("billing", client(old), PUSH, to("orders"))
    table.register("billing", client(new), PUSH, to("orders"))
    assert ids(table) == ["c1"]
    found = table.find("billing", "c1")
    assert found is not None
    assert found.connection is new.connection
    old.hang_up()
    assert ids(table) == ["c1"]


def heartbeats(table: ConsumerGroups, clock: Clock, peers: list[Peer], *, minutes: float) -> None:
    """Each of *peers* sends its heartbeat, c1's, every 30 s."""
    for _ in range(round(minutes * 2)):
        for peer in peers:
            table.register("billing", client(peer), PUSH, to("orders"))
        clock.now_ms += 30_000
        table.expire()


def test_two_live_members_with_one_client_id_are_noticed_after_a_minute() -> None:
    clock = Clock()
    table = groups(clock)
    peers = [Peer("10.0.0.1"), Peer("10.0.0.2")]
    with capture_logs() as lines:
        heartbeats(table, clock, peers, minutes=0.5)
        assert not shared_ids(table)
        heartbeats(table, clock, peers, minutes=5)
    assert shared_ids(table) == {"c1"}
    (line,) = [each for each in lines if "share one client id" in each["event"]]
    assert (line["group"], line["client"], len(line["peers"])) == ("billing", "c1", 2)
    heartbeats(table, clock, peers[:1], minutes=1.5)
    assert not shared_ids(table)


def test_a_client_that_reconnects_shares_its_id_with_nobody() -> None:
    clock = Clock()
    table = groups(clock)
    old, new = Peer("10.0.0.1"), Peer("10.0.0.1")
    heartbeats(table, clock, [old], minutes=3)
    for _ in range(10):
        heartbeats(table, clock, [new], minutes=0.5)
        assert not shared_ids(table)


def test_members_that_broadcast_may_have_one_client_id() -> None:
    clock = Clock()
    table = groups(clock)
    everything = ConsumeSettings(message_model="BROADCASTING")
    peers = [Peer(), Peer()]
    for _ in range(4):
        for peer in peers:
            table.register("billing", client(peer), everything, to("orders"))
        clock.now_ms += 30_000
        table.expire()
    assert not shared_ids(table)


def shared_ids(table: ConsumerGroups) -> frozenset[str]:
    online = table.get("billing")
    assert online is not None
    return online.shared_ids


def test_each_member_is_filtered_by_its_own_expression() -> None:
    table, first, second = groups(), Peer(), Peer()
    table.register("billing", client(first), PUSH, to("orders", expression="a", version=1))
    table.register("billing", client(second, "c2"), PUSH, to("orders", expression="b", version=2))
    own = table.subscription("billing", "orders", first.connection)
    newest = table.subscription("billing", "orders", Peer().connection)
    assert own is not None
    assert own.expression == "a"
    assert newest is not None
    assert newest.expression == "b"
    online = table.get("billing")
    assert online is not None
    assert not online.is_consistent()
    assert online.subscriptions()["orders"].expression == "b"


def test_what_members_want_differently_is_logged_once() -> None:
    table, first, second = groups(), Peer(), Peer()
    wanted = to("orders", expression="b") | to("bills")
    with capture_logs() as logged:
        table.register("billing", client(first), PUSH, to("orders", expression="a"))
        for _ in range(2):
            table.register("billing", client(second, "c2"), PUSH, wanted)
    (told,) = [each for each in logged if "different subscriptions" in each["event"]]
    assert (told["group"], told["client"]) == ("billing", "c2")
    assert (told["only_here"], told["only_elsewhere"]) == (["bills *", "orders b"], ["orders a"])


def test_topic_that_a_member_gave_up_stays_subscribed_through_another() -> None:
    table, first, second = groups(), Peer(), Peer()
    table.register("billing", client(first), PUSH, to("orders", "bills"))
    table.register("billing", client(second, "c2"), PUSH, to("orders", "bills"))
    table.register("billing", client(second, "c2"), PUSH, to("orders"))
    assert table.subscription("billing", "bills", second.connection) is not None
    table.register("billing", client(first), PUSH, to("orders"))
    assert table.subscription("billing", "bills", second.connection) is None


def test_unknown_groups_and_topics_have_no_subscription() -> None:
    table, peer = groups(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    assert table.subscription("nobody", "orders", peer.connection) is None
    assert table.subscription("billing", "bills", peer.connection) is None
    assert table.find("billing", "c9") is None
    assert table.find("nobody", "c1") is None


def test_groups_of_a_topic_are_those_that_subscribe_to_it() -> None:
    table, peer = groups(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    table.register("audit", client(peer), PUSH, to("orders", "bills"))
    assert sorted(table.groups_of_topic("orders")) == ["audit", "billing"]
    assert table.groups_of_topic("bills") == ["audit"]


def test_short_heartbeat_keeps_subscriptions_and_asks_for_a_full_one_when_they_differ() -> None:
    table, peer = groups(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"), fingerprint=7)
    assert table.register_again("billing", client(peer), 7)
    assert not table.register_again("billing", client(peer), 8)
    assert table.subscription("billing", "orders", peer.connection) is not None
    assert peer.requests == [CHANGED]


def test_short_heartbeat_of_a_stranger_asks_for_a_full_one() -> None:
    table, peer = groups(), Peer()
    assert not table.register_again("billing", client(peer), 7)
    assert ids(table) == ["c1"]
    assert peer.requests == [CHANGED]


def test_short_heartbeat_after_a_lost_connection_brings_the_subscriptions_back() -> None:
    table, old, new = groups(), Peer(), Peer()
    table.register("billing", client(old), PUSH, to("orders"), fingerprint=7)
    old.hang_up()
    assert table.register_again("billing", client(new), 7)
    assert table.subscription("billing", "orders", new.connection) is not None


def test_lost_clients_are_forgotten_after_ten_minutes() -> None:
    clock = Clock()
    table, old, new = groups(clock), Peer(), Peer()
    table.register("billing", client(old), PUSH, to("orders"), fingerprint=7)
    old.hang_up()
    clock.advance(DEPARTED_MEMORY_MS + 1)
    table.expire()
    assert not table.register_again("billing", client(new), 7)


def test_changed_client_id_on_one_connection_replaces_the_member() -> None:
    table, peer = groups(), Peer()
    table.register("billing", client(peer), PUSH, to("orders"))
    table.register("billing", client(peer, "c9"), PUSH, to("orders"))
    assert ids(table) == ["c9"]


def test_heartbeat_that_outlives_its_connection_registers_nobody() -> None:
    table, peer = groups(), Peer()
    peer.hang_up()
    table.register("billing", client(peer), PUSH, to("orders"))
    assert table.register_again("billing", client(peer), 7)
    assert ids(table) == []


def test_producers_are_known_by_group_and_by_client_id() -> None:
    table, peer = ProducerTable(now_ms=Clock()), Peer()
    table.register("senders", client(peer))
    table.register("others", client(peer))
    assert [c.client_id for c in table.clients("senders")] == ["c1"]
    assert sorted(table.groups()) == ["others", "senders"]
    found = table.find("c1")
    assert found is not None
    assert found.connection is peer.connection
    assert table.find("c2") is None


def test_producer_that_leaves_one_group_stays_in_the_other() -> None:
    table, peer = ProducerTable(now_ms=Clock()), Peer()
    table.register("senders", client(peer))
    table.register("others", client(peer))
    table.unregister("senders", peer.connection)
    assert table.clients("senders") == []
    assert table.find("c1") is not None


def test_producer_goes_with_its_connection_and_after_silence() -> None:
    clock = Clock()
    table, closed, silent = ProducerTable(now_ms=clock), Peer(), Peer()
    table.register("senders", client(closed))
    table.register("senders", client(silent, "c2"))
    closed.hang_up()
    assert [c.client_id for c in table.clients("senders")] == ["c2"]
    clock.advance(HEARTBEAT_TIMEOUT_MS + 1)
    table.expire()
    assert table.groups() == {}


def test_producer_heartbeat_that_outlives_its_connection_registers_nobody() -> None:
    table, peer = ProducerTable(now_ms=Clock()), Peer()
    peer.hang_up()
    table.register("senders", client(peer))
    assert table.groups() == {}


OURS = ConsumeSettings(heeds_readers=True)


def online_group(table: ConsumerGroups) -> ConsumerGroup:
    online = table.get("billing")
    assert online is not None
    return online


def two_versions(table: ConsumerGroups) -> tuple[Peer, Peer]:
    """A member that wants the tag a of orders, and one that wants a and b."""
    old, new = Peer(), Peer()
    table.register("billing", client(old, "old"), OURS, to("orders", expression="a"))
    table.register("billing", client(new, "new"), OURS, to("orders", expression="a || b"))
    return old, new


def test_the_member_with_the_narrower_filter_must_leave_the_topic_to_the_other() -> None:
    table = groups()
    old, new = two_versions(table)
    online = online_group(table)
    assert online.must_leave(old.connection, "orders")
    assert not online.must_leave(new.connection, "orders")
    assert not online.must_leave(old.connection, "bills")
    assert not online.must_leave(Peer().connection, "orders")
    table.unregister("billing", new.connection)
    assert not online.must_leave(old.connection, "orders")


def test_a_client_of_another_make_leaves_nothing() -> None:
    table, java = groups(), Peer()
    old, _ = two_versions(table)
    table.register("billing", client(java, "java"), PUSH, to("orders", expression="a"))
    assert not online_group(table).must_leave(java.connection, "orders")
    assert not online_group(table).must_leave(old.connection, "orders")


def test_another_filter_beside_others_is_told_to_all() -> None:
    table = groups()
    old, new = two_versions(table)
    old.requests.clear()
    table.register("billing", client(new, "new"), OURS, to("orders", expression="a", version=2))
    assert old.requests == [CHANGED]
    assert not online_group(table).must_leave(old.connection, "orders")


def test_what_a_member_wanted_that_was_cut_off_counts_for_a_moment() -> None:
    clock = Clock()
    table = groups(clock)
    old, new = two_versions(table)
    with capture_logs() as logged:
        new.hang_up()
    assert "a group member disconnected" in logged[0]["event"]
    assert online_group(table).must_leave(old.connection, "orders")
    old.requests.clear()
    clock.now_ms += LOST_MEMORY_MS
    table.expire()
    assert not online_group(table).must_leave(old.connection, "orders")
    assert old.requests == [CHANGED]


def test_a_member_that_comes_back_ends_the_waiting_for_it() -> None:
    table = groups()
    old, new = two_versions(table)
    new.hang_up()
    again = Peer()
    table.register("billing", client(again, "new2"), OURS, to("orders", expression="a || b"))
    table.unregister("billing", again.connection)
    assert not online_group(table).must_leave(old.connection, "orders")


def test_a_member_that_wanted_no_more_than_the_others_is_not_waited_for() -> None:
    table = groups()
    old, new = two_versions(table)
    with capture_logs() as logged:
        old.hang_up()
    assert [each["event"] for each in logged] == [
        "members of a group have the same subscriptions again"
    ]
    assert not online_group(table).must_leave(new.connection, "orders")


def test_message_models_that_differ_are_logged_and_the_group_is_told_of_changes() -> None:
    table, loud, quiet = groups(), Peer(), Peer()
    broadcasting = ConsumeSettings(message_model="BROADCASTING", heeds_readers=True)
    with capture_logs() as logged:
        table.register("billing", client(quiet, "quiet"), OURS, to("orders"))
        for _ in range(2):
            table.register("billing", client(loud, "loud"), broadcasting, to("orders"))
    (told,) = [each for each in logged if each["log_level"] == "warning"]
    assert told["event"] == "members of a group have different subscriptions"
    assert told["models"] == ["BROADCASTING", "CLUSTERING"]
    online = online_group(table)
    assert (online.is_broadcasting, online.kind_count) == (False, 2)
    assert online.readers.by_topic == {"orders": {"quiet"}}
    quiet.requests.clear()
    table.register("billing", client(Peer(), "third"), OURS, to("orders"))
    assert quiet.requests == [CHANGED]


def test_broadcasting_members_may_want_what_they_like() -> None:
    table = groups()
    broadcasting = ConsumeSettings(message_model="BROADCASTING")
    table.register("billing", client(Peer(), "a"), broadcasting, to("orders"))
    table.register("billing", client(Peer(), "b"), broadcasting, to("bills"))
    assert online_group(table).kind_count == 0


def test_what_nobody_reads_and_what_may_be_skipped_is_logged() -> None:
    table = groups()
    with capture_logs() as logged:
        table.register("billing", client(Peer(), "a"), OURS, to("orders", expression="a"))
        table.register("billing", client(Peer(), "b"), OURS, to("orders", expression="b"))
        table.register("billing", client(Peer(), "c"), PUSH, to("orders", expression="c"))
    events = [(each["event"].split(":")[0], each.get("topics")) for each in logged]
    assert ("some topics of a group are not read", ["orders"]) in events
    assert (
        "messages of a group may be skipped, or some queues may have no reader",
        ["orders"],
    ) in events


def test_a_heartbeat_that_says_the_same_as_before_decides_nothing_anew() -> None:
    table = groups()
    old, _ = two_versions(table)
    readers = online_group(table).readers
    for version in (2, 3):
        again = to("orders", expression="a", version=version)
        table.register("billing", client(old, "old"), OURS, again)
    assert online_group(table).readers is readers
    table.register("billing", client(Peer(), "third"), OURS, to("orders", expression="a || b"))
    assert online_group(table).readers.by_topic == {"orders": {"new", "third"}}
    table.register_again("billing", client(Peer(), "v2"), 7)
    assert online_group(table).readers.by_topic == {}
