"""Reads the JSON headers that brokers write: protocol.headers.header_json has the layout.

A plain header has no blanks, no escapes, nothing but ASCII, strings as ext values, and no field
twice. The compiled function reads only these, and refuses all others: Python reads them, or raises
the error.
"""

from collections.abc import Callable

from rockhopper.protocol.codes import SerializeType
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.headers.header_fields import LANGUAGE_BY_NAME

_JSON = int(SerializeType.JSON)


def read_command(serialize_type: int, header: bytes, body: bytes) -> Command:
    """Return the command of a frame. Raises MalformedHeaderError."""
    if serialize_type == _JSON and (command := _read_answer(header, body)) is not None:
        return command
    return decode_header(serialize_type, header, body)


def read_answer_in_python(header: bytes, body: bytes) -> Command | None:
    """Replaces `read_answer` if `_messages.c` could not be compiled. Raises as `read_command`."""
    return decode_header(_JSON, header, body)


_messages = import_compiled("rockhopper.client._messages")
_read_answer: Callable[[bytes, bytes], Command | None]
if _messages is None:
    _read_answer = read_answer_in_python
else:
    _messages.set_command(Command, LANGUAGE_BY_NAME)
    _read_answer = _messages.read_answer
