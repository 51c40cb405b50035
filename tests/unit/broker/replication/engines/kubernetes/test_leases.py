"""A set in Leases keeps what every engine keeps, against a server that is not the real one."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from rockhopper.broker.replication.election.actions import Alter
from rockhopper.broker.replication.election.replica_set import SwapOutcome
from rockhopper.broker.replication.engines.consensus.record_engine import RecordEngine
from rockhopper.broker.replication.engines.engine import MEMBER_LEASE_MS, Engine, EngineError
from rockhopper.broker.replication.engines.kubernetes.api import KubernetesAccess, KubernetesApi
from rockhopper.broker.replication.engines.kubernetes.leases import RECORD, SetLeases
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
from tests.support.fake_etcd import LOST
from tests.support.fake_kubernetes import LEASES, TOKEN, FakeKubernetes, refused
from tests.support.hang import PATIENT_MS

SET = f"{LEASES}mq/leases/broker-a"
NOW = datetime(2026, 11, 25, 12, 0, 0, 123456, UTC)


class LeasePair:
    """Two engines over one server, and the clock that they share."""

    def __init__(self, server: FakeKubernetes, token_file: Path) -> None:
        token_file.write_text(TOKEN)
        self.server = server
        self.now_ms = 1000.0
        self._access = KubernetesAccess(server.endpoint, token_file)
        self.one: Engine = self.engine()
        self.two: Engine = self.engine()

    def engine(self) -> RecordEngine:
        """Another one."""
        return RecordEngine(self.keeper(), now_ms=lambda: self.now_ms, retry_ms=1)

    def keeper(self) -> SetLeases:
        """What one stands on."""
        api = KubernetesApi(self._access, timeout_ms=PATIENT_MS)
        return SetLeases(api, "mq", "broker-a", now=lambda: NOW)

    async def lose_leases(self) -> None:
        """Let time pass for those who have seen them."""
        for engine in (self.one, self.two):
            await engine.read()
        self.now_ms += MEMBER_LEASE_MS


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[LeasePair]:
    async with FakeKubernetes() as server:
        found = LeasePair(server, tmp_path / "token")
        yield found
        await found.one.close()
        await found.two.close()


class TestSetLeases(EngineContract):
    """All of it."""


async def test_people_read_in_the_lease_who_leads(pair: LeasePair) -> None:
    await won(pair)
    lease = pair.server.objects[SET]
    assert lease["metadata"]["labels"] == {"rockhopper/set": "broker-a"}
    assert lease["spec"] == {
        "holderIdentity": "1",
        "leaseDurationSeconds": 4,
        "leaseTransitions": 1,
        "renewTime": "2026-11-25T12:00:00.123456Z",
    }
    assert json.loads(lease["metadata"]["annotations"][RECORD])["state"]["epoch"] == 1


async def test_what_others_note_on_a_lease_stays(pair: LeasePair) -> None:
    view = await won(pair)
    metadata = pair.server.objects[SET]["metadata"]
    labels = {**metadata["labels"], "team": "mq"}
    await pair.server.change(SET, metadata={**metadata, "labels": labels})
    assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
    assert pair.server.objects[SET]["metadata"]["labels"] == labels


async def test_a_put_on_an_old_version_is_refused_and_tried_on_the_new_one(
    pair: LeasePair,
) -> None:
    view = await won(pair)
    metadata = pair.server.objects[SET]["metadata"]
    pair.server.fail("PUT", refused(409, "Conflict", "modified"), is_done=False)
    assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
    assert pair.server.asked("PUT") == 2
    await pair.server.change(SET, metadata=metadata)
    assert await pair.two.read() == view


@pytest.mark.parametrize("answer", [LOST, refused(504, "Timeout", "timed out"), b"SSH-2.0\r\n"])
async def test_a_put_whose_answer_is_lost_is_unknown_and_made_once(
    pair: LeasePair, answer: bytes
) -> None:
    view = await won(pair)
    await pair.two.read()
    pair.server.fail("PUT", answer)
    assert await pair.two.campaign(over(view), LEADER_B) == (SwapOutcome.UNKNOWN, None)
    assert pair.server.asked("PUT") == 1
    assert (await pair.one.read()).leader == LEADER_B


async def test_a_set_that_was_deleted_is_not_begun_anew(pair: LeasePair) -> None:
    view = await won(pair)
    await pair.server.delete(SET)
    with pytest.raises(EngineError, match="or deleted"):
        await pair.one.read()
    assert await pair.one.alter(Alter(STATE, view.version)) == (SwapOutcome.UNKNOWN, 0)
    assert SET not in pair.server.objects


async def test_a_set_that_is_deleted_between_read_and_write_is_not_made_again(
    pair: LeasePair,
) -> None:
    view = await won(pair)
    pair.server.fail("PUT", refused(404, "NotFound", "gone"), is_done=False)
    smaller = replace(STATE, in_sync=frozenset({A}))
    assert (await pair.one.alter(Alter(smaller, view.version)))[0] is SwapOutcome.DONE
    assert pair.server.asked("POST") == 1


async def test_a_watch_begins_again_when_its_version_is_compacted(pair: LeasePair) -> None:
    view = await won(pair)
    async with aclosing(pair.two.watch()) as views:
        assert await anext(views) == view
        following = asyncio.ensure_future(anext(views))
        await pair.server.watched()
        with capture_logs():
            await pair.server.compact()
            await pair.one.resign(LEADER_A)
            assert (await following).leader is None


async def test_a_watch_on_a_forgotten_version_reads_anew(pair: LeasePair) -> None:
    view = await won(pair)
    pair.server.compacted = pair.server.version + 1
    async with aclosing(pair.two.watch()) as views:
        with capture_logs() as told:
            assert await anext(views) == view
            following = asyncio.ensure_future(anext(views))
            await pair.two.announce(MEMBER)
            assert (await following).members == {2: MEMBER}
        assert told == []


@pytest.mark.parametrize(("status", "is_told"), [(410, False), (404, True)])
async def test_a_watch_that_is_refused_begins_again(
    pair: LeasePair, status: int, is_told: bool
) -> None:
    async with aclosing(pair.two.watch()) as views:
        with capture_logs() as told:
            await anext(views)
            pair.server.fail("GET", refused(status, "x", "gone"), is_done=False)
            following = asyncio.ensure_future(anext(views))
            await pair.server.watched()
            await pair.two.announce(MEMBER)
            assert (await following).members == {2: MEMBER}
        assert bool(told) is is_told


async def test_a_record_that_was_read_again_meanwhile_is_not_replaced(pair: LeasePair) -> None:
    await won(pair)
    keeper = pair.keeper()
    stored = await keeper.load()
    await pair.one.resign(LEADER_A)
    await keeper.load()
    assert await keeper.swap(stored.record, stored.tag) is None
    assert (await pair.two.read()).leader is None
    await keeper.close()


async def test_beats_alone_are_not_read(pair: LeasePair) -> None:
    view = await won(pair)
    await pair.two.announce(MEMBER)
    async with aclosing(pair.two.watch()) as views:
        await anext(views)
        following = asyncio.ensure_future(anext(views))
        await pair.server.watched()
        read = sum(1 for _, target in pair.server.requests if target.endswith("broker-a"))
        await pair.one.renew(LEADER_A, view.version)
        await pair.two.announce(MEMBER)
        await pair.one.resign(LEADER_A)
        assert (await following).leader is None
        after = sum(1 for _, target in pair.server.requests if target.endswith("broker-a"))
        lists_of_changes, of_watch = 2, 1
        puts = 2
        assert after - read == lists_of_changes + puts + of_watch


async def test_a_replica_that_starts_again_takes_over_its_announcement(pair: LeasePair) -> None:
    await pair.two.announce(MEMBER)
    again = pair.engine()
    await again.announce(replace(MEMBER, incarnation="third"))
    await pair.two.announce(MEMBER)
    assert (await pair.one.read()).members == {2: MEMBER}
    await again.close()


async def test_an_announcement_that_others_change_all_the_time_is_told(pair: LeasePair) -> None:
    await pair.two.announce(MEMBER)
    for _ in range(3):
        pair.server.fail("PUT", refused(409, "Conflict", "modified"), is_done=False)
    with pytest.raises(EngineError, match="two replicas have the same id"):
        await pair.two.announce(MEMBER)


async def test_a_first_campaign_that_was_overtaken_is_refused(pair: LeasePair) -> None:
    await won(pair)
    assert await pair.two.campaign(FIRST, LEADER_B) == (SwapOutcome.REFUSED, None)


async def test_what_somebody_else_wrote_is_named(pair: LeasePair) -> None:
    await won(pair)
    metadata = pair.server.objects[SET]["metadata"]
    await pair.server.change(SET, metadata={**metadata, "annotations": {RECORD: "{}"}})
    with pytest.raises(EngineError, match=r"Lease mq/broker-a in Kubernetes .* cannot be read"):
        await pair.two.read()


async def test_a_pod_that_may_not_replace_the_sets_lease_is_told(pair: LeasePair) -> None:
    await won(pair)
    await pair.two.read()
    await pair.two.announce(MEMBER)
    before = dict(pair.server.objects)
    pair.server.read_only.add(SET)
    with pytest.raises(EngineError, match="cannot PUT"):
        await pair.two.announce(MEMBER)
    assert pair.server.objects[SET] == before[SET]


async def test_a_try_to_replace_the_lease_that_another_was_faster_than_is_no_failure(
    pair: LeasePair,
) -> None:
    view = await won(pair)
    await pair.two.read()
    assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
    await pair.two.announce(MEMBER)
