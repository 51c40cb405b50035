"""How far groups are behind: what brokers say of each, and the samples of former runs."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.reporting import lag
from rockhopper.pipeline.jobs.reporting.lag import SCHEMA, list_away, read_earlier_samples, sample
from rockhopper.protocol.codes import RequestCode

NOW_MS = 1_760_000_000_000
# As fastjson writes it in a Java broker.
STATS = (
    b'{"consumeTps":0.0,"offsetTable":{'
    b'{"brokerName":"%s","queueId":0,"topic":"orders"}:'
    b'{"brokerOffset":100,"consumerOffset":93,"lastTimestamp":1759999999000,"pullOffset":100},'
    b'{"brokerName":"%s","queueId":1,"topic":"orders"}:'
    b'{"brokerOffset":5,"consumerOffset":9,"lastTimestamp":0,"pullOffset":5},'
    b'{"brokerName":"%s","queueId":0,"topic":"RMQ_SYS_TRACE_TOPIC"}:'
    b'{"brokerOffset":1,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0},'
    b'{"brokerName":"%s","queueId":0,"topic":"others"}:'
    b'{"brokerOffset":3,"consumerOffset":0,"lastTimestamp":0,"pullOffset":0}}}'
)


class Brokers:
    """Brokers by what they have: their groups, and what each says of a group."""

    def __init__(self, groups: Mapping[str, list[str]]) -> None:
        self._groups = groups
        self.lists: dict[str, bytes] = {}
        self.silent: set[str] = set()
        self.asked: list[tuple[str, str]] = []

    def brokers(self) -> list[Any]:
        made = [SimpleNamespace(name=name, is_master=True) for name in self._groups]
        return [*made, *(SimpleNamespace(name=f"{each.name}-s", is_master=False) for each in made)]

    def away(self, wanted: list[str]) -> list[str]:
        return sorted(set(wanted) - set(self._groups))

    def request(self, broker: str, code: RequestCode, ext: Mapping[str, str]) -> Any:
        if code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            table: dict[str, Any] = {name: {} for name in self._groups[broker]}
            written = json.dumps({"subscriptionGroupTable": table}).encode()
            return SimpleNamespace(body=self.lists.get(broker, written))
        assert code == RequestCode.GET_CONSUME_STATS
        self.asked.append((broker, ext["consumerGroup"]))
        body = b"" if ext["consumerGroup"] in self.silent else STATS % ((broker.encode(),) * 4)
        return SimpleNamespace(body=body)


@pytest.fixture
def brokers(monkeypatch: pytest.MonkeyPatch) -> Brokers:
    made = Brokers({"b-2": ["billing"], "b-1": ["mail", "billing", "CID_ONS-HTTP-PROXY"]})
    monkeypatch.setattr(lag, "connect", lambda _: made)
    return made


def test_every_group_of_every_master_is_asked_for(brokers: Brokers) -> None:
    sample("ns", NOW_MS)
    assert brokers.asked == [("b-1", "billing"), ("b-1", "mail"), ("b-2", "billing")]


def test_a_row_for_each_queue_that_a_group_reads(brokers: Brokers) -> None:
    brokers.silent = {"mail"}
    found = sample("ns", NOW_MS)
    assert found.schema == SCHEMA
    rows = [row for row in found.to_pylist() if row["broker"] == "b-1"]
    assert rows[0] == {
        "sampledAt": datetime.fromtimestamp(NOW_MS / 1000, UTC),
        "group": "billing",
        "topic": "orders",
        "broker": "b-1",
        "queueId": 0,
        "committed": 93,
        "end": 100,
        "lag": 7,
        "lastConsumedAt": datetime.fromtimestamp(1_759_999_999, UTC),
    }
    # Committed beyond the end; nothing known of when; topics of the system are left out.
    assert [(row["topic"], row["lag"], row["lastConsumedAt"]) for row in rows[1:]] == [
        ("orders", 0, None),
        ("others", 3, None),
    ]


def test_topics_may_be_chosen(brokers: Brokers) -> None:
    found = sample("ns", NOW_MS, ["others"])
    assert set(found["topic"].to_pylist()) == {"others"}


def test_without_groups_there_are_no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "connect", lambda _: Brokers({"b-1": []}))
    found = sample("ns", NOW_MS)
    assert (found.num_rows, found.schema) == (0, SCHEMA)


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"{not json"])
def test_a_list_of_groups_that_makes_no_sense(brokers: Brokers, body: bytes) -> None:
    brokers.lists["b-1"] = body
    with pytest.raises(PipelineError, match="the list of groups that b-1 sent cannot be read"):
        sample("ns", NOW_MS)


def test_brokers_of_former_samples_that_are_away(brokers: Brokers) -> None:
    samples = pa.table({"broker": ["b-1", "gone", "gone"]})
    assert list_away("ns", samples) == ["gone"]


def test_samples_of_former_runs(tmp_path: Path, brokers: Brokers) -> None:
    file = tmp_path / "lag.parquet"
    assert read_earlier_samples(file).num_rows == 0
    written = sample("ns", NOW_MS)
    pq.write_table(written.append_column("more", pa.nulls(written.num_rows)), file)
    assert read_earlier_samples(file) == written


@pytest.mark.parametrize("column", ["lag", "group"])
def test_a_file_that_is_something_else(tmp_path: Path, column: str, brokers: Brokers) -> None:
    file = tmp_path / "lag.parquet"
    pq.write_table(sample("ns", NOW_MS).drop_columns([column]), file)
    with pytest.raises(PipelineError, match="is no table of lag samples"):
        read_earlier_samples(file)
    file.write_bytes(b"no parquet at all")
    with pytest.raises(PipelineError, match=f"{file} is no table of lag samples"):
        read_earlier_samples(file)
