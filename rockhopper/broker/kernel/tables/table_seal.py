r"""The seal of a table's backup: by it the next start knows that file and backup are as saved.

RocketMQ's config files have no checksum, and a flipped bit often leaves good JSON. The file stays
as RocketMQ writes it; its ``.bak`` holds the same, and as the last keys two of ours, which RocketMQ
passes over where it has to read it:

    ,\n\t"rockhopperBefore":<CRC-32 of the file that is replaced>
    ,\n\t"rockhopperCrc32":<CRC-32 of all in front of this line>\n}

The backup is replaced first; a crash in between leaves the file that the first of them names. A
``.bak`` without them is RocketMQ's or an early build's, and tells nothing.
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
    """What a backup tells."""

    content: bytes
    """The file as it was saved."""
    before: int
    """CRC-32 of the file that this one replaced."""


def seal(content: bytes, before: int) -> bytes:
    """The backup of a file; *content* is a pretty-printed object that is not empty."""
    head = b"%b%b%d" % (content.removesuffix(_END), _BEFORE, before)
    return b"%b%b%d%b" % (head, _CHECKSUM, crc32(head), _END)


def unseal(backup: bytes) -> Saved | None:
    """What ``seal`` was given; None where *backup* is not, to the byte, what it returned."""
    head, _, checksum = backup.rpartition(_CHECKSUM)
    if checksum != b"%d%b" % (crc32(head), _END):
        return None
    content, _, before = head.rpartition(_BEFORE)
    return Saved(content + _END, int(before))


def is_damaged(backup: bytes) -> bool:
    """Whether what has no sound seal is not another broker's either."""
    return (
        _OWN_KEYS in backup
        or not backup.startswith(b"{")
        or backup.count(b"{") != backup.count(b"}")
    )


def differences(saved: Any, found: Any, place: str = "") -> Iterator[str]:
    """What is not alike in two values of JSON, for people: ``where: what, saved as what``."""
    if isinstance(saved, dict) and isinstance(found, dict):
        for name in sorted(saved.keys() | found.keys()):
            inner = f"{place}.{name}" if place else name
            yield from differences(saved.get(name), found.get(name), inner)
    elif saved != found:
        yield f"{place}: {_shown(found)}, saved as {_shown(saved)}"


def _shown(value: Any) -> str:
    text = "nothing" if value is None else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"
