"""Which broker is the home of an exactly-once sink; where that is not certain, nothing is written.

A batch is spread over the brokers that have its topics. One of them is the sink's home, which
decides what belongs to the batch and publishes it last, so that it knows what is published
everywhere (docs/decisions/0013). A batch that is repeated must come to it again, whatever broker is
away then. So a sink stays with its home:

- It is the broker that the option broker names, to which all rows go then, or the first that has
  rows of the first batch.
- A topic that does not exist is refused: it may be on a broker that is away, and made on another it
  would let a batch in that the first one has published.
- A sink whose earlier batches have another home is refused, and so is one that has batches of
  somebody else, another streaming query for example. The broker remembers whose they are. Which
  broker it is the others remember for when it is away, and a file in the checkpoint (home.py).
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
    """What a broker knows of a sink."""

    last_batch: int = -1
    """The last batch that it published, −1 for none."""
    owner: str = ""
    """Whose batches these are; blank if the broker does not know."""
    home: str = ""
    """Which broker publishes them, this one or another; blank if it was told of none."""


def choose_broker(
    rules: SinkRules,
    sink_id: str,
    batch_id: int | None = None,
    *,
    topics: Collection[str] = (),
    staged: Collection[str] = (),
    owner: str = "",
) -> str:
    """The home of a sink; *batch_id* if one is to be staged or published now, for *topics*.

    A new sink's is one of the brokers *staged*, on which there are rows of the batch.

    Raises:
        PipelineError: none can be it, the one that is wanted cannot, or it is not certain which.
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
    """What every broker knows of the sink. One that is away may be the one that has it."""
    masters = sorted({each.name for each in remote.brokers() if each.is_master})
    if not masters:
        raise PipelineError(
            f"the name service {rules.nameserver} knows no broker: start one, or correct the "
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
    """The brokers that take messages for a topic, those without a master included."""
    route = remote.route(topic)
    queues = () if route is None else (*route.write_queues, *route.masterless_queues)
    if not queues:
        raise PipelineError(
            f"no broker that the name service {rules.nameserver} knows takes messages for the "
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
    # Others that have batches of the sink know that it is at home elsewhere.
    used = [
        name for name, state in able.items() if state.last_batch >= 0 and state.home in ("", name)
    ]
    if rules.broker:
        if used and rules.broker not in used:
            raise PipelineError(_elsewhere(sink_id, used, rules.broker))
        for topic, names in homes.items():
            if rules.broker not in names:
                raise PipelineError(
                    f"the topic {topic!r} is not on the broker {rules.broker!r}, which this sink "
                    "publishes on: create it there, or name another with the option broker "
                    f"({', '.join(names)})"
                )
        return rules.broker
    if len(used) > 1:
        raise PipelineError(
            f"the sink {sink_id!r} has batches on the brokers {', '.join(used)}, and nobody knows "
            "on which it goes on: name that one with the option broker, or set another sinkId"
        )
    told = sorted({state.home for state in able.values() if state.home})
    with_rows = sorted(staged) or sorted({name for names in homes.values() for name in names})
    return next(iter([*used, *told, *(name for name in with_rows if name in able), *able]))


def _elsewhere(sink_id: str, used: list[str], wanted: str) -> str:
    return (
        f"earlier batches of the sink {sink_id!r} were published on {', '.join(used)}, so it "
        f"cannot go on with {wanted}, which would let a repeated batch in twice: go on with "
        f"{used[0]}, or set another sinkId"
    )


def _check_home(sink_id: str, able: Mapping[str, SinkState]) -> None:
    """See that no broker remembers another one that publishes these batches and is away."""
    for name, state in able.items():
        # One that is there speaks for itself.
        if state.home and state.home not in able:
            raise PipelineError(
                f"batches of the sink {sink_id!r} are published on {state.home}, as {name} "
                "remembers, so it cannot go on without it, which would let a repeated batch in "
                f"twice: start {state.home} again; if it is gone for good, set another sinkId, "
                "under which the batch is written anew"
            ) from RouteNotFoundError(state.home)


def _check_batch(
    rules: SinkRules,
    sink_id: str,
    batch_id: int | None,
    able: Mapping[str, SinkState],
    chosen: str,
    owner: str,
) -> None:
    """Only the last batch is ever repeated; whoever numbers one lower is somebody else."""
    last, known_owner, _ = able[chosen]
    check_owner(sink_id, owner, known_owner)
    if last < 0 and batch_id and rules.is_streaming and not rules.broker:
        raise PipelineError(
            f"no broker remembers the sink {sink_id!r}, and this is its batch {batch_id}: start "
            "the broker that has its earlier batches, or name one with the option broker to go on "
            f"there ({', '.join(able)})"
        )
    if batch_id is None or batch_id >= last:
        return
    known = f"the sink {sink_id!r} has published batch {last}, and this is batch {batch_id}: "
    if rules.is_streaming:
        raise PipelineError(
            f"{known}it belongs to another checkpoint, so set another sinkId, or go on with that "
            "checkpoint"
        )
    raise PipelineError(
        f"{known}nobody knows whether it was written, so set batchId to {last + 1} or more to "
        "write it, or another sinkId"
    )


def check_gap(rules: SinkRules, sink_id: str, batch_id: int, last: int) -> None:
    """See that no batch of a stream is missing behind its *last* one: each is published, if empty.

    Raises:
        PipelineError: some are, and failOnDataLoss is set.
    """
    if not rules.is_streaming or last < 0 or batch_id <= last + 1:
        return
    said = (
        f"the sink {sink_id!r} has published batch {last}, and this is batch {batch_id}: what was "
        "in between is not there any more, for the broker's store was put back from a backup, or "
        "lost its end"
    )
    if rules.fail_on_data_loss:
        raise PipelineError(
            f"{said}; set failOnDataLoss=false to go on without these batches, or begin again "
            "with a new checkpoint and sinkId"
        )
    _log.warning("%s; going on without these, as failOnDataLoss=false says", said)


def check_owner(sink_id: str, owner: str, known: str) -> None:
    """See that a sink's batches are those of *owner*; blank for unknown. Raises PipelineError."""
    if owner and known and owner != known:
        raise PipelineError(
            f"the sink {sink_id!r} has batches of {known}, and this is {owner}, whose batches have "
            "the same numbers: set another sinkId, or go on with the checkpoint that wrote them"
        )


def sink_state(remote: Remote, broker: str, sink_id: str) -> SinkState | None:
    """What a broker knows of a sink; None if it has no sinks."""
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
    """Whether a broker does not know the request, as Apache's do not."""
    cause = error.__cause__
    return (
        isinstance(cause, RequestRefusedError)
        and cause.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
    )


def unable(brokers: str) -> str:
    """What is said of brokers that know no sinks."""
    return (
        f"delivery=exactly-once needs Rockhopper, and {brokers} cannot publish a batch at once "
        "(Apache RocketMQ cannot): set delivery=at-least-once"
    )
