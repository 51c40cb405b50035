"""Topics that a stream has written to, noted in its checkpoint."""

import json
from pathlib import Path
from typing import Any

import pytest

from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.sink.same_topics import TOPICS_FILE, check_same_topics


class Brokers:
    """The broker a has topics with these ids, and so has b where it is given some."""

    def __init__(self, b: dict[str, str] | None = None, /, **ids: str | None) -> None:
        self._ids: dict[str, dict[str, Any]] = {"a": ids} | ({} if b is None else {"b": b})

    def brokers(self) -> list[BrokerAddress]:
        return [BrokerAddress("c", name, 0, "h:1") for name in self._ids]

    def topic_ids(self, places: Any) -> dict[tuple[str, str], str | None]:
        return {(topic, broker): self._ids[broker].get(topic) for topic, broker in places}


def check(brokers: Brokers, checkpoint: Path | str, *topics: str, fails: bool = True) -> None:
    remote: Any = brokers
    check_same_topics(remote, str(checkpoint), topics, fail_on_data_loss=fails)


def noted(checkpoint: Path) -> Any:
    return json.loads((checkpoint / TOPICS_FILE).read_text())


def test_what_was_written_to_is_noted_and_added_to(tmp_path: Path) -> None:
    check(Brokers(one="1", two="2", old="", gone=None), tmp_path, "one", "old", "gone")
    check(Brokers(one="1", two="2"), tmp_path, "two")
    assert noted(tmp_path) == {"one": {"a": "1"}, "two": {"a": "2"}}


def test_one_that_was_made_anew_ends_the_query_or_is_noted_anew(tmp_path: Path) -> None:
    check(Brokers(one="1"), tmp_path, "one")
    with pytest.raises(PipelineError, match="'one' on a was deleted and recreated"):
        check(Brokers(one="9"), tmp_path, "one")
    assert noted(tmp_path) == {"one": {"a": "1"}}
    check(Brokers(one="9"), tmp_path, "one", fails=False)
    assert noted(tmp_path) == {"one": {"a": "9"}}


def test_a_note_that_is_damaged_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / TOPICS_FILE).write_text("[1]")
    with pytest.raises(PipelineError, match="is damaged"):
        check(Brokers(one="1"), tmp_path, "one")


def test_without_a_checkpoint_nothing_is_noted(tmp_path: Path) -> None:
    check(Brokers(one="1"), "", "one")
    check(Brokers(one="1"), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_every_broker_is_noted_before_the_first_batch_and_compared_later(tmp_path: Path) -> None:
    check(Brokers({"one": "2"}, one="1"), tmp_path, "one")
    assert noted(tmp_path) == {"one": {"a": "1", "b": "2"}}
    with pytest.raises(PipelineError, match="'one' on b was deleted and recreated"):
        check(Brokers({"one": "8"}, one="1"), tmp_path, "one")


def test_a_topic_that_a_broker_has_no_longer_is_lost_too(tmp_path: Path) -> None:
    check(Brokers({"one": "2"}, one="1"), tmp_path, "one")
    with pytest.raises(PipelineError, match="'one' on b was deleted since"):
        check(Brokers({}, one="1"), tmp_path, "one")
    check(Brokers({}, one="1"), tmp_path, "one", fails=False)
    assert noted(tmp_path) == {"one": {"a": "1"}}
