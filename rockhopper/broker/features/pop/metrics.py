"""The metrics of pop."""

from collections.abc import Iterator

from rockhopper.broker.features.pop.service import PopService
from rockhopper.broker.kernel.families import Family, counter, gauge


def pop_families(pop: PopService) -> Iterator[Family]:
    """Yield the metrics of pop."""
    yield gauge("rockhopper_pop_in_flight", "Messages popped and not acknowledged").add_sample(
        pop.lanes.in_flight
    )
    yield gauge("rockhopper_pop_waiting", "Waiting pops and notifications").add_sample(
        len(pop.polling)
    )
    yield gauge(
        "rocketmq_pop_revive_latency", "For how long the oldest popped message has been due again"
    ).add_sample(pop.reviving.behind_ms)
    revived = counter(
        "rocketmq_pop_revive_retry_messages_total",
        "Popped messages redelivered",
        *("consumer_group", "topic", "put_status"),
    )
    for (group, topic), count in pop.reviving.revived_of.items():
        revived.add_sample(count, group, topic, "PUT_OK")
    yield revived
    yield counter(
        "rockhopper_pop_dead_total", "Popped messages moved to the dead letters"
    ).add_sample(pop.reviving.buried)
