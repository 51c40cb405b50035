"""What a broker notes of sinks beside their batches: whose they are, and who else has them."""

from rockhopper.broker.tables.checked_table import CheckedTable


class SinkOwners(CheckedTable):
    """Sink id -> whose batches those of the sink are, in words."""

    lost = "two writers under one sink id are not noticed: the list of sinks' owners is damaged"


class SinkHomes(CheckedTable):
    """Sink id -> the other broker that publishes its batches.

    While that one is away nobody else could tell that a batch was published.
    """

    lost = (
        "a sink that publishes on another broker may publish a batch here once more while that "
        "one is away: the list of sinks' brokers is damaged"
    )
