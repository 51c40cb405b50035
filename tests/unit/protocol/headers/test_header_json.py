"""JSON headers: what every client sends is read; what we write every client can read."""

import json
import time

import pytest

from rockhopper.protocol.codes import LanguageCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.errors import MalformedHeaderError
from tests.support.machine_speed import slowness

# Headers that the reference wrote.
REQUEST = (
    '{"code":105,"extFields":{"topic":"TopicTest"},"flag":0,"language":"JAVA","opaque":5,'
    '"serializeTypeCurrentRPC":"JSON","version":479}'
)
ONEWAY = (
    '{"code":11,"flag":2,"language":"JAVA","opaque":14,'
    '"serializeTypeCurrentRPC":"JSON","version":479}'
)
RESPONSE = (
    '{"code":0,"extFields":{"queueId":"1","transactionId":"TX","msgId":"7F00",'
    '"TRACE_ON":"true","MSG_REGION":"DefaultRegion","queueOffset":"2"},"flag":1,'
    '"language":"JAVA","opaque":9,"serializeTypeCurrentRPC":"JSON","version":479}'
)
SEND = (
    '{"code":310,"extFields":{"a":"pg","b":"TopicTest","c":"TBW102","d":"4","e":"0","f":"0",'
    '"g":"1700000000000","h":"0","i":"UNIQ_KEY\\u0001ABC\\u0002WAIT\\u0001true\\u0002TAGS'
    '\\u0001TagA\\u0002","j":"0","k":"false","m":"false","n":"broker-a"},"flag":0,'
    '"language":"JAVA","opaque":3,"serializeTypeCurrentRPC":"JSON","version":479}'
)


def decode(header: str | bytes) -> Command:
    return decode_header(0, header.encode() if isinstance(header, str) else header)


def encode(command: Command) -> str:
    return encode_command(command)[8:].decode()


@pytest.mark.parametrize("header", [REQUEST, ONEWAY, RESPONSE, SEND])
def test_writes_what_the_reference_writes(header: str) -> None:
    assert encode(decode(header)) == header


def test_reads_the_fields_of_a_request() -> None:
    command = decode_header(0, REQUEST.encode(), b"body")
    assert command == Command(
        105, opaque=5, ext={"topic": "TopicTest"}, body=b"body", language=0, version=479
    )
    assert not command.is_response
    assert not command.is_oneway


def test_flag_tells_responses_and_oneway_requests() -> None:
    assert decode(RESPONSE).is_response
    assert decode(ONEWAY).is_oneway


def test_control_characters_are_escaped_so_that_go_and_javascript_read_them() -> None:
    text = encode(Command(0, remark="a\x01b\n", ext={"i": "K\x01v\x02"}))
    assert '"K\\u0001v\\u0002"' in text
    assert all(character >= " " for character in text)


def test_ext_value_that_is_no_string_is_refused() -> None:
    with pytest.raises(TypeError):
        encode_command(Command(0, ext={"queueId": 3}))  # type: ignore[dict-item]


def test_text_beyond_ascii_is_kept() -> None:
    ext = {"topic": "标签😀"}
    assert decode(encode(Command(0, ext=ext, remark="é"))) == Command(0, ext=ext, remark="é")


def test_lone_surrogates_in_a_remark_are_replaced() -> None:
    text = encode(Command(1, remark="no file \udcff", ext={"a\udcff": "b\udc00"}))
    assert decode(text).remark == "no file ?"
    assert decode(text).ext == {"a?": "b?"}


def test_numbers_and_booleans_of_ali_ons_become_their_json_text() -> None:
    ext = '{"queueId":3,"unitMode":false,"k":true,"x":-1,"y":1.50,"z":1e5,"s":"t"}'
    assert decode(f'{{"code":11,"extFields":{ext}}}').ext == {
        "queueId": "3",
        "unitMode": "false",
        "k": "true",
        "x": "-1",
        "y": "1.50",
        "z": "1e5",
        "s": "t",
    }


def test_null_ext_value_is_absent() -> None:
    assert decode('{"code":1,"extFields":{"a":null,"b":"x"}}').ext == {"b": "x"}


def test_strings_beside_numbers_are_unescaped() -> None:
    assert decode('{"extFields":{"a":1,"b":"x\\u0001\\"é"}}').ext == {"a": "1", "b": 'x\x01"é'}


