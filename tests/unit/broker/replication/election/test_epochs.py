"""Where two logs stop being equal."""

import pytest

from rockhopper.broker.replication.election.epochs import Epoch, add_epoch, common_end, cut


def table(*entries: tuple[int, int]) -> tuple[Epoch, ...]:
    return tuple(Epoch(*entry) for entry in entries)


def test_an_epoch_without_data_is_replaced() -> None:
    assert add_epoch(table((1, 0), (2, 50)), 3, 50) == table((1, 0), (3, 50))


def test_an_epoch_is_added_behind_the_others() -> None:
    assert add_epoch(table((1, 0)), 2, 80) == table((1, 0), (2, 80))


def test_a_cut_log_has_no_epoch_beyond_its_end() -> None:
    assert cut(table((1, 0), (2, 50), (3, 90)), 50) == table((1, 0), (2, 50))


@pytest.mark.parametrize(
    ("ours", "our_end", "theirs", "their_end", "expected"),
    [
        (table((1, 0)), 70, table((1, 0)), 100, 70),
        (table((1, 0)), 120, table((1, 0), (2, 90)), 200, 90),
        (table((1, 0), (2, 90)), 200, table((1, 0), (3, 80)), 300, 80),
        (table((1, 0), (2, 90)), 90, table((1, 0), (2, 90)), 300, 90),
        (table((1, 0), (2, 90)), 60, table((1, 0), (2, 90)), 300, 60),
        (table((1, 0), (2, 90)), 95, table((1, 0), (2, 91)), 300, 90),
        (table((4, 500)), 700, table((1, 0), (2, 90)), 300, None),
        ((), 0, table((1, 0)), 300, None),
    ],
)
def test_logs_are_equal_up_to_the_end_of_the_newest_common_epoch(
    ours: tuple[Epoch, ...],
    our_end: int,
    theirs: tuple[Epoch, ...],
    their_end: int,
    expected: int | None,
) -> None:
    assert common_end(ours, our_end, theirs, their_end) == expected
    assert common_end(theirs, their_end, ours, our_end) == expected
