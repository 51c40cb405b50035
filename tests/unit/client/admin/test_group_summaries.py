"""A line for each group: our brokers tell sums in one answer, others are asked for each topic."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.kernel.families import Family
from rockhopper.broker.kernel.metrics.lag_metrics import LagAges, lag_families
from rockhopper.client import Admin
from rockhopper.client.admin import group_summaries
from rockhopper.client.admin.group_summaries import GroupSummary, summarise_groups
from rockhopper.client.errors import RequestRefusedError
from rockhopper.client.network.session import Session
from rockhopper.protocol.bodies.stats import Figures, GroupFigures
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command
from tests.support.shell import consume, send


class Requests:
    """What an admin asks of brokers; *refused* is the code of a refusal of FIGURES."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.codes: list[int] = []
        self.refused: ResponseCode | None = None
        request = Session.request

        async def counted(
            session: Session, address: str, code: RequestCode, *rest: Any, **more: Any
        ) -> Command:
            self.codes.append(code)
            if code == RequestCode.FIGURES and self.refused is not None:
                raise RequestRefusedError(code, self.refused, "no", address)
            return await request(session, address, code, *rest, **more)

        monkeypatch.setattr(Session, "request", counted)

    def taken(self) -> list[int]:
        codes, self.codes = self.codes, []
        return codes


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Requests:
    return Requests(monkeypatch)


def _ageless(found: list[GroupSummary]) -> list[GroupSummary]:
    return [replace(each, oldest_s=None if each.oldest_s is None else 0.0) for each in found]


async def _many_topics(broker: Broker) -> None:
    await send(broker, *[b"x"] * 5)
    await consume(broker, 2)
    broker.tables.groups.find_or_create("idle")
    for number in range(30):
        broker.tables.topics.create_on_send(f"t{number}", "TBW102", 2)
        broker.tables.offsets.commit(f"t{number}", "billing", 0, 0)


@pytest.mark.parametrize("joint", ["+", "_"])
async def test_every_view_counts_what_waits_for_a_popping_group(broker: Broker, joint: str) -> None:
    await send(broker, *[b"x"] * 5)
    broker.tables.groups.find_or_create("billing")
    broker.tables.offsets.commit("orders", "billing", 0, 5)
    retries = f"%RETRY%billing{joint}orders"
    broker.tables.topics.create_on_send(retries, "TBW102", 1)
    await send(broker, *[b"x"] * 3, topic=retries)
    broker.tables.groups.delete(f"billing{joint}orders")  # as which a send to such a name is taken
    async with Admin(broker.nameserver) as admin:
        lags = {each.queue.topic: each.lag for each in await admin.groups.lag("billing")}
        summaries = {each.name: each.lag for each in await summarise_groups(admin)}
        state = await admin.groups.state("billing")
    shown = [
        family for family in lag_families(broker.kernel, LagAges()) if isinstance(family, Family)
    ]
    metric = {family.name: family.samples for family in shown}["rocketmq_consumer_lag_messages"]
    told = sum(lag for labels, lag in metric if labels[1] == "billing")
    assert lags[retries] == 3
    assert sum(lags.values()) == summaries["billing"] == state.lag == told


@pytest.mark.parametrize("with_system", [False, True])
async def test_groups_are_summed_up_in_one_request_however_many_topics_they_have(
    broker: Broker, requests: Requests, *, with_system: bool
) -> None:
    await _many_topics(broker)
    async with Admin(broker.nameserver) as admin:
        await admin.masters()
        requests.taken()
        ours = await summarise_groups(admin, with_system=with_system)
        assert requests.taken().count(RequestCode.FIGURES) == 1
        for refused in (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION):
            requests.refused = refused
            requests.taken()
            assert _ageless(await summarise_groups(admin, with_system=with_system)) == _ageless(
                ours
            )
            assert len(requests.taken()) > 30
    billing = next(each for each in ours if each.name == "billing")
    assert (billing.lag, len(billing.topics)) == (3, 31)
    assert billing.oldest_s is not None
    assert billing.oldest_s >= 0


@pytest.mark.parametrize(
    ("lag", "oldest_ms", "age_s"), [(0, 500, 0.0), (3, 500, 0.5), (3, 2000, 0.0), (3, 0, None)]
)
async def test_an_age_is_that_of_the_oldest_message_that_waits_and_never_negative(
    monkeypatch: pytest.MonkeyPatch, lag: int, oldest_ms: int, age_s: float | None
) -> None:
    async def read_groups() -> Figures:
        return Figures(groups=[GroupFigures("g", topics=["t"], lag=lag, oldest_ms=oldest_ms)])

    admin = SimpleNamespace(figures=SimpleNamespace(read_groups=read_groups))
    monkeypatch.setattr(group_summaries, "time", SimpleNamespace(time_ns=lambda: 1_000_000_000))
    (summary,) = await summarise_groups(cast(Any, admin))
    assert summary.oldest_s == age_s


async def test_another_refusal_is_told(broker: Broker, requests: Requests) -> None:
    requests.refused = ResponseCode.SYSTEM_ERROR
    async with Admin(broker.nameserver) as admin:
        with pytest.raises(RequestRefusedError):
            await summarise_groups(admin)


async def test_progress_in_a_topic_asks_about_no_other(broker: Broker, requests: Requests) -> None:
    await _many_topics(broker)
    async with Admin(broker.nameserver) as admin:
        await admin.masters()
        requests.taken()
        lags = await admin.groups.progress_in("billing", "orders")
        assert len([code for code in requests.taken() if code < 70_000]) <= 3
        everything = (await admin.groups.progress("billing")).queues
    assert lags == [each for each in everything if each.queue.topic == "orders"]
    assert sum(each.lag for each in lags) == 3
