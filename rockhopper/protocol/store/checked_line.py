"""A checked line: a file with one line of JSON, and one with the CRC-32 of the first in hex."""

import json
from typing import Any
from zlib import crc32


def encode_checked_line(document: Any) -> bytes:
    """Return the content of the file."""
    line = json.dumps(document, separators=(",", ":")).encode()
    return line + f"\n{crc32(line):08x}\n".encode()


def decode_checked_line(data: bytes) -> Any:
    """Return the document. Raises ValueError for any damage."""
    line, crc, _ = data.split(b"\n")
    if int(crc, 16) != crc32(line):
        raise ValueError("its CRC does not match")
    return json.loads(line)
