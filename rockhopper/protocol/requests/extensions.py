"""Header fields of Rockhopper's own request codes, from 70001 on.

The bodies of 70002 to 70005 are in protocol/bodies/sinks.py; docs/request-codes.md describes all.
"""

import msgspec

from rockhopper.protocol.requests.fields import Int32, Int64, RpcRequest


class BulkPullRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """BULK_PULL (70001); the answer's fields are those of PULL_MESSAGE."""

    topic: str
    queue_id: Int32
    offset: Int64
    end_offset: Int64 = -1
    """Exclusive; −1 reads to the end of the queue."""
    max_bytes: Int32 = 4 << 20
    consumer_group: str | None = None
    expression: str | None = None
    expression_type: str | None = None
    topic_id: str | None = None
    """From TOPIC_IDS (70007): read only this topic, not a later one with its name."""


class BulkPullQueuesRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """BULK_PULL_QUEUES (70009), for the queues in its body."""

    topic: str
    max_bytes: Int32 = 4 << 20
    """The limit for all records together; one record is always returned."""
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
    """The owner of the sink's batches: those of other owners are refused. Blank for any owner."""


class SinkStageResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The number of messages in the part so far."""

    message_count: Int64


class SinkBatchRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SINK_PUBLISH (70003), SINK_ABORT (70005), SINK_PREPARE (70014) and SINK_DECIDE (70015)."""

    sink_id: str
    batch_id: Int64
    owner: str = ""
    content: str = ""
    """A description of the batch by its writer; stored for the last batch of a sink."""


class SinkPublishResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The number of messages in the batch, and whether an earlier request had published it."""

    message_count: Int64
    repeated: bool
    content: str | None = None
    """The description stored when the batch was published, if known."""


class SinkDecideResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The batch that the decision in the body belongs to; −1 if there is none."""

    batch_id: Int64
    content: str | None = None
    """The description stored with that batch, if known."""


class SinkStatusRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SINK_STATUS (70004)."""

    sink_id: str


class SinkStatusResponse(msgspec.Struct, rename="camel", frozen=True, kw_only=True, gc=False):
    """The last published batch, −1 for none, and the staged bytes of later ones."""

    last_batch_id: Int64
    staged_bytes: Int64
    owner: str | None = None
    """The owner of the batches, if the broker knows it."""
    home: str | None = None
    """Another broker that publishes the batches, if this one was told (SINK_HOME)."""


class SinkHomeRequest(RpcRequest, rename="camel", frozen=True, kw_only=True, gc=False):
    """SINK_HOME (70008)."""

    sink_id: str
    broker: str
    """The broker that publishes the batches of the sink."""
