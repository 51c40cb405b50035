"""Signed pulls: compiled code serves them as the general path, until users or rules change."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.hot import plain_pulls, plain_sends
from rockhopper.broker.hot.plain_sends import make_key
from rockhopper.broker.kernel.members.consumer_groups import Client, ConsumeSettings
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command, decode_header, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.signing import Credentials, sign_fields
from rockhopper.protocol.subscription import Subscription
from tests.support.hot_broker import PULL_FIELDS, HotPeer
from tests.support.signed_broker import SECRETS, SignedBroker

pytestmark = pytest.mark.skipif(plain_sends.find_signer is None, reason="it is not compiled")
DENIED = ResponseCode.NO_PERMISSION
AL = Credentials("al", SECRETS["al"])


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SignedBroker]:
    """A broker with five messages."""
    made = SignedBroker(tmp_path)
    made.allow_reading("al", "group", "others")
    for number in range(5):
        made.served.put("orders", b"%d" % number)
    yield made
    made.close()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pulls compiled code has served, call by call."""
    counts: list[int] = []
    real = plain_pulls.take_pulls
    assert real is not None

    def counting(*arguments: object) -> plain_pulls.Taken:
        result = real(*arguments)
        counts.extend(served[0] for served in result[0])
        return result

    monkeypatch.setattr(plain_pulls, "take_pulls", counting)
    return counts


def join(broker: SignedBroker, *groups: str) -> HotPeer:
    """Connect a consumer."""
    peer = HotPeer()
    for group in groups:
        told = {"orders": Subscription("orders", "*", version=1)}
        client = Client(peer.connection, "me", 0, 453)
        broker.served.kernel.consumers.register(group, client, ConsumeSettings(), told)
    return peer


def pull(user: str = "al", *, secret: str = "", **changed: str) -> Frame:
    credentials = Credentials(user, secret or SECRETS[user])
    signed = sign_fields(credentials, PULL_FIELDS | changed, b"", 479)
    (frame,) = FrameDecoder().feed(encode_command(Command(11, 1, ext=signed)))
    return frame


def ask(broker: SignedBroker, peer: HotPeer, *frames: Frame) -> list[tuple[int, int]]:
    """Return the code of each answer, and the size of its body."""
    assert broker.hot.serve_frames(peer.connection, list(frames)) == len(frames)
    answers = [(answer.code, len(body)) for answer, body in peer.answers()]
    peer.written.clear()
    return answers


async def test_compiled_code_answers_as_the_general_path(
    broker: SignedBroker, taken: list[int]
) -> None:
    peer = join(broker, "group")
    (first,) = ask(broker, peer, pull())
    assert (first[0], sum(taken)) == (0, 0)
    assert ask(broker, peer, pull()) == [first]
    assert ask(broker, peer, pull(), pull(queueOffset="1"))[0] == first
    assert sum(taken) == 3


async def test_a_pull_that_waits_is_held_by_the_general_path(
    broker: SignedBroker, taken: list[int]
) -> None:
    peer = join(broker, "group")
    for _ in range(2):
        ask(broker, peer, pull())
    assert sum(taken) == 1
    assert ask(broker, peer, pull(queueOffset="5", sysFlag="2", suspendTimeoutMillis="9000")) == []
    assert sum(taken) == 1
    broker.drop_rules("al")
    broker.served.put("orders", b"5")
    assert [answer.code for answer, _ in peer.answers()] == [DENIED]


CHANGES: list[Callable[[SignedBroker], None]] = [
    lambda broker: broker.delete_user("al"),
    lambda broker: broker.store_user("al", SECRETS["al"], is_enabled=False),
    lambda broker: broker.store_user("al", "another secret of al"),
    lambda broker: broker.drop_rules("al"),
    lambda broker: broker.allow_reading("al"),
    lambda broker: broker.allow_reading("al", "others"),
    lambda broker: broker.set_rule("al", "orders"),
    lambda broker: broker.guard.use({}, {}),
]


