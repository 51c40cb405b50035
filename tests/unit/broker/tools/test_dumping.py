import base64
from pathlib import Path

from rockhopper.broker.tools.dumping import DumpSelection, dump
from rockhopper.broker.tools.store_view import StoreView
from tests.support import apache_golden
from tests.support.rot import flip_bit


def test_messages_come_in_the_order_of_the_log(root: Path) -> None:
    found = list(dump(StoreView(root), DumpSelection()))
    assert [each["body"] for each in found] == [f"body {number}" for number in range(60)]
    assert found[1]["keys"] == ["k1", "kk"]
    assert found[1]["tags"] == "t1"
    offsets = [each["logOffset"] for each in found]
    assert offsets == sorted(offsets)


def test_filters_bound_topic_time_and_offset(root: Path) -> None:
    found = list(dump(StoreView(root), DumpSelection()))
    view = StoreView(root)
    some = dump(view, DumpSelection(frozenset({"Topic1"}), from_offset=found[40]["logOffset"]))
    assert [each["body"] for each in some] == [
        f"body {n}" for n in (41, 43, 47, 49, 51, 53, 57, 59)
    ]
    start, end = found[40]["storeTime"], found[50]["storeTime"]
    assert list(dump(view, DumpSelection(from_ms=start, before_ms=end))) == found[40:50]
    before = DumpSelection(to_offset=found[9]["logOffset"], with_body=False)
    assert [each["logOffset"] for each in dump(view, before)] == [
        each["logOffset"] for each in found[:9]
    ]


def test_a_damaged_body_says_so(root: Path) -> None:
    log = root / "commitlog" / f"{0:020d}"
    flip_bit(log, log.read_bytes().index(b"body 3"))
    found = list(dump(StoreView(root), DumpSelection()))
    assert [each["logOffset"] for each in found if "error" in each] == [found[3]["logOffset"]]


def test_batches_are_unwrapped_and_binary_bodies_encoded(tmp_path: Path) -> None:
    store = apache_golden.unpack("batch", tmp_path)
    found = list(dump(StoreView(store.path), DumpSelection()))
    for topic, told in store.topics.items():
        of_topic = [each for each in found if each["topic"] == topic]
        assert len(of_topic) == len(told["messages"])
        for each in of_topic:
            assert base64.b64decode(each.get("bodyBase64", "")) or "body" in each
