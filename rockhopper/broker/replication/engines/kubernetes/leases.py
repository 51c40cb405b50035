"""The Leases of a set in Kubernetes, all with the label ``rockhopper/set``.

    <lease>                annotation rockhopper/record: the set (set_record.py), in JSON
    <lease>.member.<id>    annotation rockhopper/member: a running replica; empty: none runs

The fields in ``spec`` are for people and their tools: the leader, the epoch as the number of
transitions, and the time of the renewal. No code here reads them. A PUT with the resourceVersion
that was read replaces a Lease; the API server refuses it (409) if the version has changed. One list
request without a resourceVersion returns the latest state of both kinds.
"""

import contextlib
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, TypeVar
from urllib.parse import quote

import msgspec

from rockhopper.broker.replication.engines.consensus.set_record import (
    MemberRecord,
    SetRecord,
    Stored,
    decode_member_record,
    decode_record,
    encode_member_record,
    encode_record,
)
from rockhopper.broker.replication.engines.engine import MEMBER_LEASE_MS, EngineError
from rockhopper.broker.replication.engines.kubernetes.api import KubernetesApi, NotDoneError

LABEL = "rockhopper/set"
RECORD = "rockhopper/record"
MEMBER = "rockhopper/member"
API_VERSION = "coordination.k8s.io/v1"
WATCH_S = 300
MEMBER_TRIES_MAX = 3
_NOT_FOUND, _GONE = 404, 410

Metadata = dict[str, Any]
_Form = TypeVar("_Form")


class Lease(msgspec.Struct):
    """The parts of a Lease that are read; a write preserves the rest of its metadata."""

    metadata: Metadata

    @property
    def name(self) -> str:
        """The Lease's name."""
        return str(self.metadata.get("name", ""))

    @property
    def version(self) -> str:
        """The Lease's resourceVersion."""
        return str(self.metadata.get("resourceVersion", ""))

    def annotation(self, name: str) -> bytes:
        """Return an annotation of the Lease; empty if it has none of that name."""
        return str((self.metadata.get("annotations") or {}).get(name, "")).encode()


class _ListMetadata(msgspec.Struct, rename="camel"):
    resource_version: str = ""


class _Leases(msgspec.Struct):
    metadata: _ListMetadata
    items: list[Lease] = []


class _LeaseEvent(msgspec.Struct):
    type: str
    object: msgspec.Raw


