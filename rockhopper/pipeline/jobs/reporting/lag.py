"""The lag of groups: samples from brokers, and the table of all samples so far."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.remote import connect
from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies import ConsumeStats
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.errors import ProtocolError
from rockhopper.protocol.names import is_system_group, is_system_topic
from rockhopper.protocol.requests import GetConsumeStatsRequest, encode_fields

SCHEMA = pa.schema(
    [
        ("sampledAt", pa.timestamp("ms", tz="UTC")),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("broker", pa.string()),
        ("queueId", pa.int32()),
        ("committed", pa.int64()),
        ("end", pa.int64()),
        ("lag", pa.int64()),
        ("lastConsumedAt", pa.timestamp("ms", tz="UTC")),
    ]
)
"""The columns of a sample.

``committed`` is 0 if a group has never committed. ``lastConsumedAt`` is the store time of the
newest message that the group has consumed, null if unknown.
"""


def sample(nameserver: str, now_ms: int, topics: Collection[str] = ()) -> pa.Table:
    """Query all brokers for the lag of all groups; *topics* limits it. Raises PipelineError."""
    remote = connect(nameserver)
    rows: list[dict[str, Any]] = []
    for broker in sorted({each.name for each in remote.brokers() if each.is_master}):
        answer = remote.request(broker, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, {})
        for group in _group_names(answer.body, broker):
            rows += _stats(remote, broker, group, now_ms, topics)
    return pa.Table.from_pylist(rows, schema=SCHEMA)


def list_away(nameserver: str, samples: pa.Table) -> list[str]:
    """Return offline brokers that occur in *samples* or that the name server knew."""
    return connect(nameserver).away(samples["broker"].unique().to_pylist())


def _group_names(body: bytes, broker: str) -> list[str]:
    try:
        names = list(fastjson.loads(body)["subscriptionGroupTable"])
    except (ProtocolError, KeyError, TypeError) as error:
        raise PipelineError(
            f"the list of groups that {broker} sent cannot be read ({error}): look at its log"
        ) from error
    return [name for name in sorted(names) if not is_system_group(name)]


def _stats(
    remote: Any, broker: str, group: str, now_ms: int, topics: Collection[str]
) -> list[dict[str, Any]]:
    fields = encode_fields(GetConsumeStatsRequest(consumer_group=group))
    answer = remote.request(broker, RequestCode.GET_CONSUME_STATS, fields)
    if not answer.body:
        return []
    found = []
    for queue, at in ConsumeStats.decode(answer.body).offset_table.items():
        if is_system_topic(queue.topic) or (topics and queue.topic not in topics):
            continue
        found.append(
            {
                "sampledAt": now_ms,
                "group": group,
                "topic": queue.topic,
                "broker": queue.broker_name,
                "queueId": queue.queue_id,
                "committed": at.consumer_offset,
                "end": at.broker_offset,
                "lag": max(at.broker_offset - at.consumer_offset, 0),
                "lastConsumedAt": at.last_timestamp or None,
            }
        )
    return found


def read_earlier_samples(file: Path) -> pa.Table:
    """Return the samples of earlier runs. Raises PipelineError."""
    import pyarrow.parquet as pq

    if not file.exists():
        return SCHEMA.empty_table()
    try:
        return pq.read_table(file).select(SCHEMA.names).cast(SCHEMA)
    except (pa.ArrowException, KeyError) as error:
        raise PipelineError(
            f"{file} is no table of lag samples ({error}): move it away, or write the report into "
            "another directory"
        ) from error
