"""A flood on one connection, in its own process: ``python -m tests.chaos.flood ADDRESS KIND``.

It keeps thousands of requests in flight until its standard input is closed. Then it prints how many
were answered, and how many of these succeeded.
"""

import json
import select
import socket
import sys
import threading

from rockhopper.protocol.codes import RequestCode
from rockhopper.protocol.command import decode_header
from rockhopper.protocol.frame import FrameDecoder
from tests.chaos import topics
from tests.support.direct import pull_fields, send_fields
from tests.support.raw_peer import request

KINDS = ("sends", "pulls", "routes", "commits", "oversized headers")
SENDS = frozenset({"sends", "oversized headers"})
PIECE = 500
UNDER_WAY_MAX = 40_000
LOOK_AGAIN_S = 0.2
BODY = b"flood"


def requests_of(kind: str) -> bytes:
    """Return several hundred encoded requests."""
    match kind:
        case "sends":
            one = request(RequestCode.SEND_MESSAGE, send_fields(topics.FLOODED), BODY)
        case "pulls":
            one = request(RequestCode.PULL_MESSAGE, pull_fields(topics.FLOODED, 0))
        case "routes":
            one = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topics.FLOODED})
        case "commits":
            fields = {
                "consumerGroup": topics.READERS,
                "topic": topics.FLOODED,
                "queueId": "0",
                "commitOffset": "0",
            }
            one = request(RequestCode.UPDATE_CONSUMER_OFFSET, fields)
        case _:
            fields = send_fields(topics.FLOODED) | {"properties": "p\x01" + "x" * 20_000 + "\x02"}
            one = request(RequestCode.SEND_MESSAGE, fields, BODY)
    return one * PIECE


class Flood:
    """One connection, with a thread that writes and a thread that reads."""

    def __init__(self, address: str, kind: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._piece = requests_of(kind)
        self._sent = self.answered = self.succeeded = 0
        self._room = threading.Condition()
        self._is_over = False

    def run(self) -> None:
        """Send requests until standard input ends, and read all answers."""
        reading = threading.Thread(target=self._read, daemon=True)
        writing = threading.Thread(target=self._write, daemon=True)
        reading.start()
        writing.start()
        select.select([sys.stdin], [], [])
        with self._room:
            self._is_over = True
            self._room.notify_all()
        writing.join()
        reading.join()

    def _write(self) -> None:
        while True:
            with self._room:
                while not self._is_over and self._sent - self.answered > UNDER_WAY_MAX:
                    self._room.wait()
                if self._is_over:
                    break
                self._sent += PIECE
            self._socket.sendall(self._piece)
        with self._room:
            self._is_over = True

    def _read(self) -> None:
        decoder = FrameDecoder()
        while True:
            with self._room:
                if self._is_over and self.answered >= self._sent:
                    return
            if not select.select([self._socket], [], [], LOOK_AGAIN_S)[0]:
                continue
            data = self._socket.recv(1 << 18)
            if not data:
                return
            for frame in decoder.feed(data):
                self.answered += 1
                self.succeeded += decode_header(*frame).code == 0
            with self._room:
                self._room.notify_all()


if __name__ == "__main__":
    flood = Flood(sys.argv[1], sys.argv[2])
    flood.run()
    print(json.dumps([flood.answered, flood.succeeded]))
