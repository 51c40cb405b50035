"""The note that a store follows another."""

from pathlib import Path

from structlog.testing import capture_logs

from rockhopper.broker.replication.rocketmq.slave import following_file
from rockhopper.broker.settings.store_layout import StoreLayout


def test_it_stands_until_it_is_removed(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path / "store")
    assert following_file.read_followed_master(layout) is None
    following_file.write(layout, "10.0.0.1:10911")
    assert following_file.read_followed_master(layout) == "10.0.0.1:10911"
    following_file.remove(layout)
    following_file.remove(layout)
    assert following_file.read_followed_master(layout) is None


def test_damaged_it_still_says_that_the_store_follows(tmp_path: Path) -> None:
    layout = StoreLayout(tmp_path / "store")
    following_file.write(layout, "10.0.0.1:10911")
    following_file.path_in(layout).write_bytes(b"rot")
    with capture_logs() as lines:
        assert following_file.read_followed_master(layout) == ""
    assert "damaged" in lines[0]["event"]
