from pathlib import Path

from rockhopper.broker.kernel.tables.offset_journal import LINES
from rockhopper.broker.tools.repair import recovered
from rockhopper.broker.tools.store_view import StoreView
from rockhopper.protocol.store.journal_records import encode_record
from tests.support import open_stores, tool_stores


def test_a_store_is_opened_with_its_own_sizes(root: Path) -> None:
    view = StoreView(root)
    sizes = recovered.file_sizes(view)
    assert sizes == (4096, 1000, 920)
    config = recovered.copy_sizes(view.config, sizes, view.geometry)
    report = recovered.recover(config)
    assert report.log_end == view.proven_end
    assert tool_stores.checked(root).is_sound
    store = open_stores.open_store(root)
    assert len(open_stores.messages(store, "Topic1", 2)) == 8
    open_stores.close(store)


def test_offsets_of_groups_are_bounded_by_their_queues(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    path.parent.mkdir()
    path.write_text('{"offsetTable":{"Topic1@g":{0:500,1:3}}}')
    view = StoreView(root)
    recovered.recover(recovered.copy_sizes(view.config, recovered.file_sizes(view), view.geometry))
    assert "0:8" in path.read_text()
    assert "1:3" in path.read_text()


def test_offsets_that_only_the_journal_tells_come_into_the_table(root: Path) -> None:
    journal = root / "rockhopper" / "offsets" / f"{0:020d}.records"
    journal.parent.mkdir(parents=True)
    journal.write_bytes(encode_record(LINES, b"file -\nset Topic1@g 0 3\n"))
    view = StoreView(root)
    recovered.recover(recovered.copy_sizes(view.config, recovered.file_sizes(view), view.geometry))
    assert "0:3" in (root / "config" / "consumerOffset.json").read_text()


def test_ends_are_those_that_queues_or_notes_tell(root: Path) -> None:
    view = StoreView(root)
    ends = recovered.ends_to_keep(view)
    assert ends["Topic1", 0] == 8
    assert recovered.place_store(view.config, root.parent).store.root == root.parent
