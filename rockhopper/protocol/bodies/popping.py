"""Bodies of pop consumption: batch acknowledgements, request modes, assignments."""

from msgspec import field

from rockhopper.protocol.bodies.body import Body
from rockhopper.protocol.fastjson import MessageQueueKey


class BatchAck(Body):
    """Acknowledges messages that one pop took from one queue.

    ``bits`` is a bit set in base64, lowest bit of the first byte first. If bit i is set, it
    acknowledges the message at offset ``start_offset`` + i: with 100 and "BQ==" (bits 0 and 2), the
    messages at 100 and 102.
    """

    group: str = field(name="c", default="")
    topic: str = field(name="t", default="")
    retry_flag: str = field(name="r", default="0")
    start_offset: int = field(name="so", default=0)
    queue_id: int = field(name="q", default=0)
    revive_queue_id: int = field(name="rq", default=0)
    pop_ms: int = field(name="pt", default=0)
    invisible_ms: int = field(name="it", default=0)
    bits: str = field(name="b", default="")


class BatchAckMessageRequestBody(Body, rename="camel"):
    """The body of BATCH_ACK_MESSAGE (200151)."""

    broker_name: str = ""
    acks: list[BatchAck] = field(default_factory=list)


class SetMessageRequestModeRequestBody(Body, rename="camel"):
    """The body of SET_MESSAGE_REQUEST_MODE (401), and its form in messageRequestMode.json."""

    consumer_group: str = ""
    mode: str = "PULL"
    pop_share_queue_num: int = 0
    topic: str = ""


class QueryAssignmentRequestBody(Body, rename="camel"):
    """The body of QUERY_ASSIGNMENT (400)."""

    topic: str = ""
    consumer_group: str = ""
    client_id: str = ""
    strategy_name: str = "AVG"
    message_model: str = "CLUSTERING"


class MessageQueueAssignment(Body, rename="camel"):
    """A queue of a client, and the mode of its consumption."""

    message_queue: MessageQueueKey
    mode: str = "PULL"


class QueryAssignmentResponseBody(Body, rename="camel"):
    """The answer to QUERY_ASSIGNMENT (400); None: the client keeps its queues."""

    message_queue_assignments: list[MessageQueueAssignment] | None = None
