"""The metrics of transactions."""

from collections.abc import Iterator

from rockhopper.broker.features.transactions.ends import TransactionEnds
from rockhopper.broker.features.transactions.open_halves import OpenHalves
from rockhopper.broker.kernel.families import Family, counter, gauge


def transaction_families(
    halves: OpenHalves, ends: TransactionEnds, checks_sent: int, held: int, now_ms: int
) -> Iterator[Family]:
    """Yield every metric of transactions."""
    yield gauge("rocketmq_half_messages", "Open transactions").add_sample(len(halves))
    yield gauge(
        "rockhopper_half_messages_without_producer",
        "Open transactions whose producers are all offline",
    ).add_sample(halves.waiting_count())
    first = halves.first()
    age_ms = 0 if first is None else max(now_ms - first.stored_ms, 0)
    yield gauge(
        "rockhopper_half_message_oldest_seconds", "Age of the oldest open transaction"
    ).add_sample(age_ms / 1000)
    for name, help_text, counts in (
        ("rocketmq_commit_messages_total", "Transactions committed", ends.committed),
        ("rocketmq_rollback_messages_total", "Transactions rolled back", ends.rolled_back),
    ):
        family = counter(name, help_text, "topic")
        for topic, count in counts.items():
            family.add_sample(count, topic)
        yield family
    yield counter(
        "rockhopper_transaction_checks_total", "Transaction checks sent to producers"
    ).add_sample(checks_sent)
    yield counter(
        "rockhopper_transactions_held_total", "Transactions held for an operator"
    ).add_sample(held)
