"""Store the home broker of a sink, in case it is offline and cannot report what it published.

Before a batch is published, the other brokers of the cluster are notified (SINK_HOME). For a
stream, the home is also stored in the query's checkpoint,
``<checkpointLocation>/rockhopper-sink.json``:

    {"sinkId": "…", "broker": "broker-a"}

The file exists only if the option checkpointLocation names a place that this process can write to.
A sink has no other way to find the checkpoint.
"""

import json
import logging
from collections.abc import Collection

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import files_at
from rockhopper.pipeline.remote import Remote, result
from rockhopper.pipeline.retrying import is_passing
from rockhopper.pipeline.sink.choice import is_not_supported, sink_state
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.requests import encode_fields
from rockhopper.protocol.requests.extensions import SinkHomeRequest

HOME_FILE = "rockhopper-sink.json"
_log = logging.getLogger(__name__)


def keep_home(checkpoint: str, sink_id: str, broker: str) -> None:
    """Store that *sink_id* publishes on *broker*, or check that this is already stored.

    Raises:
        PipelineError: the sink published on another broker.
    """
    if not checkpoint:
        return
    try:
        files = files_at(checkpoint)
        data = files.read(HOME_FILE)
        if data is None:
            note = {"sinkId": sink_id, "broker": broker}
            files.write(HOME_FILE, json.dumps(note).encode() + b"\n")
            return
    except (OSError, PipelineError) as error:
        _log.warning("the broker of a sink cannot be noted in %s: %s", checkpoint, error)
        return
    known = _read(data, f"{checkpoint}/{HOME_FILE}")
    if known.get("sinkId") == sink_id and known.get("broker") != broker:
        raise PipelineError(
            f"earlier batches of the sink {sink_id!r} were published on {known.get('broker')}, "
            f"as {checkpoint}/{HOME_FILE} says, so it cannot continue with {broker}, which "
            f"could store a repeated batch twice: start {known.get('broker')} again; if it is "
            "gone for good, delete that file and name another with the option broker"
        )


def tell_home(remote: Remote, sink_id: str, broker: str, sharing: Collection[str] = ()) -> None:
    """Notify all brokers that *sink_id* publishes on *broker*, including that broker.

    The brokers *sharing* the batch must know it before they publish; otherwise they would count as
    another home. This holds even if the name server does not know them, for example because it just
    started. Any other broker may miss the notification if the sink already has batches, because the
    first batch notified all brokers.

    Raises:
        PipelineError: a broker that must know it does not answer, or has batches of the sink
            itself.
    """
    known = {each.name for each in remote.brokers() if each.is_master}
    fields = encode_fields(SinkHomeRequest(sink_id=sink_id, broker=broker))
    answers = [
        (name, remote.begin_request(name, RequestCode.SINK_HOME, fields))
        for name in sorted(known | {broker, *sharing})
    ]
    for name, answer in answers:
        try:
            result(answer)
        except PipelineError as error:
            if is_not_supported(error):
                continue
            if name in sharing and name != broker:
                raise
            if not (is_passing(error) and _has_batches(remote, broker, sink_id)):
                raise


def _has_batches(remote: Remote, broker: str, sink_id: str) -> bool:
    state = sink_state(remote, broker, sink_id)
    return state is not None and state.last_batch >= 0


def _read(data: bytes, name: str) -> dict[str, str]:
    try:
        note = json.loads(data)
        return {"sinkId": str(note["sinkId"]), "broker": str(note["broker"])}
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f'{name} is damaged ({error!r}): write {{"sinkId": "…", "broker": "…"}} with the '
            "broker that this query has published on"
        ) from error
