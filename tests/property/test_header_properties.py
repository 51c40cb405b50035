"""Headers: every command survives each serialisation; no bytes raise anything unforeseen."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from rockhopper.protocol.codes import LanguageCode, SerializeType
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import FieldError, MalformedHeaderError
from rockhopper.protocol.frame import FrameDecoder
from rockhopper.protocol.requests import (
    PullMessageRequest,
    SendMessageRequestV2,
    decode_fields,
    encode_fields,
)

INT16 = st.integers(-(2**15) + 1, 2**15 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
SOME_TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
LANGUAGES = st.sampled_from([language.value for language in LanguageCode])
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=10,
)


@st.composite
def commands(draw: st.DrawFn, kind: SerializeType) -> Command:
    binary = kind is SerializeType.ROCKETMQ
    # The binary header knows no empty strings, and codes of 16 bits.
    text = SOME_TEXT if binary else TEXT
    ext = st.none() | st.dictionaries(text, text, min_size=1 if binary else 0, max_size=8)
    return Command(
        draw(st.integers(0, 3441) if binary else INT32),
        draw(INT32),
        draw(INT32),
        draw(st.none() | text),
        draw(ext),
        draw(st.binary(max_size=30)),
        draw(LANGUAGES),
        draw(INT16),
        kind,
    )


@given(command=st.sampled_from(list(SerializeType)).flatmap(commands))
def test_command_survives_its_serialisation(command: Command) -> None:
    (frame,) = FrameDecoder().feed(encode_command(command))
    assert decode_header(*frame) == command


@given(command=commands(SerializeType.JSON))
def test_json_is_json_without_blanks_and_with_strings_only(command: Command) -> None:
    header = FrameDecoder().feed(encode_command(command))[0][1].decode()
    fields = json.loads(header)
    assert header == json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    assert fields.get("extFields") == command.ext
    assert list(fields) == sorted(fields)


@given(
    kind=st.integers(0, 3),
    header=st.one_of(
        st.binary(max_size=60),
        st.binary(max_size=40).map(lambda tail: b'{"code":1,"extFields":{' + tail),
        st.binary(max_size=40).map(lambda tail: bytes(13) + tail),
        st.binary(max_size=40).map(lambda tail: bytes(16) + b"\x10" + tail),
        st.binary(max_size=40).map(lambda tail: b"\x97\x01\x00\x01\x01\x00\xc0" + tail),
    ),
)
def test_random_bytes_are_a_command_or_a_malformed_header(kind: int, header: bytes) -> None:
    try:
        command = decode_header(kind, header)
    except MalformedHeaderError:
        return
    assert all(
        isinstance(key, str) and isinstance(value, str)
        for key, value in (command.ext or {}).items()
    )


@given(
    document=st.dictionaries(
        st.sampled_from(["code", "flag", "opaque", "version", "language", "remark", "extFields"]),
        ANY_JSON,
    )
)
@example({"extFields": {"a": float("nan")}})
def test_any_json_is_a_command_or_a_malformed_header(document: dict[str, object]) -> None:
    try:
        command = decode_header(0, json.dumps(document).encode())
    except MalformedHeaderError:
        return
    assert isinstance(command.language, int)
    assert all(isinstance(value, str) for value in (command.ext or {}).values())
    encode_command(command)


@given(command=st.sampled_from(list(SerializeType)).flatmap(commands), data=st.data())
def test_one_changed_byte_is_a_command_or_a_malformed_header(
    command: Command, data: st.DataObject
) -> None:
    header = bytearray(FrameDecoder().feed(encode_command(command))[0][1])
    header[data.draw(st.integers(0, len(header) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_header(command.serialize_type, bytes(header))
    except MalformedHeaderError:
        return


FIELD_NAMES = {
    *SendMessageRequestV2.__struct_encode_fields__,
    *PullMessageRequest.__struct_encode_fields__,
}
FIELD_TEXTS = st.text(max_size=10) | INT32.map(str) | st.sampled_from(["true", "1", "-0", "1e3"])


@given(ext=st.dictionaries(st.sampled_from(sorted(FIELD_NAMES)), FIELD_TEXTS))
def test_any_text_is_fields_or_a_field_error(ext: dict[str, str]) -> None:
    for cls in (SendMessageRequestV2, PullMessageRequest):
        error = None
        try:
            fields = decode_fields(cls, ext)
        except FieldError as caught:
            error = caught
        if error is None:
            assert decode_fields(cls, encode_fields(fields)) == fields
        else:
            assert error.name in FIELD_NAMES
            assert error.is_missing is (not ext.get(error.name))


@given(
    numbers=st.tuples(INT32, INT64, INT32, INT32, INT64, INT64, INT64),
    group=TEXT,
    expression=st.none() | TEXT,
)
def test_typed_fields_survive_as_text(
    numbers: tuple[int, ...], group: str, expression: str | None
) -> None:
    request = PullMessageRequest(
        consumer_group=group,
        topic="T",
        queue_id=numbers[0],
        queue_offset=numbers[1],
        max_msg_nums=numbers[2],
        sys_flag=numbers[3],
        commit_offset=numbers[4],
        suspend_timeout_millis=numbers[5],
        sub_version=numbers[6],
        subscription=expression,
    )
    assert decode_fields(PullMessageRequest, encode_fields(request)) == request