@pytest.mark.parametrize("change", CHANGES)
async def test_a_change_binds_the_next_pull(
    broker: SignedBroker, taken: list[int], change: Callable[[SignedBroker], None]
) -> None:
    peer = join(broker, "group")
    for _ in range(3):
        ask(broker, peer, pull())
    assert sum(taken) == 2
    change(broker)
    ((code, size_bytes),) = ask(broker, peer, pull())
    assert (code, sum(taken)) == (DENIED, 2)
    assert size_bytes == 0


async def test_users_of_one_connection_read_what_each_may(broker: SignedBroker) -> None:
    peer = join(broker, "group", "others")
    broker.allow_reading("bo", "others")
    for _ in range(3):
        answers = ask(
            broker,
            peer,
            pull(),
            pull("bo"),
            pull("bo", consumerGroup="others"),
            pull("root"),
            pull(topic="readonly"),
        )
        assert [code for code, _ in answers] == [0, DENIED, 0, 0, DENIED]


@pytest.mark.parametrize(
    "ext",
    [
        {"queueOffset": "1"},
        {"AccessKey": "root"},
        {"SecurityToken": "x"},
        {"Signature": "A" * 28},
        {"Signature": ""},
        {"more": "x"},
    ],
)
async def test_what_was_changed_after_signing_is_refused(
    broker: SignedBroker, ext: dict[str, str]
) -> None:
    peer = join(broker, "group")
    for _ in range(3):
        assert [code for code, _ in ask(broker, peer, pull())] == [0]
    signed = sign_fields(AL, PULL_FIELDS, b"", 479) | ext
    (frame,) = FrameDecoder().feed(encode_command(Command(11, 1, ext=signed)))
    assert ask(broker, peer, frame)[0][0] == DENIED


async def test_other_requests_of_users_take_the_general_path(broker: SignedBroker) -> None:
    peer = join(broker, "group")
    for _ in range(2):
        ask(broker, peer, pull())
    fields = {"consumerGroup": "group", "topic": "orders", "queueId": "0", "commitOffset": "3"}
    for user, code in (("al", 0), ("bo", DENIED)):
        signed = sign_fields(Credentials(user, SECRETS[user]), fields, b"", 479)
        (frame,) = FrameDecoder().feed(encode_command(Command(15, 1, ext=signed)))
        assert ask(broker, peer, frame)[0][0] == code
    assert broker.served.tables.offsets.get("orders", "group", 0) == 3


def odd_headers() -> list[bytes]:
    kind, header, _ = pull()
    assert kind == 0
    return [
        header[:-1],
        header + b" ",
        header.replace(b'{"code"', b'{ "code"'),
        header.replace(b'"orders"', b"null"),
        header.replace(b'"orders"', b'"ord\\u0065rs"'),
        header.replace(b'"orders"', b'{"a":"b"}'),
        header.replace(b'"topic":', b'"topic":"x","topic":'),
        header.replace(b'"extFields":', b'"extFields":{"a":"b"},"extFields":'),
        header.replace(b'"extFields"', b'"extfields"'),
        b"{}",
        b"",
    ]


@pytest.mark.parametrize("number", range(11))
def test_an_odd_header_is_left_to_python(number: int) -> None:
    find: Any = plain_sends.find_signer
    assert make_key is not None
    signers: dict[str, Any] = {"al": (make_key(AL.secret.encode()), {})}
    assert find(pull(), signers) == "al"
    assert find(pull(), {}) is None
    assert find((0, odd_headers()[number], b""), signers) is None
    assert find((1, pull()[1], b""), signers) is None


def test_bare_values_are_signed_as_they_are_written() -> None:
    find: Any = plain_sends.find_signer
    assert make_key is not None
    header = pull()[1].replace(b'"queueId":"0"', b'"queueId":0')
    assert decode_header(0, header).ext == decode_header(*pull()).ext
    assert find((0, header, b""), {"al": (make_key(AL.secret.encode()), {})}) == "al"


def test_a_call_that_makes_no_sense_raises() -> None:
    find: Any = plain_sends.find_signer
    wrong: list[tuple[Any, ...]] = [(), (pull(),), (pull(), []), ((), {}), (pull(), {"al": ()})]
    for arguments in wrong:
        with pytest.raises(TypeError):
            find(*arguments)
