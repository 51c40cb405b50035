"""The engine over etcd keeps what every engine keeps, and trusts no answer that is lost."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.replication.election.actions import Alter
from rockhopper.broker.replication.election.replica_set import Replica, SetView, SwapOutcome
from rockhopper.broker.replication.engines.consensus.connections import UnavailableError
from rockhopper.broker.replication.engines.consensus.values import StartCount, encode_start
from rockhopper.broker.replication.engines.engine import Engine, EngineError
from rockhopper.broker.replication.engines.etcd.engine import ANNOUNCEMENTS_A_PUT, EtcdEngine
from rockhopper.broker.replication.engines.etcd.gateway import EtcdAccess, EtcdGateway
from tests.support.engine_contract import (
    FIRST,
    LEADER_A,
    LEADER_B,
    MEMBER,
    STATE,
    A,
    EngineContract,
    over,
    won,
)
from tests.support.fake_etcd import LOST, FakeEtcd, Json, refused
from tests.support.hang import PATIENT_MS

PREFIX = "/rockhopper/cluster/broker/"


class FakePair:
    """Two engines over one server."""

    def __init__(self, etcd: FakeEtcd, endpoint: str) -> None:
        self.etcd = etcd
        self.endpoint = endpoint
        self.one: Engine = EtcdEngine(
            EtcdGateway(EtcdAccess([endpoint]), timeout_ms=PATIENT_MS), PREFIX, retry_ms=1
        )
        self.two: Engine = EtcdEngine(
            EtcdGateway(EtcdAccess([endpoint]), timeout_ms=PATIENT_MS), PREFIX, retry_ms=1
        )

    async def lose_leases(self) -> None:
        """End them."""
        self.etcd.end_leases()


@pytest.fixture
async def pair() -> AsyncIterator[FakePair]:
    async with FakeEtcd() as etcd:
        found = FakePair(etcd, await etcd.listen())
        yield found
        await found.one.close()
        await found.two.close()


class TestEtcdEngine(EngineContract):
    """All of it."""


async def test_keys_and_values_are_those_that_operators_know(pair: FakePair) -> None:
    await won(pair)
    await pair.two.announce(MEMBER)
    await pair.one.count_start(A, 3)
    stored = {key.removeprefix(PREFIX): value for key, value in pair.etcd.keys.items()}
    assert sorted(stored) == ["leader", "members/2", "starts/1.a1b2", "state"]
    leases = {key: pair.etcd.leases.get(value.lease) for key, value in stored.items()}
    assert leases == {"leader": 4, "members/2": 15, "starts/1.a1b2": None, "state": None}


async def test_a_lost_answer_of_a_campaign_is_unknown_and_asked_once(pair: FakePair) -> None:
    pair.etcd.fail("/v3/kv/txn", LOST)
    with capture_logs() as logs:
        assert await pair.one.campaign(FIRST, LEADER_A) == (SwapOutcome.UNKNOWN, None)
    assert logs[0]["reason"] == (
        f"{pair.endpoint}: it closed the connection before its answer was complete"
    )
    assert pair.etcd.asked("/v3/kv/txn") == 1
    view = await pair.one.read()
    assert (view.state, view.leader) == (STATE, LEADER_A)
    assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE


async def test_a_swap_is_not_made_again_elsewhere(pair: FakePair) -> None:
    one = EtcdEngine(
        EtcdGateway(EtcdAccess([pair.endpoint, await pair.etcd.listen()]), timeout_ms=PATIENT_MS),
        PREFIX,
    )
    pair.etcd.fail("/v3/kv/txn", LOST, is_done=False)
    assert await one.campaign(FIRST, LEADER_A) == (SwapOutcome.UNKNOWN, None)
    assert pair.etcd.asked("/v3/kv/txn") == 1
    await one.close()


async def test_a_key_that_outlives_its_lease_is_left_to_etcd(pair: FakePair) -> None:
    view = await won(pair)
    pair.etcd.leases.clear()
    assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.REFUSED


async def test_a_campaign_that_never_arrived_is_unknown_as_well(pair: FakePair) -> None:
    pair.etcd.fail("/v3/kv/txn", LOST, is_done=False)
    assert await pair.one.campaign(FIRST, LEADER_A) == (SwapOutcome.UNKNOWN, None)
    assert (await pair.one.read()).state is None


async def test_a_lost_answer_of_an_alteration_is_unknown(pair: FakePair) -> None:
    view = await won(pair)
    smaller = replace(STATE, in_sync=frozenset({A}))
    pair.etcd.fail("/v3/kv/txn", refused(503, 14, "etcdserver: request timed out"))
    assert await pair.one.alter(Alter(smaller, view.version)) == (SwapOutcome.UNKNOWN, 0)
    assert (await pair.one.read()).state == smaller


async def test_an_unknown_renewal_gives_no_lease(pair: FakePair) -> None:
    view = await won(pair)
    pair.etcd.fail("/v3/lease/keepalive", refused(500, 2, "lease: not a primary lessor"))
    assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.UNKNOWN


async def test_the_same_complaint_is_made_once(pair: FakePair) -> None:
    await pair.etcd.stop(pair.endpoint)
    with capture_logs() as logs:
        for _ in range(3):
            assert await pair.one.renew(LEADER_A, 1) is SwapOutcome.UNKNOWN
    assert len(logs) == 1


async def test_a_start_whose_answer_was_lost_is_counted_when_asked_again(pair: FakePair) -> None:
    pair.etcd.fail("/v3/kv/txn", LOST)
    with pytest.raises(UnavailableError):
        await pair.one.count_start(A, 1)
    assert await pair.one.count_start(A, 1)
    assert not await pair.two.count_start(A, 1)


async def test_a_start_that_was_counted_meanwhile_is_seen(pair: FakePair) -> None:
    swap = pair.etcd.answers["/v3/kv/txn"]
    seen: list[Json] = []

    def overtaken(body: Json) -> Json:
        if not seen:
            seen.append(body)
            put = dict(body["success"][0]["request_put"])
            later = StartCount(count=7, counted_by="another")
            put["value"] = base64.b64encode(encode_start(later)).decode()
            pair.etcd.answers["/v3/kv/put"](put)
        return swap(body)

    pair.etcd.answers["/v3/kv/txn"] = overtaken
    assert not await pair.one.count_start(A, 2)
    assert await pair.one.count_start(A, 8)


async def test_two_processes_of_one_store_count_until_one_is_ahead(pair: FakePair) -> None:
    pair.etcd.answers["/v3/kv/txn"] = pair.etcd.answers["/v3/maintenance/status"]
    with pytest.raises(EngineError, match=r"starts/1\.a1b2 keeps changing"):
        await pair.one.count_start(A, 1)


async def test_a_value_of_a_later_version_names_its_key(pair: FakePair) -> None:
    await won(pair)
    body = {"key": "L3JvY2tob3BwZXIvY2x1c3Rlci9icm9rZXIvc3RhdGU=", "value": "eyJ2ZXJzaW9uIjoyfQ=="}
    pair.etcd.answers["/v3/kv/put"](body)
    with pytest.raises(
        EngineError, match=f"{PREFIX}state in the engine cannot be read: its version is"
    ):
        await pair.one.read()


async def test_a_watch_goes_on_when_its_stream_breaks(pair: FakePair) -> None:
    async with aclosing(pair.two.watch()) as views:
        await anext(views)
        following = asyncio.ensure_future(anext(views))
        await pair.etcd.watched()
        pair.etcd.break_watches()
        await following
        view = await won(pair)
        assert await anext(views) == view


async def test_a_watch_that_was_compacted_away_reads_anew(pair: FakePair) -> None:
    async with aclosing(pair.two.watch()) as views:
        assert (await anext(views)).version == 0
        view = await won(pair)
        pair.etcd.compacted = pair.etcd.revision
        assert await anext(views) == view
        renewed = asyncio.ensure_future(anext(views))
        await pair.etcd.watched()
        pair.etcd.compacted = 0
        await pair.two.announce(MEMBER)
        assert (await renewed).members == {2: MEMBER}


async def test_a_watch_outlives_an_engine_that_is_away(pair: FakePair) -> None:
    for _ in range(3):
        pair.etcd.fail("/v3/kv/range", refused(503, 14, "etcdserver: no leader"), is_done=False)
    with capture_logs() as logs:
        async with aclosing(pair.two.watch()) as views:
            assert await anext(views) == SetView(None, 0, None)
    assert [each["reason"] for each in logs] == [f"{pair.endpoint}: etcdserver: no leader"]


async def test_a_canceled_watch_says_why(pair: FakePair) -> None:
    with capture_logs() as logs:
        async with aclosing(pair.two.watch()) as views:
            await anext(views)
            following = asyncio.ensure_future(anext(views))
            await pair.etcd.watched()
            pair.etcd.cancel_watches(cancel_reason="etcdserver: permission denied")
            await following
    assert [each["reason"] for each in logs] == ["etcdserver: permission denied"]


async def test_a_state_that_went_back_is_refused_at_any_revision(pair: FakePair) -> None:
    first = await won(pair)
    before = dict(pair.etcd.keys)
    outcome, version = await pair.one.alter(
        Alter(replace(STATE, in_sync=frozenset({A})), first.version)
    )
    assert outcome is SwapOutcome.DONE
    pair.etcd.keys = before
    pair.etcd.revision += 5
    with pytest.raises(
        EngineError, match=f"revision {first.version} in etcd, but revision {version} was"
    ):
        await pair.one.read()
    asked = pair.etcd.asked("/v3/kv/txn")
    assert await pair.one.campaign(over(first), LEADER_B) == (SwapOutcome.REFUSED, None)
    assert await pair.one.alter(Alter(STATE, first.version)) == (SwapOutcome.REFUSED, 0)
    pair.etcd.end_leases()
    assert await pair.one.renew(LEADER_A, first.version) is SwapOutcome.REFUSED
    assert pair.etcd.asked("/v3/kv/txn") == asked
    latest = replace(over(first), version=version)
    assert (await pair.one.campaign(latest, LEADER_B))[0] is SwapOutcome.REFUSED


async def test_a_campaign_in_an_etcd_from_the_past_is_unknown(pair: FakePair) -> None:
    view = await won(pair)
    await pair.two.announce(MEMBER)
    await pair.one.announce(MEMBER)
    pair.etcd.revision = view.version
    with capture_logs() as logs:
        assert await pair.one.campaign(over(view), LEADER_B) == (SwapOutcome.UNKNOWN, None)
    assert "restored from a backup" in logs[0]["reason"]


async def test_requests_are_etcds(pair: FakePair) -> None:
    await won(pair)
    _, body = next(each for each in pair.etcd.requests if each[0] == "/v3/kv/txn")
    assert [each["result"] for each in body["compare"]] == ["EQUAL", "LESS"]
    assert [each["mod_revision"] for each in body["compare"]] == ["0", "1"]
    assert json.dumps(body).count("serializable") == 0
    assert await pair.one.count_start(Replica(9, "s"), 1)


async def test_a_renewal_costs_little_and_finds_another_leader_the_next_time(
    pair: FakePair,
) -> None:
    view = await won(pair)
    await pair.two.read()
    before = pair.etcd.asked("/v3/kv/range")
    for _ in range(4):
        assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
    assert pair.etcd.asked("/v3/kv/range") - before == 2
    assert (await pair.two.campaign(over(view), LEADER_B))[0] is SwapOutcome.DONE
    found = [await pair.one.renew(LEADER_A, view.version) for _ in range(2)]
    assert SwapOutcome.REFUSED in found


async def test_a_replica_whose_log_grows_is_put_now_and_then(pair: FakePair) -> None:
    for log_end in range(ANNOUNCEMENTS_A_PUT):
        await pair.one.announce(replace(MEMBER, log_end=log_end))
    assert pair.etcd.asked("/v3/kv/put") == 1
    assert pair.etcd.asked("/v3/lease/keepalive") == ANNOUNCEMENTS_A_PUT - 1
    await pair.one.announce(replace(MEMBER, log_end=70))
    assert (await pair.two.read()).members[2].log_end == 70
    await pair.one.announce(replace(MEMBER, log_end=70, is_clean=False))
    assert not (await pair.two.read()).members[2].is_clean


async def test_an_etcd_that_refuses_writes_is_noticed_though_it_keeps_leases(
    pair: FakePair,
) -> None:
    await pair.one.announce(MEMBER)
    full = refused(429, 8, "etcdserver: mvcc: database space exceeded")
    pair.etcd.fail("/v3/kv/txn", full, is_done=False)
    with pytest.raises(EngineError, match="database space exceeded"):
        await pair.one.announce(MEMBER)


async def test_trying_whether_an_etcd_takes_writes_makes_no_revision(pair: FakePair) -> None:
    await won(pair)
    await pair.one.announce(MEMBER)
    before = pair.etcd.revision
    await pair.one.announce(MEMBER)
    _, body = pair.etcd.requests[-1]
    assert [base64.b64decode(each["request_put"]["key"]) for each in body["success"]] == [
        f"{PREFIX}state".encode(),
        f"{PREFIX}leader".encode(),
    ]
    assert pair.etcd.revision == before
