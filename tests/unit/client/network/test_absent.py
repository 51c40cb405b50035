"""The error about a topic without a broker names the missing brokers, if the name server does."""

import json
from collections.abc import Mapping

from rockhopper.client.network.absent import explain_missing_route
from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import Command

AWAY = {"departedBrokers": ["b"], "departedAgesMs": {"b": 2000}}
SERVING = {"brokerAddrTable": {"a": {"brokerName": "a", "brokerAddrs": {"0": "a:1"}}}}


async def said(clusters: Mapping[str, object] | None, topic: str = "orders") -> str:
    """All of it; without *clusters* the name server keeps none."""

    async def ask(_code: RequestCode) -> Command:
        if clusters is None:
            return Command(3)
        return Command(0, body=json.dumps(clusters).encode())

    return "; ".join(await explain_missing_route(ask, topic, for_sending=True))


async def test_who_went_is_named() -> None:
    alone = await said(AWAY)
    assert alone.startswith("; no broker is registered there now; not reachable: b (last seen 2 s")
    beside = await said({**AWAY, **SERVING})
    assert "no broker creates topics on first use" in beside
    assert "may have it are down: b (last seen 2 s ago)" in beside


async def test_where_nobody_tells_both_causes_are() -> None:
    for clusters in (None, SERVING):
        assert "if it did, its broker is down" in await said(clusters)


async def test_nobody_is_asked_about_a_retry_topic() -> None:
    assert "if it did, its broker is down" in await said(AWAY, "%RETRY%billing")
