"""Admin.figures, of our brokers and of others."""

from typing import Any

import pytest

from rockhopper.broker import Broker
from rockhopper.client import Admin
from rockhopper.client.admin.stats import merge_figures
from rockhopper.client.errors import RequestRefusedError, RequestTimeoutError
from rockhopper.client.network.session import Session
from rockhopper.protocol.bodies.stats import LAG_UNKNOWN, Figures, GroupFigures, TopicFigures
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.shell import consume, send


async def test_brokers_without_the_request_are_asked_for_each_topic_by_itself(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    await send(broker, *[b"x"] * 5)
    await consume(broker, 2)
    async with Admin(broker.nameserver) as admin:
        ours = await admin.figures.read(details=True)
        request = Session.request

        async def refused(
            session: Session, address: str, code: RequestCode, *rest: Any, **more: Any
        ) -> Command:
            if code == RequestCode.FIGURES:
                unknown = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
                raise RequestRefusedError(code, unknown, "unknown", address)
            return await request(session, address, code, *rest, **more)

        monkeypatch.setattr(Session, "request", refused)
        theirs = await admin.figures.read(details=True)

    def seen(figures: Figures) -> list[object]:
        topics = {each.name: each for each in figures.topics}
        groups = {each.name: each for each in figures.groups}
        orders, billing = topics["orders"], groups["billing"]
        return [orders.messages, orders.newest_ms, orders.groups, billing.lag]

    assert seen(ours) == seen(theirs)
    assert seen(ours)[0] == 5


def test_what_several_brokers_say_is_added_up() -> None:
    one = Figures(
        [TopicFigures("orders", 3, 100, 5, 0.5, 4, ["a"])],
        [GroupFigures("a", 2, 10, 4, ["orders"]), GroupFigures("b", 1, LAG_UNKNOWN)],
    )
    two = Figures(
        [TopicFigures("orders", 4, 90, 6, 0.25, 1, ["b"]), TopicFigures("audit")],
        [GroupFigures("a", 2, 1, 1, ["audit"]), GroupFigures("b", 1, 7)],
    )
    both = merge_figures([one, two])
    assert both.topics == [
        TopicFigures("audit"),
        TopicFigures("orders", 7, 100, 11, 0.75, 5, ["a", "b"]),
    ]
    assert both.groups[0] == GroupFigures("a", 2, 11, 5, ["audit", "orders"])
    assert both.groups[1].lag == LAG_UNKNOWN


async def test_a_broker_that_hangs_is_noticed_in_the_usual_time(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def silence(
        session: Session, address: str, code: RequestCode, *_: Any, timeout_s: float | None = None
    ) -> Command:
        raise RequestTimeoutError(code, address, timeout_s or session.request_timeout_s)

    async with Admin(broker.nameserver, request_timeout_s=7.0) as admin:
        monkeypatch.setattr(Session, "request", silence)
        with pytest.raises(RequestTimeoutError, match=broker.address) as raised:
            await admin.figures.read(details=True)
    assert raised.value.timeout_s == 7.0