@pytest.mark.parametrize("value", ['{"x":1}', "[1]", "{}", "[]"])
def test_object_as_ext_value_is_refused(value: str) -> None:
    with pytest.raises(MalformedHeaderError):
        decode(f'{{"code":11,"extFields":{{"a":{value}}}}}')


def test_absent_fields_have_defaults() -> None:
    assert decode("{}") == Command(0, language=LanguageCode.JAVA, version=0)


def test_null_fields_have_defaults() -> None:
    header = '{"code":null,"flag":null,"opaque":null,"version":null,"remark":null,"extFields":null}'
    assert decode(header) == Command(0, version=0)


def test_unknown_keys_are_ignored() -> None:
    header = '{"customHeader":{"a":[1,{"b":null}]},"code":34,"responseType":true,"oneway":1}'
    assert decode(header).code == 34


@pytest.mark.parametrize(
    ("language", "expected"),
    [
        ('"GO"', LanguageCode.GO),
        ("9", LanguageCode.GO),
        ('"NODE_JS"', LanguageCode.NODE_JS),
        ('"COBOL"', LanguageCode.OTHER),
        ("77", LanguageCode.OTHER),
        ("null", LanguageCode.OTHER),
    ],
)
def test_language_is_a_name_or_an_ordinal(language: str, expected: int) -> None:
    assert decode(f'{{"language":{language}}}').language == expected


def test_unknown_language_is_written_as_other() -> None:
    assert '"language":"OTHER"' in encode(Command(0, language=99))


def test_last_of_two_codes_counts() -> None:
    assert decode('{"code":1,"code":34}').code == 34


def test_empty_ext_fields_stay_a_map() -> None:
    assert decode('{"extFields":{}}').ext == {}
    assert '"extFields":{}' in encode(Command(0, ext={}))


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"garbage",
        b"[]",
        b"null",
        b'"text"',
        b'{"code":"abc"}',
        b'{"code":1099511627776}',
        b'{"opaque":2147483648}',
        b'{"opaque":NaN}',
        b'{"code":1.5}',
        b'{"remark":7}',
        b'{"extFields":[]}',
        b'{"extFields":"x"}',
        b'{"extFields":{"a":"\xff"}}',
        b'{"ignored":"\xff"}',
        b'{"remark":"\\ud800"}',
        b'{"extFields":{"a":"\\ud800","b":1}}',
        b'{"extFields":{"a":NaN}}',
        b'{"code":1} x',
        b'{"code":1',
        b"\xef\xbb\xbf{}",
        b'{"x":' + b"[" * 100_000,
        b'{"extFields":{"x":' + b"[" * 100_000,
        b"[" * 100_000,
        b'{"code":1,"x":' + b"[" * 64 + b"]" * 64 + b"}",
        b'{"code":1,"x":' + b'{"a":' * 200 + b"1" + b"}" * 201,
        b'{"code":1,"x":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=lambda header: repr(header[:30]),
)
def test_what_is_no_header_is_refused(header: bytes) -> None:
    with pytest.raises(MalformedHeaderError):
        decode(header)


def test_brackets_in_texts_are_no_levels() -> None:
    text = '[{"' * 500
    header = json.dumps({"code": 1, "extFields": {"properties": text}, "x": [[]] * 100})
    assert (decode(header).ext or {})["properties"] == text


def test_256_ext_fields_pass_and_257_do_not() -> None:
    fields: dict[str, object] = {str(number): "x" for number in range(256)}
    assert len(decode(json.dumps({"extFields": fields})).ext or {}) == 256
    fields["one more"] = "x"
    with pytest.raises(MalformedHeaderError, match="257 ext fields"):
        decode(json.dumps({"extFields": fields}))
    fields["a number"] = 3
    with pytest.raises(MalformedHeaderError, match="258 ext fields"):
        decode(json.dumps({"extFields": fields}))


def test_as_many_ext_fields_as_fit_a_header_are_refused_quickly() -> None:
    header = json.dumps({"extFields": {f"{number:x}": "" for number in range(23_000)}}).encode()
    assert len(header) > 250_000
    started = time.process_time()
    with pytest.raises(MalformedHeaderError):
        decode(header)
    assert time.process_time() - started < 0.1 * slowness()


def test_unknown_serialisation_is_refused_both_ways() -> None:
    with pytest.raises(MalformedHeaderError, match="serialisation 9"):
        decode_header(9, b"{}")
    with pytest.raises(ValueError, match="serialisation 9"):
        encode_command(Command(0, serialize_type=9))