class SetLeases:
    """The RecordKeeper over the Leases of one set."""

    def __init__(
        self,
        api: KubernetesApi,
        namespace: str,
        lease: str,
        *,
        lease_ms: int = 4000,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """*lease_ms* and *now* (wall-clock time) only fill fields that people read."""
        self.name = f"Lease {namespace}/{lease} in Kubernetes"
        self._api = api
        self._lease = lease
        self._path = f"/apis/{API_VERSION}/namespaces/{namespace}/leases"
        self._query = f"?labelSelector={quote(f'{LABEL}={lease}', safe='')}"
        self._lease_ms = lease_ms
        self._now = now
        self._read: Lease | None = None
        """The set's Lease as last read or written."""
        self._own: Lease | None = None
        """This replica's own Lease as last read or written."""
        self._list_version = ""

    async def load(self) -> Stored:
        """See RecordKeeper."""
        leases = self._decoded(await self._api.ask("GET", self._path + self._query), _Leases)
        record, tag, members = SetRecord(), None, {}
        self._read, self._list_version = None, leases.metadata.resource_version
        for lease in leases.items:
            if lease.name == self._lease:
                record, tag, self._read = self._record(lease), lease.version, lease
            elif member := self._member(lease):
                members[member.announcement.replica.id] = member
        return Stored(record, tag, members)

    async def swap(self, record: SetRecord, tag: str | None) -> str | None:
        """See RecordKeeper."""
        before = self._read
        if (before.version if before else None) != tag:
            return None  # Another read has found a different version since.
        leader = record.leader
        spec = self._spec(str(leader.id) if leader else "", self._lease_ms)
        if record.state:
            spec["leaseTransitions"] = record.state.epoch
        annotations = {RECORD: encode_record(record).decode()}
        try:
            self._read = after = await self._put(self._lease, before, annotations, spec)
        except NotDoneError:
            return None
        return after.version

    async def store_member(self, member: MemberRecord) -> None:
        """See RecordKeeper. Also raises if the pod may not replace the set's own Lease."""
        replica_id = member.announcement.replica.id
        name = f"{self._lease}.member.{replica_id}"
        annotations = {MEMBER: encode_member_record(member).decode()}
        spec = self._spec(str(replica_id), MEMBER_LEASE_MS)
        for _ in range(MEMBER_TRIES_MAX):
            try:
                self._own = await self._put(name, self._own, annotations, spec)
                await self._try_swap()
                return
            except NotDoneError:
                self._own = await self._get(name)
        raise EngineError(f"Lease {name} keeps changing: do two replicas have the same id?")

    async def remove_member(self, member: MemberRecord) -> None:
        """See RecordKeeper.

        Empties the Lease but keeps it: pods may update Leases, not delete them.
        """
        name = f"{self._lease}.member.{member.announcement.replica.id}"
        for _ in range(MEMBER_TRIES_MAX):
            self._own = held = await self._get(name)
            stored = self._member(held) if held else None
            if stored is None or not stored.is_of_same_process(member):
                return
            with contextlib.suppress(NotDoneError):
                self._own = await self._put(
                    name, held, {MEMBER: ""}, self._spec("", MEMBER_LEASE_MS)
                )
                return
        raise EngineError(f"Lease {name} keeps changing: do two replicas have the same id?")

    async def _try_swap(self) -> None:
        """Check by a dry run, which changes nothing, that the pod may replace the record."""
        spec = self._spec("", self._lease_ms)
        # A conflict with another writer shows that the pod may.
        with contextlib.suppress(NotDoneError):
            await self._put(self._lease, self._read, {}, spec, query="?dryRun=All")

    async def snapshots(self) -> AsyncGenerator[Stored, None]:
        """See RecordKeeper. Lists, then lists again after each event that is more than a beat."""
        stored = await self.load()
        yield stored
        query = f"&watch=true&resourceVersion={self._list_version}&timeoutSeconds={WATCH_S}"
        async with aclosing(self._api.watch(self._path + self._query + query)) as lines:
            try:
                async for line in lines:
                    event = self._decoded(line, _LeaseEvent)
                    if event.type == "ERROR":
                        # The server no longer has that version (410), or has ended the watch.
                        return
                    if self._is_news(event, stored):
                        stored = await self.load()
                        yield stored
            except NotDoneError as error:
                if error.status != _GONE:
                    raise

    async def close(self) -> None:
        """See RecordKeeper."""
        await self._api.close()

    def _is_news(self, event: _LeaseEvent, stored: Stored) -> bool:
        if event.type == "DELETED":
            return True
        lease = self._decoded(bytes(event.object), Lease)
        if lease.name == self._lease:
            record, known = self._record(lease), stored.record
            return (record.version, record.leader, record.designated) != (
                known.version,
                known.leader,
                known.designated,
            )
        member = self._member(lease)
        if member is None:
            return any(lease.name == f"{self._lease}.member.{number}" for number in stored.members)
        before = stored.members.get(member.announcement.replica.id)
        return before is None or before.announcement != member.announcement

    def _record(self, lease: Lease) -> SetRecord:
        text = lease.annotation(RECORD)
        return decode_record(self.name, text) if text else SetRecord()

    def _member(self, lease: Lease) -> MemberRecord | None:
        text = lease.annotation(MEMBER)
        return decode_member_record(f"Lease {lease.name}", text) if text else None

    async def _put(
        self,
        name: str,
        before: Lease | None,
        annotations: dict[str, str],
        spec: dict[str, object],
        query: str = "",
    ) -> Lease:
        """Replace or create a Lease; raise NotDoneError if a concurrent change won."""
        metadata: Metadata = dict(before.metadata) if before else {"name": name}
        metadata["labels"] = {**(metadata.get("labels") or {}), LABEL: self._lease}
        metadata["annotations"] = {**(metadata.get("annotations") or {}), **annotations}
        body = {"apiVersion": API_VERSION, "kind": "Lease", "metadata": metadata, "spec": spec}
        if before:
            answer = await self._api.ask("PUT", f"{self._path}/{name}{query}", body)
        else:
            answer = await self._api.ask("POST", f"{self._path}{query}", body)
        return self._decoded(answer, Lease)

    async def _get(self, name: str) -> Lease | None:
        try:
            return self._decoded(await self._api.ask("GET", f"{self._path}/{name}"), Lease)
        except NotDoneError as error:
            if error.status != _NOT_FOUND:
                raise
            return None

    def _spec(self, holder: str, lease_ms: int) -> dict[str, object]:
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": -(-lease_ms // 1000),
            "renewTime": self._now().strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        }

    def _decoded(self, data: bytes, form: type[_Form]) -> _Form:
        try:
            return msgspec.json.decode(data, type=form)
        except msgspec.MsgspecError as error:
            raise self._api.unreadable(error) from None
