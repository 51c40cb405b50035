"""What Java clients are answered and shown is told to the ledger."""

import hashlib
from pathlib import Path

import pytest

from tests.chaos import topics
from tests.chaos.ledger import Kind, Ledger
from tests.chaos.replicas.clients import java
from tests.chaos.replicas.clients.java import JavaClients


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def clients(ledger: Ledger, tmp_path: Path) -> JavaClients:
    return JavaClients("", ledger, tmp_path, wanted=False)


def test_only_what_was_answered_with_success_is_acknowledged(
    clients: JavaClients, ledger: Ledger
) -> None:
    facts = [ledger.expect(topics.PLAIN, Kind.PLAIN) for _ in range(3)]
    receipts = [["SEND_OK", "id", "id", 1, 7], ["FLUSH_SLAVE_TIMEOUT", "id", "id", 1, 8]]
    clients.note_sent(facts, receipts)
    assert [fact.acknowledged_s is not None for fact in facts] == [True, False, False]
    assert ledger.seen == {(topics.PLAIN, 1, 7): facts[0].body}


def test_what_was_shown_has_to_stay_and_to_be_sent(clients: JavaClients, ledger: Ledger) -> None:
    one, other = (ledger.expect(topics.PLAIN, Kind.PLAIN) for _ in range(2))

    def shown(body: bytes) -> list[dict[str, object]]:
        return [{"queueId": 0, "queueOffset": 3, "sha1": hashlib.sha1(body).hexdigest()}]

    clients.note_consumed(shown(one.body))
    assert (ledger.problems, ledger.rewritten, one.acknowledged_s is None) == ([], [], False)
    clients.note_consumed(shown(other.body))
    assert len(ledger.rewritten) == 1
    clients.note_consumed(shown(b"foreign"))
    assert len(ledger.problems) == 1


async def test_nobody_comes_who_is_not_wanted(clients: JavaClients, tmp_path: Path) -> None:
    async with clients:
        pass
    assert list(tmp_path.iterdir()) == []


def test_what_is_lacking_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "missing_tools", lambda: ["mvn"])
    assert java.lacking() == "mvn (a JDK 17 or later, and Maven)"
    monkeypatch.setattr(java, "missing_tools", list)
    assert java.lacking() == ""
