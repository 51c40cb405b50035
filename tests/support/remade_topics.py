"""Topics that are deleted and made anew, and brokers that cannot tell."""

from typing import Any

import pytest

from client.errors import RequestRefusedError
from pipeline import remote as remote_module
from protocol.codes import RequestCode
from tests.support.pipeline_broker import PipelineBroker


def without_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make brokers answer as Apache's do."""
    real = remote_module.Remote._request

    async def refuse(remote: Any, name: str, code: RequestCode, *rest: Any) -> Any:
        if code == RequestCode.TOPIC_IDS:
            raise RequestRefusedError(code, 3, "not supported", "10.0.0.1:10911")
        return await real(remote, name, code, *rest)

    monkeypatch.setattr(remote_module.Remote, "_request", refuse)


def remake(served: PipelineBroker, topic: str, bodies: list[str], queues: int = 2) -> None:
    """Delete a topic and make it anew, with messages that have later times."""
    old_ms = served.stored(topic)[-1].store_time_ms
    while True:
        served.delete(topic)
        served.create(topic, queues)
        served.send(topic, bodies, 0)
        if served.stored(topic)[0].store_time_ms > old_ms:
            return
