"""Whatever happens to a byte on disk, it costs the message it belongs to and nothing else."""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rockhopper.broker.store.recovering.inventory import INVENTORY_FILE
from rockhopper.protocol.store.fast_walking import walk_plain
from rockhopper.protocol.store.queue_layout import GEOMETRY_FILE
from rockhopper.protocol.store.walking import Found
from tests.support.store_directories import LogWriter, Recovered, Written, recover

pytestmark = pytest.mark.usefixtures("real_syncs")

MESSAGE_COUNT = 60


class Damage(NamedTuple):
    """What happens to the bytes from *at* on, a fraction of the file's written length."""

    kind: str
    at: float
    bit: int

    def apply(self, data: bytes, written: int) -> bytes:
        """The content of the file afterwards."""
        position = int(self.at * (written - 1))
        if self.kind == "flip a bit":
            changed = data[position] ^ (1 << self.bit)
            return data[:position] + bytes([changed]) + data[position + 1 :]
        if self.kind == "zero a sector":
            start = position - position % 512
            end = min(start + 512, len(data))
            return data[:start] + bytes(end - start) + data[end:]
        assert self.kind == "lose the rest"
        return data[:position] + bytes(len(data) - position)


DAMAGES = st.builds(
    Damage,
    st.sampled_from(["flip a bit", "zero a sector", "lose the rest"]),
    st.floats(0, 1),
    st.integers(0, 7),
)
# A log of 11 kB counts as a small one, which is read whole, or as a large one, which is not.
VERIFY_BYTES = st.sampled_from([0, 4000, 1 << 20])
LOST = st.sets(
    st.sampled_from(["consumequeue", "consumequeue/TopicA", "consumequeue/TopicB/1", "index"])
)


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> LogWriter:
    """A whole store."""
    log = LogWriter(tmp_path_factory.mktemp("template") / "store")
    log.append_many(MESSAGE_COUNT)
    recover(log.root).close()
    return log


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("copies")


def copy_of(template: LogWriter, scratch: Path) -> Path:
    root = Path(tempfile.mkdtemp(dir=scratch)) / "store"
    shutil.copytree(template.root, root)
    return root


def written_length(data: bytes) -> int:
    return max(len(data.rstrip(b"\0")), 1)


def touched(before: bytes, after: bytes, base: int, written: list[Written]) -> list[Written]:
    """The records of one log file whose bytes are no longer what they were."""
    return [
        record
        for record in written
        if base <= record.offset < base + len(before)
        and before[record.offset - base : record.end_offset - base]
        != after[record.offset - base : record.end_offset - base]
    ]


def check(
    store: Recovered, log: LogWriter, victims: list[Written], *, index_is_whole: bool = True
) -> None:
    """Nothing but the victims is lost, nothing is wrong, no queue offset is free again."""
    for (topic, queue_id), end in log.queue_ends.items():
        queue = store.queues.get(topic, queue_id)
        assert queue is not None
        assert queue.max_offset == end
        bodies = store.bodies(topic, queue_id)
        for record in log.written:
            if (record.topic, record.queue_id) != (topic, queue_id):
                continue
            if record in victims:
                assert bodies.get(record.queue_offset) in (None, record.body)
                continue
            assert bodies[record.queue_offset] == record.body
            if index_is_whole:
                assert record.offset in store.find(topic, record.key)


def check_settled(root: Path, store: Recovered) -> None:
    """A second recovery finds nothing left to do."""
    store.close()
    again = recover(root)
    assert again.report.changed_queues == {}
    assert again.report.lost_messages == {}
    assert again.report.indexed_count == 0
    assert again.report.log_end == store.report.log_end
    again.close()


@given(
    file=st.integers(0, 2),
    damage=DAMAGES,
    lost=LOST,
    clean=st.booleans(),
    verify_bytes=VERIFY_BYTES,
)
def test_a_damaged_commit_log_costs_the_damaged_records(
    file: int,
    damage: Damage,
    lost: set[str],
    clean: bool,
    verify_bytes: int,
    template: LogWriter,
    scratch: Path,
) -> None:
    root = copy_of(template, scratch)
    path = sorted((root / "commitlog").iterdir())[file]
    before = path.read_bytes()
    after = damage.apply(before, written_length(before))
    path.write_bytes(after)
    for name in lost:
        shutil.rmtree(root / name, ignore_errors=True)
    store = recover(root, clean=clean, verify_bytes=verify_bytes)
    check(store, template, touched(before, after, int(path.name), template.written))
    if verify_bytes > template.end:
        check_settled(root, store)


