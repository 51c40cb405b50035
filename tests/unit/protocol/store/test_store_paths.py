"""Names in a store directory."""

import pytest

from rockhopper.protocol.store.store_paths import is_numbered_file


@pytest.mark.parametrize("name", ["0" * 20, "00000000001073741824"])
def test_a_numbered_file_has_20_digits(name: str) -> None:
    assert is_numbered_file(name)


@pytest.mark.parametrize(
    "name",
    ["", "0" * 19, "0" * 21, "0000000000107374182x", "٠" * 20, "-" + "0" * 19, "0" * 19 + "²"],
)
def test_anything_else_is_none_of_the_log(name: str) -> None:
    assert not is_numbered_file(name)
