"""The topics and groups of the mixed load, and how a broker is set up for it."""

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
FLOODED = "flooded"
TOPICS = (PLAIN, BATCHES, ORDERED, LATER, TIMED, PAID, PARCELS, RETURNED, SUNK, QUESTIONS, FLOODED)
RETRY, DEAD = "%RETRY%returners", "%DLQ%returners"
READ_BACK = (*(topic for topic in TOPICS if topic not in (PARCELS, FLOODED)), RETRY, DEAD)
"""Where facts are looked for by pulling; parcels are looked at by pulling and by popping."""

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
    # Nobody is told that the machine's own disk is full.
    "diskMaxUsedSpaceRatio": 95,
    "diskSpaceCleanForciblyRatio": 95,
    "diskSpaceWarningLevelRatio": 99,
    "mappedFileSizeCommitLog": 4 << 20,
    "mappedFileSizeConsumeQueue": 20_000,
    "maxHashSlotNum": 5_000,
    "maxIndexNum": 20_000,
}


def options(**changes: object) -> tuple[str, ...]:
    """The command line of a broker for the load."""
    given = SETTINGS | changes
    return tuple(part for key, value in given.items() for part in ("--set", f"{key}={value}"))


def queue_count(topic: str) -> int:
    """How many queues a topic has."""
    return 1 if topic == PARCELS or topic.startswith("%") else QUEUES


def sink_message(body: bytes, queue_id: int) -> SinkMessage:
    """A message of a sink's batch."""
    return SinkMessage(SUNK, queue_id, 0, 1_700_000_000_000, "", body)


async def create_topics(nameserver: str) -> None:
    """Make the topics, with few queues, so that every queue gets files and use."""
    async with Admin(nameserver, request_timeout_s=60) as admin:
        for topic in TOPICS:
            await admin.create_topic(topic, queues=queue_count(topic))
