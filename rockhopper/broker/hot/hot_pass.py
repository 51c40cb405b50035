"""The hot pass: serves the frames of broker connections, nearly all of them by compiled code.

There are two ways to serve a request. Compiled code serves the requests that make up nearly all
traffic, as known clients write them: plain sends (plain_sends.py) of all connections together, then
plain pulls (plain_pulls.py) of all together, and for each connection commits (plain_commits.py),
further pulls, and requests of the features with a fast path. Where users are required, these are
the signed sends and pulls of users whom the dispatcher has authenticated on the same connection.
Every other request (another serialisation, an unknown topic, a missing field …), and every request
where nothing was compiled, takes the general path through the dispatcher, which defines the right
response.

One system call writes the sends of a turn, before any other request is served; only then are they
acknowledged.
"""

import time
from collections.abc import Callable, Collection, Sequence

from rockhopper.broker.hot.hot_codec import COMMIT_STARTS, PULL_STARTS, SEND_STARTS, json_starts
from rockhopper.broker.hot.parts import HotFeature, HotKernel
from rockhopper.broker.hot.plain_commits import PlainCommits
from rockhopper.broker.hot.plain_pulls import PlainPulls
from rockhopper.broker.hot.plain_sends import PlainSends
from rockhopper.broker.server.loop.fair_scheduler import PASS_BYTES_MAX, PASS_S
from rockhopper.broker.server.remoting.connection import FrameHandler, RemotingConnection
from rockhopper.broker.server.remoting.dispatcher import Dispatcher, Together
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.protocol.codes import RequestCode, SerializeType
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.errors import MalformedHeaderError
from rockhopper.protocol.frame import Frame

GENERAL_SENDS_MAX = 128
"""The sends that the dispatcher serves between two looks at the clock."""


