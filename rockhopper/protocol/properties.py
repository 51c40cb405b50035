r"""Message properties: their names, and the string that encodes them.

The string is ``name \x01 value \x02`` for each property, UTF-8, at most 32,767 bytes. The two
separators cannot be escaped. Some clients omit the last \x02. Readers drop a part without a name or
a value, so a property with an empty value is lost.
"""

from collections.abc import Iterable, Mapping

PROPERTY_KEYS = "KEYS"
PROPERTY_TAGS = "TAGS"
PROPERTY_WAIT = "WAIT"
PROPERTY_DELAY_LEVEL = "DELAY"
PROPERTY_RETRY_TOPIC = "RETRY_TOPIC"
PROPERTY_REAL_TOPIC = "REAL_TOPIC"
PROPERTY_REAL_QUEUE_ID = "REAL_QID"
PROPERTY_TRANSACTION_PREPARED = "TRAN_MSG"
PROPERTY_PRODUCER_GROUP = "PGROUP"
PROPERTY_MIN_OFFSET = "MIN_OFFSET"
PROPERTY_MAX_OFFSET = "MAX_OFFSET"
PROPERTY_BUYER_ID = "BUYER_ID"
PROPERTY_ORIGIN_MESSAGE_ID = "ORIGIN_MESSAGE_ID"
PROPERTY_TRANSFER_FLAG = "TRANSFER_FLAG"
PROPERTY_CORRECTION_FLAG = "CORRECTION_FLAG"
PROPERTY_MQ2_FLAG = "MQ2_FLAG"
PROPERTY_RECONSUME_TIME = "RECONSUME_TIME"
PROPERTY_MSG_REGION = "MSG_REGION"
PROPERTY_TRACE_SWITCH = "TRACE_ON"
PROPERTY_UNIQUE_KEY = "UNIQ_KEY"
PROPERTY_EXTEND_UNIQUE_INFO = "EXTEND_UNIQ_INFO"
PROPERTY_MAX_RECONSUME_TIMES = "MAX_RECONSUME_TIMES"
PROPERTY_CONSUME_START_TIME = "CONSUME_START_TIME"
PROPERTY_INNER_NUM = "INNER_NUM"
PROPERTY_INNER_BASE = "INNER_BASE"
PROPERTY_DUP_INFO = "DUP_INFO"
PROPERTY_CHECK_IMMUNITY_TIME = "CHECK_IMMUNITY_TIME_IN_SECONDS"
PROPERTY_TRANSACTION_PREPARED_QUEUE_OFFSET = "TRAN_PREPARED_QUEUE_OFFSET"
PROPERTY_TRANSACTION_ID = "__transactionId__"
PROPERTY_TRANSACTION_CHECK_TIMES = "TRANSACTION_CHECK_TIMES"
PROPERTY_INSTANCE_ID = "INSTANCE_ID"
PROPERTY_CORRELATION_ID = "CORRELATION_ID"
PROPERTY_REPLY_TO_CLIENT = "REPLY_TO_CLIENT"
PROPERTY_TTL = "TTL"
PROPERTY_ARRIVE_TIME = "ARRIVE_TIME"
PROPERTY_PUSH_REPLY_TIME = "PUSH_REPLY_TIME"
PROPERTY_CLUSTER = "CLUSTER"
PROPERTY_MESSAGE_TYPE = "MSG_TYPE"
PROPERTY_POP_CK = "POP_CK"
PROPERTY_POP_CK_OFFSET = "POP_CK_OFFSET"
PROPERTY_FIRST_POP_TIME = "1ST_POP_TIME"
PROPERTY_SHARDING_KEY = "__SHARDINGKEY"
PROPERTY_PRIORITY = "_SYS_MSG_PRIORITY_"
PROPERTY_LITE_TOPIC = "__LITE_TOPIC"
PROPERTY_FORWARD_QUEUE_ID = "PROPERTY_FORWARD_QUEUE_ID"
PROPERTY_REDIRECT = "REDIRECT"
PROPERTY_INNER_MULTI_DISPATCH = "INNER_MULTI_DISPATCH"
PROPERTY_INNER_MULTI_QUEUE_OFFSET = "INNER_MULTI_QUEUE_OFFSET"
PROPERTY_TRACE_CONTEXT = "TRACE_CONTEXT"
PROPERTY_TIMER_DELAY_SEC = "TIMER_DELAY_SEC"
PROPERTY_TIMER_DELAY_MS = "TIMER_DELAY_MS"
PROPERTY_TIMER_DELIVER_MS = "TIMER_DELIVER_MS"
PROPERTY_BORN_HOST = "__BORNHOST"
PROPERTY_BORN_TIMESTAMP = "BORN_TIMESTAMP"
PROPERTY_TIMER_ENQUEUE_MS = "TIMER_ENQUEUE_MS"
PROPERTY_TIMER_DEQUEUE_MS = "TIMER_DEQUEUE_MS"
PROPERTY_TIMER_ROLL_TIMES = "TIMER_ROLL_TIMES"
PROPERTY_TIMER_OUT_MS = "TIMER_OUT_MS"
PROPERTY_TIMER_DEL_UNIQUE_KEY = "TIMER_DEL_UNIQKEY"
PROPERTY_TIMER_DELAY_LEVEL = "TIMER_DELAY_LEVEL"
PROPERTY_CRC32 = "__CRC32#"
PROPERTY_DLQ_ORIGIN_TOPIC = "DLQ_ORIGIN_TOPIC"
PROPERTY_DLQ_ORIGIN_MESSAGE_ID = "DLQ_ORIGIN_MESSAGE_ID"
PROPERTY_TRANSIENT_TOPIC_SYS_FLAG = "__RMQ.TRANSIENT.TOPIC_SYS_FLAG"
PROPERTY_TRANSIENT_GROUP_SYS_FLAG = "__RMQ.TRANSIENT.GROUP_SYS_FLAG"

