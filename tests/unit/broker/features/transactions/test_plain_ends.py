"""A commit leaves the same log, queues and tables as the general way; and few go that way."""

import errno
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from rockhopper.broker.features.transactions.open_halves import OpenHalf
from rockhopper.broker.features.transactions.plain_ends import PlainEnds
from rockhopper.broker.server.remoting.reply_batch import ReplyBatch
from rockhopper.broker.store.files.mapped_file import MappedFile
from rockhopper.broker.store.log.fast_encoding import encode_end
from rockhopper.protocol.codes import FLAG_ONEWAY, FLAG_RESPONSE
from rockhopper.protocol.frame import Frame
from rockhopper.protocol.names import TRANSACTION_HALF_TOPIC, TRANSACTION_OP_HALF_TOPIC
from tests.support.features import transactions_of
from tests.support.hot_broker import HotBroker
from tests.support.open_stores import flush

pytestmark = pytest.mark.skipif(encode_end is None, reason="it is not compiled")

COMMIT, ROLLBACK = 8, 12
HALVES = {
    "plain": "UNIQ_KEY\x01A1\x02KEYS\x01k1 k2\x02TAGS\x01red\x02",
    "with a key": "UNIQ_KEY\x01A2\x02",
    "its own words": "a\x01b\x02UNIQ_KEY\x01A3\x02WAIT\x01false\x02",
    "waiting": "UNIQ_KEY\x01A4\x02DELAY\x013\x02",
    "timed": "UNIQ_KEY\x01A5\x02TIMER_DELAY_SEC\x015\x02",
    "immune": "UNIQ_KEY\x01A6\x02CHECK_IMMUNITY_TIME_IN_SECONDS\x0160\x02",
    "accented": "UNIQ_KEY\x01A7\x02a\x01é\x02",
    "without a key": "a\x01b\x02",
}
NUMBERS = {name: number for number, name in enumerate(HALVES)}


def frame(code: int, ext: dict[str, object], flag: int, opaque: int, body: bytes = b"") -> Frame:
    parts = {"code": code, "extFields": ext, "flag": flag, "opaque": opaque}
    parts |= {"language": "JAVA", "serializeTypeCurrentRPC": "JSON", "version": 479}
    return 0, json.dumps(parts, separators=(",", ":")).encode(), body


def half(number: int, properties: str) -> Frame:
    ext: dict[str, object] = {"a": "group", "b": "orders", "c": "TBW102", "d": "4", "f": "4"}
    ext |= {"e": str(number % 3), "g": "1700000000000", "h": "7", "j": "0"}
    ext["i"] = f"TRAN_MSG\x01true\x02PGROUP\x01group\x02{properties}"
    return frame(310, ext, 0, number, b"body of %d" % number)


class Ending:
    """A broker with a half message of each kind."""

    def __init__(self, root: Path) -> None:
        self.broker = HotBroker(root)
        self.broker.serve([half(number, text) for number, text in enumerate(HALVES.values())])
        self.offsets = {one.offset: one.log_offset for one in self.halves}

    @property
    def halves(self) -> list[OpenHalf]:
        return list(transactions_of(self.broker.served).halves)

    def end(self, name: str, flag: int = 0, how: int = COMMIT, **fields: object) -> Frame:
        offset = NUMBERS[name]
        ext: dict[str, object] = {
            "producerGroup": "group",
            "tranStateTableOffset": str(offset),
            "commitLogOffset": str(self.offsets[offset]),
            "commitOrRollback": str(how),
            "fromTransactionCheck": "false",
            "msgId": "x",
        }
        return frame(37, ext | fields, flag, 100 + offset)

    def outcome(self, *frames: Frame) -> tuple[object, ...]:
        """What is answered, stored, open, remembered and counted then."""
        self.broker.peer.written.clear()
        self.broker.serve(list(frames))
        served = self.broker.served
        flush(served.store)
        ends = transactions_of(served).ends
        topics = ("orders", TRANSACTION_HALF_TOPIC, TRANSACTION_OP_HALF_TOPIC)
        return (
            b"".join(self.broker.peer.written),
            self.broker.log_bytes(),
            [served.store.reading.queue_units(t, q, 0, 64) for t in topics for q in range(3)],
            [one.offset for one in self.halves],
            (ends.committed, served.stats.get_send_traffic("orders").messages),
        )


@pytest.fixture
def brokers(tmp_path: Path) -> Iterator[list[Ending]]:
    """Give two alike, of which the second ends transactions the general way."""
    made = [Ending(tmp_path / name) for name in ("hot", "general")]
    made[1].broker.serve_generally()
    yield made
    for one in made:
        one.broker.close()


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []
    take = PlainEnds.serve

    def noted(self: PlainEnds, reply_batch: ReplyBatch, frames: list[Frame], first: int) -> int:
        counts.append(take(self, reply_batch, frames, first))
        return counts[-1]

    monkeypatch.setattr(PlainEnds, "serve", noted)
    return counts


