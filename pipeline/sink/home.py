"""The broker of a streaming sink, noted in the query's checkpoint.

``<checkpointLocation>/rockhopper-sink.json``:

    {"sinkId": "…", "broker": "broker-a"}

A broker that is away cannot say that it has published a batch, and the others do not know.  The
note is written before the first batch is published, and says so.  It is there where the option
checkpointLocation names a place that can be written to from here; nothing else tells a sink where
the checkpoint is.
"""

from __future__ import annotations

import json
import logging

from pipeline.errors import PipelineError
from pipeline.jobs.archiving.files import files_at

HOME_FILE = "rockhopper-sink.json"
_log = logging.getLogger(__name__)


def keep_home(checkpoint: str, sink_id: str, broker: str) -> None:
    """Note that *sink_id* publishes on *broker*, or see that this is what is noted.

    Raises:
        PipelineError: it published on another broker.
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
            f"earlier batches of the sink {sink_id!r} were published on {known.get('broker')}, as "
            f"{checkpoint}/{HOME_FILE} says, so it cannot go on with {broker}, which would let a "
            f"repeated batch in twice: start {known.get('broker')} again; if it is gone for good, "
            "delete that file and name another with the option broker"
        )


def _read(data: bytes, name: str) -> dict[str, str]:
    try:
        note = json.loads(data)
        return {"sinkId": str(note["sinkId"]), "broker": str(note["broker"])}
    except (ValueError, KeyError, TypeError) as error:
        raise PipelineError(
            f'{name} is damaged ({error!r}): write {{"sinkId": "…", "broker": "…"}} with the '
            "broker that this query has published on"
        ) from error
