"""Rules: what a text means, and which rule decides, by the table of Apache's decisions."""

import pytest

from rockhopper.broker.users.access import KINDS, Action, Resource, ResourceKind
from rockhopper.broker.users.accounts import (
    ALL_ACTIONS,
    Pattern,
    PolicyType,
    Rule,
    RuleIndex,
    User,
    action_names,
    check_name,
    decide,
    parse_actions,
    parse_sources,
    with_added,
)
from rockhopper.broker.users.errors import InvalidParameter

ORDERS = Resource(ResourceKind.TOPIC, "orders")
HOST = "10.0.0.7"


def rule(text: str) -> Rule:
    """'[default ]allow|deny ACTIONS RESOURCE [SOURCES]' as a rule."""
    words = text.split()
    policy = PolicyType.DEFAULT if words[0] == "default" else PolicyType.CUSTOM
    decision, actions, resource, *sources = words[policy is PolicyType.DEFAULT :]
    return Rule(
        Pattern.parse(resource),
        parse_actions(actions.split(",")),
        parse_sources(sources),
        decision == "allow",
        policy,
    )


@pytest.mark.parametrize(
    ("rules", "is_allowed"),
    [
        ([], None),
        (["allow Pub Topic:orders"], True),
        (["allow Sub Topic:orders"], None),
        (["allow Pub Group:orders"], None),
        (["allow Pub Topic:orders2"], None),
        (["allow All *"], True),
        (["allow Pub Topic:ord*"], True),
        (["allow Pub Topic:orders*"], True),
        # The most specific wins, whatever it says.
        (["deny Pub Topic:ord*", "allow Pub Topic:orders"], True),
        (["allow Pub Topic:ord*", "deny Pub Topic:orders"], False),
        (["allow Pub Topic:o*", "deny Pub Topic:ord*"], False),
        (["deny Pub Topic:*", "allow Pub Topic:o*"], True),
        (["deny All *", "allow Pub Topic:*"], True),
        (["allow All *", "deny Pub Topic:*"], False),
        # Of two of the same rank the one that denies wins.
        (["allow Pub Topic:orders", "deny Pub Topic:orders"], False),
        (["deny All Topic:ord*", "allow Pub Topic:ord*"], False),
        # Custom before default, however general.
        (["allow All *", "default deny Pub Topic:orders"], True),
        (["deny All *", "default allow Pub Topic:orders"], False),
        (["allow Sub *", "default allow Pub Topic:*"], True),
        (["default deny Pub *"], False),
        # Addresses.
        (["allow Pub Topic:orders 10.0.0.7"], True),
        (["allow Pub Topic:orders 10.0.0.8"], None),
        (["allow Pub Topic:orders 10.0.0.8 10.0.0.0/8"], True),
        (["allow Pub Topic:ord*", "deny Pub Topic:orders 10.0.0.8"], True),
        (["allow Pub Topic:orders ::/0"], None),
    ],
)
def test_which_rule_decides(rules: list[str], is_allowed: bool | None) -> None:
    decided = {
        found and found.is_allowed
        for order in (rules, rules[::-1])
        for found in [decide([rule(text) for text in order], [Action.PUB], ORDERS, HOST)]
    }
    assert decided == {is_allowed}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["*", "", "o", "ord", "orders", "orders2", "other"])
def test_the_index_names_the_rules_that_match(kind: ResourceKind, name: str) -> None:
    names = ("*", "o", "o*", "ord*", "orders", "orders*", "orders2", "orders-and-more*")
    texts = ["*", *(f"{each}:{name}" for each in KINDS for name in names)]
    rules = [rule(f"{decision} Pub {text}") for text in texts for decision in ("allow", "deny")]
    resource = Resource(kind, name)
    found = RuleIndex(rules).find_matching(resource)
    assert sorted(map(str, found)) == sorted(
        str(each) for each in rules if each.pattern.matches(resource)
    )


def test_of_several_actions_each_counts_and_denial_wins() -> None:
    rules = [rule("deny Pub Topic:orders"), rule("allow Sub Topic:orders")]
    found = decide(rules, (Action.PUB, Action.SUB), ORDERS, HOST)
    assert found is not None
    assert not found.is_allowed


