"""fastjson's dialect: keys that are no strings in and out, compact and pretty."""

import json
import sys
from enum import Enum, IntEnum
from types import FrameType
from typing import Any

import msgspec
import pytest

from rockhopper.protocol.errors import MalformedBodyError
from rockhopper.protocol.fastjson import (
    PIECE,
    MessageQueueKey,
    array_of,
    dumps,
    loads,
    map_of,
    queue_text,
)

Y = {"y": 1}
QUEUE = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"brokerAddrs":{0:"a",1:"b"}}', {"brokerAddrs": {"0": "a", "1": "b"}}),
        ('{"brokerAddrs":{"0":"a"}}', {"brokerAddrs": {"0": "a"}}),
        ('{ "o" :\n{ -1 : 5 ,\t7:[1, {2:3}] } }', {"o": {"-1": 5, "7": [1, {"2": 3}]}}),
        (f'{{"t":{{{QUEUE}:{{"x":9}}}}}}', {"t": {QUEUE: {"x": 9}}}),
        (f'{{"t":{{{json.dumps(QUEUE)}:1}}}}', {"t": {QUEUE: 1}}),
        (f"{{{QUEUE}:1,{QUEUE.replace('0', '1')}:2}}", {QUEUE: 1, QUEUE.replace("0", "1"): 2}),
        ('{{ "topic" : "a\\"b}" }:1}', {'{"topic":"a\\"b}"}': 1}),
        ("{{0:1}:2}", {'{"0":1}': 2}),
        ("{[1,2]:3}", {"[1,2]": 3}),
        ('{name:"x",0:"{"}', {"name": "x", "0": "{"}),
        ("[true,false,null,1.5,-2e3]", [True, False, None, 1.5, -2000.0]),
        ('{0:"标签😀\\u0001"}', {"0": "标签😀\x01"}),
        ("3", 3),
    ],
)
def test_reads_both_forms(text: str, value: object) -> None:
    assert loads(text) == value
    assert loads(text.encode()) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "{",
        "}",
        "[",
        "{]",
        "{0}",
        "{0:}",
        "{0:1",
        "{0:1}}",
        "{0:1,}",
        "{,0:1}",
        "{0 1:2}",
        "{0:word}",
        '{0:"x}',
        '{0:"\\x"}',
        "{0:'x'}",
        "nul",
        "{0:NaN}",
        "{0:01}",
        "{{0:1:2}",
        "{{{0:1}:2}:3}",
        "{" * 10_000,
        "[" * 100_000,
        '{"a":' * 10_000,
        '{0:"\\ud800"}',
    ],
    ids=lambda text: text[:20],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(MalformedBodyError):
        loads(text)


@pytest.mark.parametrize("data", [b"\xff", b'{0:"\xff"}', b'{"a":"\xff"}', b"\0"])
def test_other_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedBodyError):
        loads(data)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":{"x":1},"b":{"$ref":"$.a"}}', {"a": {"x": 1}, "b": {"x": 1}}),
        (
            '{"a":{"x":[0,{"y":1}]},"b":{"$ref":"$.a.x[1]"}}',
            {"a": {"x": [0, {"y": 1}]}, "b": {"y": 1}},
        ),
        ('{"a":{"x y":{}},"b":[{"$ref":"$.a[\\"x y\\"]"}]}', {"a": {"x y": {}}, "b": [{}]}),
        ('{"a":{0:{"y":1}},"b":{"$ref":"$.a[0]"}}', {"a": {"0": Y}, "b": Y}),
    ],
)
def test_references_are_resolved(text: str, value: object) -> None:
    assert loads(text) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"$ref":"$"}}',
        '{"a":{"$ref":"$.a"}}',
        '{"a":{"b":{"$ref":"$.c"}},"c":{"d":{"$ref":"$.a"}}}',
        '{"a":{"$ref":"$.nothing"}}',
        '{"a":{"$ref":"$.b[7]"},"b":[]}',
        '{"a":{"$ref":".."}}',
        '{"a":{"$ref":"$!"}}',
        '{"a":{"$ref":"$.b.c"},"b":"text"}',
        '{"a":{"$ref":7}}',
    ],
)
def test_reference_that_leads_nowhere_or_in_a_circle_stays(text: str) -> None:
    assert loads(text) == json.loads(text)


def test_many_references_take_no_time_squared() -> None:
    text = json.dumps({"big": [[0]] * 50_000, "refs": [{"$ref": "$.big"}] * 50_000})
    value = loads(text)
    assert all(each is value["refs"][0] for each in value["refs"])


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ("{0:", "}")])
def test_64_levels_are_the_most(opening: str, closing: str) -> None:
    loads(opening * 64 + "1" + closing * 64)
    for levels in (66, 200, 900):
        with pytest.raises(MalformedBodyError, match="64 levels"):
            loads(opening * levels + '{"$ref":"$"}' + closing * levels)


class Colour(Enum):
    RED = 1


class Size(IntEnum):
    LARGE = 2


