"""Signed sends: which ones compiled code serves, and what changes that from the next request on.

Users are changed here without closing their connections, as the broker does: each request must be
checked by the present users and rules, whatever compiled code knows from earlier ones.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rockhopper.broker.hot import plain_sends
from rockhopper.broker.hot.plain_sends import USER_TOPICS_MAX, Taken
from rockhopper.broker.server.remoting.gate import FAILURES
from rockhopper.broker.users.authentication import FAILURES_PER_S
from rockhopper.broker.users.peer import USERS
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command, encode_command
from rockhopper.protocol.frame import Frame, FrameDecoder
from rockhopper.protocol.signing import Credentials, sign_fields
from rockhopper.protocol.store.message_codec import decode_messages
from tests.support.hot_broker import HotPeer
from tests.support.signed_broker import SECRETS, SignedBroker

compiled_only = pytest.mark.skipif(plain_sends.take_sends is None, reason="it is not compiled")
SEND = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1", "h": "0"}
DENIED = ResponseCode.NO_PERMISSION


@pytest.fixture
async def broker(tmp_path: Path) -> AsyncIterator[SignedBroker]:
    """A broker whose first queue has its first message; al has sent it from another connection."""
    made = SignedBroker(tmp_path)
    assert ask(made, HotPeer(39_000), send("al")) == [0]
    yield made
    made.close()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of sends of each call of take_sends."""
    made: list[int] = []
    take = plain_sends.take_sends

    def noted(*arguments: Any) -> tuple[Any, ...]:
        assert take is not None
        result = take(*arguments)
        made.append(Taken(*result).sends)
        return result

    monkeypatch.setattr(plain_sends, "take_sends", noted)
    return made


def send(user: str, body: bytes = b"hello", *, secret: str = "", **ext: str) -> Frame:
    fields = SEND | {"i": "UNIQ_KEY\x01AB\x02"} | ext
    credentials = Credentials(user, secret or SECRETS[user])
    signed = sign_fields(credentials, fields, body, 479)
    (frame,) = FrameDecoder().feed(encode_command(Command(310, 1, ext=signed, body=body)))
    return frame


def ask(broker: SignedBroker, peer: HotPeer, *frames: Frame) -> list[int]:
    """Serve *frames* in one turn; return the codes of the answers."""
    peer.backlog = list(frames)
    broker.serve_turn(peer)
    codes = [answer.code for answer, _ in peer.answers()]
    peer.written.clear()
    return codes


@compiled_only
async def test_compiled_code_serves_a_user_once_the_general_path_has_on_that_connection(
    broker: SignedBroker, taken: list[int]
) -> None:
    peer, other = HotPeer(), HotPeer(41_000)
    assert ask(broker, peer, send("al")) == [0]
    assert sum(taken) == 0
    assert peer.attributes[USERS] == {"al"}
    assert ask(broker, peer, send("al"), send("al")) == [0, 0]
    assert sum(taken) == 2
    assert ask(broker, other, send("al")) == [0]
    assert sum(taken) == 2


@compiled_only
async def test_users_of_many_connections_share_a_turn(
    broker: SignedBroker, taken: list[int]
) -> None:
    peers = [HotPeer(41_000 + number) for number in range(6)]
    for peer, user in zip(peers, ("al", "root") * 3, strict=True):
        assert ask(broker, peer, send(user)) == [0]
        peer.backlog = [send(user, b"%d" % n) for n in range(2)]
    broker.serve_turn(*peers)
    assert taken[-1] == 12
    assert [len(peer.answers()) for peer in peers] == [2] * 6


def forget_al(broker: SignedBroker) -> None:
    broker.delete_user("al")


def disable_al(broker: SignedBroker) -> None:
    broker.store_user("al", SECRETS["al"], is_enabled=False)


def change_secret(broker: SignedBroker) -> None:
    broker.store_user("al", "another secret of al")


def drop_rules(broker: SignedBroker) -> None:
    broker.drop_rules("al")


def deny(broker: SignedBroker) -> None:
    broker.set_rule("al", "orders", is_allowed=False)


def move_rule(broker: SignedBroker) -> None:
    broker.set_rule("al", "orders", "10.0.0.0/8")


def use_other_users(broker: SignedBroker) -> None:
    broker.guard.use({}, {})


@pytest.mark.parametrize(
    "change",
    [forget_al, disable_al, change_secret, drop_rules, deny, move_rule, use_other_users],
)
async def test_a_change_binds_the_next_request(
    broker: SignedBroker, change: Callable[[SignedBroker], None]
) -> None:
    peer = HotPeer()
    for _ in range(3):
        assert ask(broker, peer, send("al")) == [0]
    change(broker)
    assert ask(broker, peer, send("al"), send("al")) == [DENIED, DENIED]


