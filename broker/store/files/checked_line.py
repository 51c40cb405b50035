"""A small document in a file: one line of JSON, and one with the CRC-32 of the first in hex."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import structlog

log = structlog.get_logger("broker.store")

Value = TypeVar("Value")


def encode(document: Any) -> bytes:
    """The bytes of the file."""
    line = json.dumps(document, separators=(",", ":")).encode()
    return line + f"\n{crc32(line):08x}\n".encode()


def decode(data: bytes) -> Any:
    """The document. Raises ValueError for whatever is wrong with it."""
    line, crc, _ = data.split(b"\n")
    if int(crc, 16) != crc32(line):
        raise ValueError("its CRC does not fit it")
    return json.loads(line)


def load(path: Path, value_of: Callable[[Any], Value], if_damaged: str) -> Value | None:
    """What the document in a file stands for; None when there is none.

    One that is damaged, or that *value_of* refuses with ValueError or KeyError, is logged with
    *if_damaged*, and as good as none.
    """
    try:
        return value_of(decode(path.read_bytes()))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError) as error:
        log.warning(if_damaged, path=str(path), reason=str(error))
        return None
