"""How far a follower has applied, for its next start."""

from pathlib import Path

from rockhopper.broker.replication.state import applied
from rockhopper.broker.replication.state.applied import Applied
from rockhopper.broker.settings.store_config import StoreConfig
from rockhopper.broker.settings.store_layout import StoreLayout


def test_it_is_there_until_it_is_removed(tmp_path: Path) -> None:
    layout = StoreLayout.from_config(StoreConfig(root=tmp_path))
    assert applied.load(layout) is None
    place = Applied(7, 1234, 1 << 63, [(1, 2, 3, 4)])
    applied.save(layout, place)
    assert applied.load(layout) == place
    applied.remove(layout)
    applied.remove(layout)
    assert applied.load(layout) is None


def test_a_damaged_one_is_none(tmp_path: Path) -> None:
    layout = StoreLayout.from_config(StoreConfig(root=tmp_path))
    applied.save(layout, Applied(7, 1234, 5, []))
    path = layout.own / "ha" / "applied.json"
    path.write_bytes(path.read_bytes().replace(b"1234", b"1235"))
    assert applied.load(layout) is None
