"""What is answered inside of a cut counts like any other answer."""

import random
from types import SimpleNamespace
from typing import Any

import pytest

from rockhopper.protocol.codes import RequestCode, ResponseCode
from tests.chaos import topics
from tests.chaos.ledger import Ledger
from tests.chaos.replicas.clients import insiders
from tests.chaos.replicas.clients.insiders import Insiders
from tests.support.records import encode_message


class Peer:
    """A replica that puts every message at offset 6, and shows what stands at 5."""

    def __init__(self, code: ResponseCode) -> None:
        self._code = code
        self.pulled_from: list[str] = []

    async def ask(self, code: int, ext: Any, body: bytes = b"") -> Any:
        if code == RequestCode.SEND_MESSAGE:
            return SimpleNamespace(code=self._code, ext={"queueOffset": "6"}, body=b"")
        self.pulled_from.append(ext["queueOffset"])
        shown = encode_message(topic=topics.PLAIN, body=b"five", queue_offset=5)
        return SimpleNamespace(code=ResponseCode.SUCCESS, ext={}, body=shown)


@pytest.mark.parametrize(
    ("code", "acknowledged", "pulled_from"),
    [
        (ResponseCode.SUCCESS, 1, "2"),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, 0, "0"),
        (ResponseCode.SERVICE_NOT_AVAILABLE, 0, "0"),
    ],
)
async def test_a_send_counts_when_it_is_answered_with_success(
    monkeypatch: pytest.MonkeyPatch, code: ResponseCode, acknowledged: int, pulled_from: str
) -> None:
    for pause in ("PAUSE_S", "PAUSE_AFTER_REFUSAL_S"):
        monkeypatch.setattr(insiders, pause, 0)
    ledger, peer = Ledger(), Peer(code)
    network: Any = SimpleNamespace(is_cuttable=True)
    inside = Insiders(network, {}, ledger, random.Random(1))
    await inside.send_and_read(peer)  # type: ignore[arg-type]
    assert inside.acknowledged == ledger.acknowledged_count() == acknowledged
    assert [place.queue_offset for place in ledger.placements] == [6] * acknowledged
    assert peer.pulled_from == [pulled_from]
    assert b"five" in ledger.seen.values()
