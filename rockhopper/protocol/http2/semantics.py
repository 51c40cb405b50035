"""Checks the header fields of a request (RFC 9113, section 8)."""

import re

from rockhopper.protocol.http2.errors import ErrorCode, StreamError
from rockhopper.protocol.http2.hpack import Fields

_NEEDED = frozenset({":method", ":scheme", ":path"})
_KNOWN = _NEEDED | {":authority"}
_OF_HTTP_1 = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"}
)
_is_name = re.compile(r"[!#$%&'*+\-.^_`|~0-9a-z]+").fullmatch
_NAMES_REMEMBERED_MAX = 1024
sound_names: set[str] = set(_KNOWN)
"""Names that were found valid."""


def _build_malformed_error(reason: str) -> StreamError:
    return StreamError(ErrorCode.PROTOCOL_ERROR, reason)


def check_fields(fields: Fields) -> dict[str, str]:
    """Return a request's fields by name; the last one if a name is repeated. Raises StreamError."""
    found = dict(fields)
    if not found.keys() <= sound_names:
        for name in found.keys() - sound_names:
            _check_name(name)
    if len(found) != len(fields) or not _has_all_pseudo_in_front(fields) or not found[":path"]:
        _check_pseudo(fields, found)
    if found.get("te", "trailers") != "trailers":
        raise _build_malformed_error("the field te may only contain trailers")
    return found


def _has_all_pseudo_in_front(fields: Fields) -> bool:
    """Whether the pseudo fields come first, as from nearly all clients.

    If none is repeated, no other pseudo field can follow.
    """
    return (
        len(fields) > 3
        and fields[0][0] in _KNOWN
        and fields[1][0] in _KNOWN
        and fields[2][0] in _KNOWN
        and fields[3][0] in _KNOWN
    )


def _check_pseudo(fields: Fields, found: dict[str, str]) -> None:
    pseudo = found.keys() & _KNOWN
    if len(pseudo) < 3 or not found.keys() >= _NEEDED or not found[":path"]:
        raise _build_malformed_error("the request has no method, scheme or path")
    is_repeated = len(found) < len(fields) and (
        sum(name in _KNOWN for name, _ in fields) > len(pseudo)
    )
    for name, _ in fields[: len(pseudo)]:
        pseudo.discard(name)
    if pseudo or is_repeated:
        raise _build_malformed_error("a pseudo-header field is repeated, or follows regular fields")


def check_trailers(fields: Fields) -> None:
    """Raise StreamError if *fields* are not valid trailers."""
    for name, _ in fields:
        if name[:1] == ":":
            raise _build_malformed_error(f"the pseudo-header field {name} follows the body")
        _check_name(name)


def _check_name(name: str) -> None:
    if name in _OF_HTTP_1:
        raise _build_malformed_error(f"the field {name} belongs to HTTP/1")
    if not _is_name(name):
        raise _build_malformed_error(f"{name[:40]!r} is not a lower-case field name")
    if len(sound_names) < _NAMES_REMEMBERED_MAX:
        sound_names.add(name)


def parse_declared_size(found: dict[str, str]) -> int | None:
    """Return the content-length of a request, None without one. Raises StreamError."""
    text = found.get("content-length")
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise _build_malformed_error(f"invalid content-length {text[:40]!r}")
    return int(text)
