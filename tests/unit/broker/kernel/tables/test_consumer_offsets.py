"""ConsumerOffsetTable: commits, resets, RocketMQ's file, and what a power cut may not leave."""

import gc
from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables.consumer_offsets import PUSHED_RESET_MS, ConsumerOffsetTable
from rockhopper.protocol import fastjson
from tests.support.peers import Clock

# Printed by RocketMQ's own encoder (fastjson, pretty), with a time of ours.
ROCKETMQ_FILE = """\
{
	"dataVersion":{
		"counter":0,
		"stateVersion":0,
		"timestamp":1700000000000
	},
	"groupTopicMap":{
		"GroupB":["TopicA"]
	},
	"offsetTable":{
		"TopicA@GroupB":{0:5,1:7
		}
	}
}"""


@pytest.fixture
def offsets(tmp_path: Path) -> ConsumerOffsetTable:
    return ConsumerOffsetTable(tmp_path / "consumerOffset.json", now_ms=Clock())


def test_the_file_is_rocketmqs_byte_for_byte(offsets: ConsumerOffsetTable) -> None:
    offsets.commit("TopicA", "GroupB", 0, 5)
    offsets.commit("TopicA", "GroupB", 1, 7)
    offsets.save()
    assert offsets.path.read_text().strip() == ROCKETMQ_FILE


@pytest.mark.parametrize("keys", ["{0:5,1:7}", '{"0":5,"1":7}'])
def test_queue_ids_are_read_bare_and_quoted(offsets: ConsumerOffsetTable, keys: str) -> None:
    offsets.path.write_text('{"offsetTable":{"TopicA@GroupB":' + keys + "}}")
    offsets.load()
    assert offsets.queues("TopicA", "GroupB") == {0: 5, 1: 7}


def test_an_entry_that_is_no_topic_and_group_is_kept_and_not_listed(
    offsets: ConsumerOffsetTable,
) -> None:
    offsets.path.write_text('{"offsetTable":{"T@G@broadcast":{0:5},"odd":{0:1}}}')
    offsets.load()
    assert list(offsets.entries()) == []
    offsets.save()
    assert '"T@G@broadcast"' in offsets.path.read_text()
    assert '"odd"' in offsets.path.read_text()


def test_a_group_without_an_offset_has_none(offsets: ConsumerOffsetTable) -> None:
    assert offsets.get("T", "G", 0) is None
    offsets.commit("T", "G", 0, 0)
    assert offsets.get("T", "G", 0) == 0
    assert offsets.get("T", "G", 1) is None


def test_negative_commits_change_nothing(offsets: ConsumerOffsetTable) -> None:
    assert offsets.commit("T", "G", 0, -1)
    assert offsets.get("T", "G", 0) is None
    assert offsets.is_saved
    offsets.commit("T", "G", 0, 5)
    offsets.commit("T", "G", 0, -1, backward=True)
    assert offsets.get("T", "G", 0) == 5


def test_a_late_commit_does_not_go_back_and_a_deliberate_one_does(
    offsets: ConsumerOffsetTable,
) -> None:
    offsets.commit("T", "G", 0, 5)
    offsets.commit("T", "G", 0, 3)
    assert offsets.get("T", "G", 0) == 5
    offsets.commit("T", "G", 0, 3, backward=True)
    assert offsets.get("T", "G", 0) == 3


def test_after_a_reset_commits_do_not_count_until_a_pull_knows(
    offsets: ConsumerOffsetTable,
) -> None:
    offsets.commit("T", "G", 0, 50)
    offsets.reset("T", "G", 0, 10)
    assert offsets.get("T", "G", 0) == 10
    assert offsets.commit("T", "G", 0, 51) is False
    assert offsets.commit("T", "G", 1, 1) is True
    assert offsets.pending_reset("T", "G", 0) == 10
    assert offsets.take_reset("T", "G", 0) == 10
    assert offsets.take_reset("T", "G", 0) is None
    assert offsets.commit("T", "G", 0, 11) is True
    assert offsets.get("T", "G", 0) == 11


def test_a_client_that_commits_what_it_remembers_ends_where_it_was_reset_to(
    tmp_path: Path,
) -> None:
    clock = Clock()
    offsets = ConsumerOffsetTable(tmp_path / "o.json", now_ms=clock)
    offsets.commit("T", "G", 0, 50)
    offsets.reset("T", "G", 0, 10)
    offsets.take_reset("T", "G", 0)
    for offset in (51, 10):
        offsets.commit("T", "G", 0, offset)
        assert offsets.get("T", "G", 0) == offset
    offsets.commit("T", "G", 0, 60)
    offsets.commit("T", "G", 0, 10)
    assert offsets.get("T", "G", 0) == 60, "once is enough"


def test_a_pushed_reset_is_waited_for_a_minute(tmp_path: Path) -> None:
    clock = Clock()
    offsets = ConsumerOffsetTable(tmp_path / "o.json", now_ms=clock)
    offsets.commit("T", "G", 0, 50)
    offsets.expect_reset("T", "G", 0, 10)
    offsets.commit("T", "G", 0, 9)
    assert offsets.get("T", "G", 0) == 50, "it is not what was pushed"
    clock.advance(PUSHED_RESET_MS + 1)
    offsets.commit("T", "G", 0, 10)
    assert offsets.get("T", "G", 0) == 50


