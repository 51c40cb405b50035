"""The target of a replay: brokers that can publish a batch atomically, and their queues."""

from collections.abc import Sequence
from functools import partial

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.replaying.plan import ReplayPlan
from rockhopper.pipeline.network.stream_offset import ids_from_document, ids_to_document
from rockhopper.pipeline.remote import connect
from rockhopper.pipeline.retrying import Patience
from rockhopper.pipeline.sink.choice import choose_broker, homes_of, sink_state
from rockhopper.pipeline.sink.rules import SinkRules, read_rules

SINK_PREFIX = "replay-"
_PROBE_RETRIES = 3


def choose_target(
    nameserver: str, job_id: str, delivery: str, broker: str, topics: Sequence[str] = ()
) -> str:
    """Return the broker to publish on that has *topics*; empty for at-least-once delivery.

    Raises:
        PipelineError: no broker was found, or no found broker supports the delivery.
    """
    if delivery == "at-least-once":
        return ""
    rules = _rules(nameserver, job_id, broker, retries=str(_PROBE_RETRIES))
    if delivery == "auto" and not broker and not _any_has_sinks(rules):
        return ""
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)
    for topic in topics if not broker else ():
        if len(names := homes_of(remote, rules, topic)) > 1:
            raise PipelineError(
                f"the topic {topic!r} is on the brokers {', '.join(names)}, and a replay publishes "
                "on one of them: name it with --broker, or give --delivery at-least-once"
            )
    return choose_broker(rules, rules.sink_id, topics=topics)


def _any_has_sinks(rules: SinkRules) -> bool:
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)
    masters = sorted({each.name for each in remote.brokers() if each.is_master})
    if not masters:
        return True  # choose_broker raises the error for a missing broker
    return any(sink_state(remote, name, rules.sink_id) is not None for name in masters)


def last_batch(nameserver: str, plan: ReplayPlan) -> int:
    """Return the last batch that the plan's broker has published, −1 for none.

    Raises PipelineError.
    """
    rules = sink_rules(nameserver, plan)
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)
    found = rules.patience(
        f"cannot query the broker {plan.broker!r} for the progress of the replay",
        lambda: sink_state(remote, plan.broker, rules.sink_id),
    )
    if found is None:
        raise PipelineError(
            f"the broker {plan.broker!r}, on which this replay was begun, cannot publish a "
            "batch at once any more: start Rockhopper on it again, or start over with another "
            "--id"
        )
    if found.owner not in ("", plan.owner):
        raise PipelineError(
            f"the broker {plan.broker!r} has batches of another replay with the id "
            f"{plan.job_id!r} (of other messages, or cut otherwise): give another --id, or "
            "continue with the --state of that one"
        )
    return found.last_batch


def sink_rules(nameserver: str, plan: ReplayPlan) -> SinkRules:
    """Return the write options of the plan. Raises PipelineError."""
    if plan.broker:
        return _rules(nameserver, plan.job_id, plan.broker)
    return read_rules({"nameServer": nameserver}, streaming=False)


def _rules(nameserver: str, job_id: str, broker: str, **more: str) -> SinkRules:
    options = {"nameServer": nameserver, "delivery": "exactly-once", "broker": broker}
    sink_id = f"{SINK_PREFIX}{job_id}"
    return read_rules({**options, "sinkId": sink_id, **more}, streaming=False)


def target_ids(nameserver: str, topics: Sequence[str], broker: str) -> dict[str, dict[str, str]]:
    """Return the known ids of topics on one broker, or on all if *broker* is empty."""
    remote = connect(nameserver)
    places = {
        (topic, queue.broker_name)
        for topic in topics
        if (route := remote.route(topic)) is not None
        for queue in route.write_queues
        if broker in ("", queue.broker_name)
    }
    found = remote.topic_ids(places)
    return ids_to_document({place: name for place, name in found.items() if name})


def check_targets(nameserver: str, plan: ReplayPlan) -> None:
    """Check that the topics are the ones with which the replay began.

    Raises:
        PipelineError: a topic was deleted, and perhaps recreated.
    """
    known = ids_from_document(plan.topic_ids)
    for place, name in connect(nameserver).topic_ids(known).items():
        if name != "" and name != known[place]:
            topic, broker = place
            raise PipelineError(
                f"the topic {topic!r} on {broker} was deleted since this replay was "
                f"begun{' and recreated' if name else ''}, so what was replayed into it is "
                "gone: give another --id to start over, which replays every message once more"
            )


def queue_counts(nameserver: str, topics: Sequence[str], broker: str) -> dict[str, int]:
    """Return the number of writable queues of each topic.

    Raises:
        PipelineError: a topic does not exist.
    """
    remote = connect(nameserver)
    patience = Patience(_PROBE_RETRIES, 0.5)
    found = {}
    for topic in topics:
        what = f"cannot query the queues of {topic!r}"
        route = patience(what, partial(remote.route, topic))
        queues = route.write_queues if route is not None else ()
        numbers = {q.queue_id for q in queues if broker in ("", q.broker_name)}
        if not numbers:
            on = f" on the broker {broker!r}" if broker and queues else ""
            raise PipelineError(
                f"there is no topic {topic!r}{on} to replay into: create it (rockhopper topic "
                f"create {topic}), or name another with --to"
            )
        found[topic] = len(numbers)
    return found