class HotPass(FrameHandler):
    """The frame handler of the broker's port."""

    def __init__(
        self,
        kernel: HotKernel,
        features: Collection[HotFeature],
        dispatcher: Dispatcher,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._times = kernel.request_times
        self._clock = clock
        self._dispatcher = dispatcher
        self._access = dispatcher.access
        self._plain_sends = PlainSends(kernel, features, dispatcher.access)
        self._plain_pulls = PlainPulls(kernel, dispatcher.access)
        self._plain_commits = PlainCommits(kernel)
        fast = [part.fast for part in features if part.fast is not None]
        self._fast_paths = [(json_starts(path.code), path) for path in fast]
        codes = (path.code for path in fast)
        self._starts = PULL_STARTS + COMMIT_STARTS + json_starts(*codes)

    def serve_together(
        self, connections: Sequence[RemotingConnection], has_time: Callable[[], bool]
    ) -> None:
        """Serve the sends and pulls at the fronts of the backlogs of *connections*, together."""
        while connections:
            others, rest = (
                (connections, ())
                if _all_pull(connections)
                else self._serve_plain_sends(connections)
            )
            connections = rest
            if others:
                others = self._serve_pulls(others)
            if others:
                others = self._serve_general_sends(others)
                connections = [*rest, *[each for each in others if each.backlog]]
            if connections and not has_time():
                break

    def _serve_plain_sends(
        self, connections: Sequence[RemotingConnection]
    ) -> tuple[Sequence[RemotingConnection], Sequence[RemotingConnection]]:
        """Serve those that compiled code serves.

        Return the connections whose next request is another one, and those with more of them.
        """
        if not self._plain_sends.is_compiled:
            return connections, ()
        backlogs = [connection.backlog for connection in connections]
        counts, is_cut = self._plain_sends.serve(connections, backlogs)
        others = []
        for connection, backlog, count in zip(connections, backlogs, counts, strict=False):
            if count == len(backlog):
                connection.backlog = []
            else:
                del backlog[:count]
                others.append(connection)
        reached = len(counts)
        if is_cut and others and others[-1] is connections[reached - 1]:
            others.pop()
            reached -= 1
        return others, connections[reached:]

    def _serve_pulls(
        self, connections: Sequence[RemotingConnection]
    ) -> Sequence[RemotingConnection]:
        """Serve the pulls of those whose next request is one; return the others."""
        if not self._access.is_open:
            return connections
        pulling: list[RemotingConnection] = []
        others: list[RemotingConnection] = []
        for connection in connections:
            (pulling if _is_pulling(connection) else others).append(connection)
        if pulling:
            self._plain_pulls.serve_turn(pulling)
        return others

    def _serve_general_sends(
        self, connections: Sequence[RemotingConnection]
    ) -> list[RemotingConnection]:
        """Serve sends by the dispatcher, with one write, as many of each connection.

        Return the connections that were not reached, then those that had sends and may have more.
        """
        asked: dict[Together, list[tuple[RemotingConnection, Command]]] = {}
        part = max(1, GENERAL_SENDS_MAX // len(connections))
        for connection in connections[:GENERAL_SENDS_MAX]:
            sends = self._decode_sends(connection.backlog[:part])
            if sends:
                connection.backlog = connection.backlog[len(sends) :]
            for together, command in sends:
                asked.setdefault(together, []).append((connection, command))
        answers: dict[RemotingConnection, list[bytes]] = {}
        for together, requests in asked.items():
            frames = self._dispatcher.dispatch_together(together, requests)
            for (connection, _), frame in zip(requests, frames, strict=True):
                answers.setdefault(connection, []).append(frame)
        for connection, parts in answers.items():
            connection.write_parts(parts)
        return [*connections[GENERAL_SENDS_MAX:], *answers]

    def _decode_sends(self, frames: list[Frame]) -> list[tuple[Together, Command]]:
        """Return the sends at the front of *frames* that are served together."""
        sends = []
        for serialize_type, header, body in frames:
            if not _is_send(serialize_type, header):
                break
            try:
                command = decode_header(serialize_type, header, body)
            except MalformedHeaderError:
                break
            together = self._dispatcher.find_together(command.code)
            if together is None or command.is_response:
                break
            sends.append((together, command))
        return sends

    def serve_frames(self, connection: RemotingConnection, frames: list[Frame]) -> int:
        """Serve *frames* in order; return how many were served."""
        times, gate = self._times, self._dispatcher.gate
        ends_at_s = self._clock() + PASS_S
        batch = ReplyBatch(connection, times, times.now_s(), gate=gate)
        taken = 0
        while taken < len(frames):
            count = self._serve_plain(batch, frames, taken)
            if not count:
                count = 1
                if not self._serve_general(batch, frames[taken]):
                    return len(frames)
            taken += count
            if batch.size_bytes > PASS_BYTES_MAX or self._clock() >= ends_at_s:
                break
        batch.flush()
        return taken

    def _serve_plain(self, batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        """Serve requests of one kind from frame *first* on that need no dispatcher."""
        serialize_type, header, _ = frames[first]
        if _is_send(serialize_type, header):
            if not self._plain_sends.is_compiled:
                return 0
            # Responses leave in the order of the requests.
            batch.flush()
            return self._plain_sends.serve([batch.connection], [frames[first:]])[0][0]
        if serialize_type != SerializeType.JSON or not header.startswith(self._starts):
            return 0
        if not self._access.is_open:
            return self._serve_signed(batch, frames[first])
        if header.startswith(PULL_STARTS):
            return self._plain_pulls.serve(batch, frames, first)
        if header.startswith(COMMIT_STARTS):
            count, answers = self._plain_commits.serve(batch.connection, frames, first)
            batch.count(RequestCode.UPDATE_CONSUMER_OFFSET, count)
            if answers:
                batch.promise(answers)
            return count
        path = next(path for starts, path in self._fast_paths if header.startswith(starts))
        count = path.serve(batch, frames, first)
        batch.count(path.code, count)
        return count

    def _serve_signed(self, batch: ReplyBatch, frame: Frame) -> int:
        """Serve a pull of a user; return 0 if the dispatcher must, or for another request."""
        if not frame[1].startswith(PULL_STARTS):
            return 0
        principal = self._plain_sends.find_signer(batch.connection, frame)
        return 0 if principal is None else self._plain_pulls.serve_signed(batch, frame, principal)

    def _serve_general(self, batch: ReplyBatch, frame: Frame) -> bool:
        """Serve any request by the dispatcher; return False if it closes the connection."""
        connection = batch.connection
        try:
            command = decode_header(*frame)
        except MalformedHeaderError as error:
            batch.flush()
            connection.fail(error)
            return False
        if command.is_response:
            connection.response_received(command)
        elif self._dispatcher.promises_state(command.code):
            batch.promise(self._dispatcher.dispatch(connection, command))
        else:
            batch.answer(self._dispatcher.dispatch(connection, command))
        return True


def _all_pull(connections: Sequence[RemotingConnection]) -> bool:
    """Return whether the next request of each connection is probably a pull."""
    for connection in connections:  # noqa: SIM110 - a generator would cost more
        if not _is_pulling(connection):
            return False
    return True


def _is_pulling(connection: RemotingConnection) -> bool:
    backlog = connection.backlog
    return bool(backlog) and backlog[0][1].startswith(PULL_STARTS)


def _is_send(serialize_type: int, header: bytes) -> bool:
    """Return whether a request is probably a send."""
    return header.startswith(SEND_STARTS.get(serialize_type, ()))
