r"""The text format of settings: the subset of java.util.Properties that RocketMQ's tools use.

One ``key=value`` on each line. It is read as Java does: bytes are ISO-8859-1; ``=``, ``:`` or a
blank ends the key; lines that start with ``#`` or ``!`` are comments; a backslash escapes the next
character, makes ``\t \n \r \f \uXXXX``, and at the end of a line joins the next one. It is written
as RocketMQ does (MixAll.properties2String): UTF-8, without escapes.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from rockhopper.protocol.errors import MalformedBodyError

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_BLANKS = " \t\f"


def encode_properties_text(properties: Mapping[str, object]) -> bytes:
    """Encode *properties* as lines; None values are omitted, booleans are lower case."""
    lines = []
    for key, value in properties.items():
        if value is None:
            continue
        text = str(value).lower() if isinstance(value, bool) else str(value)
        lines.append(f"{key}={text}\n")
    return "".join(lines).encode()


def decode_properties_text(data: bytes | str) -> dict[str, str]:
    """Return the settings in a text; the last one if a key is repeated.

    UTF-8 bytes are decoded as such, others as ISO-8859-1: Java's tools send either, depending on
    their version.

    Raises:
        MalformedBodyError: an escape is incomplete.
    """
    properties = {}
    for each in iterate_numbered_properties(data):
        if each.fault is not None:
            raise MalformedBodyError(f"line {each.line}: {each.fault}")
        properties[each.key] = each.value
    return properties


class NumberedProperty(NamedTuple):
    """A setting and the line where it begins; with a fault, key and value are still escaped."""

    line: int
    key: str
    value: str
    fault: str | None = None


def iterate_numbered_properties(data: bytes | str) -> Iterator[NumberedProperty]:
    """Yield the settings of a text, including those with an incomplete escape."""
    for number, line in _logical_lines(_text(data)):
        key, value = _split(line)
        try:
            yield NumberedProperty(number, _unescape(key), _unescape(value))
        except MalformedBodyError as error:
            yield NumberedProperty(number, key, value, str(error))


def _text(data: bytes | str) -> str:
    if isinstance(data, str):
        return data.removeprefix("\ufeff")
    try:
        # Windows editors put a byte order mark before UTF-8.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("iso-8859-1")


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments and empty ones, continued lines joined; numbered from 1."""
    joined = ""
    continues = False
    first = 0
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    for number, raw in enumerate(lines, 1):
        line = raw.lstrip(_BLANKS)
        if not continues and (not line or line[0] in "#!"):
            continue
        first = first if continues else number
        backslashes = len(line) - len(line.rstrip("\\"))
        continues = backslashes % 2 == 1
        joined += line[:-1] if continues else line
        if not continues:
            yield first, joined
            joined = ""
    if joined:
        yield first, joined


def _split(line: str) -> tuple[str, str]:
    """Return key and value of a line, still escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    start = end
    while start < len(line) and line[start] in _BLANKS:
        start += 1
    if start < len(line) and line[start] in "=:":
        start += 1
    return line[:end], line[start:].lstrip(_BLANKS)


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out = []
    position = 0
    while position < len(text):
        character = text[position]
        position += 1
        if character != "\\" or position == len(text):
            out.append(character)
            continue
        character = text[position]
        position += 1
        if character == "u":
            digits = text[position : position + 4]
            position += 4
            if len(digits) < 4 or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise MalformedBodyError(f"'\\u{digits}' in a properties text needs 4 hex digits")
            out.append(chr(int(digits, 16)))
        else:
            out.append(_ESCAPES.get(character, character))
    return "".join(out)