async def test_a_new_secret_binds_the_next_request(broker: SignedBroker) -> None:
    peer = HotPeer()
    for _ in range(3):
        assert ask(broker, peer, send("al")) == [0]
    change_secret(broker)
    new = send("al", secret="another secret of al")
    assert ask(broker, peer, new, send("al"), new) == [0, DENIED, 0]


@compiled_only
async def test_who_is_allowed_again_is_served_by_compiled_code_again(
    broker: SignedBroker, taken: list[int]
) -> None:
    peer = HotPeer()
    for _ in range(2):
        assert ask(broker, peer, send("al")) == [0]
    drop_rules(broker)
    assert ask(broker, peer, send("al")) == [DENIED]
    broker.set_rule("al", "orders")
    before = sum(taken)
    assert ask(broker, peer, send("al")) == [0]
    assert sum(taken) == before + 1


async def test_a_rule_of_one_topic_is_none_of_another(broker: SignedBroker) -> None:
    broker.served.create_topic("bills")
    broker.served.put("bills")
    peer = HotPeer()
    for _ in range(3):
        codes = ask(broker, peer, send("al"), send("al", b="bills"), send("al"))
        assert codes == [0, DENIED, 0]
        assert ask(broker, peer, send("root", b="bills"), send("al", b="bills")) == [0, DENIED]


async def test_a_users_topic_goes_with_the_topic(broker: SignedBroker) -> None:
    peer = HotPeer()
    for _ in range(2):
        assert ask(broker, peer, send("al")) == [0]
    broker.served.create_topic("orders", 3, perm=4)
    assert ask(broker, peer, send("al")) == [DENIED]


async def test_what_was_changed_after_signing_is_refused_in_the_middle_of_a_turn(
    broker: SignedBroker,
) -> None:
    peer = HotPeer()
    assert ask(broker, peer, send("al")) == [0]
    kind, header, _ = send("al", b"right")
    forged = kind, header, b"wrong"
    assert ask(broker, peer, send("al", b"1"), forged, send("al", b"2")) == [0, DENIED, 0]
    bodies = [message.body for message in decode_messages(broker.log_bytes())]
    assert bodies == [b"hello", b"hello", b"1", b"2"]


async def test_compiled_code_serves_no_name_that_failed_too_often(broker: SignedBroker) -> None:
    """As the general path, which would else refuse some requests that compiled code serves."""
    peer = HotPeer()
    assert ask(broker, peer, send("al")) == [0]
    for number in range(int(FAILURES_PER_S)):
        assert ask(broker, peer, send("al")) == [0], number
        assert ask(broker, peer, send("al", secret="wrong")) == [DENIED]
    assert ask(broker, peer, send("al")) == [DENIED]
    assert ask(broker, peer, send("root")) == [0]
    broker.now_s += 1 / FAILURES_PER_S
    assert ask(broker, peer, send("al")) == [0]


@compiled_only
async def test_a_name_that_failed_once_is_served_by_compiled_code(
    broker: SignedBroker, taken: list[int]
) -> None:
    peer = HotPeer()
    assert ask(broker, peer, send("al"), send("al", secret="wrong")) == [0, DENIED]
    assert FAILURES in peer.attributes
    before = sum(taken)
    assert ask(broker, peer, send("al"), send("al")) == [0, 0]
    assert sum(taken) == before + 2


@compiled_only
async def test_more_topics_than_are_remembered_are_served(
    broker: SignedBroker, monkeypatch: pytest.MonkeyPatch, taken: list[int]
) -> None:
    monkeypatch.setattr(plain_sends, "USER_TOPICS_MAX", 3)
    assert USER_TOPICS_MAX > 3
    names = [f"topic{number}" for number in range(5)]
    for name in names:
        broker.served.create_topic(name, 1)
        broker.served.put(name)
    peer = HotPeer()
    for _ in range(3):
        sends = [send("root", b=name) for name in names]
        assert ask(broker, peer, *sends) == [0] * len(names)
    assert sum(taken) > 0


async def test_unsigned_sends_are_refused_beside_signed_ones(broker: SignedBroker) -> None:
    peer = HotPeer()
    assert ask(broker, peer, send("al")) == [0]
    (unsigned,) = FrameDecoder().feed(encode_command(Command(310, 1, ext=SEND, body=b"x")))
    assert ask(broker, peer, send("al"), unsigned, send("al")) == [0, DENIED, 0]
