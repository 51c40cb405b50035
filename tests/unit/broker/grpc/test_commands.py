"""What the broker tells and asks clients."""

import pytest

from rockhopper.broker.access.peer import TransactionCheck
from rockhopper.broker.grpc.commands import Commands, recovery_of
from rockhopper.protocol.message import StoredMessage


def test_a_check_names_the_half_message_and_shows_the_whole() -> None:
    half = StoredMessage("RMQ_SYS_TRANS_HALF_TOPIC", 0, 7, 4096, b"x")
    half.properties["UNIQ_KEY"] = "U"
    shown = StoredMessage("tx", 2, 0, 0, b"x", properties={"UNIQ_KEY": "U", "TRAN_MSG": "true"})
    recovery = recovery_of(
        TransactionCheck(half, shown, "broker-a")
    ).recover_orphaned_transaction_command
    assert recovery.transaction_id == "U.7.1000"
    assert (recovery.message.topic.name, recovery.message.body) == ("tx", b"x")


async def test_an_answer_finds_its_question() -> None:
    commands = Commands()
    (first, answered), (second, waiting) = commands.nonce(), commands.nonce()
    assert first != second
    commands.answered(first, "yes")
    commands.answered(first, "again")
    commands.answered("unknown", "no")
    assert await answered == "yes"
    commands.close()
    with pytest.raises(ConnectionResetError):
        await waiting
