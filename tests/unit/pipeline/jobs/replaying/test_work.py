"""What becomes of archived rows: where they go, and what they keep."""

from typing import Any

import pyarrow as pa
import pytest

from rockhopper.pipeline.jobs.replaying.plan import ReplayRequest
from rockhopper.pipeline.jobs.replaying.work import ORIGINS, _add_origins, as_messages
from rockhopper.pipeline.schema import arrow_schema
from rockhopper.pipeline.sink.encoding import encode_messages

COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "msgId", "body", "tags", "properties")
TIMES = ("bornTimestamp", "storeTimestamp")


def row(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "topic": "orders",
        "brokerName": "broker-a",
        "queueId": number,
        "queueOffset": 100 + number,
        "msgId": f"ID{number}",
        "body": b"b%d" % number,
        "tags": "red",
        "properties": {"TAGS": "red", "KEYS": "k", "color": "blue"},
        "bornTimestamp": 1_760_000_000_000_000 + number,
        "storeTimestamp": 1_760_000_000_005_000 + number,
        **fields,
    }


def messages(rows: list[dict[str, Any]], *, keeps_birth: bool = True, **to: str) -> Any:
    batch = pa.RecordBatch.from_pylist(rows, schema=arrow_schema((*COLUMNS, *TIMES)))
    # As slices of a row group are: nothing begins at 0.
    batch = pa.concat_batches([batch, batch]).slice(len(rows))
    request = ReplayRequest("archive", to=to or {"*": "copy"})
    counts = {"copy": 4, "c2": 1, "orders": 2}
    return as_messages(batch, None, request, counts, keeps_birth)


def properties(found: Any) -> list[dict[str, str]]:
    return [dict(pairs) for pairs in found.column("properties").to_pylist()]


def test_a_message_tells_where_it_was() -> None:
    found = messages([row(1)])

    assert properties(found) == [
        {
            "TAGS": "red",
            "KEYS": "k",
            "color": "blue",
            "RH_ORIGIN_TOPIC": "orders",
            "RH_ORIGIN_BROKER": "broker-a",
            "RH_ORIGIN_QUEUE_ID": "1",
            "RH_ORIGIN_QUEUE_OFFSET": "101",
            "RH_ORIGIN_MSG_ID": "ID1",
            "RH_ORIGIN_BORN_TIME": "1760000000000",
            "RH_ORIGIN_STORE_TIME": "1760000000005",
        }
    ]


def test_where_it_was_before_that_is_forgotten() -> None:
    again = row(1, properties={"RH_ORIGIN_TOPIC": "first", "RH_ORIGIN_X": "1", "a": "b"})

    found = properties(messages([row(0, properties={}), again, row(2, properties=None), row(3)]))

    assert [len(each) for each in found] == [7, 8, 7, 10]
    assert [each["RH_ORIGIN_TOPIC"] for each in found] == ["orders"] * 4
    assert [each["RH_ORIGIN_QUEUE_OFFSET"] for each in found] == ["100", "101", "102", "103"]
    assert found[1]["a"] == "b"


def test_each_message_keeps_its_queue_as_far_as_there_are_as_many() -> None:
    rows = [row(0), row(5), row(2, topic="other"), row(3, topic="third")]

    found = messages(rows, orders="copy", other="c2")

    assert found.column("topic").to_pylist() == ["copy", "copy", "c2", "third"]
    assert found.column("queueId").to_pylist() == [0, 1, 0, None]


def test_the_sink_takes_what_comes_out() -> None:
    found = messages(
        [row(1, properties={"UNIQ_KEY": "old", "CLUSTER": "c", "TAGS": "t", "a": "b"})]
    )

    encoded = encode_messages(found, "", lambda count: ["NEW"] * count)

    (text,) = encoded.properties
    sent = dict(pair.split("\x01") for pair in text.split("\x02") if pair)
    assert sent["UNIQ_KEY"] == "NEW"
    assert sent["RH_ORIGIN_MSG_ID"] == "ID1"
    assert (sent["TAGS"], sent["a"]) == ("t", "b")
    assert "CLUSTER" not in sent
    assert encoded.born_ms == [1_760_000_000_000]
    assert encoded.topics == ["copy"]


@pytest.mark.parametrize(
    ("born_us", "born_ms"),
    [(-1000, 0), (0, 0), (-(2**62), 0), (2**62, 2**62 // 1000), (None, None)],
)
def test_a_birth_before_1970_is_the_first_that_the_sink_takes(
    born_us: int | None, born_ms: int | None
) -> None:
    given = pa.array([born_us], pa.int64()).cast(pa.timestamp("us", "UTC"))
    found = messages([row(1)]).schema.field("bornTimestamp").type
    assert found == pa.int64()
    batch = pa.RecordBatch.from_pylist([row(1)], schema=arrow_schema((*COLUMNS, *TIMES)))
    batch = batch.set_column(batch.schema.get_field_index("bornTimestamp"), "bornTimestamp", given)
    replayed = as_messages(
        batch, None, ReplayRequest("archive", to={"*": "copy"}), {"copy": 4}, True
    )
    assert replayed.column("bornTimestamp").to_pylist() == [born_ms]


def test_frames_without_properties_bring_tags_and_keys() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"x"], "tags": ["red"], "keys": ["k"]})

    found = as_messages(batch, None, ReplayRequest("f", to={"*": "copy"}), {"copy": 4}, True)

    encoded = encode_messages(found, "", lambda count: ["NEW"] * count)
    assert encoded.properties[0] == "KEYS\x01k\x02TAGS\x01red\x02UNIQ_KEY\x01NEW\x02"
    assert "queueId" not in found.schema.names


def test_births_are_left_to_properties_where_messages_go_in_batches() -> None:
    assert "bornTimestamp" not in messages([row(1)], keeps_birth=False).schema.names


def test_what_has_no_value_is_not_handed_to_the_sink() -> None:
    kind = pa.map_(pa.string(), pa.string())
    batch = pa.RecordBatch.from_pydict(
        {
            "body": pa.array([b"a", b"b", b"c"]),
            "brokerName": pa.array([None, "b", None], pa.string()),
            "properties": pa.array([[("k", ""), ("l", "1")], None, [("m", None)]], kind),
        }
    )
    maps = _add_origins({name: batch.column(name) for name in batch.schema.names}, 3).to_pylist()
    assert [dict(each) for each in maps] == [{"l": "1"}, {ORIGINS["brokerName"]: "b"}, {}]
