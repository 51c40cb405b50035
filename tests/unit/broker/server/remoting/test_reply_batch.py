"""ReplyBatch: the answers of a pass leave in one write, and are counted when they do."""

from rockhopper.broker.server.loop.latencies import RequestLabels, RequestTimes
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.files.errors import NotReplicatedError
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.protocol.codes import RequestCode, ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from tests.support.peers import Peer


def frame(opaque: int) -> bytes:
    return encode_command(Command(0, opaque, 1))


def answered(peer: Peer) -> list[tuple[int, int]]:
    """Opaque and code of everything written."""
    commands = [decode_header(*each) for each in FrameDecoder().feed(b"".join(peer.written))]
    return [(command.opaque, command.code) for command in commands]


def test_everything_leaves_in_one_write_in_its_order() -> None:
    peer = Peer()
    batch = ReplyBatch(peer.connection, RequestTimes(lambda: 0.0), 0.0)
    for opaque in (1, 2, 3):
        batch.answer(frame(opaque))
    assert batch.size_bytes == 3 * len(frame(1))
    assert peer.written == []
    batch.flush()
    batch.flush()
    assert answered(peer) == [(1, 0), (2, 0), (3, 0)]
    assert len(peer.written) == 1
    assert batch.size_bytes == 0


def test_requests_are_counted_with_the_time_until_their_answers_are_written() -> None:
    now_s = 100.0
    times = RequestTimes(lambda: now_s)
    batch = ReplyBatch(Peer().connection, times, now_s)
    waited = ReplyBatch(Peer().connection, times, now_s, has_waited=True)
    for one in (batch, waited):
        one.count(RequestCode.PULL_MESSAGE, 2)
        one.count(RequestCode.PULL_MESSAGE)
    now_s += 0.25
    batch.flush()
    batch.flush()
    waited.flush()
    counted = {kind: (sum(row.counts), round(row.sum_s, 6)) for kind, row in times.rows()}
    assert counted == {
        RequestLabels("pull_message", "success", False, False): (3, 0.75),
        RequestLabels("pull_message", "success", True, False): (3, 0.75),
    }


async def test_a_promise_that_must_not_leave_when_the_pass_ends_is_held() -> None:
    peer, is_open = Peer(), True
    gate = LeaseGate(lambda: is_open, 3000)
    batch = ReplyBatch(peer.connection, RequestTimes(lambda: 0.0), 0.0, gate=gate)
    batch.promise(frame(1))
    batch.answer(frame(2))
    is_open = False
    batch.flush()
    assert answered(peer) == [(2, 0)]
    gate.refuse(NotReplicatedError("another one leads"))
    assert answered(peer) == [(2, 0), (1, ResponseCode.FLUSH_SLAVE_TIMEOUT)]
    gate.close()
