"""Queries and tuning of the store for operators: 60, 61, 321, 329, 354, 355, 907, 2001 to 2004.

For engines that only RocketMQ has (RocksDB, cold data flow control, slaves), the answer is that of
a RocketMQ broker that does not use them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import structlog

from rockhopper.broker.kernel.members.consumer_groups import ConsumerGroups
from rockhopper.broker.kernel.scheduled.timers.java_files import TimerCheck, encode_fields
from rockhopper.broker.kernel.scheduled.timers.timers import Timers
from rockhopper.broker.kernel.tables.consumer_offsets import ConsumerOffsetTable
from rockhopper.broker.kernel.tables.subscription_groups import SubscriptionGroupTable
from rockhopper.broker.kernel.tables.topics import TopicTable
from rockhopper.broker.server.loop.cooperative_work import next_slice
from rockhopper.broker.server.remoting.dispatcher import Request, Response, Row, administers
from rockhopper.broker.server.remoting.json_bodies import json_response, long_json_response
from rockhopper.broker.server.remoting.permissions import (
    CHANGE_CLUSTER,
    SEE_CLUSTER,
    name_field,
    name_optional_field,
    on_topic,
    on_topics_and_groups,
)
from rockhopper.broker.store.message_store import MessageStore
from rockhopper.broker.users.access import Action
from rockhopper.broker.users.errors import InvalidParameter, Refusal
from rockhopper.protocol.bodies import SubscriptionData
from rockhopper.protocol.bodies.properties_text import decode_properties_text
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.properties import PROPERTY_REAL_TOPIC
from rockhopper.protocol.requests.administration import (
    ExportConfigRequest,
    QueryConsumeQueueRequest,
    ReadAheadModeRequest,
)
from rockhopper.protocol.store.message_codec import decode_message
from rockhopper.protocol.store.queue_layout import CONSUME_QUEUE_UNIT

log = structlog.get_logger("broker.admin")

ROWS_MAX = 20_000
# The number of messages to read between pauses for other requests.
MESSAGES_PER_TURN = 256
BYTES_PER_TURN = 4 << 20
COLD_GROUPS_MAX = 10_000
COLD_BODY_SIZE_BYTES_MAX = 1 << 20
# RocketMQ's defaults of cgColdReadThreshold and globalColdReadThreshold.
COLD_READ_THRESHOLD_BYTES = 3 << 20
COLD_READ_THRESHOLD_ALL_BYTES = 100 << 20
CHECK_IN_PROGRESS = 2
EXPORTABLE = frozenset(("topics", "subscriptiongroups", "consumeroffsets"))
READ_AHEAD_NORMAL, READ_AHEAD_RANDOM = "0", "1"

QUEUE_SEEN = on_topics_and_groups(
    Action.GET, name_field("topic"), name_optional_field("consumerGroup")
)


@dataclass(eq=False, repr=False)
class StoreAdminProcessors:
    """Serves queries about the store and its background work."""

    _store: MessageStore
    _topics: TopicTable
    _groups: SubscriptionGroupTable
    _offsets: ConsumerOffsetTable
    _consumers: ConsumerGroups
    _timers: Timers
    _now_ms: Callable[[], int]
    _cold_thresholds: dict[str, int] = field(default_factory=dict)

    def rows(self) -> dict[int, Row]:
        """Return the row of each request code."""
        return {
            Code.GET_TIMER_CHECK_POINT: administers(
                self.timer_check_point, SEE_CLUSTER, promises_state=False
            ),
            Code.GET_TIMER_METRICS: administers(
                self.timer_metrics, SEE_CLUSTER, promises_state=False
            ),
            Code.QUERY_CONSUME_QUEUE: administers(
                self.query_consume_queue, *QUEUE_SEEN, promises_state=False
            ),
            Code.DELETE_EXPIRED_COMMITLOG: administers(self.delete_expired, CHANGE_CLUSTER),
            Code.GET_BROKER_HA_STATUS: administers(
                self.ha_status, SEE_CLUSTER, promises_state=False
            ),
            Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS: administers(
                self.rocksdb_progress, on_topic(Action.GET), promises_state=False
            ),
            Code.EXPORT_ROCKSDB_CONFIG_TO_JSON: administers(
                self.export_config, SEE_CLUSTER, promises_state=False
            ),
            Code.UPDATE_COLD_DATA_FLOW_CTR_CONFIG: administers(
                self.update_cold_control, CHANGE_CLUSTER
            ),
            Code.REMOVE_COLD_DATA_FLOW_CTR_CONFIG: administers(
                self.remove_cold_control, CHANGE_CLUSTER
            ),
            Code.GET_COLD_DATA_FLOW_CTR_INFO: administers(
                self.cold_control, SEE_CLUSTER, promises_state=False
            ),
            Code.SET_COMMITLOG_READ_MODE: administers(self.set_read_mode, CHANGE_CLUSTER),
        }

    def timer_check_point(self, _request: Request) -> Response:
        """60: return the progress of timers, the first 56 bytes of RocketMQ's config/timercheck."""
        timers, now_ms = self._timers, self._now_ms()
        offset = timers.queue.offset
        check = TimerCheck(
            timers.get_delivered_until_ms(now_ms), 0, offset, offset, 0, now_ms, offset
        )
        return Response(body=encode_fields(check))

    async def timer_metrics(self, _request: Request) -> Response:
        """61: return the number of waiting timed messages by topic. Reads each of them."""
        counts: dict[str, int] = {}
        looked = looked_bytes = 0
        for entry in self._timers.index.pending():
            looked += 1
            if looked > MESSAGES_PER_TURN or looked_bytes > BYTES_PER_TURN:
                looked = looked_bytes = 0
                await next_slice()
            record = (
                self._store.reading.reader.record(entry.log_offset) if entry is not None else b""
            )
            if record:
                looked_bytes += len(record)
                topic = decode_message(record).properties.get(PROPERTY_REAL_TOPIC, "")
                counts[topic] = counts.get(topic, 0) + 1
        now_ms = self._now_ms()
        return json_response(
            {
                "dataVersion": {"counter": 1, "stateVersion": 0, "timestamp": now_ms},
                "timingCount": {
                    topic: {"count": count, "timeStamp": now_ms}
                    for topic, count in sorted(counts.items())
                },
            }
        )

    async def query_consume_queue(self, request: Request) -> Response:
        """321: return raw entries of a consume queue, and a group's filter."""
        fields = request.fields(QueryConsumeQueueRequest)
        name = f"{fields.queue_id}@{fields.topic}"
        if not self._store.reading.has_queue(fields.topic, fields.queue_id):
            raise Refusal(f"{name} is not exist!")
        low, high = self._store.reading.queue_range(fields.topic, fields.queue_id)
        if not low <= fields.index < high:
            return Response(ResponseCode.SUCCESS, f"Index {fields.index} of {name} is not exist!")
        count = max(min(fields.count, ROWS_MAX), 0)
        units = self._store.reading.queue_units(fields.topic, fields.queue_id, fields.index, count)
        answer = self._filter_of(fields) | {"maxQueueIndex": high, "minQueueIndex": low}

        def describe() -> object:
            rows = [
                {"eval": False, "physicOffset": offset, "physicSize": size, "tagsCode": code}
                for offset, size, code in CONSUME_QUEUE_UNIT.iter_unpack(units)
            ]
            return answer | {"queueData": rows}

        return await long_json_response(describe)

    def _filter_of(self, fields: QueryConsumeQueueRequest) -> dict[str, Any]:
        if fields.consumer_group is None:
            return {}
        online = self._consumers.get(fields.consumer_group)
        subscription = None if online is None else online.subscription(fields.topic)
        if subscription is None:
            return {"filterData": f"{fields.consumer_group}@{fields.topic} is not online!"}
        return {
            "filterData": "null",
            "subscriptionData": SubscriptionData.from_subscription(subscription),
        }

    def delete_expired(self, _request: Request) -> Response:
        """329: delete expired commit log files now, whatever deleteWhen says."""
        self._store.retention.ask()
        log.info("an administrator requested the deletion of expired commit log files")
        return Response()

    def ha_status(self, _request: Request) -> Response:
        """907: return the status of a master without slaves."""
        return json_response(
            {
                "haClientRuntimeInfo": {
                    "lastReadTimestamp": 0,
                    "lastWriteTimestamp": 0,
                    "masterFlushOffset": 0,
                    "maxOffset": 0,
                    "transferredByteInSecond": 0,
                },
                "haConnectionInfo": [],
                "inSyncSlaveNums": 0,
                "master": True,
                "masterCommitLogMaxOffset": self._store.log.written_offset,
            }
        )

    def rocksdb_progress(self, _request: Request) -> Response:
        """354: return RocketMQ's answer for consume queues in files."""
        return json_response({"checkStatus": CHECK_IN_PROGRESS})

    async def export_config(self, request: Request) -> Response:
        """355: save the tables, which are JSON files already."""
        for kind in request.fields(ExportConfigRequest).config_type.rstrip(";").split(";"):
            if kind.strip().lower() not in EXPORTABLE:
                raise Refusal(
                    f"Unknown config type: {kind[:80]}; topics, subscriptionGroups and "
                    "consumerOffsets can be exported"
                )
        for table in (self._topics, self._groups, self._offsets):
            await table.saved()
        return Response(ResponseCode.SUCCESS, "export done.")

    def update_cold_control(self, request: Request) -> Response:
        """2001: store how many bytes of cold data a group may read.

        The value is only stored and returned, as in RocketMQ while coldDataFlowControlEnable is
        off: groups do not slow each other down here.
        """
        if len(request.body) > COLD_BODY_SIZE_BYTES_MAX:
            raise Refusal("the body is longer than 1 MiB")
        for group, text in decode_properties_text(request.body).items():
            if len(self._cold_thresholds) >= COLD_GROUPS_MAX and group not in self._cold_thresholds:
                raise Refusal(f"more than {COLD_GROUPS_MAX} groups have a threshold")
            if text.isdecimal() and len(text) < 19:
                self._cold_thresholds[group] = int(text)
        return Response()

    def remove_cold_control(self, request: Request) -> Response:
        """2002: delete the threshold of a group."""
        self._cold_thresholds.pop(request.body.decode(errors="replace"), None)
        return Response()

    def cold_control(self, _request: Request) -> Response:
        """2003: return the thresholds."""
        return json_response(
            {
                "runtimeTable": {},
                "configTable": dict(self._cold_thresholds),
                "cgColdReadThreshold": COLD_READ_THRESHOLD_BYTES,
                "globalColdReadThreshold": COLD_READ_THRESHOLD_ALL_BYTES,
                "globalAcc": 0,
            }
        )

    def set_read_mode(self, request: Request) -> Response:
        """2004: set whether the kernel reads ahead in the commit log: 0 it does, 1 it does not."""
        mode = request.fields(ReadAheadModeRequest).mode
        if not (mode or "").lstrip("-").isdecimal():
            raise Refusal("set commitlog readahead mode failed")
        if mode not in (READ_AHEAD_NORMAL, READ_AHEAD_RANDOM):
            raise InvalidParameter("set commitlog readahead mode param value error")
        self._store.opened.set_read_ahead(enabled=mode == READ_AHEAD_NORMAL)
        return Response(ResponseCode.SUCCESS, f"set commitlog readahead mode success, mode: {mode}")
