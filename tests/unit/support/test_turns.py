import asyncio
import logging

import pytest

from tests.support.turns import until_logged


async def test_a_text_is_awaited_as_often_as_it_is_wanted(caplog: pytest.LogCaptureFixture) -> None:
    async def write() -> None:
        for _ in range(2):
            await asyncio.sleep(0)
            logging.warning("the disk is full")

    writing = asyncio.create_task(write())
    await until_logged(caplog, "disk is full", 2)
    await writing


async def test_a_text_that_does_not_come_ends_the_wait_with_those_that_did(
    caplog: pytest.LogCaptureFixture,
) -> None:
    logging.warning("no room is left on the disk")
    with pytest.raises(AssertionError, match=r"(?s)disk is full.*\n.*no room is left on the disk"):
        await until_logged(caplog, "disk is full", patience_s=0.01)
