"""The topics and groups of the mixed load, and the broker's settings for it."""

from rockhopper.client import Admin
from rockhopper.protocol.bodies.sinks import SinkMessage

QUEUES = 2
PLAIN, BATCHES, ORDERED, LATER, TIMED, PAID = (
    "plain",
    "batches",
    "ordered",
    "later",
    "timed",
    "paid",
)
PARCELS, RETURNED, SUNK, QUESTIONS = "parcels", "returned", "sunk", "questions"
FLOODED, CROWDED = "flooded", "crowded"
TOPICS = (
    *(PLAIN, BATCHES, ORDERED, LATER, TIMED, PAID),
    *(PARCELS, RETURNED, SUNK, QUESTIONS, FLOODED, CROWDED),
)
RETRY, DEAD = "%RETRY%returners", "%DLQ%returners"
READ_BACK = (*(topic for topic in TOPICS if topic not in (PARCELS, FLOODED)), RETRY, DEAD)
"""Topics whose facts are checked by pulling; parcels are checked by pulling and by popping."""

PAYERS, READERS, RETURNERS, PICKERS, ANSWERERS = (
    "payers",
    "readers",
    "returners",
    "pickers",
    "answerers",
)
SINK = "chaos"

SETTINGS = {
    "messageDelayLevel": "1s 2s 3s",
    "transactionTimeOut": 500,
    "transactionCheckInterval": 500,
    "flushConsumerOffsetInterval": 1000,
    "cleanFileForciblyEnable": "false",
    # The fullness of the machine's own disk must not affect the broker.
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceCleanForciblyRatio": 95,
    "diskSpaceWarningLevelRatio": 99,
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
}


def options(**changes: object) -> tuple[str, ...]:
    """Return the options of a broker for the load."""
    given = SETTINGS | changes
    return tuple(part for key, value in given.items() for part in ("--set", f"{key}={value}"))


def queue_count(topic: str) -> int:
    """Return the number of queues of a topic."""
    return 1 if topic == PARCELS or topic.startswith("%") else QUEUES


def sink_message(body: bytes, queue_id: int) -> SinkMessage:
    """Return a message of a sink's batch."""
    return SinkMessage(SUNK, queue_id, 0, 1_700_000_000_000, "", body)


async def create_topics(nameserver: str) -> None:
    """Create the topics with few queues, so that every queue is used and has files."""
    async with Admin(nameserver, request_timeout_s=60) as admin:
        for topic in TOPICS:
            await admin.create_topic(topic, queues=queue_count(topic))
