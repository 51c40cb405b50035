"""Requests that follow each other on a connection and differ only in numbers.

Consumers acknowledge the messages of a pop one by one, and commit growing offsets; producers commit
one transaction after the other. ``read_similar`` reads as many headers of one kind as have the same
texts, and returns their numbers; ``encode_similar`` makes their responses. Both are compiled
(``_requests.c``) and have twins here, which also accept JSON in unusual forms.

Example: three acknowledgements of one pop, the third of another topic, read with a shape of the
texts group and topic and the number offset: the texts are ("billing", "orders"), the rows
(1, 0, 40) and (2, 0, 41): opaque, flag and offset. The third is read by the next call.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec

from rockhopper.broker.hot.hot_codec import (
    COMMITTED,
    UNDECODABLE,
    header_decoder,
    json_frame,
    pieces,
)
from rockhopper.protocol.codes import FLAG_RESPONSE, SerializeType
from rockhopper.protocol.compiled import import_compiled
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.requests.fields import Int32

Rows: TypeAlias = list[tuple[int, ...]]
"""Opaque, flag and numbers of each request."""

_is_number = re.compile("-?[0-9]{1,18}").fullmatch


class RequestShape(NamedTuple):
    """The fields of a kind of request, by their wire names; there are at most eight of each."""

    code: int
    texts: tuple[bytes, ...]
    numbers: tuple[bytes, ...]
    cut: int = -1
    """The index of a text that counts up to its last blank only."""


class _SimilarHeader(msgspec.Struct, gc=False):
    code: int
    opaque: Int32
    extFields: dict[str, Any]  # noqa: N815
    flag: Int32 = 0


_decode = header_decoder(_SimilarHeader)


def read_similar_in_python(
    frames: Sequence[Frame], first: int, shape: RequestShape
) -> tuple[tuple[str, ...], Rows]:
    """Read the requests from frame *first* on that have the same texts; return texts and rows."""
    texts: tuple[str, ...] = ()
    rows: Rows = []
    for at in range(first, len(frames)):
        request = _read(*frames[at][:2], shape)
        if request is None:
            break
        its, row = request
        if rows and its != texts:
            break
        texts = its
        rows.append(row)
    return texts, rows


def _read(
    serialize_type: int, header: bytes, shape: RequestShape
) -> tuple[tuple[str, ...], tuple[int, ...]] | None:
    if serialize_type != SerializeType.JSON:
        return None
    try:
        request = _decode(header)
    except UNDECODABLE:
        return None
    fields = request.extFields
    if request.code != shape.code or request.flag & FLAG_RESPONSE or fields.get("rh"):
        return None
    values = [fields.get(name.decode()) for name in (*shape.texts, *shape.numbers)]
    if any(type(value) not in (str, int) for value in values):
        return None
    texts = [str(value) for value in values[: len(shape.texts)]]
    numbers = [str(value) for value in values[len(shape.texts) :]]
    if not all(_is_number(number) for number in numbers):
        return None
    if shape.cut >= 0:
        texts[shape.cut] = texts[shape.cut].rpartition(" ")[0]
    return tuple(texts), (request.opaque, request.flag, *map(int, numbers))


def encode_similar_in_python(head: bytes, tail: bytes, opaques: Sequence[int]) -> bytes:
    """Return response frames whose headers are *head*, an opaque, and *tail*."""
    return b"".join(
        [json_frame("%s%d%s", (head.decode(), each, tail.decode())) for each in opaques]
    )


_head, _tail = pieces(COMMITTED)


def encode_successes(opaques: list[int]) -> bytes:
    """Return success responses without fields, for the requests with *opaques*."""
    return encode_similar(_head, _tail, opaques) if opaques else b""


read_similar: Callable[[list[Frame], int, RequestShape], tuple[tuple[str, ...], Rows]]
encode_similar: Callable[[bytes, bytes, list[int]], bytes]
_requests = import_compiled("rockhopper.broker.hot._requests")
if _requests is None:
    read_similar, encode_similar = read_similar_in_python, encode_similar_in_python
else:
    read_similar, encode_similar = _requests.read_similar, _requests.encode_similar
