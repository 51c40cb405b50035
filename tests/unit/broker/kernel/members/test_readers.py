"""Who reads a topic where the members of a group subscribe differently."""

from collections.abc import Mapping
from itertools import permutations

from rockhopper.broker.kernel.members.readers import ReaderKind, TopicReaders, find_readers
from rockhopper.protocol.subscription import TYPE_SQL92, TYPE_TAG, Subscription

RETRIES = "%RETRY%billing"
Subscriptions = Mapping[str, Subscription]


def to(**wanted: str) -> dict[str, Subscription]:
    """Subscriptions to topics and the retry topic; what compares is SQL."""
    subscriptions = {
        topic: Subscription(topic, text, TYPE_SQL92 if ">" in text else TYPE_TAG)
        for topic, text in wanted.items()
    }
    return {**subscriptions, RETRIES: Subscription(RETRIES)}


def ours(client_id: str, **wanted: str) -> ReaderKind:
    return ReaderKind(to(**wanted), heeds_readers=True, client_ids={client_id})


def java(client_id: str, **wanted: str) -> ReaderKind:
    return ReaderKind(to(**wanted), heeds_readers=False, client_ids={client_id})


def readers(
    *members: ReaderKind, beside: tuple[str, ...] = (), lost: Subscriptions | None = None
) -> TopicReaders:
    """Who reads what; *beside* are members that broadcast."""
    ids = [*(each for member in members for each in member.client_ids), *beside]
    gone = [lost] if lost else []
    first, *others = [find_readers(each, ids, gone) for each in permutations(members)]
    assert all(each == first for each in others), "the order of heartbeats counts"
    return first


def test_members_that_want_the_same_share_everything() -> None:
    assert readers(ours("a", x="*"), ours("b", x="*")) == ({}, set())
    assert readers(ours("a", x="new || paid"), ours("b", x="paid||new")) == ({}, set())


def test_one_tag_more_is_read_by_those_alone_that_want_it() -> None:
    found = readers(ours("old", x="new"), ours("b", x="new || paid"), ours("c", x="new || paid"))
    assert found.by_topic == {"x": {"b", "c"}, RETRIES: {"b", "c"}}


def test_everything_covers_tags_and_expressions() -> None:
    found = readers(ours("all", x="*"), ours("tag", x="new"), ours("sql", x="price > 5"))
    assert found.by_topic["x"] == {"all"}


def test_a_new_topic_is_shared_among_those_that_subscribe_to_it() -> None:
    found = readers(ours("old", x="*"), ours("b", x="*", y="*"), ours("c", x="*", y="*"))
    assert found.by_topic == {"y": {"b", "c"}, RETRIES: {"b", "c"}}


def test_expressions_that_differ_are_read_by_nobody_and_equal_ones_by_all() -> None:
    found = readers(ours("a", x="price > 5"), ours("b", x="price > 3"))
    assert found.by_topic["x"] == frozenset()
    assert readers(ours("a", x="price > 5"), ours("b", x="price  > 5")) == ({}, set())


def test_nobody_reads_what_no_member_wants_all_of() -> None:
    found = readers(ours("a", x="new || paid"), ours("b", x="paid || void"))
    assert found.by_topic == {"x": frozenset()}, "retries are filtered by nobody: all read them"
    third = readers(ours("a", x="new || paid"), ours("b", x="paid || void"), ours("c", x="*"))
    assert third.by_topic["x"] == {"c"}


def test_members_of_different_topics_share_their_retries() -> None:
    assert readers(ours("a", x="*"), ours("b", y="*")).by_topic == {"x": {"a"}, "y": {"b"}}


def test_broadcasting_members_take_no_share() -> None:
    found = readers(ours("a", x="*"), ours("b", x="*"), beside=("loud",))
    assert found.by_topic == {"x": {"a", "b"}, RETRIES: {"a", "b"}}


def test_what_a_client_of_another_make_reads_is_shared_by_all() -> None:
    found = readers(ours("a", x="new"), java("j", x="new || paid"))
    assert found == ({}, {"x"})
    assert readers(ours("a", x="new"), java("j", x="new")) == ({}, set())


def test_a_topic_that_clients_of_other_makes_do_not_read_is_read_by_ours() -> None:
    found = readers(ours("a", x="*", y="*"), ours("b", x="*", y="*"), java("j", x="*"))
    assert found == ({"y": {"a", "b"}}, set())
    missing = readers(ours("a", y="*"), java("j", x="*", y="*"), java("k", x="*"))
    assert missing == ({}, {"x", "y"}), "the queues of each fall to members that do not read them"


def test_nothing_is_decided_beside_a_member_that_has_not_told_what_it_wants() -> None:
    found = readers(
        ours("a", x="new"),
        ours("b", x="new || paid"),
        ReaderKind({}, heeds_readers=True, client_ids={"v2"}),
    )
    assert found == ({}, {"x"})


def test_what_a_lost_member_wanted_is_not_skipped_meanwhile() -> None:
    lost = to(x="new || paid")
    assert readers(ours("a", x="new"), lost=lost).by_topic == {
        "x": frozenset(),
        RETRIES: frozenset(),
    }
    assert readers(ours("a", x="*"), lost=lost) == ({}, set())
    assert readers(ours("a", x="*"), lost=to(y="*")).by_topic == {RETRIES: frozenset()}


def test_thousands_of_topics_are_decided_by_themselves() -> None:
    topics = {f"t{number}": "*" for number in range(1000)}
    found = readers(ours("a", **topics), ours("b", **topics), ours("c", **topics, more="*"))
    assert found.by_topic == {"more": {"c"}, RETRIES: {"c"}}
