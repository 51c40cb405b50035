"""Elections, leases and watches of one set in etcd, for one replica.

An election is one transaction. Its conditions: the state is unchanged since it was read, and the
leader's key is absent or belongs to the displaced leader. It then puts both keys. Nothing here
assumes that a lease is held: etcd's leases may end early or late. Only the comparisons count.

The version of a view is the etcd revision that stored the state. It never decreases. If it does,
etcd was restored from a backup, and the engine refuses it, even after etcd's own revision has
reached the seen one again.
"""

import asyncio
import math
import secrets
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from rockhopper.broker.replication.election.actions import Alter, Campaign
from rockhopper.broker.replication.election.replica_set import (
    Announcement,
    Leader,
    Replica,
    SetState,
    SetView,
    SwapOutcome,
)
from rockhopper.broker.replication.engines.consensus.complaints import Complaints
from rockhopper.broker.replication.engines.consensus.values import (
    StartCount,
    decode_leader,
    decode_member,
    decode_start,
    decode_state,
    encode_leader,
    encode_member,
    encode_start,
    encode_state,
)
from rockhopper.broker.replication.engines.engine import MEMBER_LEASE_MS, EngineError
from rockhopper.broker.replication.engines.etcd import forms
from rockhopper.broker.replication.engines.etcd.forms import (
    Body,
    EtcdAnswer,
    GrantAnswer,
    KeepAliveAnswer,
    KeyValue,
    RangeAnswer,
    TxnAnswer,
)
from rockhopper.broker.replication.engines.etcd.gateway import EtcdGateway

COUNT_TRIES_MAX = 5
# Every replica reads each put of a member, so a new log end alone is put only now and then.
ANNOUNCEMENTS_A_PUT = 24


