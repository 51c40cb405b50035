"""Elections in a real etcd of three processes, whose members die, stall, forget and refuse."""

import asyncio
import itertools
import shutil
import signal
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

import pytest

from rockhopper.broker.replication.election.actions import Alter, Campaign
from rockhopper.broker.replication.election.replica_set import Leader, SwapOutcome
from rockhopper.broker.replication.engines.consensus.connections import ServiceRefusedError
from rockhopper.broker.replication.engines.engine import Engine, EngineError
from rockhopper.broker.replication.engines.etcd import forms
from rockhopper.broker.replication.engines.etcd.engine import EtcdEngine
from rockhopper.broker.replication.engines.etcd.forms import Body, EtcdAnswer, RangeAnswer
from rockhopper.broker.replication.engines.etcd.gateway import EtcdAccess, EtcdGateway
from tests.interop.etcd import EtcdCluster, ask
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
from tests.support.lossy_proxy import LossyProxy

pytestmark = [pytest.mark.interop]

LEASE_MS = 2000
_SETS = itertools.count()


class RealPair:
    """Two engines of a set that no test had before."""

    def __init__(self, endpoints: Sequence[str]) -> None:
        self.endpoints = endpoints
        self.prefix = f"/rockhopper/tests/{next(_SETS)}/"
        self.engines: list[Engine] = []
        self.one, self.two = self.engine(), self.engine(endpoints[::-1])

    def engine(self, endpoints: Sequence[str] = ()) -> Engine:
        """Another one."""
        gateway = EtcdGateway(EtcdAccess(endpoints or self.endpoints))
        engine = EtcdEngine(gateway, self.prefix, lease_ms=LEASE_MS)
        self.engines.append(engine)
        return engine

    async def lose_leases(self) -> None:
        """Revoke what the keys of the set hang on."""
        everything = forms.under(self.prefix.encode())
        found = await ask(self.endpoints[0], forms.RANGE, everything, RangeAnswer)
        for lease in {each.lease for each in found.kvs if each.lease}:
            await ask(self.endpoints[0], forms.REVOKE, {"ID": str(lease)}, EtcdAnswer)

    async def close(self) -> None:
        """Close all engines."""
        for engine in self.engines:
            await engine.close()


@pytest.fixture
async def pair(etcd_cluster: EtcdCluster) -> AsyncIterator[RealPair]:
    await etcd_cluster.start()
    found = RealPair(etcd_cluster.endpoints)
    yield found
    await found.close()


class TestRealEtcd(EngineContract):
    """All of it."""


async def until_done(request: Callable[[], Awaitable[SwapOutcome]], timeout_s: float = 30) -> float:
    """Ask until it is done; return after how many seconds."""
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    async with asyncio.timeout(timeout_s):
        while True:
            if await request() is SwapOutcome.DONE:
                return loop.time() - began_s
            await asyncio.sleep(0.05)


async def test_a_lease_that_nobody_renews_ends(pair: RealPair) -> None:
    loop = asyncio.get_running_loop()
    async with aclosing(pair.two.watch()) as views:
        await anext(views)
        view = await won(pair)
        renewed_at_s = loop.time()
        assert (await anext(views)).leader == LEADER_A
        async with asyncio.timeout(30):
            assert await anext(views) == replace(view, leader=None)
    assert LEASE_MS / 1000 - 0.5 < loop.time() - renewed_at_s < 10
    assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
    assert await pair.two.read() == view


async def test_a_lease_that_is_renewed_stays(pair: RealPair) -> None:
    view = await won(pair)
    loop = asyncio.get_running_loop()
    end_s = loop.time() + 2.5 * LEASE_MS / 1000
    while loop.time() < end_s:
        assert await pair.one.renew(LEADER_A, view.version) is SwapOutcome.DONE
        await asyncio.sleep(LEASE_MS / 4000)
    assert await pair.two.read() == view


async def test_of_many_campaigns_at_once_exactly_one_wins(pair: RealPair) -> None:
    engines = [pair.engine([each]) for each in (*pair.endpoints, *pair.endpoints)]
    version, held = 0, None
    for epoch in range(1, 21):
        state = replace(STATE, epoch=epoch)
        leaders = [Leader(each, f"start {each}", epoch) for each in range(len(engines))]
        await asyncio.gather(*(each.read() for each in engines))
        outcomes = await asyncio.gather(
            *(
                engine.campaign(Campaign(state, version, held), leader)
                for engine, leader in zip(engines, leaders, strict=True)
            )
        )
        assert sorted(outcome.value for outcome, _ in outcomes) == ["done"] + ["refused"] * 5
        winner = next(i for i, (outcome, _) in enumerate(outcomes) if outcome is SwapOutcome.DONE)
        view = outcomes[winner][1]
        assert view
        assert view.version > version
        assert view == await engines[0].read()
        version, held = view.version, leaders[winner]
        assert view.leader == held


