"""Header fields of the request codes that are Rockhopper's own, from 70001 on.

The bodies of 70002 to 70005 are in protocol/bodies/sinks.py; docs/request-codes.md tells the whole.
"""

import msgspec

from rockhopper.protocol.requests.fields import Int32, Int64, RpcRequest


class BulkPullRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """BULK_PULL (70001); the answer's fields are those of PULL_MESSAGE."""

    topic: str
    queue_id: Int32
    offset: Int64
    end_offset: Int64 = -1
    """Exclusive; −1 reads on to the end of the queue."""
    max_bytes: Int32 = 4 << 20
    consumer_group: str | None = None
    expression: str | None = None
    expression_type: str | None = None
    topic_id: str | None = None
    """Of TOPIC_IDS (70007): read from this topic only, not from a later one of its name."""


class BulkPullQueuesRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """BULK_PULL_QUEUES (70009), of queues that its body names."""

    topic: str
    max_bytes: Int32 = 4 << 20
    """Of all records together; one read is answered in any case."""
    consumer_group: str | None = None
    topic_id: str | None = None
    """As in BULK_PULL."""


class SinkStageRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SINK_STAGE (70002)."""

    sink_id: str
    batch_id: Int64
    part: str
    sequence: Int32 = 0
    owner: str = ""
    """Whose batches those of the sink are: others are refused. Blank for whoever asks."""


class SinkStageResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """How many messages the part holds by now."""

    message_count: Int64


class SinkBatchRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SINK_PUBLISH (70003), SINK_ABORT (70005), SINK_PREPARE (70014) and SINK_DECIDE (70015)."""

    sink_id: str
    batch_id: Int64
    owner: str = ""
    content: str = ""
    """What is in the batch, in the words of its writer; kept for the last batch of a sink."""


class SinkPublishResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """How many messages the batch brought, and whether an earlier request had published it."""

    message_count: Int64
    repeated: bool
    content: str | None = None
    """What was said of the batch when it was published, if that is known."""


class SinkDecideResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The batch that the decision in the body is of; −1 if there is none."""

    batch_id: Int64
    content: str | None = None
    """What was said of that batch, if that is known."""


class SinkStatusRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SINK_STATUS (70004)."""

    sink_id: str


class SinkStatusResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The last batch that was published, −1 for none, and what is staged for later ones."""

    last_batch_id: Int64
    staged_bytes: Int64
    owner: str | None = None
    """Whose batches they are, if the broker knows."""
    home: str | None = None
    """Another broker that publishes them, if this one was told (SINK_HOME)."""


class SinkHomeRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SINK_HOME (70008)."""

    sink_id: str
    broker: str
    """That publishes the batches of the sink."""
