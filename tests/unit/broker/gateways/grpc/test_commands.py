"""What the broker tells and asks clients."""

import asyncio
import json
from typing import Any

import pytest

from rockhopper.broker.gateways.grpc.commands import Commands, recovery_of
from rockhopper.broker.users.peer import TransactionCheck
from rockhopper.protocol.grpc_v2.codes import Code
from rockhopper.protocol.grpc_v2.messages import TelemetryCommand
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.store.message_codec import encode_stored_message
from tests.support.grpc_client import settings_of_consumer
from tests.support.hang import HANG_S


def test_a_check_names_the_half_message_and_shows_the_whole() -> None:
    half = StoredMessage("RMQ_SYS_TRANS_HALF_TOPIC", 0, 7, 4096, b"x")
    half.properties["UNIQ_KEY"] = "U"
    shown = StoredMessage("tx", 2, 0, 0, b"x", properties={"UNIQ_KEY": "U", "TRAN_MSG": "true"})
    recovery = recovery_of(
        TransactionCheck(half, shown, "broker-a")
    ).recover_orphaned_transaction_command
    assert recovery.transaction_id == "U.7.1000"
    assert (recovery.message.topic.name, recovery.message.body) == ("tx", b"x")


class Told:
    """Commands that were told to a client."""

    def __init__(self) -> None:
        self._told: asyncio.Queue[Any] = asyncio.Queue()
        self.commands = Commands(self._tell)

    def _tell(self, command: Any) -> int:
        self._told.put_nowait(command)
        return int(command.ByteSize())

    async def next(self) -> Any:
        """The next of them."""
        async with asyncio.timeout(HANG_S):
            return await self._told.get()


def settings() -> Any:
    made = settings_of_consumer("g", "t").settings
    made.user_agent.version = "5.1"
    return made


async def test_an_administrator_sees_what_the_client_said() -> None:
    info = json.loads(await Told().commands.running_info(settings(), with_stacks=False))
    assert info["properties"]["PROP_CLIENT_VERSION"] == "5.1"
    assert info["subscriptionSet"] == [{"topic": "t", "subString": "*"}]


async def test_stacks_are_asked_for() -> None:
    told = Told()
    commands = told.commands
    call = asyncio.create_task(commands.running_info(settings(), with_stacks=True))
    nonce = (await told.next()).print_thread_stack_trace_command.nonce
    reply = TelemetryCommand()
    reply.thread_stack_trace.thread_stack_trace = "main: running"
    commands.answered("unknown", None)
    commands.answered(nonce, reply)
    assert json.loads(await call)["jstack"] == "main: running"


@pytest.mark.parametrize(
    ("code", "result"),
    [
        (Code.OK, "CR_SUCCESS"),
        (Code.FAILED_TO_CONSUME_MESSAGE, "CR_LATER"),
        (Code.MESSAGE_CORRUPTED, "CR_RETURN_NULL"),
        (Code.UNSUPPORTED, "CR_THROW_EXCEPTION"),
    ],
)
async def test_a_message_is_consumed_on_demand(code: Code, result: str) -> None:
    told = Told()
    commands = told.commands
    record = encode_stored_message(StoredMessage("t", 0, 7, 4096, b"try this"))
    call = asyncio.create_task(commands.consume_directly(record))
    question = (await told.next()).verify_message_command
    assert question.message.body == b"try this"
    reply = TelemetryCommand()
    reply.status.code = code
    commands.answered(question.nonce, reply)
    assert json.loads(await call)["consumeResult"] == result


async def test_a_client_that_goes_answers_nothing() -> None:
    told = Told()
    commands = told.commands
    record = encode_stored_message(StoredMessage("t", 0, 7, 4096, b"x"))
    call = asyncio.create_task(commands.consume_directly(record))
    await told.next()
    commands.close()
    with pytest.raises(ConnectionResetError):
        await call
    silent = Commands(lambda _command: 0)
    with pytest.raises(ConnectionResetError, match="no Telemetry stream"):
        await silent.consume_directly(record)
