"""Tables about sinks: their owners, home brokers, prepared parts, decisions and contents.

For a batch on several brokers, each broker stores the parts that it must keep until the batch is
published, and the sink's home broker stores the decision:

    prepared.json    {"<sink id>": {"batchId": 41, "parts": ["0.1.ab", …]}, …}
    decisions.json   {"<sink id>": {"batchId": 41, "brokers": {"broker-b": [["0.1.ab", 9]], …}}, …}

For each sink's last batch, the broker stores the writer's description of the content. It detects a
batch that is sent again under the same number with different rows:

    contents.json    {"<sink id>": [41, "1000:5be0cd19137e2179"], …}
"""

from rockhopper.broker.kernel.tables.checked_table import CheckedTable


class SinkOwners(CheckedTable):
    """Sink id -> the owner of the sink's batches, as text."""

    lost = "two writers with the same sink id are not noticed: the list of sink owners is damaged"


class SinkHomes(CheckedTable):
    """Sink id -> the other broker that publishes its batches.

    While that broker is away, no other one knows whether a batch was published.
    """

    lost = (
        "a sink that publishes on another broker may publish a batch twice while that broker is "
        "down: the list of sinks' brokers is damaged"
    )


class SinkPrepared(CheckedTable):
    """Sink id -> the parts of its batch that must be kept until the batch is published."""

    lost = (
        "a sink batch that is being published on several brokers may lose its parts here: the "
        "list of its prepared parts is damaged"
    )


class SinkDecisions(CheckedTable):
    """Sink id -> the parts of its batch on each broker, until all of them are published."""

    lost = (
        "a sink batch that some brokers have published already may be staged again and refused: "
        "the list of decisions is damaged"
    )


class SinkContents(CheckedTable):
    """Sink id -> its last batch, and the writer's description of the content."""

    lost = (
        "a repeated batch with different rows is not noticed: the list of batch contents is damaged"
    )

    def of_batch(self, sink_id: str, batch_id: int) -> str:
        """The content of a batch of a sink; blank if unknown."""
        entry = self.entries.get(sink_id)
        return str(entry[1]) if entry is not None and entry[0] == batch_id else ""
