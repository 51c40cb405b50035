"""Compiled code serves signed sends as the general path does, whatever changes in between.

Each connection sends signed requests, of which some are altered, or signed with a wrong secret.
Between turns, users and rules change. With compiled code, each connection gets the same answers,
and the same messages are stored, as without.
"""

import asyncio
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rockhopper.broker.hot import plain_sends
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.signing import Credentials
from tests.property.test_sends_twins import (
    Outcome,
    binary_frame,
    check_places,
    connect,
    damaged,
    first_version,
    outcome,
)
from tests.support.open_stores import flush
from tests.support.send_requests import Asked, json_frame, sends, sign_asked, usual_sends
from tests.support.signed_broker import SECRETS, SignedBroker

pytestmark = pytest.mark.skipif(plain_sends.take_sends is None, reason="it is not compiled")

NEW_SECRET = "a new secret"
CHANGES: dict[str, Callable[[SignedBroker], None]] = {
    "delete al": lambda broker: broker.delete_user("al"),
    "disable al": lambda broker: broker.store_user("al", SECRETS["al"], is_enabled=False),
    "new secret of al": lambda broker: broker.store_user("al", NEW_SECRET),
    "al is back": lambda broker: broker.store_user("al", SECRETS["al"]),
    "al has no rule": lambda broker: broker.drop_rules("al"),
    "al may send to all": lambda broker: broker.set_rule("al", "*"),
    "al may send to orders": lambda broker: broker.set_rule("al", "orders"),
    "al may not send to orders": lambda broker: broker.set_rule("al", "orders", is_allowed=False),
    "al may send from elsewhere": lambda broker: broker.set_rule("al", "orders", "10.0.0.0/8"),
    "bo may send to orders": lambda broker: broker.set_rule("bo", "orders"),
    "orders is read-only": lambda broker: broker.served.create_topic("orders", 3, perm=4),
    "orders is writable": lambda broker: broker.served.create_topic("orders", 3),
}
EXTRA = {
    "SecurityToken": "token",
    "RhVisitor": "10.0.0.9",
    "_UNIQUE_KEY_QUERY": "true",
    "zz": "ключ",
    "other": "x y",
}


@st.composite
def right_requests(draw: st.DrawFn) -> Frame:
    """Draw a send that a user's client has signed."""
    asked = draw(usual_sends(batch=draw(st.integers(0, 5)) == 0))
    user = draw(st.sampled_from(["al", "al", "al", "root"]))
    return frame_of(draw, sign_asked(asked, Credentials(user, SECRETS[user])))


def frame_of(draw: st.DrawFn, asked: Asked) -> Frame:
    is_binary = draw(st.integers(0, 3)) == 0
    if is_binary:
        return binary_frame(asked, 7)
    return json_frame(asked, 7, code_first=True, has_blanks=draw(st.booleans()))


@st.composite
def requests(draw: st.DrawFn) -> Frame:
    """Draw a send, signed by a user or in another's name, and altered or not."""
    of_this_kind = usual_sends if draw(st.integers(0, 5)) else sends
    asked = draw(of_this_kind(batch=draw(st.integers(0, 5)) == 0))
    if asked.code != 320 and draw(st.integers(0, 3)) == 0:
        asked = first_version(asked, "")
    if draw(st.integers(0, 7)) == 0:
        name = draw(st.sampled_from(sorted(EXTRA)))
        asked.ext[name] = EXTRA[name]
    user = draw(st.sampled_from(["al"] * 6 + ["bo", "root", "ghost"]))
    secrets = [SECRETS.get(user, "secret")] * 8 + [NEW_SECRET, "wrong"]
    asked = sign_asked(asked, Credentials(user, draw(st.sampled_from(secrets))))
    if draw(st.integers(0, 7)) == 0:
        asked = draw(altered(asked))
    frame = frame_of(draw, asked)
    if draw(st.integers(0, 15)) == 0:
        frame = frame[0], draw(damaged(frame[1])), frame[2]
    return frame


@st.composite
def altered(draw: st.DrawFn, asked: Asked) -> Asked:
    """Alter a request after it was signed."""
    name = draw(st.sampled_from(sorted(asked.ext)))
    kind = draw(st.sampled_from(["body", "drop", "change", "padding", "add"]))
    if kind == "body":
        return asked._replace(body=asked.body + b"x")
    if kind == "drop":
        return asked._replace(ext={each: asked.ext[each] for each in asked.ext if each != name})
    if kind == "padding":
        return asked._replace(ext=asked.ext | {"Signature": f"{asked.ext.get('Signature')}=="})
    if kind == "add":
        return asked._replace(ext=asked.ext | {"added": "1"})
    return asked._replace(ext=asked.ext | {name: draw(st.sampled_from(["1", "0", "bo", "al"]))})


class Turn(NamedTuple):
    """What changes before a turn, and the frames of each connection."""

    changes: list[str]
    frames: list[list[Frame]]


@st.composite
def turns(draw: st.DrawFn) -> list[Turn]:
    connections = draw(st.integers(1, 3))
    changes = st.lists(st.sampled_from(sorted(CHANGES)), max_size=2)
    made = []
    for number in range(draw(st.integers(2, 6))):
        # One that is not plain takes all that follow it to the general path.
        drawn = requests() if draw(st.integers(0, 2)) == 0 else right_requests()
        own = st.lists(drawn, max_size=4)
        changed = draw(changes) if number and draw(st.booleans()) else []
        made.append(Turn(changed, [draw(own) for _ in range(connections)]))
    return made


def opening(user: str) -> list[Frame]:
    """The first sends of a user on a connection: to each queue, and one that waits."""
    fields = {"a": "g", "b": "orders", "c": "TBW102", "d": "4", "f": "0", "g": "1", "h": "0"}
    key = "UNIQ_KEY\x01AB\x02"
    made = [fields | {"e": str(number), "i": key} for number in range(3)]
    made.append(fields | {"e": "0", "i": f"{key}DELAY\x013\x02"})
    credentials = Credentials(user, SECRETS[user])
    return [
        json_frame(sign_asked(Asked(310, ext), credentials), 99, code_first=True) for ext in made
    ]


async def serve(asked: list[Turn]) -> Outcome:
    with (
        mock.patch.object(os, "fsync"),
        mock.patch.object(os, "fdatasync"),
        tempfile.TemporaryDirectory() as directory,
    ):
        broker = SignedBroker(Path(directory), {"mappedFileSizeCommitLog": "65536"})
        try:
            peers = connect(len(asked[0].frames))
            for peer in peers:
                peer.backlog = [*opening("al"), *opening("root")]
                broker.serve_turn(peer)
            for turn in asked:
                for change in turn.changes:
                    CHANGES[change](broker)
                open_peers = [peer for peer in peers if peer.failure is None]
                for peer, frames in zip(peers, turn.frames, strict=True):
                    peer.backlog = list(frames) if peer.failure is None else []
                broker.serve_turn(*open_peers)
            flush(broker.served.store)
            check_places(broker, peers)
            return outcome(broker, peers)
        finally:
            broker.close()


@settings(max_examples=8 * settings().max_examples)
@given(asked=turns())
def test_signed_sends_are_served_alike(asked: list[Turn]) -> None:
    compiled = asyncio.run(serve(asked))
    with mock.patch.object(plain_sends, "take_sends", None):
        assert compiled == asyncio.run(serve(asked))