def test_offsets_go_with_their_topic_and_with_their_group(offsets: ConsumerOffsetTable) -> None:
    for topic, group in (("T1", "G1"), ("T1", "G2"), ("T2", "G1"), ("T11", "G1")):
        offsets.commit(topic, group, 0, 1)
    offsets.reset("T1", "G1", 0, 0)
    assert offsets.groups_of("T1") == ["G1", "G2"]
    assert offsets.topics_of("G1") == ["T1", "T11", "T2"]
    assert offsets.delete_topic("T1") == 2
    assert offsets.pending_reset("T1", "G1", 0) is None
    assert offsets.delete_group("G1") == 2
    assert list(offsets.entries()) == []


def test_a_group_gets_a_copy_of_anothers_offsets(offsets: ConsumerOffsetTable) -> None:
    offsets.commit("T", "old", 0, 5)
    offsets.copy_group("old", "new", "T")
    offsets.commit("T", "new", 0, 6)
    assert offsets.get("T", "old", 0) == 5
    offsets.copy_group("nobody", "new", "T")
    assert offsets.get("T", "new", 0) == 6


def test_offsets_beyond_the_end_of_their_queue_are_taken_back(
    offsets: ConsumerOffsetTable,
) -> None:
    offsets.commit("T", "G", 0, 10)
    offsets.commit("T", "G", 1, 3)
    offsets.commit("gone", "G", 0, 4)
    ends = {("T", 0): 7, ("T", 1): 9}
    assert offsets.clamp(lambda topic, queue_id: ends.get((topic, queue_id), 0)) == 2
    assert offsets.queues("T", "G") == {0: 7, 1: 3}
    assert offsets.queues("gone", "G") == {0: 0}


def test_the_version_steps_once_for_many_commits(tmp_path: Path) -> None:
    offsets = ConsumerOffsetTable(tmp_path / "o.json", version_step=10, now_ms=Clock())
    for offset in range(1, 26):
        offsets.commit("T", "G", 0, offset)
    assert offsets.version.counter == 2


def test_a_commit_that_changes_nothing_is_not_saved(offsets: ConsumerOffsetTable) -> None:
    offsets.commit("T", "G", 0, 5)
    offsets.save()
    offsets.commit("T", "G", 0, 5)
    assert offsets.is_saved


def test_what_a_group_or_topic_has_is_found_without_a_walk_through_all(
    offsets: ConsumerOffsetTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def walk() -> None:
        pytest.fail("all offsets were walked through")

    monkeypatch.setattr(offsets, "entries", walk)
    for topic, group in (("a", "g"), ("b", "g"), ("b", "h")):
        offsets.commit(topic, group, 0, 1)
    offsets.reset("c", "h", 0, 0)
    offsets.copy_group("g", "i", "a")
    assert [offsets.topics_of(group) for group in "ghi"] == [["a", "b"], ["b", "c"], ["a"]]
    assert [offsets.groups_of(topic) for topic in "abc"] == [["g", "i"], ["g", "h"], ["h"]]
    offsets.delete_topic("b")
    offsets.delete_group("i")
    assert [offsets.topics_of(group) for group in "ghi"] == [["a"], ["c"], []]
    offsets.from_json({"offsetTable": {"b@g": {"0": 1}}})
    assert [offsets.topics_of(group) for group in "gh"] == [["b"], []]


def test_a_commit_in_the_midst_of_writing_does_not_fail_it(offsets: ConsumerOffsetTable) -> None:
    for number in range(1000):
        offsets.commit(f"topic-{number}", "g", 0, 1)
    numbers = iter(range(1000, 1_000_000))

    def commit(_phase: str, _info: object) -> None:
        # A collection of garbage gives other threads their turn.
        offsets.commit(f"topic-{next(numbers)}", "g", 0, 1)

    thresholds = gc.get_threshold()
    gc.callbacks.append(commit)
    gc.set_threshold(10)
    gc.enable()
    try:
        assert len(offsets.to_json()["offsetTable"]) >= 1000
    finally:
        gc.disable()
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(commit)
        gc.enable()


def test_offsets_of_light_groups_are_in_rocketmqs_file_and_follow_the_setting(
    tmp_path: Path,
) -> None:
    path = tmp_path / "consumerOffset.json"
    before = ConsumerOffsetTable(path)
    before.commit("orders", "readers", 1, 5)
    before.save()
    table = ConsumerOffsetTable(path, with_light_queues=True)
    assert table.load()
    table.commit("%LMQ%a", "%LMQ%readers", 0, 7)
    table.commit("%LMQ%a", "readers", 0, 8)
    table.save()
    document = fastjson.loads((tmp_path / "lmqConsumerOffset.json").read_bytes())
    # As Apache RocketMQ 5.5.0 wrote it.
    assert isinstance(document, dict)
    assert document["lmqOffsetTable"] == {"%LMQ%a@%LMQ%readers": 7}
    offsets = document["offsetTable"]
    assert isinstance(offsets, dict)
    assert set(offsets) == {"orders@readers", "%LMQ%a@readers"}
    for setting in (True, False):
        again = ConsumerOffsetTable(path, with_light_queues=setting)
        assert again.load()
        assert again.get("%LMQ%a", "%LMQ%readers", 0) == 7
        assert again.get("orders", "readers", 1) == 5
