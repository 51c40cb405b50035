"""Avro bodies with a schema's id in front, and the registries that have the schemas."""

import base64
import io
import json
import struct
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.registry import Registry, split
from rockhopper.pipeline.jobs.archiving.values import ValueDecoder, value_format


def record(*fields: dict[str, Any], name: str = "Order") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


FIRST = record({"name": "id", "type": "long"})
SECOND = record(
    {"name": "id", "type": "long"}, {"name": "region", "type": ["null", "string"], "default": None}
)
PLACE = record({"name": "city", "type": "string"}, name="Place")
WITH_PLACE = record({"name": "id", "type": "long"}, {"name": "to", "type": "Place"}, name="Trip")


def body(schema_id: int, schema: dict[str, Any], value: dict[str, Any]) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return struct.pack(">bI", 0, schema_id) + stream.getvalue()


class Served:
    """A registry's answers by path, and what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.asked: list[str] = []
        self.word = ""
        served = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                served.asked.append(self.path)
                found = served.answers.get(self.path)
                status = 200 if found is not None else 404
                if served.word and self.headers["Authorization"] != f"Basic {served.word}":
                    status = 401
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(found or {"error_code": 40403}).encode())

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def has(self, path: str, schema: Any, **more: Any) -> None:
        self.answers[path] = {"schema": json.dumps(schema), **more}


@pytest.fixture
def served() -> Iterator[Served]:
    served = Served()
    thread = Thread(target=served.server.serve_forever, args=(0.01,))
    thread.start()
    yield served
    served.server.shutdown()
    thread.join()
    served.server.server_close()


def test_the_frame_in_front_of_a_datum() -> None:
    assert split(b"\x00\x00\x00\x01\x02rest") == (258, 5)
    assert split(b"\x00\x00\x00\x00\x07") == (7, 5)
    assert split(b"\x01\x00\x00\x00\x07x") is None
    assert split(b"\x00\x00\x00\x07") is None


def test_each_body_is_read_by_the_schema_that_it_was_written_with(served: Served) -> None:
    served.has("/schemas/ids/1", FIRST)
    served.has("/schemas/ids/2", SECOND)
    served.has("/schemas/ids/3", {"type": "object"}, schemaType="JSON")
    served.has("/subjects/orders-value/versions/latest", SECOND)
    decoder = ValueDecoder(value_format("confluent-avro", None, served.address, "orders-value"))
    bodies = [
        body(1, FIRST, {"id": 1}),
        body(2, SECOND, {"id": 2, "region": "eu"}),
        body(9, FIRST, {"id": 3}),
        body(3, FIRST, {"id": 4}),
        body(2, SECOND, {"id": 5, "region": None}) + b"more",
        b"\x00\x00",
        None,
        body(1, FIRST, {"id": 6}),
    ]
    values, bad_count = decoder.decode(pa.array(bodies, pa.binary()))
    assert values.to_pylist() == [
        {"id": 1, "region": None},
        {"id": 2, "region": "eu"},
        *[None] * 5,
        {"id": 6, "region": None},
    ]
    assert bad_count == 5
    assert served.asked.count("/schemas/ids/1") == 1


def test_schemas_that_refer_to_others(served: Served) -> None:
    reference = {"name": "Place", "subject": "places", "version": 4}
    served.has("/subjects/trips-value/versions/latest", WITH_PLACE, references=[reference])
    served.has("/schemas/ids/8", WITH_PLACE, references=[reference])
    served.has("/subjects/places/versions/4", PLACE)
    whole = record({"name": "id", "type": "long"}, {"name": "to", "type": PLACE}, name="Trip")
    decoder = ValueDecoder(value_format("confluent-avro", None, served.address, "trips-value"))
    trip = {"id": 1, "to": {"city": "Oslo"}}
    values, _ = decoder.decode(pa.array([body(8, whole, trip)], pa.binary()))
    assert values.to_pylist() == [trip]
    del served.answers["/subjects/places/versions/4"]
    with pytest.raises(PipelineError, match=r"no version 4 of 'places'.*put it there"):
        Registry(served.address).newest("trips-value")


def test_a_directory_of_schemas(tmp_path: Path) -> None:
    (tmp_path / "1.avsc").write_text(json.dumps(FIRST))
    (tmp_path / "12.avsc").write_text(json.dumps(SECOND))
    decoder = ValueDecoder(value_format("confluent-avro", None, str(tmp_path)))
    bodies = [body(1, FIRST, {"id": 1}), body(2, FIRST, {"id": 2})]
    values, _ = decoder.decode(pa.array(bodies, pa.binary()))
    assert values.to_pylist() == [{"id": 1, "region": None}, None]


def test_user_and_password_go_in_a_header_and_into_no_sentence(served: Served) -> None:
    served.word = base64.b64encode(b"me:s@crt").decode()
    served.has("/schemas/ids/1", FIRST)
    with_word = served.address.replace("//", "//me:s%40crt@")
    assert Registry(with_word).schema(1) is not None
    with pytest.raises(PipelineError, match=r"refuses .*401") as raised:
        Registry(served.address.replace("//", "//me:wrong@")).schema(1)
    assert "wrong" not in str(raised.value)


def test_what_is_wrong_is_a_sentence(served: Served, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="cannot query"):
        Registry("http://127.0.0.1:1").schema(1)
    with pytest.raises(PipelineError, match="no subject 'orders-value'"):
        Registry(served.address).newest("orders-value")
    with pytest.raises(PipelineError, match="no directory of schemas"):
        Registry(str(tmp_path / "none")).schema(1)
    with pytest.raises(PipelineError, match="has no schemas"):
        Registry(str(tmp_path)).newest("any")
    (tmp_path / "1.avsc").write_text('{"type": "recor"}')
    with pytest.raises(PipelineError, match=r"schema 1 of .* is not a valid Avro schema"):
        Registry(str(tmp_path)).schema(1)
    with pytest.raises(PipelineError, match="give both or neither"):
        value_format("avro", json.dumps(FIRST), str(tmp_path))
    with pytest.raises(PipelineError, match="give both or neither"):
        value_format("confluent-avro", json.dumps(FIRST))
