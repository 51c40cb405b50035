"""Body of DESCRIBE_CONFIG (70019): the settings of a broker and their properties.

    [[key, value, default, unit, isLive, changedSinceStart], …]   msgpack

Values are numbers and booleans if the settings are; secrets are masked. ``changedSinceStart`` marks
a change made while the broker runs, which is lost at its next start.
"""

import msgspec

from rockhopper.protocol.errors import MalformedBodyError

Value = bool | int | str


class SettingFacts(msgspec.Struct, array_like=True):
    """One setting and its properties."""

    key: str
    value: Value
    default: Value
    unit: str
    """The unit of a number: ms, s, hours, bytes, % …; empty if there is none."""
    is_live: bool
    """Whether it may change while the broker runs."""
    changed_since_start: bool


def encode_facts(facts: list[SettingFacts]) -> bytes:
    """Encode the body."""
    return _encode(facts)


def decode_facts(body: bytes) -> list[SettingFacts]:
    """Decode a body. Raises MalformedBodyError."""
    try:
        return _decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise MalformedBodyError(f"the msgpack body does not decode: {error}") from None


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[SettingFacts]).decode
