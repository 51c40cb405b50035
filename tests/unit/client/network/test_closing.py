"""Whatever ends the block, the client is closed."""

import pytest

from rockhopper.client.network.closing import ClosedAtEnd


class Closable(ClosedAtEnd):
    def __init__(self) -> None:
        self.closed_count = 0

    async def __aenter__(self) -> "Closable":
        return self

    async def close(self) -> None:
        self.closed_count += 1


async def test_it_is_closed_at_the_end() -> None:
    async with Closable() as client:
        assert client.closed_count == 0
    assert client.closed_count == 1


async def test_it_is_closed_after_an_error_which_goes_on() -> None:
    client = Closable()
    with pytest.raises(KeyError):
        async with client:
            raise KeyError
    assert client.closed_count == 1