def derived_files(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.is_file() and "commitlog" not in path.parts and path.name != GEOMETRY_FILE:
            yield path


@given(number=st.integers(0, 100), damage=DAMAGES, clean=st.booleans(), verify_bytes=VERIFY_BYTES)
def test_a_damaged_queue_index_or_note_costs_nothing(
    number: int,
    damage: Damage,
    clean: bool,
    verify_bytes: int,
    template: LogWriter,
    scratch: Path,
) -> None:
    root = copy_of(template, scratch)
    paths = list(derived_files(root))
    path = paths[number % len(paths)]
    data = path.read_bytes()
    path.write_bytes(damage.apply(data, written_length(data)))
    if "consumequeue" in path.parts:
        verify_bytes = 1 << 20  # Of a large store only the newest units are compared.
    store = recover(root, clean=clean, verify_bytes=verify_bytes)
    check(store, template, [], index_is_whole="index" not in path.parts)
    if "index" not in path.parts:
        check_settled(root, store)


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


@given(
    damages=st.lists(st.tuples(st.integers(0, 100), DAMAGES), max_size=3),
    lost=LOST,
    clean=st.booleans(),
    verify_bytes=VERIFY_BYTES,
)
def test_records_by_the_stretch_lead_to_the_store_that_single_ones_lead_to(
    damages: list[tuple[int, Damage]],
    lost: set[str],
    clean: bool,
    verify_bytes: int,
    template: LogWriter,
    scratch: Path,
) -> None:
    found = []
    walks: tuple[Callable[..., Found], ...] = (
        walk_plain,
        lambda _data, position, *_: (position, 0, 0, [], b""),
    )
    for walk in walks:
        root = copy_of(template, scratch)
        paths = [path for path in sorted(root.rglob("0*")) if path.is_file()]
        for number, damage in damages:
            data = paths[number % len(paths)].read_bytes()
            paths[number % len(paths)].write_bytes(damage.apply(data, written_length(data)))
        for name in lost:
            shutil.rmtree(root / name, ignore_errors=True)
        with mock.patch("rockhopper.broker.store.recovering.log_walk.walk_plain", walk):
            store = recover(root, clean=clean, verify_bytes=verify_bytes)
        store.close()
        found.append((store.report, contents(root)))
    assert found[0] == found[1]


@given(number=st.integers(0, 100), fraction=st.floats(0, 1), clean=st.booleans())
def test_a_file_that_was_cut_short_is_built_again_or_refused(
    number: int, fraction: float, clean: bool, template: LogWriter, scratch: Path
) -> None:
    root = copy_of(template, scratch)
    paths = [path for path in derived_files(root) if "consumequeue" not in path.parts]
    path = paths[number % len(paths)]
    data = path.read_bytes()
    path.write_bytes(data[: int(fraction * (len(data) - 1))])
    store = recover(root, clean=clean)
    check(store, template, [])
    check_settled(root, store)


@given(cut=st.integers(0, 12_000), lost=LOST)
def test_a_log_that_ends_anywhere_gives_the_messages_in_front(
    cut: int, lost: set[str], template: LogWriter, scratch: Path
) -> None:
    """A power cut: the log reached the disk up to *cut*, and nothing was noted yet."""
    root = copy_of(template, scratch)
    (root / "rockhopper" / INVENTORY_FILE).unlink()
    cut = min(cut, template.end)
    for path in (root / "commitlog").iterdir():
        kept = path.read_bytes()[: max(cut - int(path.name), 0)]
        path.write_bytes(kept.ljust(4096, b"\0"))
    for name in lost:
        shutil.rmtree(root / name, ignore_errors=True)
    store = recover(root, clean=False)
    kept_records = [record for record in template.written if record.end_offset <= cut]
    for topic, queue_id in template.queue_ends:
        assert store.bodies(topic, queue_id) == {
            record.queue_offset: record.body
            for record in kept_records
            if (record.topic, record.queue_id) == (topic, queue_id)
        }
    assert store.index.end_commit_log_offset == (kept_records[-1].offset if kept_records else -1)
    for record in kept_records:
        assert store.find(record.topic, record.key) == [record.offset]
    check_settled(root, store)


@given(
    flushed=st.integers(0, MESSAGE_COUNT),
    lost_pages=st.sets(st.integers(0, 23)),
    lost=LOST,
)
def test_pages_that_never_reached_the_disk_cost_what_was_on_them(
    flushed: int, lost_pages: set[int], lost: set[str], template: LogWriter, scratch: Path
) -> None:
    """A power cut again: of what was not flushed, any pages (of 512 bytes) may be missing."""
    root = copy_of(template, scratch)
    (root / "rockhopper" / INVENTORY_FILE).unlink()
    flushed_end = template.written[flushed - 1].end_offset if flushed else 0
    victims: list[Written] = []
    for path in sorted((root / "commitlog").iterdir()):
        base = int(path.name)
        before = path.read_bytes()
        data = bytearray(before)
        for page in lost_pages:
            start = max(page * 512 - base, flushed_end - base, 0)
            end = min(page * 512 + 512 - base, 4096)
            if start < end:
                data[start:end] = bytes(end - start)
        path.write_bytes(data)
        victims += touched(before, bytes(data), base, template.written)
    for name in lost:
        shutil.rmtree(root / name, ignore_errors=True)
    store = recover(root, clean=False)
    for record in template.written:
        bodies = store.bodies(record.topic, record.queue_id)
        if record in victims:
            assert bodies.get(record.queue_offset) in (None, record.body)
        else:
            assert bodies[record.queue_offset] == record.body
            assert record.offset in store.find(record.topic, record.key)
    check_settled(root, store)
