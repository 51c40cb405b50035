"""Names of topics and groups: which are valid, and which belong to the system.

Names become directories of the store, so only letters, digits and ``_ - % |`` are allowed.
"""

import re
from collections.abc import Iterator

TOPIC_SIZE_MAX = 127
DERIVED_TOPIC_SIZE_MAX = 255
GROUP_SIZE_MAX = 120
PRODUCER_GROUP_LENGTH_MAX = 4096
"""RocketMQ accepts any producer group, as no file has its name; Rockhopper limits the length."""

RETRY_PREFIX = "%RETRY%"
DLQ_PREFIX = "%DLQ%"
LMQ_PREFIX = "%LMQ%"
SYSTEM_TOPIC_PREFIX = "rmq_sys_"
SYSTEM_GROUP_PREFIX = "CID_RMQ_SYS_"
REPLY_TOPIC_SUFFIX = "REPLY_TOPIC"

# The template for topics that a first send creates (autoCreateTopicEnable).
AUTO_CREATE_TOPIC = "TBW102"
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
BENCHMARK_TOPIC = "BenchmarkTest"
TRANSACTION_HALF_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC"
TRANSACTION_OP_HALF_TOPIC = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
TRANSACTION_CHECK_MAX_TIME_TOPIC = "TRANS_CHECK_MAX_TIME_TOPIC"
TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
SELF_TEST_TOPIC = "SELF_TEST_TOPIC"
OFFSET_MOVED_EVENT_TOPIC = "OFFSET_MOVED_EVENT"
CHECKPOINT_TOPIC = "CHECKPOINT_TOPIC"
TIMER_TOPIC = "rmq_sys_wheel_timer"
# RocketMQ records pops and acknowledgements in one such topic per cluster, read by this group.
REVIVE_TOPIC_PREFIX = "rmq_sys_REVIVE_LOG_"
REVIVE_GROUP = SYSTEM_GROUP_PREFIX + "REVIVE_GROUP"
# Rockhopper's own: the state of a replica set besides its messages.
STATE_TOPIC = "rmq_sys_rockhopper_state"

PROBE_FIELD = "rockhopperProbe"
"""Marks a request by which a replica checks whether another one serves: never forwarded."""

SYSTEM_TOPICS = frozenset(
    {
        AUTO_CREATE_TOPIC,
        SCHEDULE_TOPIC,
        BENCHMARK_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRACE_TOPIC,
        TRANSACTION_OP_HALF_TOPIC,
        TRANSACTION_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        CHECKPOINT_TOPIC,
    }
)
NOT_SENDABLE_TOPICS = frozenset(
    {
        SCHEDULE_TOPIC,
        TRANSACTION_HALF_TOPIC,
        TRANSACTION_OP_HALF_TOPIC,
        TRANSACTION_CHECK_MAX_TIME_TOPIC,
        SELF_TEST_TOPIC,
        OFFSET_MOVED_EVENT_TOPIC,
        TIMER_TOPIC,
        STATE_TOPIC,
    }
)

TOOLS_CONSUMER_GROUP = "TOOLS_CONSUMER"
CLIENT_INNER_PRODUCER_GROUP = "CLIENT_INNER_PRODUCER"
# Groups that every RocketMQ broker has from the start.
SYSTEM_GROUPS = frozenset(
    {
        TOOLS_CONSUMER_GROUP,
        "FILTERSRV_CONSUMER",
        "SELF_TEST_C_GROUP",
        "CID_ONS-HTTP-PROXY",
        "CID_ONSAPI_PULL",
        "CID_ONSAPI_PERMISSION",
        "CID_ONSAPI_OWNER",
        "CID_RMQ_SYS_TRANS",
    }
)
# Names that clients use by default, besides the groups above.
PREDEFINED_GROUPS = SYSTEM_GROUPS | {
    "DEFAULT_PRODUCER",
    "DEFAULT_CONSUMER",
    "SCHEDULE_CONSUMER",
    "__MONITOR_CONSUMER",
    CLIENT_INNER_PRODUCER_GROUP,
    "SELF_TEST_P_GROUP",
}

_is_well_formed = re.compile(r"[%|a-zA-Z0-9_-]+").fullmatch
_ALLOWED = "letters, digits, '_', '-', '%' and '|'"


def tag_error(tag: str) -> str | None:
    """Return why a tag cannot be sent, as a sentence; None if it can."""
    if tag.isspace():
        return f"the tag {tag!r} is blank, so no consumer could subscribe to it: leave it out"
    if tag != tag.strip():
        return (
            f"the tag {tag!r} starts or ends with a blank, so no consumer could subscribe to "
            f"it: use {tag.strip()!r}"
        )
    if "||" not in tag:
        return None
    return (
        f"the tag {tag!r} contains ||, which separates tags in a subscription, so no consumer "
        "could subscribe to it: a message has one tag"
    )


