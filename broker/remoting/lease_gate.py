"""LeaseGate: answers that promise state leave a replica only while nobody else can lead its set.

What the log promises needs no gate: a send is answered when every replica in sync holds its
message. Offsets, acknowledgements and locks are applied at once, and the replicas get them a
moment later. A master that was cut off, or stood still, would go on promising them while another
one leads:

    a commit comes, the gate is open     answered at once
    the master is cut off                what changes is not confirmed: its answers are held
    it is confirmed after all            they leave
    slaveTimeout passes, or it resigns   they leave as FLUSH_SLAVE_TIMEOUT: the client asks again

The question is asked when an answer is written, not when its request is served: a process may stand
still in between. A broker that is in no set has no gate.
"""

from collections.abc import Callable
from functools import partial
from typing import Protocol

from rockhopper.broker.remoting.dispatcher import unconfirmed_code
from rockhopper.broker.store.files.errors import NotReplicatedError, StoreError
from rockhopper.broker.store.flush import ParkedAnswers, Release
from rockhopper.protocol.codes import RequestCode as Code
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import decode_header, encode_command
from rockhopper.protocol.frame import HEADER_SIZE_BYTES_WRITABLE, FrameDecoder

PROMISES_NOTHING = frozenset(
    {
        # Answered when the log is safe.
        Code.SEND_MESSAGE,
        Code.SEND_MESSAGE_V2,
        Code.SEND_BATCH_MESSAGE,
        # A new master hands out again what was not acknowledged.
        Code.PULL_MESSAGE,
        Code.LITE_PULL_MESSAGE,
        Code.BULK_PULL,
        Code.BULK_PULL_QUEUES,
        Code.POP_MESSAGE,
        Code.PEEK_MESSAGE,
        Code.NOTIFICATION,
        Code.POLLING_INFO,
        # Clients say these again.
        Code.HEART_BEAT,
        Code.UNREGISTER_CLIENT,
        # They only read.
        Code.QUERY_MESSAGE,
        Code.VIEW_MESSAGE_BY_ID,
        Code.QUERY_CONSUMER_OFFSET,
        Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.GET_MAX_OFFSET,
        Code.GET_MIN_OFFSET,
        Code.GET_EARLIEST_MSG_STORETIME,
        Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.CHECK_CLIENT_CONFIG,
        Code.QUERY_ASSIGNMENT,
        Code.GET_ALL_MESSAGE_REQUEST_MODE,
        Code.GET_ALL_TOPIC_CONFIG,
        Code.GET_TOPIC_CONFIG,
        Code.GET_TOPIC_STATS_INFO,
        Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER,
        Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_SUBSCRIPTIONGROUP_CONFIG,
        Code.GET_CONSUMER_CONNECTION_LIST,
        Code.GET_PRODUCER_CONNECTION_LIST,
        Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
        Code.QUERY_TOPICS_BY_CONSUMER,
        Code.GET_CONSUME_STATS,
        Code.QUERY_CORRECTION_OFFSET,
        Code.QUERY_CONSUME_TIME_SPAN,
        Code.GET_BROKER_CONSUME_STATS,
        Code.GET_ALL_PRODUCER_INFO,
        Code.GET_CONSUMER_RUNNING_INFO,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
        Code.TOPIC_IDS,
        Code.SINK_STATUS,
        Code.SINK_HOME,
        Code.GET_BROKER_CONFIG,
        Code.DESCRIBE_CONFIG,
        Code.FIGURES,
        Code.GET_BROKER_RUNTIME_INFO,
        Code.VIEW_BROKER_STATS_DATA,
        Code.GET_ALL_CONSUMER_OFFSET,
        Code.GET_ALL_DELAY_OFFSET,
        Code.GET_TIMER_CHECK_POINT,
        Code.GET_TIMER_METRICS,
        Code.QUERY_CONSUME_QUEUE,
        Code.CHECK_ROCKSDB_CQ_WRITE_PROGRESS,
        Code.EXPORT_ROCKSDB_CONFIG_TO_JSON,
        Code.GET_COLD_DATA_FLOW_CTR_INFO,
        Code.AUTH_GET_USER,
        Code.AUTH_LIST_USER,
        Code.AUTH_GET_ACL,
        Code.AUTH_LIST_ACL,
        Code.EXPLAIN_ACCESS,
        # About the set itself, of a master that does not lead any more above all.
        Code.GET_BROKER_HA_STATUS,
        Code.GET_BROKER_EPOCH_CACHE,
        Code.GET_REPLICA_SET,
        Code.CHANGE_REPLICA_SET,
    }
)
"""Codes whose answers may leave at any time. A code that is not listed here is gated."""


class Writer(Protocol):
    """The connection of a client."""

    def write(self, data: bytes) -> None:
        """Send *data*."""


class LeaseGate:
    """Belongs to the event loop."""

    def __init__(self, is_open: Callable[[], bool], timeout_ms: int) -> None:
        """*is_open*: whether what is promised now outlives this master; asked for each answer."""
        self.is_open = is_open
        self._held = ParkedAnswers(timeout_ms, _why_not)
        self._refusal: StoreError | None = None

    def hold(self, release: Release) -> None:
        """Call *release* when the gate is open, or with why it did not open in time."""
        if self._refusal is None:
            self._held.park(0, release)
        else:
            release(self._refusal)

    def guards(self, code: int) -> bool:
        """Whether an answer to *code* promises state."""
        return code not in PROMISES_NOTHING

    def write(self, connection: Writer, code: int, frame: bytes) -> None:
        """Write the answer to a request of *code*, now or when it may leave."""
        if not self.guards(code) or self.is_open():
            connection.write(frame)
        else:
            self.hold(partial(_write, connection, frame))

    def hold_back(self, connection: Writer, answers: list[bytes], guarded: list[int]) -> None:
        """Empty those of *answers*, by their numbers, that must not be written now."""
        if not guarded or self.is_open():
            return
        frames = b"".join([answers[number] for number in guarded])
        for number in guarded:
            answers[number] = b""
        if frames:
            self.hold(partial(_write, connection, frames))

    def look(self) -> None:
        """Let go of what is held if the gate is open by now."""
        if self._held and self.is_open():
            self._held.release(0)

    def refuse(self, error: StoreError) -> None:
        """Answer everything that is held with *error*, and what would be held until ``begin``."""
        self._refusal = error
        self._held.fail(error)

    def begin(self) -> None:
        """Hold again what must not leave: this broker was elected."""
        self._refusal = None

    def close(self) -> None:
        """Stop watching the time."""
        self._held.close()


def _write(connection: Writer, frames: bytes, error: StoreError | None) -> None:
    connection.write(frames if error is None else unconfirmed_frames(frames, error))


def _why_not(_end_offset: int) -> StoreError:
    return NotReplicatedError(
        "this broker cannot reach the replicas of its set, and another one may lead by now: what "
        "was asked is not promised; ask a name service for the master, and ask it again"
    )


def unconfirmed_frames(frames: bytes, error: StoreError) -> bytes:
    """The same answers with a code that says: done here, but not confirmed because of *error*."""
    code = unconfirmed_code(error)
    answers = []
    # What we wrote: the answer to a large batch is larger than any header we take.
    decoder = FrameDecoder(header_size_bytes_max=HEADER_SIZE_BYTES_WRITABLE)
    for serialize_type, header, _ in decoder.feed(frames):
        command = decode_header(serialize_type, header)
        if command.code == ResponseCode.SUCCESS:
            command.code = code
            command.remark = str(error)
        answers.append(encode_command(command))
    return b"".join(answers)
