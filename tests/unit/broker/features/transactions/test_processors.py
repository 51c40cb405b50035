"""END_TRANSACTION and RESUME_CHECK_HALF_MESSAGE by request: what is answered, and what is not."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.processor_table import build_table
from rockhopper.broker.server.remoting.dispatcher import Request
from rockhopper.broker.store.files.errors import (
    NotReplicatedError,
    StoreBusyError,
    StoreError,
    StoreFailedError,
)
from rockhopper.broker.users.access import Action
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.peers import Peer
from tests.support.transaction_rig import TransactionRig
from tests.support.transactions import COMMIT, ROLLBACK, end_fields


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[TransactionRig]:
    made = TransactionRig(tmp_path / "store")
    yield made
    made.close()


@pytest.mark.parametrize(("how", "delivered"), [(COMMIT, 1), (ROLLBACK, 0)])
def test_a_transaction_ends_as_its_producer_says(
    rig: TransactionRig, how: int, delivered: int
) -> None:
    half = rig.send()
    assert rig.end(half, how) == ResponseCode.SUCCESS
    assert len(rig.bodies()) == delivered
    assert rig.open_count == 0


@pytest.mark.parametrize("how", [4, 1, -8])
def test_an_end_that_is_none_is_refused(rig: TransactionRig, how: int) -> None:
    half = rig.send()
    answer = rig.ask(RequestCode.END_TRANSACTION, end_fields(half, how))
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert f"it is {how}, not 8 (commit), 12 (roll back)" in str(answer.remark)
    assert rig.open_count == 1


def test_an_end_needs_the_right_to_the_topic_of_its_half_message_whatever_it_names(
    rig: TransactionRig,
) -> None:
    half = rig.send(topic="orders")
    [permission] = build_table(rig.broker)[RequestCode.END_TRANSACTION].permissions

    def topics(fields: dict[str, str]) -> set[str]:
        command = Command(RequestCode.END_TRANSACTION, ext=fields)
        return set(permission.names(Request(Peer().connection, command)))

    assert permission.actions == (Action.PUB,)
    assert topics(end_fields(half, COMMIT)) == {"orders"}  # as clients before 5.0 send it
    assert topics(end_fields(half, COMMIT, topic="orders")) == {"orders"}
    assert topics(end_fields(half, COMMIT, topic="mine")) == {"mine", "orders"}
    assert topics(end_fields(half, COMMIT, commitLogOffset=1 << 50)) == {""}
    assert topics(end_fields(half, COMMIT, commitLogOffset="nonsense")) == {""}
    assert topics(end_fields(half, COMMIT, commitLogOffset="9" * 5000)) == {""}


@pytest.mark.parametrize("id_", ["7F00000100002A9F00000000000FFFFF", "nonsense", ""])
def test_only_what_is_held_is_asked_about_again(rig: TransactionRig, id_: str) -> None:
    answer = rig.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": id_})
    assert answer.code != ResponseCode.SUCCESS
    rig.send()
    waiting = rig.messages("RMQ_SYS_TRANS_HALF_TOPIC")[0].offset_message_id
    answer = rig.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, {"msgId": waiting})
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "is not a message of TRANS_CHECK_MAX_TIME_TOPIC" in str(answer.remark)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (StoreBusyError("the disk did not confirm it in time"), ResponseCode.SUCCESS),
        (NotReplicatedError("the replicas did not"), ResponseCode.SERVICE_NOT_AVAILABLE),
        (StoreFailedError("the disk failed"), ResponseCode.SERVICE_NOT_AVAILABLE),
    ],
)
def test_an_end_that_another_master_may_not_have_is_no_success(
    rig: TransactionRig, monkeypatch: pytest.MonkeyPatch, error: StoreError, code: int
) -> None:
    """The half message stays open there, and its producer is asked again."""
    half = rig.send()
    safe_point = rig.broker.store.safe_point
    monkeypatch.setattr(type(safe_point), "high_watermark", property(lambda _store: 0))
    monkeypatch.setattr(safe_point, "when", lambda _end, release: release(error))
    assert rig.end(half, COMMIT) == code
