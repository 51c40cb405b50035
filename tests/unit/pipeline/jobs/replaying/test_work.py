"""What becomes of archived rows: where they go, and what they keep."""

from typing import Any

import pyarrow as pa

from rockhopper.pipeline.jobs.replaying.plan import (
    Plan,
    PlannedFile,
    Request,
    batch_rows_for,
    shares,
)
from rockhopper.pipeline.jobs.replaying.work import as_messages
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
    request = Request("archive", to=to or {"*": "copy"})
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


def test_frames_without_properties_bring_tags_and_keys() -> None:
    batch = pa.RecordBatch.from_pydict({"body": [b"x"], "tags": ["red"], "keys": ["k"]})

    found = as_messages(batch, None, Request("f", to={"*": "copy"}), {"copy": 4}, True)

    encoded = encode_messages(found, "", lambda count: ["NEW"] * count)
    assert encoded.properties[0] == "KEYS\x01k\x02TAGS\x01red\x02UNIQ_KEY\x01NEW\x02"
    assert "queueId" not in found.schema.names


def test_births_are_left_to_properties_where_messages_go_in_batches() -> None:
    assert "bornTimestamp" not in messages([row(1)], keeps_birth=False).schema.names


def plan(*rows: int, batch_rows: int = 10) -> Plan:
    files = tuple(PlannedFile(f"f{number}", "t", count) for number, count in enumerate(rows))
    return Plan("id", Request("archive"), files, batch_rows, "broker-a", {"t": 4})


def cut(slices: list[Any]) -> list[tuple[str, int, int]]:
    return [(each.file.path, each.first, each.end) for each in slices]


def test_batches_are_runs_of_messages_over_files() -> None:
    planned = plan(7, 25, 2)

    assert [cut(planned.batch(number)) for number in range(planned.batch_count)] == [
        [("f0", 0, 7), ("f1", 0, 3)],
        [("f1", 3, 13)],
        [("f1", 13, 23)],
        [("f1", 23, 25), ("f2", 0, 2)],
    ]
    assert plan().batch_count == 0


def test_tasks_share_a_batch_in_order() -> None:
    slices = plan(7, 25, 2, batch_rows=34).batch(0)

    assert [cut(share) for share in shares(slices, 3)] == [
        [("f0", 0, 7), ("f1", 0, 5)],
        [("f1", 5, 17)],
        [("f1", 17, 25), ("f2", 0, 2)],
    ]
    assert len(shares(slices, 100)) == 34


def test_plans_survive_being_written_down() -> None:
    planned = Plan(
        "id",
        Request("archive", ("a",), 1, None, "k", "x > 1", {"a": "b"}),
        (PlannedFile("f", None, 3, "file:/f"),),
        10,
        "broker-a",
        {"b": 4},
    )

    assert Plan.from_json(planned.to_json(), "plan.json") == planned


def test_the_same_request_has_the_same_id_and_others_have_others() -> None:
    one = Request("archive", ("a",), key="k")

    assert one.job_id == Request("archive", ("a",), key="k").job_id
    assert one.job_id != Request("archive", ("a",), where="k").job_id


def test_batches_have_a_size_and_last_no_longer_than_a_second() -> None:
    assert batch_rows_for(400.0, None) == 50_000
    assert batch_rows_for(1 << 20, None) == 100
    assert batch_rows_for(4096.0, None) == 8192
    assert batch_rows_for(400.0, 200.0) == 200
    assert batch_rows_for(400.0, 0.1) == 1
