"""Topic attributes: what may be added, changed and removed."""

import pytest

from rockhopper.broker.kernel.tables.topic_attributes import (
    AttributeChangeError,
    change_attributes,
    parse_attribute_changes,
)


def change(current: dict[str, str] | None, text: str) -> dict[str, str]:
    return change_attributes(current, parse_attribute_changes(text))


def test_attributes_are_added_at_creation() -> None:
    assert change(None, "+queue.type=BatchCQ, +message.type=FIFO") == {
        "queue.type": "BatchCQ",
        "message.type": "FIFO",
    }
    assert change(None, "") == {}


def test_a_changeable_attribute_is_changed_and_removed() -> None:
    assert change({"message.type": "FIFO"}, "+message.type=DELAY") == {"message.type": "DELAY"}
    assert change({"message.type": "FIFO"}, "-message.type") == {}


def test_an_unchangeable_attribute_may_be_named_as_it_is() -> None:
    assert change({"queue.type": "BatchCQ"}, "+queue.type=BatchCQ") == {"queue.type": "BatchCQ"}
    assert change({}, "+queue.type=SimpleCQ") == {"queue.type": "SimpleCQ"}
    compacted = {"cleanup.policy": "COMPACTION"}
    assert change(compacted, "+cleanup.policy=COMPACTION,+message.type=FIFO").items() > set(
        compacted.items()
    )


@pytest.mark.parametrize(
    ("current", "text", "message"),
    [
        (None, "-queue.type", "only add attribute is supported while creating topic"),
        (None, "+colour=red", "unsupported key: colour"),
        (None, "+queue.type=Fancy", "value is not in set"),
        (None, "+queue.type", "format is wrong"),
        (None, "+queue.type=", "format is wrong"),
        (None, "queue.type=BatchCQ", "wrong format key"),
        (None, "+=x", "wrong format key"),
        (None, "+message.type=FIFO,+message.type=FIFO", "key duplication"),
        ({"message.type": "FIFO"}, "+message.type=DELAY,-message.type", "key duplication"),
        ({}, "+queue.type=BatchCQ", "attempt to update an unchangeable attribute"),
        ({"queue.type": "BatchCQ"}, "-queue.type", "attempt to delete an unchangeable attribute"),
        (None, "+cleanup.policy=COMPACTION", "no topic is compacted here"),
        ({}, "+cleanup.policy=COMPACTION", "no topic is compacted here"),
        ({}, "-message.type", "attempt to delete a nonexistent key"),
        ({}, "+reserve.time=soon", "not a whole number"),
    ],
)
def test_other_changes_are_refused(current: dict[str, str] | None, text: str, message: str) -> None:
    with pytest.raises(AttributeChangeError, match=message):
        change(current, text)