async def test_a_killed_etcd_leader_costs_time_only(
    pair: RealPair, etcd_cluster: EtcdCluster
) -> None:
    leader = await etcd_cluster.leader()
    others = [each for each in etcd_cluster.endpoints if each != leader.endpoint]
    one, two = pair.engine([leader.endpoint, *others]), pair.engine([leader.endpoint, *others])
    outcome, view = await one.campaign(FIRST, LEADER_A)
    assert outcome is SwapOutcome.DONE
    assert view
    async with aclosing(two.watch()) as views:
        assert await anext(views) == view
        leader.kill()
        await until_done(lambda: one.renew(LEADER_A, view.version))
        smaller = replace(STATE, in_sync=frozenset({A}))
        outcome, version = await one.alter(Alter(smaller, view.version))
        assert outcome is SwapOutcome.DONE
        async with asyncio.timeout(30):
            async for seen in views:
                if seen.version == version:
                    break
        assert seen.state == smaller
    assert await one.read() == await two.read() == replace(view, state=smaller, version=version)


async def test_a_stopped_member_is_left_for_another(
    pair: RealPair, etcd_cluster: EtcdCluster
) -> None:
    leader = await etcd_cluster.leader()
    stopped = next(each for each in etcd_cluster.members if each is not leader)
    others = [each for each in etcd_cluster.endpoints if each != stopped.endpoint]
    one = pair.engine([stopped.endpoint, *others])
    outcome, view = await one.campaign(FIRST, LEADER_A)
    assert outcome is SwapOutcome.DONE
    assert view
    stopped.signal(signal.SIGSTOP)
    try:
        assert await one.renew(LEADER_A, view.version) is SwapOutcome.DONE
    finally:
        stopped.signal(signal.SIGCONT)


async def test_a_minority_of_etcd_tells_nothing(pair: RealPair, etcd_cluster: EtcdCluster) -> None:
    view = await won(pair)
    last, *others = etcd_cluster.members
    for member in others:
        member.kill()
    alone = pair.engine([last.endpoint])
    with pytest.raises(EngineError, match=f"{last.endpoint}: "):
        await alone.read()
    outcome, _ = await pair.one.alter(Alter(STATE, view.version))
    assert outcome is SwapOutcome.UNKNOWN
    assert await alone.renew(LEADER_A, view.version) is SwapOutcome.UNKNOWN
    await etcd_cluster.start()
    await until_done(lambda: pair.one.renew(LEADER_A, view.version))


async def test_a_lost_answer_may_have_elected(pair: RealPair) -> None:
    async with LossyProxy(pair.endpoints[0]).listening() as proxy:
        gateway = EtcdGateway(EtcdAccess([proxy.address]))
        one = EtcdEngine(gateway, pair.prefix, lease_ms=LEASE_MS)
        ask_as_ever = gateway.ask

        async def lose_the_next(path: str, *args: object, **options: object) -> object:
            proxy.is_losing = path == forms.TXN
            return await ask_as_ever(path, *args, **options)  # type: ignore[arg-type]

        gateway.ask = lose_the_next  # type: ignore[method-assign, assignment]
        assert await one.campaign(FIRST, LEADER_A) == (SwapOutcome.UNKNOWN, None)
        view = await pair.two.read()
        assert (view.state, view.leader) == (STATE, LEADER_A)
        assert (await one.campaign(FIRST, LEADER_A))[0] is SwapOutcome.UNKNOWN
        assert await pair.two.read() == view
        assert await one.renew(LEADER_A, view.version) is SwapOutcome.DONE
        await one.close()


async def test_an_etcd_with_an_older_disk_is_refused(single_etcd: EtcdCluster) -> None:
    pair = RealPair(single_etcd.endpoints)
    member = single_etcd.members[0]
    before = await won(pair)
    single_etcd.kill()
    shutil.copytree(member.directory / "data", member.directory / "backup")
    await single_etcd.start()
    version = before.version
    for in_sync in (frozenset({A}), STATE.in_sync, frozenset({A})):
        outcome, version = await pair.one.alter(Alter(replace(STATE, in_sync=in_sync), version))
        assert outcome is SwapOutcome.DONE
    latest = await pair.one.read()
    single_etcd.kill()
    shutil.rmtree(member.directory / "data")
    (member.directory / "backup").rename(member.directory / "data")
    await single_etcd.start()

    with pytest.raises(EngineError, match="restored from a backup"):
        await pair.one.read()
    for view in (before, latest):
        for displaced in (None, LEADER_A):
            asked = replace(over(view), displaced=displaced)
            assert (await pair.one.campaign(asked, LEADER_B))[0] is not SwapOutcome.DONE
    stranger = pair.engine()
    for number in range(5):
        await stranger.announce(replace(MEMBER, address=f"address {number}"))
    with pytest.raises(EngineError, match=r"state has revision .* restored from a backup"):
        await pair.one.read()
    assert replace(await stranger.read(), members={}, leader=LEADER_A) == before
    assert (await pair.one.alter(Alter(STATE, before.version)))[0] is SwapOutcome.REFUSED
    await pair.close()


