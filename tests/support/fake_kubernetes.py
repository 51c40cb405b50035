"""An API server with Leases and pods in memory, strict in the relevant points.

A PUT needs the current resourceVersion (409 for another, 422 for none). A POST needs a free name. A
watch needs a version that is not compacted yet (410). All of them need a token (401) with
permission (403).

Answers can be lost, replaced or delayed, one at a time. The engine for Kubernetes was verified only
with this server.
"""

import asyncio
import json
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from rockhopper.sockets import close_server
from tests.support.fake_etcd import LOST, Fault, plain

Json = dict[str, Any]

LEASES = "/apis/coordination.k8s.io/v1/namespaces/"
TOKEN = "token-of-the-pod"


class Refusal(Exception):
    """HTTP status, reason, message."""


@dataclass
class FakeKubernetes:
    """One server."""

    version: int = 100
    compacted: int = 0
    objects: dict[str, Json] = field(default_factory=dict)
    """By path."""
    events: deque[tuple[int, str, Json]] = field(default_factory=lambda: deque(maxlen=1000))
    requests: list[tuple[str, str]] = field(default_factory=list)
    faults: dict[str, deque[Fault]] = field(default_factory=dict)
    forbidden: set[str] = field(default_factory=set)
    """Methods that the service account must not use."""
    read_only: set[str] = field(default_factory=set)
    """Paths of objects that it may only read."""
    token: str = TOKEN
    port: int = 0

    def __post_init__(self) -> None:
        """Begin without a socket."""
        self._changed = asyncio.Condition()
        self._watches = 0
        self._is_breaking = False
        self._is_dry_run = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await close_server(self._server)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    @property
    def endpoint(self) -> str:
        return f"127.0.0.1:{self.port}"

    def fail(self, method: str, answer: bytes | None, *, is_done: bool = True) -> None:
        """Make the next request of that method fail; see FakeEtcd."""
        self.faults.setdefault(method, deque()).append(Fault(answer, is_done))

    def asked(self, method: str) -> int:
        """Return the number of requests of that method."""
        return sum(1 for each, _ in self.requests if each == method)

    async def change(self, path: str, **metadata: object) -> None:
        """Change an object, like another client would."""
        await self._store(path, {**self.objects[path], **metadata}, "MODIFIED")

    async def compact(self) -> None:
        """Forget all events so far, and end the watches: a new watch gets a 410."""
        self.version += 1
        self.compacted = self.version
        await self.break_watches()

    async def break_watches(self) -> None:
        """End the watches, in the middle of a chunk."""
        async with self._changed:
            self._is_breaking = True
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._watches == 0)
            self._is_breaking = False

    async def watched(self, count: int = 1) -> None:
        """Return when this many watches exist."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._watches >= count)

    # HTTP.

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        try:
            while await self._answer(reader, writer):
                pass
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        method, target, _ = head.split("\r\n")[0].split(" ")
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])
        }
        data = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((method, target))
        faults = self.faults.get(method)
        fault = faults.popleft() if faults else None
        if fault and not fault.is_done:
            return await self._spoil(writer, fault)
        try:
            url = urlsplit(target)
            query = {key: values[-1] for key, values in parse_qs(url.query).items()}
            self._check(method, url.path, headers.get("authorization", ""))
            if query.get("watch") == "true":
                await self._watch(writer, url.path, query)
                return False
            body = json.loads(data) if data else {}
            answer = plain(await self._done(method, url.path, query, body, headers))
        except Refusal as refusal:
            answer = refused(*refusal.args)
        if fault:
            return await self._spoil(writer, fault)
        writer.write(answer)
        return True

    async def _spoil(self, writer: asyncio.StreamWriter, fault: Fault) -> bool:
        if fault.answer is None:
            await asyncio.Event().wait()
        writer.write(fault.answer or LOST)
        return bool(fault.answer)

    # Kubernetes.

    def _check(self, method: str, path: str, authorization: str) -> None:
        if authorization != f"Bearer {self.token}":
            raise Refusal(401, "Unauthorized", "Unauthorized")
        if method in self.forbidden or (method != "GET" and path in self.read_only):
            raise Refusal(403, "Forbidden", f"the pod cannot {method} leases")

    async def _done(
        self, method: str, path: str, query: Json, body: Json, headers: dict[str, str]
    ) -> Json:
        if method == "GET" and path.endswith("/leases"):
            return self._list(path, query)
        self._is_dry_run = query.get("dryRun") == "All"
        if method == "POST":
            return await self._create(path, body)
        held = self.objects.get(path)
        if held is None:
            raise Refusal(404, "NotFound", f"{path} not found")
        if method == "PUT":
            return await self._update(path, held, body)
        if method == "PATCH":
            assert headers["content-type"] == "application/merge-patch+json"
            return await self._store(path, merged(held, body), "MODIFIED")
        return held

    def _list(self, path: str, query: Json) -> Json:
        found = [
            each for key, each in self.objects.items() if self._matches(key, each, path, query)
        ]
        return {"kind": "LeaseList", "metadata": {"resourceVersion": str(self.version)}} | (
            {"items": found}
        )

    def _matches(self, key: str, lease: Json, path: str, query: Json) -> bool:
        label, _, value = query.get("labelSelector", "").partition("=")
        labels = lease["metadata"].get("labels", {})
        return key.startswith(path + "/") and (not label or labels.get(label) == value)

    async def _create(self, path: str, body: Json) -> Json:
        self._validate(body)
        path = f"{path}/{body['metadata']['name']}"
        if path in self.objects:
            raise Refusal(409, "AlreadyExists", f"{path} already exists")
        if "resourceVersion" in body["metadata"]:
            raise Refusal(500, "", "resourceVersion should not be set on objects to be created")
        return await self._store(path, body, "ADDED")

    async def _update(self, path: str, held: Json, body: Json) -> Json:
        self._validate(body)
        version = body["metadata"].get("resourceVersion")
        if not version:
            raise Refusal(422, "Invalid", "metadata.resourceVersion: must be specified")
        if version != held["metadata"]["resourceVersion"]:
            raise Refusal(409, "Conflict", "the object has been modified")
        return await self._store(path, body, "MODIFIED")

    def _validate(self, body: Json) -> None:
        if (body.get("apiVersion"), body.get("kind")) != ("coordination.k8s.io/v1", "Lease"):
            raise Refusal(400, "BadRequest", "this is no Lease")
        metadata, spec = body["metadata"], body["spec"]
        if metadata["name"] != metadata["name"].lower() or spec["leaseDurationSeconds"] <= 0:
            raise Refusal(422, "Invalid", "name or leaseDurationSeconds")
        assert all(isinstance(each, str) for each in metadata["annotations"].values())

    async def delete(self, path: str) -> None:
        """Delete an object, like an operator would."""
        self.version += 1
        await self._tell("DELETED", self.objects.pop(path))

    async def _store(self, path: str, body: Json, kind: str) -> Json:
        if self._is_dry_run:
            return body
        self.version += 1
        metadata = {**body["metadata"], "resourceVersion": str(self.version)}
        stored = self.objects[path] = {**body, "metadata": metadata}
        await self._tell(kind, stored)
        return stored

    async def _tell(self, kind: str, changed: Json) -> None:
        async with self._changed:
            self.events.append((self.version, kind, changed))
            self._changed.notify_all()

    async def _watch(self, writer: asyncio.StreamWriter, path: str, query: Json) -> None:
        version = int(query["resourceVersion"])
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        if version < self.compacted:
            status = {"kind": "Status", "code": 410, "message": "too old resource version"}
            writer.write(chunk({"type": "ERROR", "object": status}) + b"0\r\n\r\n")
            return
        async with self._changed:
            self._watches += 1
            self._changed.notify_all()
            try:
                while not self._is_breaking:
                    for number, kind, changed in list(self.events):
                        prefix = f"{path}/{changed['metadata']['name']}"
                        if number > version and self._matches(prefix, changed, path, query):
                            writer.write(chunk({"type": kind, "object": changed}))
                    version = max(version, self.version)
                    await self._changed.wait()
                writer.write(b'50\r\n{"type":"MODIF')
            finally:
                self._watches -= 1
                self._changed.notify_all()


def chunk(event: Json) -> bytes:
    line = json.dumps(event).encode() + b"\n"
    return f"{len(line):x}\r\n".encode() + line + b"\r\n"


def merged(held: Json, patch: Json) -> Json:
    """Apply a merge patch to nested objects."""
    result = dict(held)
    for key, value in patch.items():
        before = held.get(key)
        result[key] = merged(before or {}, value) if isinstance(value, dict) else value
    return result


def refused(status: int, reason: str, message: str) -> bytes:
    """Return a refusal in the form of the API server."""
    body = json.dumps({"kind": "Status", "reason": reason, "message": message, "code": status})
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Length: {len(body)}\r\n\r\n"
    return (head + body).encode()
