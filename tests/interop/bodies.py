"""Message bodies that Java, JavaScript and Python can all make from a prefix and a number."""

import hashlib
from collections.abc import Iterable


def body(prefix: str, index: int, size_bytes: int = 0) -> bytes:
    """Return ``prefix-index``, padded with dots up to *size_bytes*."""
    return f"{prefix}-{index}".encode().ljust(size_bytes, b".")


def sha1(data: bytes) -> str:
    """Return the hash by which the Java and JavaScript parts name a body."""
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


def hashes(prefix: str, indexes: Iterable[int], size_bytes: int = 0) -> list[str]:
    """Return the hashes of the bodies with these numbers, sorted."""
    return sorted(sha1(body(prefix, index, size_bytes)) for index in indexes)
