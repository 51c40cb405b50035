r"""The seal of a table's backup: it shows the next start whether file and backup are as saved.

RocketMQ's config files have no checksum, and JSON with a flipped bit is often still valid. The file
stays in RocketMQ's format. Its ``.bak`` has the same content, with two more keys at the end, which
RocketMQ ignores if it has to read it:

    ,\n\t"rockhopperBefore":<CRC-32 of the file that is replaced>
    ,\n\t"rockhopperCrc32":<CRC-32 of everything before this line>\n}

The backup is replaced first. After a crash in between, the file is the one that the first key
names. A ``.bak`` without these keys is from RocketMQ or an early build, and proves nothing.
"""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple
from zlib import crc32

_BEFORE = b',\n\t"rockhopperBefore":'
_CHECKSUM = b',\n\t"rockhopperCrc32":'
_END = b"\n}"
_OWN_KEYS = b'"rockhopper'
_SHOWN_CHARS = 100


class Saved(NamedTuple):
    """The content of a backup."""

    content: bytes
    """The file as it was saved."""
    before: int
    """The CRC-32 of the file that this one replaced."""


def seal(content: bytes, before: int) -> bytes:
    """Return the backup of a file; *content* is a pretty-printed object that is not empty."""
    head = b"%b%b%d" % (content.removesuffix(_END), _BEFORE, before)
    return b"%b%b%d%b" % (head, _CHECKSUM, crc32(head), _END)


def unseal(backup: bytes) -> Saved | None:
    """Return the sealed content of *backup*; None if its seal is missing or wrong."""
    head, _, checksum = backup.rpartition(_CHECKSUM)
    if checksum != b"%d%b" % (crc32(head), _END):
        return None
    content, _, before = head.rpartition(_BEFORE)
    return Saved(content + _END, int(before))


def is_damaged(backup: bytes) -> bool:
    """Return whether a backup without a valid seal cannot be another broker's either."""
    return (
        _OWN_KEYS in backup
        or not backup.startswith(b"{")
        or backup.count(b"{") != backup.count(b"}")
    )


def differences(saved: Any, found: Any, place: str = "") -> Iterator[str]:
    """Describe the differences of two JSON values: ``where: what, saved as what``."""
    if isinstance(saved, dict) and isinstance(found, dict):
        for name in sorted(saved.keys() | found.keys()):
            inner = f"{place}.{name}" if place else name
            yield from differences(saved.get(name), found.get(name), inner)
    elif saved != found:
        yield f"{place}: {_format_seal(found)}, saved as {_format_seal(saved)}"


def _format_seal(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