class Shape(msgspec.Struct, rename="camel"):
    side_count: int
    name: str | None = None


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": None, "c": "x"}, '{"b":1,"c":"x"}'),
        ({"offsetTable": {1: 7, 0: 5, 10: 1}}, '{"offsetTable":{0:5,1:7,10:1}}'),
        ({MessageQueueKey("T", "broker-a", 0): 8}, f"{{{QUEUE}:8}}"),
        ([MessageQueueKey("T", "broker-a", 0)], f"[{QUEUE}]"),
        ([0.0, 1.5, 3, True, False, None], "[0.0,1.5,3,true,false,null]"),
        ([Colour.RED, Size.LARGE], '["RED","LARGE"]'),
        (b"\x01\x02", '"AQI="'),
        ({"b", "a"}, '["a","b"]'),
        (("x", 1), '["x",1]'),
        (Shape(4), '{"sideCount":4}'),
        ({"s": [Shape(3, "tri")]}, '{"s":[{"name":"tri","sideCount":3}]}'),
        ('"\\\n\x01标', '"\\"\\\\\\n\\u0001标"'),
        ({}, "{}"),
        ([], "[]"),
    ],
)
def test_writes_compactly(value: object, text: str) -> None:
    assert dumps(value) == text


def test_keys_can_be_quoted() -> None:
    value = {"a": {0: "x"}, "m": {MessageQueueKey("T", "broker-a", 0): 1}}
    text = dumps(value, raw_keys=False)
    assert text == f'{{"a":{{"0":"x"}},"m":{{{json.dumps(QUEUE)}:1}}}}'
    assert loads(text) == loads(dumps(value))


@pytest.mark.parametrize("value", [float("nan"), float("inf"), [-float("inf")]])
def test_number_without_json_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="cannot be encoded as JSON"):
        dumps(value)


def test_value_without_json_is_refused() -> None:
    with pytest.raises(TypeError, match="object cannot be encoded"):
        dumps({"a": object()})


def test_pretty_form_is_that_of_config_files() -> None:
    # As the reference wrote consumerOffset.json.
    document = {
        "dataVersion": {"counter": 0, "stateVersion": 0, "timestamp": 1795166932356},
        "groupTopicMap": {"GroupB": ["TopicA"]},
        "offsetTable": {"TopicA@GroupB": {0: 5, 1: 7}},
    }
    assert dumps(document, pretty=True) == (
        "{\n"
        '\t"dataVersion":{\n'
        '\t\t"counter":0,\n'
        '\t\t"stateVersion":0,\n'
        '\t\t"timestamp":1795166932356\n'
        "\t},\n"
        '\t"groupTopicMap":{\n'
        '\t\t"GroupB":["TopicA"]\n'
        "\t},\n"
        '\t"offsetTable":{\n'
        '\t\t"TopicA@GroupB":{0:5,1:7\n'
        "\t\t}\n"
        "\t}\n"
        "}"
    )


def test_pretty_form_of_nested_maps_and_lists() -> None:
    document = {"table": {0: {"a": "x"}}, "empty": {}, "list": [{"b": []}]}
    assert dumps(document, pretty=True) == (
        "{\n"
        '\t"empty":{},\n'
        '\t"list":[\n'
        "\t\t{\n"
        '\t\t\t"b":[]\n'
        "\t\t}\n"
        "\t],\n"
        '\t"table":{0:{\n'
        '\t\t\t"a":"x"\n'
        "\t\t}\n"
        "\t}\n"
        "}"
    )


def test_what_is_written_item_by_item_is_the_same() -> None:
    queues = {
        MessageQueueKey('T\n"é', "b", number): {"b": None, "a": [number]} for number in (2, 10)
    }
    items = [queue_text(queue, value) for queue, value in queues.items()]
    assert dumps({"t": map_of(items)}) == dumps({"t": queues})
    assert dumps([array_of([]), map_of([])]) == dumps([[], {}])
    assert dumps(array_of(map(dumps, queues))) == dumps(list(queues))


def test_queue_key_is_a_value() -> None:
    queue = MessageQueueKey.parse(QUEUE)
    assert queue == MessageQueueKey("T", "broker-a", 0) == MessageQueueKey.parse(json.loads(QUEUE))
    assert MessageQueueKey.parse(queue) is queue
    assert len({queue, MessageQueueKey("T", "broker-a", 0)}) == 1
    assert queue < MessageQueueKey("T", "broker-a", 1) < MessageQueueKey("U", "a", 0)
    assert repr(queue) == "MessageQueueKey('T', 'broker-a', 0)"


@pytest.mark.parametrize("value", ["x", "{}", '{"topic":"T"}', 7, None, {"topic": 1}])
def test_other_values_are_no_queues(value: object) -> None:
    with pytest.raises(MalformedBodyError):
        MessageQueueKey.parse(value)


def test_of_long_documents_no_more_than_a_piece_is_sorted_or_joined_at_once() -> None:
    lengths = []

    def note(frame: FrameType, event: str, arg: Any) -> None:
        if event == "c_call" and arg.__name__ == "sort":
            lengths.append(len(arg.__self__))
        elif event == "c_call" and arg.__name__ == "join":
            written = frame.f_locals.get("out") or vars(frame.f_locals["self"])["_out"]
            lengths.append(len(written))

    names = [f"{number * 7919 % 20_000:05}" for number in range(20_000)]
    document = {name: {0: 5} for name in names}
    sys.setprofile(note)
    try:
        text = dumps(document)
    finally:
        sys.setprofile(None)
    assert text == "{" + ",".join(f'"{name}":{{0:5}}' for name in sorted(names)) + "}"
    assert 0 < max(lengths) < 2 * PIECE
