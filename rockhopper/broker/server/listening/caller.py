"""Caller: what is known of a peer before its protocol begins."""

from typing import NamedTuple


class Caller(NamedTuple):
    """The address and transport of a peer."""

    address: tuple[str, int] | None = None
    """The address that a trusted proxy announced; None: the socket's peer name is the true address.
    """
    is_tls: bool = False


DIRECT = Caller()
"""A peer without TLS and without a proxy."""