def of(one: Ending, case: str) -> list[Frame]:
    """The frames of a case, in the words of the broker that they are for."""
    return {
        "one": lambda: [one.end("plain")],
        "several": lambda: [one.end(n) for n in ("plain", "with a key", "its own words")],
        "oneway": lambda: [one.end("plain", FLAG_ONEWAY), one.end("with a key")],
        "twice": lambda: [one.end("plain"), one.end("plain")],
        "both ways": lambda: [one.end("plain"), one.end("plain", how=ROLLBACK)],
        "rolled back": lambda: [one.end("plain", how=ROLLBACK), one.end("with a key")],
        "not known yet": lambda: [one.end("plain", how=0)],
        "a key of the broker's": lambda: [one.end("without a key")],
        "accented": lambda: [one.end("accented")],
        "waiting": lambda: [one.end("waiting"), one.end("timed")],
        "immune": lambda: [one.end("immune")],
        "another group": lambda: [one.end("plain", producerGroup="others")],
        "another offset": lambda: [one.end("with a key", commitLogOffset="0")],
        "another place": lambda: [one.end("plain", tranStateTableOffset="1")],
        "nowhere": lambda: [one.end("plain", tranStateTableOffset="77")],
        "marked": lambda: [one.end("plain", rh="1")],
        "no number": lambda: [one.end("plain", commitLogOffset="x")],
        "an answer": lambda: [one.end("plain", FLAG_RESPONSE)],
        "more fields": lambda: [one.end("plain", bname="broker-a", topic="orders")],
    }[case]()


CASES = {
    "one": [1],
    "several": [3],
    "oneway": [2],
    "twice": [1, 0],
    "both ways": [1, 0],
    "rolled back": [0, 1],
    "not known yet": [0],
    "a key of the broker's": [1],
    "accented": [0],
    "waiting": [0, 0],
    "immune": [0],
    "another group": [0],
    "another offset": [0],
    "another place": [0],
    "nowhere": [0],
    "marked": [0],
    "no number": [0],
    "an answer": [0],
    "more fields": [1],
}


@pytest.mark.parametrize(("case", "counts"), CASES.items(), ids=CASES.keys())
def test_what_comes_of_it_is_what_the_general_way_makes_of_it(
    brokers: list[Ending], taken: list[int], case: str, counts: list[int]
) -> None:
    found, expected = (one.outcome(*of(one, case)) for one in brokers)
    assert found == expected
    assert taken == counts


def test_a_half_message_that_was_asked_about_goes_the_general_way(
    brokers: list[Ending], taken: list[int]
) -> None:
    for one in brokers:
        one.halves[0].check_times = 2
    found, expected = (one.outcome(one.end("plain")) for one in brokers)
    assert found == expected
    assert taken == [0]


def test_a_half_message_that_is_damaged_goes_the_general_way(
    brokers: list[Ending], taken: list[int]
) -> None:
    for one in brokers:
        store = one.broker.served.store
        at = one.offsets[0] + 88
        with (one.broker.root / "commitlog" / f"{0:020d}").open("r+b") as file:
            file.seek(at)
            file.write(b"B")
        assert store.log.record_at(one.offsets[0])[88:92] == b"Body"
    found, expected = (one.outcome(one.end("plain")) for one in brokers)
    assert found == expected
    assert taken == [0]


def test_a_topic_that_is_gone_or_has_shrunk_is_for_the_general_way(
    brokers: list[Ending], taken: list[int]
) -> None:
    for one in brokers:
        one.broker.served.create_topic("orders", 1)
    found, expected = (one.outcome(one.end("its own words")) for one in brokers)
    assert found == expected
    for one in brokers:
        one.broker.served.tables.topics.delete("orders")
    found, expected = (one.outcome(one.end("plain")) for one in brokers)
    assert found == expected
    assert taken == [0, 0]


def test_what_cannot_be_written_stays_open_and_is_refused(
    brokers: list[Ending], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    broker = brokers[0].broker
    with monkeypatch.context() as patch:
        patch.setattr(MappedFile, "pwrite", no_room)
        refused = brokers[0].outcome(brokers[0].end("plain"), brokers[0].end("with a key"))
    assert isinstance(refused[0], bytes)
    assert refused[0].count(b'"code":14') == 2
    assert len(brokers[0].halves) == len(HALVES)
    brokers[0].outcome(brokers[0].end("plain"))
    assert len(brokers[0].halves) == len(HALVES) - 1
    assert len(broker.served.store.reading.queue_units("orders", 0, 0, 64)) == 20


def test_what_does_not_fit_the_file_goes_the_general_way(tmp_path: Path, taken: list[int]) -> None:
    one = Ending(tmp_path / "full")
    store = one.broker.served.store
    try:
        room = store.staging.place()[1] - store.staging.place()[0]
        one.broker.served.put("orders", b"x" * (room - 400))
        one.outcome(one.end("plain"))
        assert taken == [0]
        assert len(one.halves) == len(HALVES) - 1
    finally:
        one.broker.close()
