"""Message bodies for display on a page, however large or hostile they are."""

import re
import zlib
from dataclasses import dataclass

import msgspec

from rockhopper.protocol.compression import decompress
from rockhopper.protocol.errors import CompressionError
from rockhopper.protocol.message import StoredMessage
from rockhopper.protocol.sys_flags import (
    COMPRESSION_LZ4,
    COMPRESSION_ZSTD,
    SYS_FLAG_COMPRESSED,
    compression_type,
)

DECOMPRESSED_SIZE_BYTES_MAX = 16 << 20
TEXT_SHOWN_BYTES = 64 << 10
JSON_SHOWN_BYTES = 256 << 10
HEX_SHOWN_BYTES = 4 << 10
PREVIEW_CHARACTERS = 160
SET_OUT_BYTES_MAX = 1 << 20
_HEX_LINE = 16
# Strings are matched as a whole, so that brackets within them do not count.
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},]', re.DOTALL)
FORMS = ("json", "text", "hex")


@dataclass(frozen=True)
class ShownBody:
    """A body in one of its display forms."""

    form: str
    text: str
    size_bytes: int
    stored_bytes: int
    shown_bytes: int
    compression: str
    """The name of the compression; blank if the body is not compressed."""
    problem: str
    """Why the body is not shown as requested; blank if it is."""
    is_text: bool
    is_json: bool
    is_opened: bool
    """False if it could not be decompressed."""

    @property
    def is_cut(self) -> bool:
        """Whether only the beginning is shown."""
        return self.shown_bytes < self.size_bytes


def open_body(message: StoredMessage) -> tuple[bytes, str]:
    """Return the body decompressed, or as stored and the reason; slow for large bodies."""
    try:
        return message.decompressed_body(DECOMPRESSED_SIZE_BYTES_MAX), ""
    except CompressionError as error:
        return message.body, str(error)


def compression(message: StoredMessage) -> str:
    """Return the name of the compression; blank if there is none."""
    if not message.sys_flag & SYS_FLAG_COMPRESSED:
        return ""
    names = {COMPRESSION_LZ4: "LZ4", COMPRESSION_ZSTD: "Zstandard"}
    return names.get(compression_type(message.sys_flag), "zlib")


def format_body(message: StoredMessage, form: str = "") -> ShownBody:
    """Return a body in *form*, or in a form that fits its content."""
    body, problem = open_body(message)
    is_opened = not problem
    is_text, pretty = _is_text(body), _pretty(body)
    if form not in FORMS or (form == "json" and pretty is None):
        if form == "json":
            problem = problem or "This is not JSON, or too large to be formatted."
        form = "json" if pretty is not None else "text" if is_text else "hex"
    text, taken = _text_of(body, form, pretty)
    return ShownBody(
        form,
        text,
        size_bytes=len(body),
        stored_bytes=len(message.body),
        shown_bytes=taken,
        compression=compression(message),
        problem=problem,
        is_text=is_text,
        is_json=pretty is not None,
        is_opened=is_opened,
    )


def _text_of(body: bytes, form: str, pretty: str | None) -> tuple[str, int]:
    """Return the text of a body, and how many of its bytes the text shows."""
    if form == "json" and pretty is not None:
        return pretty, len(body)
    if form == "text":
        shown = body[:TEXT_SHOWN_BYTES]
        return shown.decode("utf-8", "backslashreplace").replace("\r\n", "\n"), len(shown)
    shown = body[:HEX_SHOWN_BYTES]
    return hex_dump(shown), len(shown)


def preview(message: StoredMessage) -> str:
    """Return the beginning of the body on one line."""
    body = message.body
    if message.sys_flag & SYS_FLAG_COMPRESSED:
        begun = _decompress_start(message)
        if begun is None:
            return f"{compression(message)}, {len(body):,} bytes"
        body = begun
    text = _beginning(body)
    if not text and body and body is not message.body:
        # The full size is known only after decompressing everything.
        return f"{compression(message)}, {len(message.body):,} bytes: {body[:24].hex(' ')} …"
    if not text and body:
        return f"{len(body):,} bytes: {body[:24].hex(' ')}{' …' if len(body) > 24 else ''}"
    text = " ".join(text[: PREVIEW_CHARACTERS + 1].split())
    return f"{text[:PREVIEW_CHARACTERS]} …" if len(text) > PREVIEW_CHARACTERS else text


def _beginning(body: bytes) -> str:
    """Return the beginning of a text; empty if *body* is no text."""
    start = body[: 4 * PREVIEW_CHARACTERS]
    try:
        # The end may be within a character.
        text = start.decode("utf-8", "strict" if len(start) == len(body) else "ignore")
    except UnicodeDecodeError:
        return ""
    return text if _is_text(body, len(start)) else ""


def _decompress_start(message: StoredMessage) -> bytes | None:
    """Return the beginning of a compressed body; None for a large one that is not zlib's."""
    try:
        if compression(message) == "zlib":
            return zlib.decompressobj().decompress(message.body, TEXT_SHOWN_BYTES)
        return decompress(message.body, message.sys_flag, TEXT_SHOWN_BYTES)
    except (CompressionError, zlib.error):
        return None


def hex_dump(data: bytes) -> str:
    """Format 16 bytes a line: position, hexadecimal values, and printable characters."""
    lines = []
    for at in range(0, len(data), _HEX_LINE):
        row = data[at : at + _HEX_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}")
    return "\n".join(lines)


def _is_text(body: bytes, size_bytes: int = TEXT_SHOWN_BYTES) -> bool:
    """Return whether a body begins as text; the beginning may end within a character."""
    start = body[:size_bytes]
    for cut in range(4 if len(start) < len(body) else 1):
        try:
            return "\0" not in start[: len(start) - cut].decode()
        except UnicodeDecodeError:
            continue
    return False


def _pretty(body: bytes) -> str | None:
    """Return JSON indented over several lines, with numbers and names unchanged.

    Return None if *text* is invalid.
    """
    if not body or len(body) > JSON_SHOWN_BYTES or body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        if not _stays_small(body):
            return None
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _stays_small(body: bytes) -> bool:
    """Return whether the indentation adds little, as each line is indented by its depth."""
    depth = added = 0
    for token in _MARKS.finditer(body):
        mark = token[0]
        if mark in b"[{":
            depth += 1
        elif mark in b"]}":
            depth -= 1
        elif mark != b",":
            continue
        added += 1 + 2 * max(depth, 0)
        if added > SET_OUT_BYTES_MAX:
            return False
    return True
