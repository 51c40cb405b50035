"""The seal of a backup: any flipped bit of it shows, and what differs is told by place."""

from rockhopper.broker.kernel.tables.table_seal import differences, is_damaged, seal, unseal
from tests.support.rot import flipped

CONTENT = b'{\n\t"dataVersion":{\n\t\t"counter":3\n\t},\n\t"values":{0:"a"}\n}'


def test_a_seal_gives_back_the_content_and_what_it_replaced() -> None:
    saved = unseal(seal(CONTENT, 4711))
    assert saved is not None
    assert (saved.content, saved.before) == (CONTENT, 4711)


def test_no_flipped_bit_and_no_cut_passes_for_sealed_or_for_anothers() -> None:
    sealed = seal(CONTENT, 4711)
    for bit in range(len(sealed) * 8):
        assert unseal(flipped(sealed, bit)) is None, bit
        assert is_damaged(flipped(sealed, bit)), bit
    for size in range(len(sealed) - 1):
        assert unseal(sealed[:size]) is None, size
        assert is_damaged(sealed[:size]), size


def test_another_brokers_file_has_no_seal_and_is_not_damaged() -> None:
    assert unseal(CONTENT) is None
    assert not is_damaged(CONTENT)


def test_differences_are_told_by_place() -> None:
    saved = {"table": {"orders": {"perm": 6}, "gone": {"perm": 4}}, "version": 1}
    found = {"table": {"orders": {"perm": 4}, "new": [1]}, "version": 1}
    assert list(differences(saved, found)) == [
        'table.gone: nothing, saved as {"perm": 4}',
        "table.new: [1], saved as nothing",
        "table.orders.perm: 4, saved as 6",
    ]


def test_a_long_value_is_cut() -> None:
    (told,) = differences({"filter": "x" * 5000}, {"filter": "y"})
    assert len(told) < 200
