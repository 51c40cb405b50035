"""The store's errors: one tree, and each a sentence that says what, where and what to do."""

from pathlib import Path

import pytest

from rockhopper.broker.store.files import errors
from rockhopper.broker.store.files.errors import (
    CorruptFileError,
    QueueConflictError,
    QueueGapError,
    StoreError,
    StoreLockedError,
    TooManyOpenFilesError,
)


def kinds() -> list[type]:
    return [kind for kind in vars(errors).values() if isinstance(kind, type)]


def test_the_tree_at_the_top_of_the_module_names_every_error() -> None:
    found = {kind.__name__ for kind in kinds() if issubclass(kind, StoreError)}
    told = {word for word in (errors.__doc__ or "").split() if word.endswith("Error")}
    assert told - {"OSError"} == found


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            StoreLockedError(Path("/data")),
            "the store in /data is in use by another process: stop that broker, or give this one "
            "its own directory (storePathRootDir)",
        ),
        (
            StoreLockedError(Path("/data"), "process 7", setting="storePathCommitLog"),
            "the store in /data is in use by process 7: stop that broker, or give this one its "
            "own directory (storePathCommitLog)",
        ),
        (CorruptFileError(Path("/data/x"), "3 bytes long"), "/data/x: 3 bytes long"),
        (TooManyOpenFilesError(24, "no descriptor is free"), "no descriptor is free"),
        (
            QueueGapError("orders", 1, 5, 9),
            "queue 1 of topic orders ends at offset 5, but the next entry has offset 9: rebuild "
            "the queue from the commit log",
        ),
        (
            QueueConflictError("orders", 1, 5, 100, 200),
            "offset 5 in queue 1 of topic orders is the message at 100 of the commit log, not the "
            "one at 200: rebuild the queue from the commit log",
        ),
    ],
)
def test_the_sentence_of_each(error: StoreError, text: str) -> None:
    assert str(error) == text


def test_errors_carry_what_they_tell() -> None:
    gap = QueueGapError("orders", 1, 5, 9)
    assert (gap.topic, gap.queue_id, gap.expected_offset, gap.given_offset) == ("orders", 1, 5, 9)
    conflict = QueueConflictError("orders", 1, 5, 100, 200)
    assert conflict.queue_offset == 5
    assert conflict.held_commit_log_offset == 100
    assert conflict.given_commit_log_offset == 200
    assert CorruptFileError(Path("/x"), "why").path == Path("/x")
