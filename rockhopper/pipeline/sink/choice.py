"""Choose the home broker of an exactly-once sink; if the choice is uncertain, write nothing.

A batch is spread over the brokers that have its topics. One of them is the sink's home. It decides
what belongs to the batch and publishes it last, so it knows what is published everywhere
(docs/decisions/0013). A repeated batch must reach the same home, whichever broker is offline then.
So a sink stays with its home:

- The home is the broker in the option broker, which then receives all rows. Without the option, it
  is the first broker that has rows of the first batch.
- A topic that does not exist is refused. It may exist on a broker that is offline. If it were
  created on another broker, a batch that the first one has published could be stored twice.
- A sink whose earlier batches have another home is refused. A sink with batches of another owner,
  such as another streaming query, is refused too; the broker stores the owner. In case the home is
  offline, the other brokers store its name, and so does a file in the checkpoint (home.py).
"""

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple

from rockhopper.client.errors import RequestRefusedError, RouteNotFoundError
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.remote import Remote, connect
from rockhopper.pipeline.retrying import is_passing
from rockhopper.pipeline.sink.rules import SinkRules
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.requests import decode_fields, encode_fields
from rockhopper.protocol.requests.extensions import SinkStatusRequest, SinkStatusResponse

_log = logging.getLogger(__name__)


class SinkState(NamedTuple):
    """The state of a sink on one broker."""

    last_batch: int = -1
    """The last batch that the broker published, −1 for none."""
    owner: str = ""
    """The owner of the batches; blank if the broker does not know it."""
    home: str = ""
    """The broker that publishes the batches, this one or another; blank if unknown."""


def choose_broker(
    rules: SinkRules,
    sink_id: str,
    batch_id: int | None = None,
    *,
    topics: Collection[str] = (),
    staged: Collection[str] = (),
    owner: str = "",
) -> str:
    """Return the home of a sink; *batch_id* is the batch to stage or publish now, for *topics*.

    The home of a new sink is one of the brokers *staged*, which have rows of the batch.

    Raises:
        PipelineError: no broker can be the home, the named broker cannot, or the choice is
            uncertain.
    """
    remote = connect(rules.nameserver, timeout_s=rules.timeout_s, access=rules.access)

    def ask() -> str:
        states = _states(remote, rules, sink_id)
        able = {name: state for name, state in states.items() if state is not None}
        if not able:
            raise PipelineError(unable(", ".join(states)))
        if rules.broker and rules.broker not in states:
            raise PipelineError(
                f"there is no broker {rules.broker!r} to publish on: start it again if it is away "
                "(on another a repeated batch would be stored twice), or correct the option "
                f"broker if this sink has not published yet; there are {', '.join(states)}"
            ) from RouteNotFoundError(rules.broker)
        homes = {topic: homes_of(remote, rules, topic) for topic in topics}
        chosen = _chosen(rules, sink_id, able, homes, staged)
        _check_home(sink_id, able)
        if chosen not in able:
            raise PipelineError(unable(chosen))
        _check_batch(rules, sink_id, batch_id, able, chosen, owner)
        return chosen

    name = f" {rules.sink_id!r}" if rules.sink_id else ""
    return rules.patience(f"the sink{name} found no broker to publish on", ask)


def _states(remote: Remote, rules: SinkRules, sink_id: str) -> dict[str, SinkState | None]:
    """Return the state of the sink on every broker.

    If a broker is offline and no other one has batches of the sink, raise: that broker may have
    them.
    """
    masters = sorted({each.name for each in remote.brokers() if each.is_master})
    if not masters:
        raise PipelineError(
            f"the name server {rules.nameserver} knows no broker: start one, or correct the "
            "option nameServer"
        ) from RouteNotFoundError("no broker")
    states: dict[str, SinkState | None] = {}
    away: PipelineError | None = None
    for name in masters:
        try:
            states[name] = sink_state(remote, name, sink_id)
        except PipelineError as error:
            if not is_passing(error):
                raise
            away = error
    if away is not None and not any(state and state.last_batch >= 0 for state in states.values()):
        raise away
    return states


def homes_of(remote: Remote, rules: SinkRules, topic: str) -> list[str]:
    """Return the brokers that accept messages for a topic, including those without a master."""
    route = remote.route(topic)
    queues = () if route is None else (*route.write_queues, *route.masterless_queues)
    if not queues:
        raise PipelineError(
            f"no broker that the name server {rules.nameserver} knows takes messages for the "
            f"topic {topic!r}: start its broker if it is away, else create the topic first "
            f"(rockhopper topic create {topic}), which exactly-once does not do by itself"
        ) from RouteNotFoundError(topic)
    return sorted({queue.broker_name for queue in queues})


def _chosen(
    rules: SinkRules,
    sink_id: str,
    able: Mapping[str, SinkState],
    homes: Mapping[str, list[str]],
    staged: Collection[str],
) -> str:
    used = _used_brokers(able)
    if rules.broker:
        if used and rules.broker not in used:
            raise PipelineError(_elsewhere(sink_id, used, rules.broker))
        _check_has_topics(rules.broker, homes)
        return rules.broker
    if len(used) > 1:
        raise PipelineError(
            f"the sink {sink_id!r} has batches on the brokers {', '.join(used)}, and it is "
            "unknown on which it continues: name that one with the option broker, or set "
            "another sinkId"
        )
    told = sorted({state.home for state in able.values() if state.home})
    with_rows = sorted(staged) or sorted({name for names in homes.values() for name in names})
    return next(iter([*used, *told, *(name for name in with_rows if name in able), *able]))


