"""Selection: which topics a run archives, and from where it has to begin."""

import pytest

from rockhopper.pipeline.jobs.archiving.selection import ALL, Selection, find_archived_end
from rockhopper.pipeline.jobs.results import UsageProblem

EVERY, SOME, LIKE = Selection(), Selection(("orders", "%RETRY%g")), Selection(pattern="or.*")


@pytest.mark.parametrize(
    ("selection", "chosen"),
    [
        (EVERY, {"orders", "bills"}),
        (SOME, {"orders", "%RETRY%g"}),
        (LIKE, {"orders"}),
        (Selection(pattern="order"), set()),
    ],
)
def test_what_is_chosen(selection: Selection, chosen: set[str]) -> None:
    topics = ["orders", "bills", "%RETRY%g", "%DLQ%g", "SCHEDULE_TOPIC_XXXX", "rmq_sys_x"]
    assert {topic for topic in topics if selection.chooses(topic)} == chosen


def test_only_everything_is_everything() -> None:
    assert [each.is_all for each in (EVERY, SOME, LIKE)] == [True, False, False]
    assert [each.keys for each in (EVERY, SOME, LIKE)] == [(ALL,), SOME.topics, ("~or.*",)]


@pytest.mark.parametrize(
    ("topics", "pattern", "said"),
    [
        (("a",), "b", "mutually exclusive"),
        (("a/b",), "", "invalid topic 'a/b'"),
        ((), "(", "is not a valid regular expression"),
    ],
)
def test_what_makes_no_sense_is_refused(topics: tuple[str, ...], pattern: str, said: str) -> None:
    with pytest.raises(UsageProblem, match=said):
        Selection(topics, pattern)


@pytest.mark.parametrize(
    ("selection", "archived", "start"),
    [
        (EVERY, {}, 0),
        (EVERY, {"orders": 900}, 0),
        (EVERY, {ALL: 500, "orders": 900}, 500),
        (LIKE, {ALL: 500, "~or.*": 700}, 700),
        (LIKE, {ALL: 500, "~or.*": 300}, 500),
        (Selection(("orders",)), {ALL: 500}, 500),
        (Selection(("orders", "bills")), {ALL: 500, "orders": 900}, 500),
        (Selection(("orders", "bills")), {"orders": 900, "~b.*": 700}, 700),
        (Selection(("%RETRY%g",)), {ALL: 500}, 0),
    ],
)
def test_a_run_begins_where_what_it_chooses_needs_it_to(
    selection: Selection, archived: dict[str, int], start: int
) -> None:
    assert selection.start(archived) == start


def test_a_position_that_a_wider_one_covers_is_forgotten() -> None:
    archived = {"orders": 400, "~b.*": 900, "%RETRY%g": 300, ALL: 100}
    assert EVERY.advanced(archived, 600) == {ALL: 600, "~b.*": 900, "%RETRY%g": 300}
    assert SOME.advanced({ALL: 100}, 600) == {ALL: 100, "orders": 600, "%RETRY%g": 600}


def test_a_topic_is_archived_up_to_the_furthest_that_covers_it() -> None:
    archived = {ALL: 100, "~or.*": 300, "orders": 200, "%DLQ%g": 50}
    assert find_archived_end(archived, "orders") == 300
    assert find_archived_end(archived, "bills") == 100
    assert find_archived_end(archived, "%DLQ%g") == 50
    assert find_archived_end({}, "bills") == 0


def test_positions_say_up_to_where_each_topic_is_archived() -> None:
    some = Selection(("a", "%DLQ%g"))
    pattern = Selection(pattern="a.*")
    all_topics = Selection()
    positions = some.advanced({}, 100)

    assert some.start(positions) == 100
    assert all_topics.start(positions) == pattern.start(positions) == 0
    assert find_archived_end(positions, "a") == 100
    positions = pattern.advanced(positions, 150)
    assert find_archived_end(positions, "ab") == 150
    assert Selection(("ab", "b")).start(positions) == 0
    positions = all_topics.advanced(positions, 200)
    assert positions == {"%DLQ%g": 100, "*": 200}
    assert Selection(("ab",)).start(positions) == pattern.start(positions) == 200
    assert find_archived_end(positions, "%DLQ%other") == 0
