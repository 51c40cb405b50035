"""Bodies: what producers sent, as a page can show it, however large or hostile it is."""

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
# Strings as a whole, so that what is in them does not count.
_MARKS = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[\]{},]', re.DOTALL)
FORMS = ("json", "text", "hex")


@dataclass(frozen=True)
class ShownBody:
    """A body in one of its forms."""

    form: str
    text: str
    size_bytes: int
    stored_bytes: int
    shown_bytes: int
    compression: str
    """The name of what it was compressed with; blank if it was not."""
    problem: str
    """Why it is shown otherwise than was asked for; blank if it is not."""
    is_text: bool
    is_json: bool
    is_opened: bool
    """False where it could not be decompressed."""

    @property
    def is_cut(self) -> bool:
        """Whether there is more than is shown."""
        return self.shown_bytes < self.size_bytes


def opened(message: StoredMessage) -> tuple[bytes, str]:
    """The body decompressed, or as it is stored and why; takes its time for large ones."""
    try:
        return message.decompressed_body(DECOMPRESSED_SIZE_BYTES_MAX), ""
    except CompressionError as error:
        return message.body, str(error)


def compression(message: StoredMessage) -> str:
    """What it was compressed with."""
    if not message.sys_flag & SYS_FLAG_COMPRESSED:
        return ""
    names = {COMPRESSION_LZ4: "LZ4", COMPRESSION_ZSTD: "Zstandard"}
    return names.get(compression_type(message.sys_flag), "zlib")


def shown(message: StoredMessage, form: str = "") -> ShownBody:
    """A body as *form* says; without one as what it seems to be."""
    body, problem = opened(message)
    is_opened = not problem
    is_text, pretty = _is_text(body), _pretty(body)
    if form not in FORMS or (form == "json" and pretty is None):
        if form == "json":
            problem = problem or "This is no JSON, or too much of it to be set out."
        form = "json" if pretty is not None else "text" if is_text else "hex"
    if form == "json" and pretty is not None:
        text, taken = pretty, len(body)
    elif form == "text":
        taken = min(len(body), TEXT_SHOWN_BYTES)
        text = body[:taken].decode("utf-8", "backslashreplace").replace("\r\n", "\n")
    else:
        taken = min(len(body), HEX_SHOWN_BYTES)
        text = hex_dump(body[:taken])
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


def preview(message: StoredMessage) -> str:
    """The beginning on one line."""
    body = message.body
    if message.sys_flag & SYS_FLAG_COMPRESSED:
        begun = _begun(message)
        if begun is None:
            return f"{compression(message)}, {len(body):,} bytes"
        body = begun
    start = body[: 4 * PREVIEW_CHARACTERS]
    try:
        # The cut may be within a character.
        text = start.decode("utf-8", "strict" if len(start) == len(body) else "ignore")
    except UnicodeDecodeError:
        text = ""
    if not _is_text(body, len(start)):
        text = ""
    if not text and body and body is not message.body:
        # How much there is of it only who decompresses all would know.
        return f"{compression(message)}, {len(message.body):,} bytes: {body[:24].hex(' ')} …"
    if not text and body:
        return f"{len(body):,} bytes: {body[:24].hex(' ')}{' …' if len(body) > 24 else ''}"
    text = " ".join(text[: PREVIEW_CHARACTERS + 1].split())
    return f"{text[:PREVIEW_CHARACTERS]} …" if len(text) > PREVIEW_CHARACTERS else text


def _begun(message: StoredMessage) -> bytes | None:
    """The beginning of a compressed body, of a large one only where zlib made it."""
    try:
        if compression(message) == "zlib":
            return zlib.decompressobj().decompress(message.body, TEXT_SHOWN_BYTES)
        return decompress(message.body, message.sys_flag, TEXT_SHOWN_BYTES)
    except (CompressionError, zlib.error):
        return None


def hex_dump(data: bytes) -> str:
    """Sixteen bytes a line: where they are, what they are, and what of them can be read."""
    lines = []
    for at in range(0, len(data), _HEX_LINE):
        row = data[at : at + _HEX_LINE]
        text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        lines.append(f"{at:08x}  {row[:8].hex(' '):<23}  {row[8:].hex(' '):<23}  {text}")
    return "\n".join(lines)


def _is_text(body: bytes, size_bytes: int = TEXT_SHOWN_BYTES) -> bool:
    """Whether a body begins as text; the last character of the beginning may be cut."""
    start = body[:size_bytes]
    for cut in range(4 if len(start) < len(body) else 1):
        try:
            return "\0" not in start[: len(start) - cut].decode()
        except UnicodeDecodeError:
            continue
    return False


def _pretty(body: bytes) -> str | None:
    """JSON set out over lines, its numbers and names as they are; None if it is none."""
    if not body or len(body) > JSON_SHOWN_BYTES or body.lstrip()[:1] not in (b"{", b"["):
        return None
    try:
        if not _stays_small(body):
            return None
        return msgspec.json.format(body, indent=2).decode()
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return None


def _stays_small(body: bytes) -> bool:
    """Whether setting it out does not make much more of it: each line is indented by its depth."""
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