@pytest.mark.parametrize("text", ["*", "Topic:orders", "Topic:ord*", "Group:*", "Cluster:c"])
def test_a_pattern_is_written_as_it_is_read(text: str) -> None:
    assert str(Pattern.parse(text)) == text


@pytest.mark.parametrize(
    "text", ["", "orders", "Topic:", "Queue:orders", "Topic:a*b", "Topic:**", ":a"]
)
def test_what_is_no_resource(text: str) -> None:
    with pytest.raises(InvalidParameter):
        Pattern.parse(text)


def test_a_document_may_name_resources_of_a_feature_that_is_not_there() -> None:
    pattern = Pattern.parse("queue:orders", kinds=None)
    assert str(pattern) == "Queue:orders"
    assert pattern.matches(Resource(ResourceKind("Queue"), "orders"))
    assert not pattern.matches(ORDERS)
    with pytest.raises(InvalidParameter, match=r"Topic:\*, or the same with Group and Cluster$"):
        Pattern.parse("Queue:orders")
    with pytest.raises(InvalidParameter, match=r"Group, Cluster and Queue$"):
        Pattern.parse("Heap:orders", (*KINDS, ResourceKind("Queue")))
    with pytest.raises(InvalidParameter):
        Pattern.parse("Que ue:orders", kinds=None)


def test_names_of_actions() -> None:
    assert parse_actions(["pub", " Sub "]) == {Action.PUB, Action.SUB}
    assert parse_actions(["All"]) == ALL_ACTIONS
    assert Action.ADMINISTER not in ALL_ACTIONS
    assert action_names(frozenset({Action.SUB, Action.PUB})) == ["Pub", "Sub"]
    assert action_names(ALL_ACTIONS) == ["All"]


@pytest.mark.parametrize("names", [[], ["Any"], ["Administer"], ["Pub", "x"]])
def test_what_is_no_action(names: list[str]) -> None:
    with pytest.raises(InvalidParameter):
        parse_actions(names)


def test_what_is_no_source() -> None:
    with pytest.raises(InvalidParameter, match="neither an address"):
        parse_sources(["10.0.0.7", "10.0.0.*"])


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a/b", "x" * 300, "\n"])
def test_what_is_no_name(name: str) -> None:
    with pytest.raises(InvalidParameter):
        check_name(name)


def test_a_users_text_keeps_the_secret() -> None:
    assert "hidden" not in f"{User('a', 'hidden')} {User('a', 'hidden')!r}"


@pytest.mark.parametrize("host", ["not an address", "", "fe80::1%eth0"])
def test_who_has_no_address_is_in_no_ipv4_network(host: str) -> None:
    assert decide([rule("allow Pub * 0.0.0.0/0")], [Action.PUB], ORDERS, host) is None


def allow(*actions: Action, sources: tuple[str, ...] = ()) -> Rule:
    return Rule(Pattern.parse("Topic:orders"), frozenset(actions), sources, is_allowed=True)


def deny(*actions: Action) -> Rule:
    return allow(*actions)._replace(is_allowed=False)


PUB, SUB, GET = Action.PUB, Action.SUB, Action.GET
OTHER = Rule(Pattern.parse("Topic:bills"), frozenset({PUB}), (), is_allowed=True)


@pytest.mark.parametrize(
    ("known", "added", "left"),
    [
        ([allow(SUB)], allow(PUB), [allow(SUB, PUB)]),
        (
            [OTHER, allow(SUB)],
            allow(SUB),
            [OTHER, allow(SUB)],
        ),
        (
            [allow(PUB, SUB)],
            deny(SUB),
            [allow(PUB), deny(SUB)],
        ),
        ([deny(SUB)], allow(SUB), [allow(SUB)]),
        (
            [allow(SUB, sources=("10.0.0.0/8",))],
            allow(PUB),
            [allow(SUB, sources=("10.0.0.0/8",)), allow(PUB)],
        ),
        (
            [allow(PUB), deny(SUB)],
            deny(GET),
            [allow(PUB), deny(SUB, GET)],
        ),
    ],
)
def test_a_rule_is_added_to_those_about_the_same(
    known: list[Rule], added: Rule, left: list[Rule]
) -> None:
    assert with_added(known, added) == left