NAME_VALUE_SEPARATOR = "\x01"
PROPERTY_SEPARATOR = "\x02"
PROPERTIES_SIZE_BYTES_MAX = 32_767

# MessageConst.STRING_HASH_SET: names that a Java producer reserves.
SYSTEM_PROPERTIES = frozenset(
    value for name, value in sorted(globals().items()) if name.startswith("PROPERTY_")
) - {PROPERTY_SEPARATOR}

# Properties that a broker adds to a copy of a message, and that the copy can do without. The first
# is left out first.
OPTIONAL_PROPERTIES = (
    PROPERTY_TIMER_DEQUEUE_MS,
    PROPERTY_TIMER_ENQUEUE_MS,
    PROPERTY_TIMER_ROLL_TIMES,
    PROPERTY_TRANSACTION_CHECK_TIMES,
    PROPERTY_WAIT,
    PROPERTY_TRANSACTION_ID,
    PROPERTY_FIRST_POP_TIME,
    PROPERTY_ORIGIN_MESSAGE_ID,
)
# Of a message with TIMER_OUT_MS, which has what these say.
TIMER_OPTIONAL_PROPERTIES = (
    *OPTIONAL_PROPERTIES,
    PROPERTY_TIMER_DELAY_SEC,
    PROPERTY_TIMER_DELAY_MS,
    PROPERTY_TIMER_DELIVER_MS,
)
DEAD_LETTER_OPTIONAL_PROPERTIES = (*OPTIONAL_PROPERTIES, PROPERTY_DELAY_LEVEL, PROPERTY_RETRY_TOPIC)

_DIGITS_MAX = 18
_INT64_MAX = 2**63 - 1
_UTF_8_BYTES_MAX = 4


def encode_properties(properties: dict[str, str]) -> str:
    r"""Return the encoded *properties*; the string ends with \x02 unless there are none.

    Raises:
        ValueError: a name or a value contains one of the separators.
    """
    text = join_properties(properties)
    if text.count("\x01") != len(properties) or text.count("\x02") != len(properties):
        for name, value in properties.items():
            for part in (name, value):
                if "\x01" in part or "\x02" in part:
                    raise ValueError(
                        f"property {name!r} contains the character 1 or 2, which separate "
                        "properties"
                    )
    return text


def join_properties(properties: dict[str, str]) -> str:
    """Return the encoded *properties* of a stored message.

    As in RocketMQ, a value with the character 1, sent by some client, is passed on unchanged.
    """
    return "".join([f"{name}\x01{value}\x02" for name, value in properties.items()])


def fit_properties(
    properties: dict[str, str],
    optional: Iterable[str] = OPTIONAL_PROPERTIES,
    *,
    size_bytes_max: int = PROPERTIES_SIZE_BYTES_MAX,
) -> dict[str, str]:
    """Return *properties*; without some of the *optional* ones, if they are too long together.

    They may be too long nevertheless.
    """
    text = join_properties(properties)
    if len(text) * _UTF_8_BYTES_MAX <= size_bytes_max:
        return properties
    excess_bytes = properties_size_bytes(properties) - size_bytes_max
    fitting = dict(properties)
    for name in optional:
        if excess_bytes <= 0:
            break
        if name in fitting:
            excess_bytes -= properties_size_bytes({name: fitting.pop(name)})
    return fitting


def properties_size_bytes(properties: dict[str, str]) -> int:
    """Return the size of the encoded *properties* of a stored message."""
    return len(join_properties(properties).encode("utf-8", "replace"))


def decode_properties(text: str | bytes) -> dict[str, str]:
    """Return the properties in a string; the last one if a name is repeated.

    Bytes that are not UTF-8 become U+FFFD, as in Java.
    """
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    properties = {}
    for pair in text.split("\x02"):
        name, _, value = pair.partition("\x01")
        if name and value:
            properties[name] = value
    return properties


def parse_whole_number(text: str | None) -> int:
    """Return the number in a property; 2**63 - 1 for more than 18 digits, −1 for none."""
    if text is None or not (text.isascii() and text.isdigit()):
        return -1
    # Python refuses to convert thousands of digits.
    return int(text) if len(text) <= _DIGITS_MAX else _INT64_MAX


def is_popped_copy(properties: Mapping[str, str]) -> bool:
    """Whether a message in a retry topic without ``+`` was put there by a failed pop.

    Such a copy is not for the pulling consumers of the group: copies for those contain their topic.
    """
    return PROPERTY_FIRST_POP_TIME in properties and PROPERTY_RETRY_TOPIC not in properties
