"""The body of REGISTER_BROKER (103): which topics a broker serves, and their version.

Plain, it is JSON: ``{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{},
"topicConfigTable":{}}}``; brokers before V3_0_11 send the bare wrapper.  Compressed, it is a zlib
stream of, integers big-endian:

    4 + n   length and JSON of the data version
    4       number of topics; for each 4 + n: length and text
            ``name read-queues write-queues perm filter-type [attributes as JSON]``
    4 + n   length and JSON of the filter server list; what follows is not read here
"""

import struct
import zlib
from collections.abc import Iterator
from typing import Any

from broker.json_table import DataVersion
from broker.topics import TopicConfig
from protocol import fastjson
from protocol.errors import MalformedBodyError

_INT = struct.Struct(">i")
BODY_SIZE_BYTES_MAX = 64 << 20


def decode_registration_body(
    body: bytes, *, compressed: bool, is_bare: bool
) -> tuple[DataVersion, dict[str, TopicConfig]]:
    """The version and the topics.  Raises MalformedBodyError."""
    try:
        if compressed:
            return _decode_compressed(body)
        if not body:
            return DataVersion(), {}
        document = fastjson.loads(body)
        wrapper = document if is_bare else document["topicConfigSerializeWrapper"]
        table = wrapper.get("topicConfigTable") or {}
        topics = {name: TopicConfig.from_json(name, value) for name, value in table.items()}
        return DataVersion.from_json(wrapper.get("dataVersion")), topics
    except (AttributeError, KeyError, TypeError, ValueError, struct.error, zlib.error) as error:
        raise MalformedBodyError(f"the registration does not decode: {error}") from None


def _decode_compressed(body: bytes) -> tuple[DataVersion, dict[str, TopicConfig]]:
    inflater = zlib.decompressobj()
    data = inflater.decompress(body, BODY_SIZE_BYTES_MAX)
    if inflater.unconsumed_tail:
        raise ValueError(f"it has more than {BODY_SIZE_BYTES_MAX} bytes")
    version_text, position = _take(data, 0)
    (count,) = _INT.unpack_from(data, position)
    position += 4
    topics = {}
    for _ in range(count):
        text, position = _take(data, position)
        topic = _decode_topic(text)
        topics[topic.name] = topic
    return DataVersion.from_json(fastjson.loads(version_text)), topics


def _take(data: bytes, position: int) -> tuple[str, int]:
    (size,) = _INT.unpack_from(data, position)
    start, end = position + 4, position + 4 + size
    if size < 0 or end > len(data):
        raise ValueError(f"a length of {size} at byte {position} leads beyond the end")
    return data[start:end].decode(), end


def _decode_topic(text: str) -> TopicConfig:
    name, read_queue_nums, write_queue_nums, perm, filter_type, *rest = text.split(" ", 5)
    attributes = fastjson.loads(rest[0]) if rest and rest[0] else {}
    return TopicConfig(
        name,
        read_queue_nums=int(read_queue_nums),
        write_queue_nums=int(write_queue_nums),
        perm=int(perm),
        filter_type=filter_type,
        attributes={str(key): str(value) for key, value in attributes.items()},
    )


def topics_of(topic: str, route: Any) -> Iterator[tuple[str, TopicConfig]]:
    """(broker name, topic) for each queueDatas entry of a route body (217)."""
    try:
        for data in (route or {}).get("queueDatas") or ():
            yield (
                str(data["brokerName"]),
                TopicConfig(
                    topic,
                    read_queue_nums=int(data.get("readQueueNums", 0)),
                    write_queue_nums=int(data.get("writeQueueNums", 0)),
                    perm=int(data.get("perm", 0)),
                    sys_flag=int(data.get("topicSysFlag", 0)),
                ),
            )
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise MalformedBodyError(f"the route does not decode: {error}") from None
