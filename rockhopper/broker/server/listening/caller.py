"""Caller: what the accept path knows of somebody before its protocol begins."""

from typing import NamedTuple


class Caller(NamedTuple):
    """Who came, by which way."""

    address: tuple[str, int] | None = None
    """What a trusted proxy announced; None: the peer's name of the socket is true."""
    is_tls: bool = False


DIRECT = Caller()
"""Came without TLS and through no proxy."""