def surrogate_error(text: str) -> str | None:
    """Return why a text cannot be encoded in UTF-8; None if it can."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return (
            f"contains {text[error.start]!r}, half of a character, which UTF-8 cannot encode: "
            "decode the text with its own encoding first"
        )
    return None


def topic_error(name: str) -> str | None:
    """Return why *name* cannot be a topic, as a sentence; None if it can."""
    derived = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
    if name.startswith(RETRY_PREFIX):
        group, joint, topic = name.partition("+")
        name = f"{group}_{topic}" if joint and topic else name
    return _name_error("topic", name, DERIVED_TOPIC_SIZE_MAX if derived else TOPIC_SIZE_MAX)


def group_error(name: str) -> str | None:
    """Return why *name* cannot be a consumer group, as a sentence; None if it can."""
    return _name_error("group", name, GROUP_SIZE_MAX)


def is_producer_group(name: str) -> bool:
    """Whether *name* can be a producer group: short enough, and without control characters."""
    return len(name) <= PRODUCER_GROUP_LENGTH_MAX and name.isprintable()


def _name_error(kind: str, name: str, size_max: int) -> str | None:
    if not name or name.isspace():
        return f"the {kind} is blank: give it a name"
    if len(name) > size_max:
        return f"the {kind} '{name[:40]}...' has {len(name)} characters; {size_max} are allowed"
    if not _is_well_formed(name):
        return f"the {kind} {name!r} contains characters other than {_ALLOWED}"
    return None


def is_system_topic(name: str) -> bool:
    """Whether *name* is a system topic, regardless of the names of cluster and broker."""
    return name in SYSTEM_TOPICS or name.startswith(SYSTEM_TOPIC_PREFIX)


def is_system_group(name: str) -> bool:
    """Whether *name* is a group of tools and brokers, not of applications."""
    return name in SYSTEM_GROUPS or name.startswith(SYSTEM_GROUP_PREFIX)


def retry_topic(group: str) -> str:
    """Return the topic for the messages that *group* wants redelivered."""
    return RETRY_PREFIX + group


def group_of_retry_topic(topic: str) -> str:
    """Return the group of a retry topic.

    ``%RETRY%group+topic`` contains the popped messages of one topic; ``+`` is not allowed in names.
    """
    return topic.removeprefix(RETRY_PREFIX).partition("+")[0]


def pop_retry_topic(group: str, topic: str) -> str:
    """Return the retry topic of messages of *topic* that *group* popped and did not acknowledge."""
    return f"{RETRY_PREFIX}{group}+{topic}"


def older_pop_retry_topic(group: str, topic: str) -> str:
    """Return the retry topic of RocketMQ without enableRetryTopicV2, and of Rockhopper up to 0.1.

    The name is ambiguous: ``a_b_c`` can mean group ``a_b`` and topic ``c``, or the retry topic of a
    group ``a_b_c`` that pulls.
    """
    return f"{RETRY_PREFIX}{group}_{topic}"


def pop_retry_topics(group: str, topic: str) -> tuple[str, str]:
    """Return both retry topics; the first is the one that this broker writes."""
    return pop_retry_topic(group, topic), older_pop_retry_topic(group, topic)


def pop_owners(name: str) -> Iterator[tuple[str, str]]:
    """Yield the groups and topics whose failed pops may be in a retry topic.

    A name without ``+`` may yield several.
    """
    joined = name.removeprefix(RETRY_PREFIX)
    if joined == name:
        return
    joint = "+" if "+" in joined else "_"
    for at, letter in enumerate(joined):
        if letter == joint and 0 < at < len(joined) - 1:
            yield joined[:at], joined[at + 1 :]


def dlq_topic(group: str) -> str:
    """Return the topic of the dead letters of *group*."""
    return DLQ_PREFIX + group


def is_retry_topic(topic: str) -> bool:
    """Whether *topic* contains messages for redelivery."""
    return topic.startswith(RETRY_PREFIX)


def is_dlq_topic(topic: str) -> bool:
    """Whether *topic* contains dead letters."""
    return topic.startswith(DLQ_PREFIX)


def reply_topic(cluster: str) -> str:
    """Return the topic for replies to request messages in *cluster*."""
    return f"{cluster}_{REPLY_TOPIC_SUFFIX}"
