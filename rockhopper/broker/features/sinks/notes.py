"""What a broker notes of sinks beside their batches: whose they are, and who else has them.

Of a batch that is spread over several brokers, each notes which parts it has promised to keep, and
the sink's home what was decided:

    prepared.json    {"<sink id>": {"batchId": 41, "parts": ["0.1.ab", …]}, …}
    decisions.json   {"<sink id>": {"batchId": 41, "brokers": {"broker-b": [["0.1.ab", 9]], …}}, …}

and of each sink's last batch what its writer says is in it, by which a batch is known that comes
again with other rows under the same number:

    contents.json    {"<sink id>": [41, "1000:5be0cd19137e2179"], …}
"""

from rockhopper.broker.kernel.tables.checked_table import CheckedTable


class SinkOwners(CheckedTable):
    """Sink id -> whose batches those of the sink are, in words."""

    lost = "two writers with the same sink id are not noticed: the list of sink owners is damaged"


class SinkHomes(CheckedTable):
    """Sink id -> the other broker that publishes its batches.

    While that one is away nobody else could tell that a batch was published.
    """

    lost = (
        "a sink that publishes on another broker may publish a batch twice while that broker is "
        "down: the list of sinks' brokers is damaged"
    )


class SinkPrepared(CheckedTable):
    """Sink id -> the parts of its batch that are kept until it is published, whatever happens."""

    lost = (
        "a sink batch that is being published on several brokers may lose its parts here: the "
        "list of its prepared parts is damaged"
    )


class SinkDecisions(CheckedTable):
    """Sink id -> which parts on which brokers make its batch, until all of them are published."""

    lost = (
        "a sink batch that some brokers have published already may be staged again and refused: "
        "the list of decisions is damaged"
    )


class SinkContents(CheckedTable):
    """Sink id -> its last batch, and what its writer says is in it."""

    lost = (
        "a repeated batch with different rows is not noticed: the list of batch contents is damaged"
    )

    def of_batch(self, sink_id: str, batch_id: int) -> str:
        """What is in a batch of a sink, blank for unknown."""
        entry = self.entries.get(sink_id)
        return str(entry[1]) if entry is not None and entry[0] == batch_id else ""
