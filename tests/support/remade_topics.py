"""Topics that are deleted and made anew, and brokers that cannot tell."""

import pytest

from rockhopper.broker.kernel.tables.topic_ends import TopicEnds
from rockhopper.protocol.codes import RequestCode
from tests.support.pipeline_broker import PipelineBroker
from tests.support.refusing_brokers import refuse


def without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make brokers answer as Apache's do, where a topic that is made anew begins at 0."""
    monkeypatch.setattr(TopicEnds, "add", lambda *_: None)
    refuse(monkeypatch, RequestCode.TOPIC_IDS)


def remake(served: PipelineBroker, topic: str, bodies: list[str], queues: int = 2) -> None:
    """Delete a topic and make it anew, with messages that have later times."""
    old_ms = served.stored(topic)[-1].store_time_ms
    while True:
        served.delete(topic)
        served.create(topic, queues)
        served.send(topic, bodies, 0)
        if served.stored(topic)[0].store_time_ms > old_ms:
            return
