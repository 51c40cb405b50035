"""Topics that are deleted and recreated, and brokers that cannot detect it."""

import pytest

from rockhopper.broker.kernel.tables.topic_ends import TopicEnds
from rockhopper.protocol.codes import RequestCode
from tests.support.pipeline_broker import PipelineBroker
from tests.support.refusing_brokers import refuse


def without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make brokers answer like Apache's, where a recreated topic begins at 0."""
    monkeypatch.setattr(TopicEnds, "store_ends", lambda *_: None)
    refuse(monkeypatch, RequestCode.TOPIC_IDS)


def remake(served: PipelineBroker, topic: str, bodies: list[str], queues: int = 2) -> None:
    """Delete a topic and recreate it, with messages that have later times."""
    old_ms = served.stored(topic)[-1].store_time_ms
    while True:
        served.delete(topic)
        served.create(topic, queues)
        served.send(topic, bodies, 0)
        if served.stored(topic)[0].store_time_ms > old_ms:
            return
