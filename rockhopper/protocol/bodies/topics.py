"""Topics: their settings, lists of them, and their registration with a name server."""

import struct
import zlib
from typing import Any

from msgspec import field

from rockhopper.protocol import fastjson
from rockhopper.protocol.bodies.body import Body, convert
from rockhopper.protocol.errors import MalformedBodyError
from rockhopper.protocol.frame import FRAME_SIZE_BYTES_MAX

REGISTRATION_SIZE_BYTES_MAX = FRAME_SIZE_BYTES_MAX
_INT32 = struct.Struct(">i")


class DataVersion(Body, rename="camel"):
    """The version of a table; two are equal only if all three fields are."""

    counter: int = 0
    state_version: int = 0
    timestamp: int = 0


class TopicConfig(Body, rename="camel"):
    """The settings of a topic."""

    topic_name: str
    read_queue_nums: int = 16
    write_queue_nums: int = 16
    perm: int = 6
    topic_filter_type: str = "SINGLE_TAG"
    topic_sys_flag: int = 0
    order: bool = False
    attributes: dict[str, str] = field(default_factory=dict)


class TopicConfigTable(Body, rename="camel"):
    """The answer to GET_ALL_TOPIC_CONFIG (21), and part of a registration.

    TopicConfigAndMappingSerializeWrapper in RocketMQ; the mappings are those of static topics.
    """

    topic_config_table: dict[str, TopicConfig] = field(default_factory=dict)
    data_version: DataVersion = field(default_factory=DataVersion)
    mapping_data_version: DataVersion = field(default_factory=DataVersion)
    topic_queue_mapping_detail_map: dict[str, Any] = field(default_factory=dict)
    topic_queue_mapping_info_map: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def from_json(cls, value: Any) -> "TopicConfigTable":
        """See Body; a topic without a name has that of its key. Raises MalformedBodyError."""
        if not isinstance(value, dict) or not isinstance(value.get("topicConfigTable"), dict):
            return convert(value, cls)
        table = convert({**value, "topicConfigTable": {}}, cls)
        # One by one: converting a hundred thousand in one call would block all other threads.
        for name, topic in value["topicConfigTable"].items():
            if isinstance(topic, dict):
                topic.setdefault("topicName", name)
            if topic is not None:
                table.topic_config_table[name] = convert(topic, TopicConfig)
        return table


class RegisterBrokerBody(Body, rename="camel"):
    """The body of REGISTER_BROKER (103).

    Compressed, it is a zlib stream: size and JSON of the data version; number of topics, size and
    text of each; size and JSON of the filter servers; from version 413 on, the number of mappings,
    size and JSON of each. Sizes and numbers are 4 bytes, big-endian.
    """

    topic_config_serialize_wrapper: TopicConfigTable = field(default_factory=TopicConfigTable)
    filter_server_list: list[str] = field(default_factory=list)

    @classmethod
    def from_json(cls, value: Any) -> "RegisterBrokerBody":
        """See Body. Raises MalformedBodyError."""
        if isinstance(value, dict) and isinstance(value.get("topicConfigSerializeWrapper"), dict):
            table = TopicConfigTable.from_json(value["topicConfigSerializeWrapper"])
            rest = {k: v for k, v in value.items() if k != "topicConfigSerializeWrapper"}
            body = convert(rest, cls)
            body.topic_config_serialize_wrapper = table
            return body
        return convert(value, cls)

    @classmethod
    def decode_registration(
        cls, data: bytes, *, compressed: bool = False, version: int = 479
    ) -> "RegisterBrokerBody":
        """Decode the registration of a broker of MQVersion *version*. Raises MalformedBodyError."""
        if compressed:
            return _decode_compressed(data)
        if version < 37:
            return cls(TopicConfigTable.decode(data))
        return cls.decode(data)

    def encode_compressed(self) -> bytes:
        """Encode the compressed form, with mappings."""
        table = self.topic_config_serialize_wrapper
        parts = [_add_size(table.data_version.encode())]
        parts.append(_INT32.pack(len(table.topic_config_table)))
        parts += [
            _add_size(topic_text(topic).encode()) for topic in table.topic_config_table.values()
        ]
        parts.append(_add_size(fastjson.dumps(self.filter_server_list).encode()))
        mappings = table.topic_queue_mapping_info_map
        parts.append(_INT32.pack(len(mappings)))
        parts += [_add_size(fastjson.dumps(mapping).encode()) for mapping in mappings.values()]
        return zlib.compress(b"".join(parts))


