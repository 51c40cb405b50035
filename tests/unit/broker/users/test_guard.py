"""Guard: what users may do, and that nobody else may do anything."""

import pytest

from rockhopper.broker.users.access import CLUSTER, AccessRules, Action, Resource, ResourceKind
from rockhopper.broker.users.accounts import Pattern, Rule, User, parse_actions
from rockhopper.broker.users.guard import VERDICTS_MAX, Guard, guard_of
from rockhopper.broker.users.peer import Principal
from tests.support.heard_users import HeardUsers

NOTES = Resource(ResourceKind.TOPIC, "rmq_sys_rockhopper_state")
ORDERS, MINE = Resource(ResourceKind.TOPIC, "orders"), Resource(ResourceKind.CLUSTER, "mine")
USERS = {
    "root": User("root", "a secret of root", is_super=True),
    "alice": User("alice", "a secret of alice"),
    "gone": User("gone", "a secret of gone", is_super=True, is_enabled=False),
}


def rule(resource: str, actions: str = "Pub") -> Rule:
    return Rule(Pattern.parse(resource), parse_actions([actions]), (), is_allowed=True)


def guard(*rules: Rule, authorizes: bool = True) -> Guard:
    made = Guard(remote_admin=False, authenticates=True, authorizes=authorizes, cluster_name="mine")
    made.use(dict(USERS), {"alice": rules})
    return made


def may(made: Guard, user: str, action: Action, resource: Resource = ORDERS) -> bool:
    return made.may(Principal("10.0.0.7", user), action, resource)


@pytest.mark.parametrize("authorizes", [True, False])
@pytest.mark.parametrize("user", ["", "bob", "gone"])
@pytest.mark.parametrize("action", list(Action))
def test_who_is_no_user_may_nothing(user: str, action: Action, authorizes: bool) -> None:
    assert not guard(rule("*", "All"), authorizes=authorizes).may(
        Principal("127.0.0.1", user), action, ORDERS
    )


@pytest.mark.parametrize("action", list(Action))
def test_super_users_may_everything(action: Action) -> None:
    assert may(guard(), "root", action, CLUSTER)


def test_rules_decide_for_others() -> None:
    made = guard(rule("Topic:orders"), rule("Cluster:mine", "Get"))
    assert may(made, "alice", Action.PUB)
    assert not may(made, "alice", Action.SUB)
    assert may(made, "alice", Action.GET, CLUSTER)
    assert not may(made, "alice", Action.UPDATE, CLUSTER)


def test_without_authorization_users_may_all_but_administer_from_elsewhere() -> None:
    made = guard(authorizes=False)
    assert may(made, "alice", Action.SUB)
    assert not may(made, "alice", Action.ADMINISTER, CLUSTER)
    assert made.may(Principal("127.0.0.1", "alice"), Action.ADMINISTER, CLUSTER)


def test_a_change_counts_at_once_and_many_questions_stay_few() -> None:
    made = guard()
    assert not may(made, "alice", Action.PUB)
    for number in range(VERDICTS_MAX + 1):
        assert not may(made, "alice", Action.PUB, Resource(ResourceKind.TOPIC, str(number)))
    rules = {"alice": [rule("Topic:*")]}
    made.use(dict(USERS), rules)
    assert may(made, "alice", Action.PUB)
    rules["alice"] = []
    made.rules_changed()
    assert not may(made, "alice", Action.PUB)


def test_a_question_looks_at_the_rules_about_its_resource_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at: list[Rule] = []
    real = Rule.concerns

    def concerns(rule: Rule, actions: tuple[Action, ...], resource: Resource, host: str) -> bool:
        looked_at.append(rule)
        return real(rule, actions, resource, host)

    monkeypatch.setattr(Rule, "concerns", concerns)
    numbers = range(2 * VERDICTS_MAX)
    made = guard(rule("Topic:*", "Sub"), *(rule(f"Topic:orders-{number}") for number in numbers))
    for number in numbers:
        assert may(made, "alice", Action.PUB, Resource(ResourceKind.TOPIC, f"orders-{number}"))
    assert len(looked_at) == 2 * len(numbers)


def test_each_listener_learns_in_whose_name_nobody_may_act_now() -> None:
    made, heard = guard(), [HeardUsers(), HeardUsers()]
    made.listeners += heard
    made.user_changed("alice")
    assert [each.users for each in heard] == [["alice"], ["alice"]]


def test_without_authentication_all_is_as_it_was() -> None:
    made = Guard(remote_admin=False)
    assert made.is_open
    assert may(made, "", Action.SUB)
    assert not may(made, "", Action.ADMINISTER, CLUSTER)


@pytest.mark.parametrize("authorizes", [True, False])
@pytest.mark.parametrize("action", list(Action))
def test_notes_with_secrets_are_super_users_alone(action: Action, authorizes: bool) -> None:
    made = guard(rule("*", "All"), rule(f"Topic:{NOTES.name}", "All"), authorizes=authorizes)
    assert not made.may(Principal("127.0.0.1", "alice"), action, NOTES)
    assert may(made, "root", action, NOTES)


@pytest.mark.parametrize("authenticates", [True, False])
def test_users_are_required_by_a_guard_that_is_not_open(authenticates: bool) -> None:
    guard = Guard(remote_admin=False, authenticates=authenticates)
    assert guard_of(guard) is (guard if authenticates else None)
    assert guard_of(AccessRules(remote_admin=False)) is None
    assert guard_of(None) is None
