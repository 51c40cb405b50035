"""similar_requests: runs of requests that differ in numbers; the compiled reader and its twin."""

import json
import sys
from collections.abc import Callable
from contextlib import nullcontext

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from rockhopper.broker.hot import similar_requests
from rockhopper.broker.hot.similar_requests import (
    RequestShape,
    Rows,
    encode_similar_in_python,
    read_similar_in_python,
)
from rockhopper.protocol.codes import FLAG_RESPONSE, SerializeType
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder

SHAPE = RequestShape(15, (b"group", b"info"), (b"offset",), cut=1)
FIELDS = {"group": "billing", "info": "4 8 40", "offset": "40"}
READERS = dict.fromkeys([read_similar_in_python, similar_requests.read_similar])
ENCODERS = dict.fromkeys([encode_similar_in_python, similar_requests.encode_similar])
Reader = Callable[[list[Frame], int, RequestShape], tuple[tuple[str, ...], Rows]]
INT64_MIN = -(2**63)


def frame(ext: object = FIELDS, code: int = 15, opaque: int = 5, **others: object) -> Frame:
    fields = {"code": code, "opaque": opaque, "extFields": ext} | others
    return SerializeType.JSON, json.dumps(fields, separators=(",", ":")).encode(), b""


def as_header(header: bytes) -> Frame:
    return SerializeType.JSON, header, b""


@pytest.mark.parametrize("read", READERS)
def test_a_run_ends_at_another_text(read: Reader) -> None:
    frames = [
        frame(code=11),
        frame(FIELDS | {"bname": "x", "n": None}, language="JAVA", version=1),
        frame(FIELDS | {"info": "4 8 41", "offset": 41}, opaque=6, flag=2),
        frame(FIELDS | {"offset": "-7"}, opaque=-(2**31)),
        frame(FIELDS | {"info": "4 9 40"}),
    ]
    texts, rows = read(frames, 1, SHAPE)
    assert texts == ("billing", "4 8")
    assert rows == [(5, 0, 40), (6, 2, 41), (-(2**31), 0, -7)]


@pytest.mark.parametrize("read", READERS)
def test_one_blank_after_a_separator_is_read(read: Reader) -> None:
    kind, header, body = frame()
    spread = header.replace(b":", b": ").replace(b",", b", ")
    assert read([(kind, spread, body)], 0, SHAPE) == read([frame()], 0, SHAPE)


NOT_PLAIN = {
    "another code": frame(code=150),
    "no fields": frame(None),
    "a field is missing": frame({"group": "billing", "offset": "4"}),
    "no number": frame(FIELDS | {"offset": "two"}),
    "too long a number": frame(FIELDS | {"offset": "9" * 19}),
    "a fraction": frame(FIELDS | {"offset": 1.5}),
    "true": frame(FIELDS | {"group": True}),
    "nested": frame(FIELDS | {"group": ["x"]}),
    "too large an opaque": frame(opaque=1 << 31),
    "a response": frame(flag=FLAG_RESPONSE),
    "a hop": frame(FIELDS | {"rh": "1"}),
    "cut short": as_header(frame()[1][:-1]),
    "more behind": as_header(frame()[1] + b"}"),
    "no UTF-8": as_header(frame()[1].replace(b"billing", b"\xff\xfe")),
    "deep": as_header(b'{"code":15,"x":' + b"[" * 100_000),
    "another serialisation": (SerializeType.ROCKETMQ, *frame()[1:]),
    "empty": as_header(b""),
}


@pytest.mark.parametrize("bad", NOT_PLAIN.values(), ids=NOT_PLAIN)
@pytest.mark.parametrize("read", READERS)
def test_what_is_not_plain_ends_a_run(read: Reader, bad: Frame) -> None:
    assert read([bad], 0, SHAPE) == ((), [])
    assert read([frame(), bad], 0, SHAPE)[1] == [(5, 0, 40)]


_text = st.sampled_from(["", "a", "a 1", "a 2", "a  2", "b", "1", "é", 'a"', "\\"])
_number = st.one_of(
    st.integers(INT64_MIN, 2**63),
    st.integers(-2, 12).map(str),
    st.sampled_from(["", "-", "007", "-0", " 1", "1.0", "1e3", "٣", "9" * 18, "9" * 19]),
)
_fields = st.fixed_dictionaries(
    {"group": _text, "info": _text, "offset": _number},
    optional={"rh": _text, "x": st.one_of(_text, st.none(), st.booleans(), st.integers())},
)


@st.composite
def _frames(draw: st.DrawFn) -> Frame:
    serialize_type, header, body = frame(
        draw(st.one_of(_fields, st.just(FIELDS))),
        draw(st.sampled_from([15, 15, 15, 1])),
        draw(st.sampled_from([0, -1, 2**31 - 1, 2**31])),
        flag=draw(st.sampled_from([0, 1, 2])),
    )
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(header)))
        header = header[:at] + draw(st.binary(max_size=2)) + header[at + draw(st.integers(0, 2)) :]
    return serialize_type, header, body


@given(st.lists(_frames(), max_size=5))
@example([frame(FIELDS | {"group": 5}), frame(FIELDS | {"group": "5"})])
def test_compiled_code_reads_what_its_twin_reads(frames: list[Frame]) -> None:
    texts, rows = similar_requests.read_similar(frames, 0, SHAPE)
    expected_texts, expected = read_similar_in_python(frames, 0, SHAPE)
    # It leaves unusual forms to Python.
    assert rows == expected[: len(rows)]
    assert not rows or texts == expected_texts


@given(st.lists(st.integers(-(2**31), 2**31 - 1), max_size=5))
def test_responses_are_those_of_the_general_path(opaques: list[int]) -> None:
    frames = FrameDecoder().feed(similar_requests.encode_successes(opaques))
    expected = [
        FrameDecoder().feed(encode_command(Command(0, opaque=each, flag=FLAG_RESPONSE)))[0]
        for each in opaques
    ]
    for (_, header, body), (_, wanted, _) in zip(frames, expected, strict=True):
        found, other = json.loads(header), json.loads(wanted)
        assert (found["code"], found["opaque"], found["flag"]) == (0, other["opaque"], 1)
        assert body == b""
    ends = b'{"50%":', b"}"
    assert {encode(*ends, opaques) for encode in ENCODERS} == {
        encode_similar_in_python(*ends, opaques)
    }


@pytest.mark.skipif(len(READERS) == 1, reason="it is not compiled")
def test_compiled_code_checks_its_arguments() -> None:
    read, encode = similar_requests.read_similar, similar_requests.encode_similar
    many = tuple(b"%d" % number for number in range(9))
    for bad in ((), SHAPE._replace(texts=many), (15, (), ("x",), -1)):
        with pytest.raises(TypeError):
            read([], 0, bad)  # type: ignore[arg-type]
    for frames in ([()], [(0, 1, 2)], [None], [("x", b"", b"")]):
        with pytest.raises(TypeError) if frames == [("x", b"", b"")] else nullcontext():
            assert read(frames, 0, SHAPE) == ((), [])  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        encode(b"", b"", [1 << 31])
    with pytest.raises(OverflowError):
        encode(b"x" * (1 << 16), b"", [])


def test_nothing_is_kept() -> None:
    frames = [frame(), frame(FIELDS | {"info": "4 8 41"})]
    before = [sys.getrefcount(frames[0][1]), sys.getrefcount(frames[1][1])]
    similar_requests.read_similar(frames, 0, SHAPE)
    assert [sys.getrefcount(each[1]) for each in frames] == before
