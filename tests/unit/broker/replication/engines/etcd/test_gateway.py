"""Which endpoint is asked, how often, and what is said when it fails."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing

import pytest

from rockhopper.broker.replication.engines.consensus.connections import (
    ServiceRefusedError,
    UnavailableError,
)
from rockhopper.broker.replication.engines.etcd import forms
from rockhopper.broker.replication.engines.etcd.forms import (
    EtcdAnswer,
    GrantAnswer,
    RangeAnswer,
    StatusAnswer,
    TxnAnswer,
)
from rockhopper.broker.replication.engines.etcd.gateway import EtcdAccess, EtcdGateway
from tests.support.fake_etcd import LOST, FakeEtcd, refused
from tests.support.hang import PATIENT_MS
from tests.support.held_clock import HeldClock
from tests.support.turns import until

READ: forms.Body = {"key": b"k"}
SWAP: forms.Body = {"compare": [], "success": [{"request_put": forms.put(b"k", b"v")}]}


@pytest.fixture
async def etcd() -> AsyncIterator[FakeEtcd]:
    async with FakeEtcd() as found:
        yield found


async def closed_port(etcd: FakeEtcd) -> str:
    endpoint = await etcd.listen()
    await etcd.stop(endpoint)
    return endpoint


async def test_a_connection_is_used_again(etcd: FakeEtcd) -> None:
    endpoint = await etcd.listen()
    gateway = EtcdGateway(EtcdAccess([endpoint]), timeout_ms=PATIENT_MS)
    await gateway.ask(forms.RANGE, READ, RangeAnswer)
    await etcd.stop(endpoint)
    await gateway.ask(forms.RANGE, READ, RangeAnswer)
    await gateway.close()
    with pytest.raises(UnavailableError, match="the engine is closed"):
        await gateway.ask(forms.RANGE, READ, RangeAnswer)


async def test_the_next_endpoint_is_asked_and_stays(etcd: FakeEtcd) -> None:
    gateway = EtcdGateway(
        EtcdAccess([await closed_port(etcd), await etcd.listen()]), timeout_ms=PATIENT_MS
    )
    assert (await gateway.ask(forms.STATUS, {}, StatusAnswer)).version == "3.4.23"
    assert (await gateway.ask(forms.TXN, SWAP, TxnAnswer, may_repeat=False)).succeeded
    await gateway.close()


@pytest.mark.parametrize(
    "failure",
    [
        LOST,
        refused(503, 14, "etcdserver: request timed out"),
        refused(500, 2, "lease: not a primary lessor"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]",
        b"ICY 200 OK\r\n\r\n",
    ],
)
async def test_what_may_be_repeated_is_and_a_swap_is_not(etcd: FakeEtcd, failure: bytes) -> None:
    gateway = EtcdGateway(
        EtcdAccess([await etcd.listen(), await etcd.listen()]), timeout_ms=PATIENT_MS
    )
    etcd.fail(forms.GRANT, failure)
    assert (await gateway.ask(forms.GRANT, {"TTL": "4"}, GrantAnswer)).id in etcd.leases
    assert etcd.asked(forms.GRANT) == 2
    etcd.fail(forms.TXN, failure)
    with pytest.raises(UnavailableError) as error:
        await gateway.ask(forms.TXN, SWAP, TxnAnswer, may_repeat=False)
    assert error.value.may_be_done
    assert etcd.asked(forms.TXN) == 1
    assert (await gateway.ask(forms.RANGE, READ, RangeAnswer)).kvs[0].value == b"v"
    await gateway.close()


async def test_a_swap_that_could_not_leave_is_known_not_to_be_done(etcd: FakeEtcd) -> None:
    endpoints = [await closed_port(etcd), await closed_port(etcd)]
    gateway = EtcdGateway(EtcdAccess(endpoints), timeout_ms=PATIENT_MS)
    with pytest.raises(UnavailableError) as error:
        await gateway.ask(forms.TXN, SWAP, TxnAnswer, may_repeat=False)
    assert not error.value.may_be_done
    assert all(f"{each} cannot be reached" in str(error.value) for each in endpoints)
    await gateway.close()


async def test_an_endpoint_that_does_not_answer_is_given_up(
    etcd: FakeEtcd, monkeypatch: pytest.MonkeyPatch
) -> None:
    endpoint = await etcd.listen()
    gateway = EtcdGateway(EtcdAccess([endpoint]), timeout_ms=50)
    etcd.fail(forms.RANGE, None, is_done=False)
    clock = HeldClock(monkeypatch)
    asking = asyncio.ensure_future(gateway.ask(forms.RANGE, READ, RangeAnswer))
    await until(lambda: etcd.asked(forms.RANGE) == 1)
    clock.advance(0.05)
    with pytest.raises(UnavailableError, match=rf"^{endpoint}: no answer within 0\.05 s$"):
        await asking
    assert await gateway.ask(forms.RANGE, READ, RangeAnswer)
    await gateway.close()


@pytest.mark.parametrize(
    ("status", "message", "hint"),
    [
        (400, "etcdserver: user name is empty", "set haEngineUser"),
        (403, "etcdserver: permission denied", "grant a role of haEngineUser readwrite"),
        (429, "etcdserver: mvcc: database space exceeded", "compact and defragment"),
        (404, "etcdserver: requested lease not found", ""),
    ],
)
async def test_a_refusal_says_what_to_change(
    etcd: FakeEtcd, status: int, message: str, hint: str
) -> None:
    endpoint = await etcd.listen()
    gateway = EtcdGateway(EtcdAccess([endpoint, await etcd.listen()]), timeout_ms=PATIENT_MS)
    etcd.fail(forms.RANGE, refused(status, 0, message), is_done=False)
    with pytest.raises(ServiceRefusedError, match=f"^{endpoint} refuses: {message}(: {hint}|$)"):
        await gateway.ask(forms.RANGE, READ, RangeAnswer)
    assert etcd.asked(forms.RANGE) == 1
    await gateway.close()


async def test_a_server_without_the_gateway_is_told_from_etcd(etcd: FakeEtcd) -> None:
    gateway = EtcdGateway(EtcdAccess([await etcd.listen()]), timeout_ms=PATIENT_MS)
    with pytest.raises(ServiceRefusedError, match=r"is it etcd 3\.4 or later"):
        await gateway.ask("/v3beta/kv/range", READ, RangeAnswer)
    await gateway.close()


async def test_a_user_is_known_by_a_token_that_is_got_once(etcd: FakeEtcd) -> None:
    etcd.user = ("rock", "hopper")
    gateway = EtcdGateway(
        EtcdAccess([await etcd.listen()], "rock", "hopper"), timeout_ms=PATIENT_MS
    )
    asked = [gateway.ask(forms.RANGE, READ, RangeAnswer) for _ in range(3)]
    await asyncio.gather(*asked)
    assert etcd.asked(forms.AUTHENTICATE) == 1
    await gateway.close()


async def test_a_token_that_is_over_is_got_anew_for_a_swap_too(etcd: FakeEtcd) -> None:
    etcd.user = ("rock", "hopper")
    gateway = EtcdGateway(
        EtcdAccess([await etcd.listen()], "rock", "hopper"), timeout_ms=PATIENT_MS
    )
    await gateway.ask(forms.RANGE, READ, RangeAnswer)
    etcd.tokens.clear()
    assert (await gateway.ask(forms.TXN, SWAP, TxnAnswer, may_repeat=False)).succeeded
    assert etcd.asked(forms.AUTHENTICATE) == 2
    await gateway.close()


async def test_a_token_that_is_never_taken_ends_the_tries(etcd: FakeEtcd) -> None:
    etcd.user = ("rock", "hopper")
    endpoint = await etcd.listen()
    gateway = EtcdGateway(EtcdAccess([endpoint], "rock", "hopper"), timeout_ms=PATIENT_MS)
    for _ in range(2):
        etcd.fail(forms.RANGE, refused(401, 16, "etcdserver: invalid auth token"), is_done=False)
    with pytest.raises(ServiceRefusedError, match="refuses every token"):
        await gateway.ask(forms.RANGE, READ, RangeAnswer)
    await gateway.close()


@pytest.mark.parametrize(
    ("user", "hint"),
    [
        (("rock", "another"), "correct haEngineUser and haEnginePasswordFile"),
        (None, "enable it, or remove haEngineUser"),
    ],
)
async def test_a_wrong_password_says_what_to_change(
    etcd: FakeEtcd, user: tuple[str, str] | None, hint: str
) -> None:
    etcd.user = user
    gateway = EtcdGateway(
        EtcdAccess([await etcd.listen()], "rock", "hopper"), timeout_ms=PATIENT_MS
    )
    with pytest.raises(ServiceRefusedError, match=hint):
        await gateway.ask(forms.RANGE, READ, RangeAnswer)
    await gateway.close()


async def test_a_member_from_the_past_is_left_for_another(etcd: FakeEtcd) -> None:
    async with FakeEtcd(revision=1) as restored:
        endpoints = [await etcd.listen(), await restored.listen()]
        etcd.revision = 9
        gateway = EtcdGateway(EtcdAccess(endpoints), timeout_ms=PATIENT_MS)
        await gateway.ask(forms.RANGE, READ, RangeAnswer)
        etcd.fail(forms.RANGE, LOST)
        with pytest.raises(UnavailableError, match="restored from a backup"):
            await gateway.ask(forms.RANGE, READ, RangeAnswer)
        await gateway.ask(forms.RANGE, READ, RangeAnswer)
        await gateway.close()


async def test_a_watch_that_is_silent_ends(etcd: FakeEtcd) -> None:
    gateway = EtcdGateway(EtcdAccess([await etcd.listen()]), timeout_ms=60_000, silence_ms=20)
    async with aclosing(gateway.watch(forms.under(b"/") | {"start_revision": "2"})) as told:
        assert [each.created async for each in told] == [True]
    await gateway.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (LOST, "closed the connection"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[]\n", "invalid answer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{}\n", "the watch ended: an empty line"),
        (refused(503, 14, "etcdserver: no leader"), "no leader"),
        (refused(403, 7, "etcdserver: permission denied"), "grant a role"),
        (
            b'HTTP/1.1 200 OK\r\nContent-Length: 34\r\n\r\n{"error":{"message":"it is over"}}',
            "the watch ended: it is over",
        ),
    ],
)
async def test_a_watch_that_fails_says_why(etcd: FakeEtcd, answer: bytes, reason: str) -> None:
    gateway = EtcdGateway(EtcdAccess([await etcd.listen()]), timeout_ms=PATIENT_MS)
    etcd.fail(forms.WATCH, answer, is_done=False)
    with pytest.raises((UnavailableError, ServiceRefusedError), match=reason):
        await anext(gateway.watch({}))
    await gateway.close()


async def test_a_watch_without_a_valid_token_ends_and_gets_one(etcd: FakeEtcd) -> None:
    etcd.user = ("rock", "hopper")
    gateway = EtcdGateway(
        EtcdAccess([await etcd.listen()], "rock", "hopper"), timeout_ms=PATIENT_MS
    )
    await gateway.ask(forms.RANGE, READ, EtcdAnswer)
    etcd.tokens.clear()
    assert await anext(gateway.watch({}), None) is None
    async with aclosing(gateway.watch({"start_revision": "9"})) as told:
        assert (await anext(told)).created
    assert etcd.asked(forms.AUTHENTICATE) == 2
    await gateway.close()
