"""Of the answers of a pass, those that promise state are held while the lease may be over."""

from rockhopper.broker.server.remoting.held_answers import hold_back
from rockhopper.broker.store.files.errors import NotReplicatedError
from rockhopper.broker.store.lease_gate import LeaseGate
from rockhopper.protocol.codes import FLAG_RESPONSE, ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import FrameDecoder
from tests.support.peers import Peer


def frame(opaque: int, code: int = 0) -> bytes:
    return encode_command(Command(code=code, opaque=opaque, flag=FLAG_RESPONSE))


def written(peer: Peer) -> list[tuple[int, int]]:
    frames = FrameDecoder().feed(b"".join(peer.written))
    found = [decode_header(*each) for each in frames]
    return [(command.opaque, command.code) for command in found]


async def test_of_one_pass_only_promises_are_held_back() -> None:
    peer, is_open = Peer(), False
    gate = LeaseGate(lambda: is_open, 3000)
    answers = [frame(1), frame(2), frame(3)]
    hold_back(gate, peer, answers, [0, 2])
    assert answers == [b"", frame(2), b""]
    is_open = True
    gate.look()
    assert written(peer) == [(1, 0), (3, 0)]
    hold_back(gate, peer, answers, [1])
    assert answers[1] == frame(2)
    gate.close()


async def test_a_promise_is_taken_back_and_a_refusal_stays_what_it_is() -> None:
    peer = Peer()
    gate = LeaseGate(lambda: False, 3000)
    hold_back(gate, peer, [frame(1), frame(2, ResponseCode.TOPIC_NOT_EXIST)], [0, 1])
    gate.refuse(NotReplicatedError("another one leads"))
    assert written(peer) == [
        (1, ResponseCode.FLUSH_SLAVE_TIMEOUT),
        (2, ResponseCode.TOPIC_NOT_EXIST),
    ]
    gate.close()
