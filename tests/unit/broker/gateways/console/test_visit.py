"""Visit: what pages are asked by, and by whom."""

import pytest

from rockhopper.broker.gateways.console.cache import ResultCache
from rockhopper.broker.gateways.console.visit import (
    Turns,
    Visit,
    WrongInput,
    number,
    parse_whole,
    queue_of,
    queue_text,
)
from rockhopper.broker.users.access import AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.errors import NoPermission
from rockhopper.broker.users.peer import Principal
from rockhopper.client.queues import MessageQueue
from tests.support.rules import Rules


def visit(access: AccessRules, **query: str) -> Visit:
    return Visit(
        access, Principal("192.0.2.1", "al"), None, query, False, "", ResultCache(), Turns()
    )


def test_a_retry_topic_and_dead_letters_are_their_groups() -> None:
    rules = Rules((Action.SUB, Resource(ResourceKind.GROUP, "billing")))
    asked = visit(rules)
    asked.check(Action.SUB, "%RETRY%billing")
    asked.check(Action.SUB, "%DLQ%billing")
    with pytest.raises(NoPermission, match=r"al at 192.0.2.1 is not allowed to Sub Topic:billing"):
        asked.check(Action.SUB, "billing")
    visit(AccessRules(remote_admin=False)).check(Action.SUB, "billing")


class Owners:
    def groups(self, name: str) -> list[str]:
        return {"%RETRY%a_b": ["a"], "%RETRY%a_c": ["a", "a_c"]}[name]


def test_a_shared_retry_topic_is_of_the_groups_that_the_broker_knows() -> None:
    rules = Rules(*((each, Resource(ResourceKind.GROUP, "a")) for each in (Action.SUB, Action.GET)))
    asked = visit(rules)
    rules.retry_owners = Owners()
    asked.check(Action.SUB, "%RETRY%a_b")
    assert asked.refusal(Action.SUB, "%RETRY%a_c").endswith("is not allowed to Sub Group:a_c")
    assert asked.filter_seen(["%RETRY%a_b", "%RETRY%a_c"]) == ["%RETRY%a_b"]


def test_why_nothing_may_be_changed_is_a_sentence() -> None:
    assert "remoteAdmin=true" in visit(AccessRules(remote_admin=False)).why_not
    assert visit(Rules()).why_not == "al is not an administrator from 192.0.2.1."


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7", 7),
        (" 1,0 ", 10),
        ("-5", 0),
        ("9" * 19, 100),
        ("9" * 30, 3),
        ("x", 3),
        ("", 3),
        ("²", 3),
    ],
)
def test_numbers_are_brought_into_bounds(text: str, expected: int) -> None:
    assert number(text, 3, most=100) == expected


def test_a_number_that_has_to_be_one_is_refused_otherwise() -> None:
    assert [parse_whole(text, "offset") for text in ("0", " 1,000 ", "9" * 18)] == [
        0,
        1000,
        10**18 - 1,
    ]
    for text in ("", "-5", "1e9", "abc", "²", "9" * 19):
        with pytest.raises(WrongInput, match=f"'{text}' is not a valid offset"):
            parse_whole(text, "offset")


def test_fields_are_needed_and_queues_named() -> None:
    with pytest.raises(WrongInput, match="name="):
        visit(Rules(), name=" ").get_needed("name")
    queue = MessageQueue("t", "broker:a", 3)
    assert queue_of(queue_text(queue), "t") == queue
    for text in ("", "3", "a:", "a:-1", "a:x"):
        with pytest.raises(WrongInput, match="broker:number"):
            queue_of(text, "t")
