"""Errors in the bytes, fields and expressions that a peer sends.

ProtocolError
├── MalformedFrameError      impossible lengths: close the connection
├── MalformedHeaderError     a header that does not decode: close the connection
├── FieldError               a header field that is missing or does not parse: answer
├── MalformedBodyError       a request or answer body that does not decode: answer
├── MalformedMessageError    bytes that are not a stored message
├── MalformedBatchError      a batch body with lengths that do not add up
├── SubscriptionError        a filter expression that selects nothing or does not parse
│   └── SqlSyntaxError       an SQL92 expression that RocketMQ rejects
└── CompressionError         a body that does not decompress, or not with the installed packages
"""


def restore_error(kind: type[Exception], args: tuple[object, ...]) -> Exception:
    """Rebuild an error for pickle and copy without `__init__`, whose arguments may differ."""
    error = kind.__new__(kind, *args)
    error.args = args  # OSError sets them only in `__init__`
    return error


class ProtocolError(Exception):
    """The peer sent data that violates the protocol."""

    def __reduce__(self) -> tuple[object, ...]:
        return (restore_error, (type(self), self.args), self.__dict__)


class MalformedFrameError(ProtocolError):
    """The rest of the stream cannot be split into frames."""


class MalformedHeaderError(ProtocolError):
    """A frame's header is not a command in the serialisation that the frame declares."""


class FieldError(ProtocolError):
    """A header field is missing, or its text is not a value of the field's type."""

    def __init__(self, name: str, reason: str, *, is_missing: bool = False) -> None:
        """*name* is the field's name on the wire; *reason* completes "field 'name' …"."""
        super().__init__(f"field '{name}' {reason}")
        self.name = name
        self.reason = reason
        self.is_missing = is_missing


class MalformedBodyError(ProtocolError):
    """A body is not JSON, or does not have the structure that its request code requires."""


class MalformedMessageError(ProtocolError):
    """The bytes are not a stored message."""


class MalformedBatchError(ProtocolError):
    """A batch body is empty, too long, or its lengths do not add up."""


class SubscriptionError(ProtocolError):
    """A subscription expression is not a usable filter."""


class SqlSyntaxError(SubscriptionError):
    """An SQL92 expression does not compile; the text names the position and what was expected."""

    def __init__(self, reason: str, position: int) -> None:
        """*position* counts characters from 0; the text counts from 1."""
        super().__init__(f"SQL92: {reason} (character {position + 1})")
        self.reason = reason
        self.position = position


class CompressionError(ProtocolError):
    """A body cannot be decompressed; the message says whether a package is missing."""
