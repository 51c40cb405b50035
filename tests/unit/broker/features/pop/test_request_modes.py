"""The table of request modes: RocketMQ's file, and what is refused of it."""

from pathlib import Path

import pytest

from rockhopper.broker.features.pop.request_modes import MessageRequestModeTable
from rockhopper.protocol.bodies.popping import SetMessageRequestModeRequestBody
from tests.support.peers import Clock

MODE = {"consumerGroup": "g", "mode": "POP", "popShareQueueNum": 3, "topic": "orders"}
DOCUMENT = {"messageRequestModeMap": {"orders": {"g": MODE}}}


def test_a_mode_is_kept_by_topic_and_group(tmp_path: Path) -> None:
    table = MessageRequestModeTable(tmp_path / "modes.json", now_ms=Clock())
    mode = SetMessageRequestModeRequestBody.from_json(MODE)
    assert table.get("orders", "g") is None
    table.set_mode(mode)
    assert table.get("orders", "g") == mode
    assert table.get("g", "orders") is None
    assert table.to_json() == DOCUMENT


def test_the_file_is_read_again(tmp_path: Path) -> None:
    table = MessageRequestModeTable(tmp_path / "modes.json", now_ms=Clock())
    table.set_mode(SetMessageRequestModeRequestBody.from_json(MODE))
    table.save()
    again = MessageRequestModeTable(tmp_path / "modes.json", now_ms=Clock())
    assert again.load()
    assert again.to_json() == DOCUMENT


@pytest.mark.parametrize("document", [{}, {"messageRequestModeMap": []}])
def test_a_file_without_the_map_is_refused(tmp_path: Path, document: dict[str, object]) -> None:
    table = MessageRequestModeTable(tmp_path / "modes.json", now_ms=Clock())
    with pytest.raises(ValueError, match="messageRequestModeMap"):
        table.from_json(document)
