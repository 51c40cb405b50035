"""Options and directories that make no sense are refused in one sentence, before any task runs."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.errors import PipelineError
from tests.support.written_logs import WrittenLog, read_rows


def refusal(path: Path | str, **options: Any) -> str:
    with pytest.raises(PipelineError) as caught:
        read_rows(path, options)
    sentence = str(caught.value)
    assert "\n" not in sentence
    assert ": " in sentence
    return sentence


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"columns": "topic,offset"}, "no column 'offset' (did you mean 'queueOffset'?)"),
        ({"includeBody": "maybe"}, "the option includeBody is 'maybe': set it to true or false"),
        ({"columns": "value"}, "no column 'value' (did you mean 'body'?)"),
        ({"columns": "topic,querId"}, "no column 'querId' (did you mean 'queueId'?)"),
        ({"columns": "topic,topic"}, "names 'topic' twice"),
        ({"columns": "topic", "includeBody": "true"}, "contradict each other: add 'body' to"),
        ({"columns": "body", "includeBody": "false"}, "contradict each other: take 'body' out"),
        ({"columns": "crcOk"}, "needs the option verifyCrc=flag"),
        ({"columns": "corrupt"}, "needs the option corruptRecords=column"),
        ({"topics": "a"}, "has no option 'topics' (did you mean 'topic'?)"),
        ({"splitSize": "lots"}, "set it to a size of at least 4096 bytes"),
        ({"splitSize": "1k"}, "set it to a size of at least 4096 bytes"),
        ({"verifyCrc": "flags"}, "(did you mean 'flag'?): set it to one of off, flag, fail"),
        ({"corruptRecords": "drop"}, "set it to one of fail, skip, column"),
        ({"decompress": "maybe"}, "set it to true or false"),
        ({"startPhysOffset": "-1"}, "set it to a whole number of at least 0"),
        ({"startPhysOffset": "9", "endPhysOffset": "8"}, "contradict each other"),
        ({"startPhysOffset": "999999"}, "behind the files of the log, which end at 65536"),
        ({"endPhysOffset": "999999"}, "behind the files of the log, which end at 65536"),
        ({"startingTimestamp": "yesterday"}, "or milliseconds since 1970"),
        ({"startingTimestamp": "2", "endingTimestamp": "1"}, "contradict each other"),
        ({"queueId": "one"}, "set it to numbers"),
    ],
)
def test_options(options: dict[str, str], says: str, tmp_path: Path) -> None:
    WrittenLog(tmp_path).add(3)

    assert says in refusal(tmp_path, **options)


def with_topics(root: Path, *names: str) -> Path:
    """A store whose broker knows these topics."""
    WrittenLog(root).add(30)
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text(
        json.dumps({"topicConfigTable": {name: {} for name in names}})
    )
    return root


def test_a_topic_that_the_store_does_not_have(tmp_path: Path) -> None:
    with_topics(tmp_path, "topic-0", "topic-1", "topic-2", "%RETRY%g", "TBW102")
    (tmp_path / "checkpoint").touch()

    said = refusal(tmp_path, topic="topic-0,topic-9")
    assert said.startswith(f"the store {tmp_path} has no topic 'topic-9' (did you mean 'topic-")
    assert "includeDeletedTopics=true" in said
    assert "(there is 'topic-0', 'topic-1', 'topic-2')" in refusal(tmp_path, topic="x")
    assert "has no topic 'x'" in refusal(tmp_path / "commitlog", topic="x")
    assert read_rows(tmp_path, {"topic": "x", "includeDeletedTopics": "true"}) == []


def test_a_topic_that_was_deleted_is_read_when_asked_for(tmp_path: Path) -> None:
    with_topics(tmp_path, "topic-0")

    assert "has no topic 'topic-1'" in refusal(tmp_path, topic="topic-1")
    given = {"topic": "topic-1", "includeDeletedTopics": "true"}
    assert len(read_rows(tmp_path, given)) == 10


def test_topics_without_messages_and_where_nobody_can_say(tmp_path: Path) -> None:
    with_topics(tmp_path / "a", "topic-0", "empty")
    queue = tmp_path / "a" / "consumequeue" / "expired" / "0"
    queue.mkdir(parents=True)
    for topic in ("empty", "expired", "rmq_sys_wheel_timer"):
        assert read_rows(tmp_path / "a", {"topic": topic}) == []

    with_topics(tmp_path / "b", "topic-0")
    (tmp_path / "b" / "config" / "topics").mkdir()
    (tmp_path / "b" / "config" / "topics" / "CURRENT").write_text("MANIFEST-000005")
    WrittenLog(tmp_path / "c").add(3)
    for root in (tmp_path / "b", tmp_path / "c", tmp_path / "c" / "commitlog"):
        assert read_rows(root, {"topic": "x"}) == []


def test_a_path_that_is_missing(tmp_path: Path) -> None:
    assert "set the option path to a store's root" in refusal(tmp_path / "nowhere")


def test_no_path_at_all() -> None:
    assert "needs the option 'path'" in refusal("")


def test_a_path_that_is_a_file(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(1)
    assert "is a file: set the option path to the directory" in refusal(log.file_of(0))


def test_a_path_that_is_no_store_but_has_one_in_it(tmp_path: Path) -> None:
    WrittenLog(tmp_path / "data").add(1)
    assert f"is no store, it has no directory commitlog, {tmp_path}/data is one" in refusal(
        tmp_path
    )


def test_a_path_in_another_file_system() -> None:
    assert "mount it on the workers" in refusal("hdfs://host/store")


def test_a_foreign_file_in_the_log(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path).add(3)
    (log.commit_log / "notes.txt").write_text("mine")

    assert "(notes.txt): move it away" in refusal(tmp_path)
    assert len(read_rows(tmp_path, {"corruptRecords": "skip"})) == 3


def test_a_file_of_another_size_that_overlaps_the_next(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096).add(100)
    os.truncate(log.file_of(0), 5000)

    assert "is from another store: move it away" in refusal(tmp_path)


def test_a_start_in_front_of_what_is_left(tmp_path: Path) -> None:
    log = WrittenLog(tmp_path, file_size_bytes=4096).add(100)
    log.file_of(0).unlink()

    assert "starts at 4096" in refusal(tmp_path, startPhysOffset=0)
    rows = read_rows(tmp_path, {"startPhysOffset": 0, "failOnDataLoss": "false"})
    assert len(rows) == sum(offset >= 4096 for offset in log.offsets)


def test_a_schema_of_the_users_own(tmp_path: Path) -> None:
    from pyspark.sql.types import StringType, StructField, StructType

    from rockhopper.pipeline.store_source.source import StoreSource

    WrittenLog(tmp_path).add(1)
    source = StoreSource({"path": str(tmp_path)})

    with pytest.raises(PipelineError, match=r"leave \.schema\(\.\.\.\) out"):
        source.reader(StructType([StructField("a", StringType())]))


def test_streams_and_writes(tmp_path: Path) -> None:
    from rockhopper.pipeline.schema import spark_schema
    from rockhopper.pipeline.store_source.source import StoreSource

    WrittenLog(tmp_path).add(1)
    source = StoreSource({"path": str(tmp_path)})

    for refused in (source.streamReader, source.simpleStreamReader):
        with pytest.raises(PipelineError, match=r"no streams: .* format rocketmq"):
            refused(source.schema())
    with pytest.raises(PipelineError, match=r"only reads: .* format rocketmq"):
        source.writer(spark_schema(("body",)), overwrite=False)
    with pytest.raises(PipelineError, match=r"only reads: .* format rocketmq"):
        source.streamWriter(spark_schema(("body",)), overwrite=False)
