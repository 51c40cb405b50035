import shutil
from pathlib import Path

from rockhopper.broker.tools.showing import show
from rockhopper.broker.tools.store_view import StoreView
from tests.support.tool_stores import run


def test_everything_of_a_store_is_shown(root: Path) -> None:
    (root / "config").mkdir()
    offsets = '{"offsetTable":{"Topic0@g":{0:2}}}'
    (root / "config" / "consumerOffset.json").write_text(offsets)
    shown = show(StoreView(root))
    assert shown.state == "stopped cleanly"
    assert shown.version == "written by Rockhopper"
    assert shown.waiting == {"delayed": 6, "timersStored": 0}
    queue = next(row for row in shown.queues if row[:2] == ("Topic0", 0))
    assert shown.groups == [
        {"group": "g", "topic": "Topic0", "queue": 0, "offset": 2, "lag": queue.next - 2}
    ]
    assert shown.files["commit log"]["count"] == 3
    assert shown.log["end"] == StoreView(root).proven_end


def test_long_lists_are_cut_unless_all_is_asked_for(root: Path) -> None:
    assert "Topic1" in run("show", root).out
    value = run("show", root, "--json").objects[0]
    assert value["topics"]["Topic1"][0] == {"queue": 0, "min": 0, "max": 8}
    assert (value["live"], value["state"]) == (False, "stopped cleanly")


def test_a_store_without_a_folder_of_ours_was_written_by_rocketmq(root: Path) -> None:
    shutil.rmtree(StoreView(root).layout.own)
    assert show(StoreView(root)).version == "written by RocketMQ"


def test_a_damaged_table_hides_only_what_it_held(root: Path) -> None:
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "consumerOffset.json").write_text("{")
    shown = show(StoreView(root))
    assert shown.groups == []
    assert {row.topic for row in shown.queues} >= {"Topic0", "Topic1"}