def topic_text(topic: TopicConfig) -> str:
    """Return a topic's settings in one line: TopicConfig.encode in RocketMQ."""
    return (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type} {fastjson.dumps(topic.attributes)}"
    )


def parse_topic_text(text: str) -> TopicConfig:
    """Parse the settings in a line; attributes may be absent. Raises MalformedBodyError."""
    fields = text.split(" ", 5)
    try:
        name, reads, writes, perm, filter_type = fields[:5]
        topic = TopicConfig(name, int(reads), int(writes), int(perm), filter_type)
    except ValueError:
        raise MalformedBodyError(f"'{text[:80]}' does not describe a topic") from None
    if len(fields) == 6 and fields[5].strip():
        topic.attributes = convert(fastjson.loads(fields[5]), dict[str, str])
    return topic


def _add_size(data: bytes) -> bytes:
    return _INT32.pack(len(data)) + data


class _BytesReader:
    """Reads numbers and sized pieces in sequence."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    @property
    def is_at_end(self) -> bool:
        return self._position == len(self._data)

    def number(self) -> int:
        end = self._position + 4
        if end > len(self._data):
            raise MalformedBodyError("the compressed registration ends early")
        (value,) = _INT32.unpack_from(self._data, self._position)
        self._position = end
        return int(value)

    def piece(self) -> bytes:
        size = self.number()
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise MalformedBodyError(f"the compressed registration announces {size} bytes")
        data = self._data[self._position : end]
        self._position = end
        return data

    def text(self) -> str:
        try:
            return self.piece().decode()
        except UnicodeDecodeError as error:
            raise MalformedBodyError(f"the compressed registration is not UTF-8: {error}") from None


def _decode_compressed(data: bytes) -> RegisterBrokerBody:
    decompressor = zlib.decompressobj()
    try:
        plain = decompressor.decompress(data, REGISTRATION_SIZE_BYTES_MAX + 1)
    except zlib.error as error:
        raise MalformedBodyError(f"the registration is not a zlib stream: {error}") from None
    if len(plain) > REGISTRATION_SIZE_BYTES_MAX:
        raise MalformedBodyError(
            f"the registration becomes larger than {REGISTRATION_SIZE_BYTES_MAX} bytes when "
            "decompressed, which is the most that an uncompressed one may have"
        )
    if not decompressor.eof:
        raise MalformedBodyError("the compressed registration ends early")
    reader = _BytesReader(plain)
    version = DataVersion.decode(reader.text())
    topics: dict[str, TopicConfig] = {}
    for _ in range(reader.number()):
        topic = parse_topic_text(reader.text())
        topics[topic.topic_name] = topic
    servers = convert(fastjson.loads(reader.text() or "[]"), list[str])
    mappings: dict[str, Any] = {}
    for _ in range(0 if reader.is_at_end else reader.number()):
        mapping = fastjson.loads(reader.text())
        if isinstance(mapping, dict):
            mappings[str(mapping.get("topic"))] = mapping
    table = TopicConfigTable(topics, version, topic_queue_mapping_info_map=mappings)
    return RegisterBrokerBody(table, servers)


class TopicList(Body, rename="camel"):
    """The answer to 206, 224, 304, 305 and 343."""

    topic_list: list[str] = field(default_factory=list)
    broker_addr: str | None = None


class GroupList(Body, rename="camel"):
    """The answer to QUERY_TOPIC_CONSUME_BY_WHO (300)."""

    group_list: list[str] = field(default_factory=list)


ROCKHOPPER_VERSION = "rockhopperVersion"
"""The key of Rockhopper's own version, besides the RocketMQ version of its protocol."""

ACCESS = "rockhopperAccess"
"""The key of a text that describes who may use a broker; Rockhopper's own too."""


class KVTable(Body, rename="camel"):
    """Pairs of strings: the answer to 28, 103 and 219."""

    table: dict[str, str] = field(default_factory=dict)