def _used_brokers(able: Mapping[str, SinkState]) -> list[str]:
    # Brokers that name another home only staged rows of the sink.
    return [
        name for name, state in able.items() if state.last_batch >= 0 and state.home in ("", name)
    ]


def _check_has_topics(broker: str, homes: Mapping[str, list[str]]) -> None:
    for topic, names in homes.items():
        if broker not in names:
            raise PipelineError(
                f"the topic {topic!r} is not on the broker {broker!r}, which this sink "
                "publishes on: create it there, or name another with the option broker "
                f"({', '.join(names)})"
            )


def _elsewhere(sink_id: str, used: list[str], wanted: str) -> str:
    return (
        f"earlier batches of the sink {sink_id!r} were published on {', '.join(used)}, so it "
        f"cannot continue with {wanted}, which could store a repeated batch twice: continue "
        f"with {used[0]}, or set another sinkId"
    )


def _check_home(sink_id: str, able: Mapping[str, SinkState]) -> None:
    """Check that no broker names another home that is offline. Raises PipelineError."""
    for name, state in able.items():
        # A home that is online reports its own state.
        if state.home and state.home not in able:
            raise PipelineError(
                f"batches of the sink {sink_id!r} are published on {state.home}, as {name} "
                "remembers, so it cannot continue without it, which could store a repeated "
                f"batch twice: start {state.home} again; if it is gone for good, set another "
                "sinkId, under which the batch is written anew"
            ) from RouteNotFoundError(state.home)


def _check_batch(
    rules: SinkRules,
    sink_id: str,
    batch_id: int | None,
    able: Mapping[str, SinkState],
    chosen: str,
    owner: str,
) -> None:
    """Check the owner and number of a batch. Raises PipelineError.

    Only the last batch is ever repeated, so a lower number comes from another owner.
    """
    last, known_owner, _ = able[chosen]
    check_owner(sink_id, owner, known_owner)
    if last < 0 and batch_id and rules.is_streaming and not rules.broker:
        raise PipelineError(
            f"no broker remembers the sink {sink_id!r}, and this is its batch {batch_id}: "
            "start the broker that has its earlier batches, or name one with the option broker "
            f"to continue there ({', '.join(able)})"
        )
    if batch_id is None or batch_id >= last:
        return
    known = f"the sink {sink_id!r} has published batch {last}, and this is batch {batch_id}: "
    if rules.is_streaming:
        raise PipelineError(
            f"{known}it belongs to another checkpoint, so set another sinkId, or continue with "
            "that checkpoint"
        )
    raise PipelineError(
        f"{known}it is unknown whether it was written, so set batchId to {last + 1} or more to "
        "write it, or another sinkId"
    )


def check_gap(rules: SinkRules, sink_id: str, batch_id: int, last: int) -> None:
    """Check that no batch of a stream is missing after *last*: even empty batches are published.

    Raises:
        PipelineError: batches are missing, and failOnDataLoss is set.
    """
    if not rules.is_streaming or last < 0 or batch_id <= last + 1:
        return
    said = (
        f"the sink {sink_id!r} has published batch {last}, and this is batch {batch_id}: what "
        "was in between no longer exists, for the broker's store was put back from a backup, "
        "or lost its end"
    )
    if rules.fail_on_data_loss:
        raise PipelineError(
            f"{said}; set failOnDataLoss=false to continue without these batches, or start "
            "over with a new checkpoint and sinkId"
        )
    _log.warning("%s; continuing without these, because failOnDataLoss=false", said)


def check_owner(sink_id: str, owner: str, known: str) -> None:
    """Check that *owner* owns the sink's batches; blank: unknown. Raises PipelineError."""
    if owner and known and owner != known:
        raise PipelineError(
            f"the sink {sink_id!r} has batches of {known}, and this is {owner}, whose batches "
            "have the same numbers: set another sinkId, or continue with the checkpoint that "
            "wrote them"
        )


def sink_state(remote: Remote, broker: str, sink_id: str) -> SinkState | None:
    """Return the state of a sink on a broker; None if the broker does not support sinks."""
    fields = encode_fields(SinkStatusRequest(sink_id=sink_id))
    try:
        answer = remote.request(broker, RequestCode.SINK_STATUS, fields)
    except PipelineError as error:
        if is_not_supported(error):
            return None
        raise
    status = decode_fields(SinkStatusResponse, answer.ext)
    return SinkState(status.last_batch_id, status.owner or "", status.home or "")


def is_not_supported(error: PipelineError) -> bool:
    """Return whether a broker does not know the request; Apache's brokers do not."""
    cause = error.__cause__
    return (
        isinstance(cause, RequestRefusedError)
        and cause.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    )


def unable(brokers: str) -> str:
    """Return the error text for brokers that do not support sinks."""
    return (
        f"delivery=exactly-once needs Rockhopper, and {brokers} cannot publish a batch at once "
        "(Apache RocketMQ cannot): set delivery=at-least-once"
    )