async def test_a_watch_from_before_a_compaction_is_canceled(pair: RealPair) -> None:
    view = await won(pair)
    compact: Body = {"revision": str(view.version)}
    await ask(pair.endpoints[0], "/v3/kv/compaction", compact, EtcdAnswer)
    gateway = EtcdGateway(EtcdAccess(pair.endpoints))
    request = forms.under(b"/") | {"start_revision": "1"}
    async with aclosing(gateway.watch(request)) as told:
        canceled = await anext(each async for each in told if each.canceled)
    assert canceled.compact_revision == view.version
    await gateway.close()


async def enable_users(endpoint: str, prefix: str) -> None:
    """Give a user its own keys, and nobody without a password any."""
    permission = {"permType": "READWRITE", **forms.under(prefix.encode())}
    steps: list[tuple[str, Body]] = [
        ("user/add", {"name": "root", "password": "r"}),
        ("role/add", {"name": "root"}),
        ("user/grant", {"user": "root", "role": "root"}),
        ("user/add", {"name": "rock", "password": "hopper"}),
        ("role/add", {"name": "set"}),
        ("role/grant", {"name": "set", "perm": permission}),
        ("user/grant", {"user": "rock", "role": "set"}),
        ("enable", {}),
    ]
    for path, body in steps:
        await ask(endpoint, f"/v3/auth/{path}", body, EtcdAnswer)


async def test_users_and_passwords(single_etcd: EtcdCluster) -> None:
    (endpoint,) = single_etcd.endpoints
    prefix = "/rockhopper/c/b/"
    known = EtcdGateway(EtcdAccess([endpoint], "rock", "hopper"))
    with pytest.raises(ServiceRefusedError, match="enable it, or remove haEngineUser"):
        await EtcdEngine(known, prefix).read()
    await enable_users(endpoint, prefix)
    for access, hint in (
        (EtcdAccess([endpoint]), "set haEngineUser and haEnginePasswordFile"),
        (EtcdAccess([endpoint], "rock", "paper"), "correct haEngineUser and haEnginePasswordFile"),
    ):
        stranger = EtcdGateway(access)
        with pytest.raises(ServiceRefusedError, match=hint):
            await EtcdEngine(stranger, prefix).read()
        await stranger.close()

    engine = EtcdEngine(known, prefix)
    outcome, view = await engine.campaign(FIRST, LEADER_A)
    assert outcome is SwapOutcome.DONE
    assert view
    with pytest.raises(ServiceRefusedError, match="grant a role of haEngineUser readwrite"):
        await EtcdEngine(known, "/rockhopper/c/another/").read()
    async with aclosing(engine.watch()) as views:
        assert await anext(views) == view
        single_etcd.kill()
        await single_etcd.start()
        await until_done(lambda: engine.renew(LEADER_A, view.version))
        await engine.resign(LEADER_A)
        async with asyncio.timeout(30):
            async for seen in views:
                if seen.leader is None:
                    break
    await engine.close()


async def test_tls_trusts_who_is_known(tls_etcd: EtcdCluster) -> None:
    (member,) = tls_etcd.members
    certificate = member.directory / "data/fixtures/client/cert.pem"
    known = ssl.create_default_context(cafile=str(certificate))
    engine = EtcdEngine(EtcdGateway(EtcdAccess([member.endpoint], tls=known)), "/r/c/b/")
    outcome, view = await engine.campaign(FIRST, LEADER_A)
    assert outcome is SwapOutcome.DONE
    async with aclosing(engine.watch()) as views:
        assert await anext(views) == view
        await engine.resign(LEADER_A)
        assert (await anext(views)).leader is None
    await engine.close()
    for tls, reason in (
        (ssl.create_default_context(), "certificate verify failed"),
        (None, "closed the connection"),
    ):
        stranger = EtcdGateway(EtcdAccess([member.endpoint], tls=tls))
        with pytest.raises(EngineError, match=reason):
            await EtcdEngine(stranger, "/r/c/b/").read()
        await stranger.close()
