"""Record the topics that a stream has written to, to detect recreated topics.

The file ``<checkpointLocation>/rockhopper-sink-topics.json`` in the query's checkpoint holds the
ids that brokers gave their topics (TOPIC_IDS):

    {"orders": {"broker-a": "979f6548c8a28eda", "broker-b": "1c0a93b1e55f2d07"}}

A batch may have rows for one broker only, so the topics are recorded and compared on every broker
that has them. Otherwise a small batch could go to a broker without earlier rows, and there would be
no id to compare with.

Apache's brokers have no ids. A sink that does not know its checkpoint records nothing.
"""

import json
import logging
from collections.abc import Collection, Mapping

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import files_at, name_damage
from rockhopper.pipeline.remote import Remote

TOPICS_FILE = "rockhopper-sink-topics.json"
_log = logging.getLogger(__name__)

_TopicIds = dict[str, dict[str, str]]  # topic -> broker -> id


def check_same_topics(
    remote: Remote,
    checkpoint: str,
    topics: Collection[str],
    *,
    fail_on_data_loss: bool,
) -> None:
    """Check that *topics* are unchanged on every broker since earlier batches were written.

    Raises:
        PipelineError: a topic was deleted, and perhaps recreated, so its messages are lost.
    """
    if not checkpoint or not topics:
        return
    found = _find_ids(remote, topics)
    try:
        files = files_at(checkpoint)
        data = files.read(TOPICS_FILE)
    except (OSError, PipelineError) as error:
        _log.warning("the topics of a sink cannot be noted in %s: %s", checkpoint, error)
        return
    known = {} if data is None else _decode(data, checkpoint)
    another = [
        (topic, broker)
        for (topic, broker), name in found.items()
        if known.get(topic, {}).get(broker, name) != name
    ]
    if another:
        topic, broker = min(another)
        what = "was deleted" if found[topic, broker] is None else "was deleted and recreated"
        said = (
            f"the topic {topic!r} on {broker} {what} since this query wrote to it, and what it "
            "wrote is gone"
        )
        if fail_on_data_loss:
            raise PipelineError(
                f"{said}: set failOnDataLoss=false to continue, or start over with a new checkpoint"
            )
        _log.warning("%s", said)
    noted = _updated(known, found)
    if noted != known:
        files.write(TOPICS_FILE, json.dumps(noted, sort_keys=True).encode() + b"\n")


def _find_ids(remote: Remote, topics: Collection[str]) -> dict[tuple[str, str], str | None]:
    """Return the ids of topics on all brokers that have ids; None for a topic that is gone."""
    brokers = {broker.name for broker in remote.brokers()}
    found = remote.topic_ids((topic, broker) for topic in topics for broker in brokers)
    # The id is blank if a broker has no ids.
    return {place: name for place, name in found.items() if name != ""}


def _decode(data: bytes, checkpoint: str) -> _TopicIds:
    remedy = "delete it; then it is unknown whether a topic was recreated before that"
    with name_damage(f"{checkpoint}/{TOPICS_FILE}", remedy):
        return {topic: dict(brokers.items()) for topic, brokers in json.loads(data).items()}


def _updated(known: _TopicIds, found: Mapping[tuple[str, str], str | None]) -> _TopicIds:
    """Return the ids with those that were found now, and without deleted topics."""
    noted = {topic: dict(brokers) for topic, brokers in known.items()}
    for (topic, broker), name in found.items():
        if name is not None:
            noted.setdefault(topic, {})[broker] = name
        elif topic in noted:
            noted[topic].pop(broker, None)
    return noted