class EtcdEngine:
    """An Engine for one event loop; a cancelled request has an unknown outcome."""

    def __init__(
        self, gateway: EtcdGateway, prefix: str, *, lease_ms: int = 4000, retry_ms: int = 200
    ) -> None:
        """Serve the set whose keys begin with *prefix*, for example ``/rockhopper/c/b/``.

        A broken watch restarts after *retry_ms*.
        """
        self._gateway = gateway
        self._prefix = prefix
        self._lease_s = math.ceil(lease_ms / 1000)
        self._retry_s = retry_ms / 1000
        self._leader: KeyValue | None = None
        """The leader's key as last read."""
        self._is_leader_read = False
        """Whether the last renewal read the leader's key."""
        self._version = 0
        """The largest version that was seen."""
        self._member_lease = 0
        self._put_member: Announcement | None = None
        self._kept_count = 0
        """How often the member's lease was renewed without another put."""
        self._own_name = secrets.token_hex(8)
        self._complaints = Complaints()

    async def read(self) -> SetView:
        """See Engine."""
        _, view = await self._read_view()
        return view

    async def watch(self) -> AsyncGenerator[SetView, None]:
        """See Engine. Each change causes a new read, so no view is older than the one before."""
        while not self._gateway.is_closed:
            try:
                revision, view = await self._read_view()
                yield view
                body = self._build_range() | {"start_revision": str(revision + 1)}
                async with aclosing(self._gateway.watch(body)) as changes:
                    async for change in changes:
                        if change.canceled:
                            self._tell("watch", change.cancel_reason or "it was compacted away")
                            break
                        if change.events:
                            yield await self.read()
            except EngineError as error:
                self._tell("watch", error)
            await asyncio.sleep(self._retry_s)

    async def campaign(
        self, request: Campaign, leader: Leader
    ) -> tuple[SwapOutcome, SetView | None]:
        """See Engine."""
        if request.version < self._version:
            return SwapOutcome.REFUSED, None
        displaced = self._revision_of(request.displaced) if request.displaced else 0
        try:
            lease = await self._grant(self._lease_s)
            answer = await self._swap(
                [
                    forms.unchanged(self._key("state"), request.version),
                    forms.not_after(self._key("leader"), displaced),
                ],
                [
                    self._put_state(request.state),
                    self._put_leader(leader, lease),
                    {"request_range": self._build_range()},
                ],
            )
            if not answer.succeeded:
                return SwapOutcome.REFUSED, None
            everything = answer.responses[-1].response_range or RangeAnswer()
            return SwapOutcome.DONE, self._view(everything)
        except EngineError as error:
            return self._unknown("campaign", error), None

    async def alter(self, request: Alter) -> tuple[SwapOutcome, int]:
        """See Engine."""
        if request.version < self._version:
            return SwapOutcome.REFUSED, 0
        try:
            answer = await self._swap(
                [forms.unchanged(self._key("state"), request.version)],
                [self._put_state(request.state)],
            )
        except EngineError as error:
            return self._unknown("alter", error), 0
        if not answer.succeeded:
            return SwapOutcome.REFUSED, 0
        self._version = max(self._version, answer.header.revision)
        return SwapOutcome.DONE, answer.header.revision

    async def renew(self, leader: Leader, version: int) -> SwapOutcome:
        """See Engine."""
        try:
            held = await self._leader_to_renew(leader)
            if held and self._decode_leader(held) != leader:
                return SwapOutcome.REFUSED
            if held and await self._is_kept(held.lease):
                return SwapOutcome.DONE
            return await self._take_again(leader, version)
        except EngineError as error:
            return self._unknown("renew", error)

    async def _leader_to_renew(self, leader: Leader) -> KeyValue | None:
        """Return the leader's key, read on every second call.

        The watch reports changes in between.
        """
        known, self._is_leader_read = self._leader, not self._is_leader_read
        if self._is_leader_read or known is None or self._decode_leader(known) != leader:
            self._is_leader_read = True
            return await self._read_leader()
        return known

    async def announce(self, member: Announcement) -> None:
        """See Engine."""
        if not (self._member_lease and await self._is_kept(self._member_lease)):
            self._put_member = None
            self._member_lease = await self._grant(MEMBER_LEASE_MS // 1000)
        known = self._put_member
        if known and known == replace(member, log_end=known.log_end):
            self._kept_count += 1
            if self._kept_count < ANNOUNCEMENTS_A_PUT:
                await self._try_write()
                return
        key = self._key(f"members/{member.replica.id}")
        body = forms.put(key, encode_member(member), self._member_lease)
        await self._gateway.ask(forms.PUT, body, EtcdAnswer)
        await self._try_write()
        self._put_member, self._kept_count = member, 0

    async def withdraw(self) -> None:
        """See Engine."""
        lease, self._member_lease = self._member_lease, 0
        if lease:
            # The key expires with its lease, and a pending put is refused. Another process's key
            # has its own lease.
            await self._gateway.ask(forms.REVOKE, {"ID": str(lease)}, EtcdAnswer)

    async def _try_write(self) -> None:
        """Request the puts of an election under a condition that is never true.

        etcd runs this through consensus like any write. It checks its quota and the user's
        permissions before the condition, and creates no revision that would need compaction.
        """
        keys = (self._key("state"), self._key("leader"))
        await self._swap(
            [forms.never(keys[0])], [{"request_put": forms.put(key, b"")} for key in keys]
        )

    async def count_start(self, replica: Replica, count: int) -> bool:
        """See Engine."""
        key = self._key(f"starts/{replica.id}.{replica.store}")
        start = StartCount(count=count, counted_by=self._own_name)
        for _ in range(COUNT_TRIES_MAX):
            held = await self._read_one(key)
            known = decode_start(key.decode(), held.value) if held else None
            if known == start:
                return True
            if known and known.count >= count:
                return False
            start = replace(start, unknown=known.unknown if known else ())
            answer = await self._swap(
                [forms.unchanged(key, held.mod_revision if held else 0)],
                [{"request_put": forms.put(key, encode_start(start))}],
            )
            if answer.succeeded:
                return True
        raise EngineError(f"{key.decode()} keeps changing: do two replicas run on the same store?")

    async def resign(self, leader: Leader) -> None:
        """See Engine."""
        held = await self._read_leader()
        if held and held.lease and self._decode_leader(held) == leader:
            # The leader's keys expire with its lease; the key of a new leader does not.
            await self._gateway.ask(forms.REVOKE, {"ID": str(held.lease)}, EtcdAnswer)

    async def close(self) -> None:
        """See Engine."""
        await self._gateway.close()

    # Requests.

    async def _read_view(self) -> tuple[int, SetView]:
        """Return the current view and its revision."""
        seen = self._version
        everything = await self._gateway.ask(forms.RANGE, self._build_range(), RangeAnswer)
        view = self._view(everything)
        if view.version < seen:
            raise EngineError(
                f"{self._prefix}state has revision {view.version} in etcd, but revision {seen} "
                "was seen before: was etcd restored from a backup? If that was intended, restart "
                "this broker"
            )
        return everything.header.revision, view

    async def _read_one(self, key: bytes) -> KeyValue | None:
        answer = await self._gateway.ask(forms.RANGE, {"key": key}, RangeAnswer)
        return answer.kvs[0] if answer.kvs else None

    async def _read_leader(self) -> KeyValue | None:
        return await self._read_one(self._key("leader"))

    async def _grant(self, ttl_s: int) -> int:
        answer = await self._gateway.ask(forms.GRANT, {"TTL": str(ttl_s)}, GrantAnswer)
        return answer.id

    async def _is_kept(self, lease: int) -> bool:
        """Renew a lease; return False if it has expired."""
        body: Body = {"ID": str(lease)}
        answer = await self._gateway.ask(forms.KEEP_ALIVE, body, KeepAliveAnswer)
        return answer.result.ttl_s > 0

    async def _swap(self, compare: list[Body], success: list[Body]) -> TxnAnswer:
        body: Body = {"compare": compare, "success": success}
        return await self._gateway.ask(forms.TXN, body, TxnAnswer, may_repeat=False)

    async def _take_again(self, leader: Leader, version: int) -> SwapOutcome:
        if version < self._version:
            return SwapOutcome.REFUSED
        lease = await self._grant(self._lease_s)
        answer = await self._swap(
            [
                forms.unchanged(self._key("state"), version),
                forms.not_after(self._key("leader"), 0),
            ],
            [self._put_leader(leader, lease)],
        )
        return SwapOutcome.DONE if answer.succeeded else SwapOutcome.REFUSED

    def _revision_of(self, leader: Leader) -> int:
        """Return the revision that stored that leader's key, if it was read; else 0."""
        held = self._leader
        return held.mod_revision if held and self._decode_leader(held) == leader else 0

    # Keys and values.

    def _key(self, name: str) -> bytes:
        return f"{self._prefix}{name}".encode()

    def _build_range(self) -> Body:
        return forms.under(self._prefix.encode())

    def _put_state(self, state: SetState) -> Body:
        return {"request_put": forms.put(self._key("state"), encode_state(state))}

    def _put_leader(self, leader: Leader, lease: int) -> Body:
        return {"request_put": forms.put(self._key("leader"), encode_leader(leader), lease)}

    def _decode_leader(self, held: KeyValue) -> Leader:
        return decode_leader(held.key.decode(), held.value)

    def _view(self, everything: RangeAnswer) -> SetView:
        state, version, leader = None, 0, None
        members: dict[int, Announcement] = {}
        self._leader = None
        for each in everything.kvs:
            key = each.key.decode()
            name = key.removeprefix(self._prefix)
            if name == "state":
                state, version = decode_state(key, each.value), each.mod_revision
            elif name == "leader":
                self._leader, leader = each, self._decode_leader(each)
            elif name.startswith("members/"):
                member = decode_member(key, each.value)
                members[member.replica.id] = member
        self._version = max(self._version, version)
        return SetView(state, version, leader, members)

    # Errors.

    def _unknown(self, request: str, error: EngineError) -> SwapOutcome:
        self._tell(request, error)
        return SwapOutcome.UNKNOWN

    def _tell(self, request: str, reason: EngineError | str) -> None:
        if not self._gateway.is_closed:
            self._complaints.tell(request, reason)
