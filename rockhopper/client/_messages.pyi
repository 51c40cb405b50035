from rockhopper.client.queues import MessageQueue
from rockhopper.client.received import ReceivedMessage
from rockhopper.protocol.command import Command
from rockhopper.protocol.message import Message

def set_received(received_class: type[ReceivedMessage], /) -> None: ...
def set_message(message_class: type[Message], /) -> None: ...
def receive(
    queue: MessageQueue, buffer: bytes, start: int, topic: bytes, /
) -> tuple[list[ReceivedMessage], int]: ...
def set_command(command_class: type[Command], languages: dict[str, int], /) -> None: ...
def read_answer(header: bytes, body: bytes, /) -> Command | None: ...
def encode_plain(
    messages: list[Message],
    topic: str,
    size_bytes_max: int,
    before: bytes,
    id_start: str,
    after: bytes,
    number: int,
    /,
) -> tuple[bytes, list[str]] | None: ...
