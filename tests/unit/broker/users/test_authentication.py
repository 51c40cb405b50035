"""Authenticator: who is let in, and that those who are not learn nothing from it."""

import pytest

from rockhopper.broker.users.accounts import User
from rockhopper.broker.users.authentication import FAILURES_PER_S, Authenticator, FailureAllowance
from rockhopper.broker.users.errors import NotAuthenticated
from rockhopper.broker.users.peer import Principal
from rockhopper.protocol.signing import sign

SECRET = "a secret of alice"
CONTENT = b"what is signed"
USERS = {"alice": User("alice", SECRET), "gone": User("gone", SECRET, is_enabled=False)}
FAILURES = int(FAILURES_PER_S)


class Clock:
    """Seconds, as a test says."""

    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def authenticator(clock: Clock) -> Authenticator:
    return Authenticator(dict(USERS), is_enabled=True, clock=clock)


def refused(authenticator: Authenticator, name: str = "bob", host: str = "10.0.0.7") -> str:
    with pytest.raises(NotAuthenticated) as caught:
        authenticator.verify(name, CONTENT, sign(SECRET + "?", CONTENT), host)
    return str(caught.value)


def test_who_signs_with_the_secret_is_the_user(authenticator: Authenticator) -> None:
    principal = authenticator.verify("alice", CONTENT, sign(SECRET, CONTENT), "10.0.0.7")
    assert principal == Principal("10.0.0.7", "alice")


def test_who_says_the_secret_is_the_user_and_who_guesses_is_not_heard(
    authenticator: Authenticator,
) -> None:
    assert authenticator.prove("alice", SECRET, "10.0.0.7") == Principal("10.0.0.7", "alice")
    for _ in range(FAILURES):
        with pytest.raises(NotAuthenticated):
            authenticator.prove("alice", "a gu\xe4ss", "10.0.0.7")
    for name in ("alice", "gone"):
        with pytest.raises(NotAuthenticated):
            authenticator.prove(name, SECRET, "10.0.0.7")
    assert authenticator.prove("alice", SECRET, "10.0.0.8").user == "alice"


def test_unknown_disabled_and_wrong_are_told_the_same(authenticator: Authenticator) -> None:
    with pytest.raises(NotAuthenticated) as disabled:
        authenticator.verify("gone", CONTENT, sign(SECRET, CONTENT), "10.0.0.7")
    answers = {refused(authenticator, name) for name in ("alice", "bob", "", "gone")}
    assert answers == {str(disabled.value)}


def test_the_user_of_no_name_cannot_be_taken(authenticator: Authenticator) -> None:
    nobody = "the secret of nobody, so that unknown users take as long"
    with pytest.raises(NotAuthenticated):
        authenticator.verify("bob", CONTENT, sign(nobody, CONTENT), "10.0.0.7")


def guess(authenticator: Authenticator, name: str, failures: FailureAllowance) -> None:
    for _ in range(FAILURES):
        with pytest.raises(NotAuthenticated):
            authenticator.verify(name, CONTENT, sign("wrong", CONTENT), "10.0.0.7", failures)


def test_a_name_that_is_guessed_at_is_not_heard_on_that_connection_until_time_passes(
    authenticator: Authenticator, clock: Clock
) -> None:
    right, bad, good = sign(SECRET, CONTENT), FailureAllowance(), FailureAllowance()
    guess(authenticator, "alice", bad)
    with pytest.raises(NotAuthenticated):
        authenticator.verify("alice", CONTENT, right, "10.0.0.7", bad)
    assert authenticator.verify("alice", CONTENT, right, "10.0.0.7", good).user == "alice"
    clock.now_s += 1
    assert authenticator.verify("alice", CONTENT, right, "10.0.0.7", bad).user == "alice"


def test_another_name_is_heard_on_the_same_connection(authenticator: Authenticator) -> None:
    failures = FailureAllowance()
    for name in ("bob", "carol", "gone"):
        guess(authenticator, name, failures)
    right = sign(SECRET, CONTENT)
    assert authenticator.verify("alice", CONTENT, right, "10.0.0.7", failures).user == "alice"


def test_without_a_connection_a_name_is_not_heard_from_that_address(
    authenticator: Authenticator,
) -> None:
    for _ in range(FAILURES):
        refused(authenticator, "alice")
        refused(authenticator, "bob", "10.0.0.9")
    right = sign(SECRET, CONTENT)
    with pytest.raises(NotAuthenticated):
        authenticator.verify("alice", CONTENT, right, "10.0.0.7")
    for host in ("10.0.0.8", "10.0.0.9"):
        assert authenticator.verify("alice", CONTENT, right, host).user == "alice"


def test_a_flood_of_names_and_addresses_stays_small(clock: Clock) -> None:
    failures = FailureAllowance(names_max=3)
    for number in range(10):
        failures.charge(f"name-{number}", clock())
    for _ in range(FAILURES):
        failures.charge("name-0", clock())
    assert failures.count_left("name-0", clock()) < 1
    assert failures.count_left("name-5", clock()) == FAILURES


def test_one_line_a_minute_tells_of_refusals(
    authenticator: Authenticator, clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        refused(authenticator)
    clock.now_s += 61
    refused(authenticator)
    text = capsys.readouterr().out
    assert text.count("without a valid user") == 2
    assert SECRET not in text
