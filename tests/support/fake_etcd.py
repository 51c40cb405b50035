"""A server with the JSON API of etcd 3.4's gateway, over keys in memory.

64-bit integers are strings, zero values are left out, errors come in chunks with a trailer, and a
lease ends when a test ends it. Answers can be lost, replaced or delayed, one at a time.
"""

import asyncio
import base64
import json
from collections import defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Self

from rockhopper.sockets import close_server

Json = dict[str, Any]

LOST = b""
TRAILER = b"Grpc-Trailer-Content-Type: application/grpc\r\n"


class Refusal(Exception):
    """An error of etcd: HTTP status, gRPC code, message."""


@dataclass
class Key:
    value: str
    mod_revision: int
    lease: int


@dataclass
class Fault:
    """A fault of one request."""

    answer: bytes | None
    """Replaces the answer; LOST closes the connection, None never answers."""
    is_done: bool = True


@dataclass
class FakeEtcd:
    """One cluster; each ``listen`` starts another member of it."""

    revision: int = 1
    term: int = 2
    cluster_id: int = 14841639068965178418
    keys: dict[str, Key] = field(default_factory=dict)
    leases: dict[int, int] = field(default_factory=dict)
    requests: list[tuple[str, Json]] = field(default_factory=list)
    faults: dict[str, deque[Fault]] = field(default_factory=lambda: defaultdict(deque))
    user: tuple[str, str] | None = None
    tokens: set[str] = field(default_factory=set)
    compacted: int = 0

    def __post_init__(self) -> None:
        """Begin without a socket."""
        self._servers: dict[str, asyncio.Server] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._watches: dict[asyncio.StreamWriter, asyncio.Queue[Json | None]] = {}
        self.watching = asyncio.Condition()
        self.answers: dict[str, Callable[[Json], Json]] = {
            "/v3/kv/range": self._range,
            "/v3/kv/put": self._put,
            "/v3/kv/txn": self._txn,
            "/v3/lease/grant": self._grant,
            "/v3/lease/keepalive": self._keep_alive,
            "/v3/lease/revoke": self._revoke,
            "/v3/maintenance/status": lambda _: self._headed({"version": "3.4.23"}),
        }

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        for endpoint in list(self._servers):
            await self.stop(endpoint)
        await asyncio.sleep(0)
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)

    async def listen(self) -> str:
        """Start a member and return its endpoint."""
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        self._servers[f"{host}:{port}"] = server
        return f"{host}:{port}"

    async def stop(self, endpoint: str) -> None:
        """Accept no more connections at this endpoint."""
        await close_server(self._servers.pop(endpoint))

    def fail(self, path: str, answer: bytes | None, *, is_done: bool = True) -> None:
        """Make the next request of that kind fail."""
        self.faults[path].append(Fault(answer, is_done))

    def asked(self, path: str) -> int:
        """Return the number of requests of that kind."""
        return sum(1 for each, _ in self.requests if each == path)

    def end_leases(self) -> None:
        """Expire all leases and the keys that they hold."""
        for lease in list(self.leases):
            self._revoke({"ID": str(lease)})

    def break_watches(self) -> None:
        """Close the streams in the middle of a chunk."""
        for queue in self._watches.values():
            queue.put_nowait(None)

    def cancel_watches(self, **how: object) -> None:
        """Cancel the watches in order."""
        for queue in self._watches.values():
            queue.put_nowait(self._headed({"canceled": True, **how}))

    async def watched(self, count: int = 1) -> None:
        """Return when this many watches exist."""
        async with self.watching:
            await self.watching.wait_for(lambda: len(self._watches) >= count)

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
        path = head.split(" ")[1]
        headers = {
            name.lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.split("\r\n")[1:])
        }
        body: Json = json.loads(await reader.readexactly(int(headers["content-length"])))
        self.requests.append((path, body))
        fault = self.faults[path].popleft() if self.faults[path] else None
        if fault and not fault.is_done:
            return await self._spoil(writer, fault)
        try:
            if path == "/v3/auth/authenticate":
                answer = plain(self._authenticate(body))
            else:
                self._check(headers.get("authorization"))
                if path == "/v3/watch":
                    await self._watch(writer, body["create_request"])
                    return False
                if path not in self.answers:
                    writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 10\r\n\r\nNot Found\n")
                    return True
                answer = self._formed(path, self.answers[path](body))
        except Refusal as refusal:
            answer = refused(*refusal.args)
        if fault:
            return await self._spoil(writer, fault)
        writer.write(answer)
        return True

    async def _spoil(self, writer: asyncio.StreamWriter, fault: Fault) -> bool:
        if fault.answer is None:
            await asyncio.Event().wait()
        writer.write(fault.answer or b"")
        return bool(fault.answer)

    def _formed(self, path: str, answer: Json) -> bytes:
        if path == "/v3/lease/keepalive":
            return chunked(200, json.dumps({"result": answer}).encode() + b"\n")
        return plain(answer)

    # etcd.

    def _headed(self, answer: Json) -> Json:
        header = {
            "cluster_id": str(self.cluster_id),
            "member_id": "3319814642761637952",
            "revision": str(self.revision),
            "raft_term": str(self.term),
        }
        return {"header": header, **answer}

    def _authenticate(self, body: Json) -> Json:
        if not self.user:
            raise Refusal(412, 9, "etcdserver: authentication is not enabled")
        if (body["name"], body["password"]) != self.user:
            message = "etcdserver: authentication failed, invalid user ID or password"
            raise Refusal(400, 3, message)
        token = f"token.{len(self.tokens)}.{self.asked('/v3/auth/authenticate')}"
        self.tokens.add(token)
        return self._headed({"token": token})

    def _check(self, token: str | None) -> None:
        if self.user and token is None:
            raise Refusal(400, 3, "etcdserver: user name is empty")
        if self.user and token not in self.tokens:
            raise Refusal(401, 16, "etcdserver: invalid auth token")

    def _range(self, body: Json) -> Json:
        first, end = decoded(body["key"]), decoded(body.get("range_end", ""))
        found = sorted(each for each in self.keys if first <= each < (end or first + "\0"))
        kvs = [shown(each, self.keys[each]) for each in found]
        return self._headed({"kvs": kvs, "count": str(len(kvs))} if kvs else {})

    def _put(self, body: Json) -> Json:
        self._store(body, self.revision + 1)
        self._changed([decoded(body["key"])])
        return self._headed({})

    def _txn(self, body: Json) -> Json:
        if not all(self._holds(each) for each in body["compare"]):
            return self._headed({})
        responses: list[Json] = []
        put = [each["request_put"] for each in body["success"] if "request_put" in each]
        for each in put:
            self._store(each, self.revision + 1)
        if put:
            self._changed([decoded(each["key"]) for each in put])
        inner = {"header": {"revision": str(self.revision)}}
        for each in body["success"]:
            if "request_range" in each:
                found = self._range(each["request_range"]) | inner
                responses.append({"response_range": found})
            else:
                responses.append({"response_put": inner})
        return self._headed({"succeeded": True, "responses": responses})

    def _holds(self, compare: Json) -> bool:
        key = self.keys.get(decoded(compare["key"]))
        revision = key.mod_revision if key else 0
        wanted = int(compare["mod_revision"])
        assert compare["target"] == "MOD"
        return revision < wanted if compare["result"] == "LESS" else revision == wanted

    def _store(self, put: Json, revision: int) -> None:
        lease = int(put.get("lease", 0))
        if lease and lease not in self.leases:
            raise Refusal(404, 5, "etcdserver: requested lease not found")
        self.keys[decoded(put["key"])] = Key(put["value"], revision, lease)

    def _changed(self, keys: list[str]) -> None:
        self.revision += 1
        events = [{"kv": shown(each, self.keys[each])} for each in keys if each in self.keys]
        gone = [{"type": "DELETE", "kv": {"key": coded(each)}} for each in keys]
        for queue in self._watches.values():
            queue.put_nowait(self._headed({"events": events or gone}))

    def _grant(self, body: Json) -> Json:
        lease = 7587850000000000000 + self.asked("/v3/lease/grant")
        self.leases[lease] = int(body["TTL"])
        return self._headed({"ID": str(lease), "TTL": body["TTL"]})

    def _keep_alive(self, body: Json) -> Json:
        ttl = self.leases.get(int(body["ID"]))
        return self._headed({"ID": body["ID"]} | ({"TTL": str(ttl)} if ttl else {}))

    def _revoke(self, body: Json) -> Json:
        lease = int(body["ID"])
        if self.leases.pop(lease, None) is None:
            raise Refusal(404, 5, "etcdserver: requested lease not found")
        gone = [name for name, key in self.keys.items() if key.lease == lease]
        for name in gone:
            del self.keys[name]
        if gone:
            self._changed(gone)
        return self._headed({})

    async def _watch(self, writer: asyncio.StreamWriter, request: Json) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        self._tell(writer, self._headed({"created": True}))
        start = int(request["start_revision"])
        if start <= self.compacted:
            told = {"canceled": True, "compact_revision": str(self.compacted)}
            self._tell(writer, self._headed(told))
            await writer.drain()
            return
        queue = self._watches[writer] = asyncio.Queue()
        if self.revision >= start:
            queue.put_nowait(self._headed({"events": [{"kv": {"key": request["key"]}}]}))
        try:
            async with self.watching:
                self.watching.notify_all()
            while told_next := await queue.get():
                self._tell(writer, told_next)
                await writer.drain()
            writer.write(b'50\r\n{"result":{"hea')
        finally:
            del self._watches[writer]

    def _tell(self, writer: asyncio.StreamWriter, result: Json) -> None:
        line = json.dumps({"result": result}).encode() + b"\n"
        writer.write(f"{len(line):x}\r\n".encode() + line + b"\r\n")


def coded(key: str) -> str:
    return base64.b64encode(key.encode()).decode()


def decoded(key: str) -> str:
    return base64.b64decode(key).decode()


def shown(name: str, key: Key) -> Json:
    kv = {"key": coded(name), "mod_revision": str(key.mod_revision), "value": key.value}
    return kv | ({"lease": str(key.lease)} if key.lease else {})


def plain(answer: Json) -> bytes:
    body = json.dumps(answer).encode()
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def chunked(status: int, body: bytes, trailer: bytes = b"") -> bytes:
    head = f"HTTP/1.1 {status} Told\r\nTransfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n"
    return head.encode() + body + b"\r\n0\r\n" + trailer + b"\r\n"


def refused(status: int, code: int, message: str) -> bytes:
    """Return an error of etcd in the form of its gateway."""
    body = json.dumps({"error": message, "message": message, "code": code}).encode()
    return chunked(status, body, TRAILER)
