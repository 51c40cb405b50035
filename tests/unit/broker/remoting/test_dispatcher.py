"""A disk that fails is no mistake of the broker's: no traceback, and a remark for operators."""

import errno
import os

from structlog.testing import capture_logs

from rockhopper.broker.access.access import Access
from rockhopper.broker.remoting.dispatcher import Dispatcher, Request, Response, serves
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
        ("the disk failed a request", False)
    ]
