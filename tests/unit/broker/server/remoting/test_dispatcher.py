"""What the dispatcher makes of an error: a remark that is short, for people, and no traceback."""

import errno
import os

from structlog.testing import capture_logs

from rockhopper.broker.server.remoting.dispatcher import Dispatcher, Request, Response, serves
from rockhopper.broker.users.access import Access
from rockhopper.broker.users.errors import TopicNotFound
from rockhopper.protocol.codes import ResponseCode
from rockhopper.protocol.command import Command, decode_header
from rockhopper.protocol.frame import FrameDecoder
from tests.support.peers import Peer


def fail(_: Request) -> Response:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_an_error_of_the_disk_is_answered_and_logged_in_a_sentence() -> None:
    dispatcher = Dispatcher({99: serves(fail)}, Access(remote_admin=False))
    with capture_logs() as lines:
        answer = dispatcher.dispatch(Peer().connection, Command(99, opaque=1))
    (frame,) = FrameDecoder().feed(answer)
    command = decode_header(*frame)
    assert command.code == ResponseCode.SYSTEM_ERROR
    assert command.remark == "the disk failed (Input/output error): look at the broker's disk"
    assert [(line["event"], "exc_info" in line) for line in lines] == [
        ("request failed because of the disk", False)
    ]


def refuse(_: Request) -> Response:
    raise TopicNotFound(f"topic[{'x' * 10_000}] not exist, apply first please!")


def test_a_clients_long_value_is_not_sent_back_whole() -> None:
    dispatcher = Dispatcher({99: serves(refuse)}, Access(remote_admin=False))
    (frame,) = FrameDecoder().feed(dispatcher.dispatch(Peer().connection, Command(99, opaque=1)))
    remark = decode_header(*frame).remark or ""
    assert remark.startswith("topic[xxx")
    assert remark.endswith("x] not exist, apply first please!")
    assert len(remark) < 1000
