"""Batches: up to a number of messages, or those that arrived within a time.

In orderly mode a batch holds consecutive messages of each of its queues. No other message of these
queues is delivered before the outcome of the batch is known.
"""

import asyncio
from collections.abc import Sequence

from rockhopper.client.arguments import check_count, check_seconds
from rockhopper.client.consuming.handout import Delivered, Handout
from rockhopper.client.errors import ClientError


async def collect(handout: Handout, count_max: int, wait_s: float) -> Sequence[Delivered]:
    """Return up to `count_max` messages, at most `wait_s` after the first; none after stop.

    Cancelling puts the collected messages back.
    """
    batch: list[Delivered] = []
    try:
        if not await _wait_next(handout, batch):
            return batch
        try:
            async with asyncio.timeout(wait_s):
                while len(batch) < count_max and await _wait_next(handout, batch):
                    pass
        except TimeoutError:
            pass
        except ClientError as error:
            handout.fail(error)  # raised by the next call: this batch is valid
    except BaseException:
        for delivered in reversed(batch):
            handout.put_back(*delivered)
        raise
    finally:
        for held, _ in batch:
            held.is_collected = False
    return batch


def check_batches(count_max: int, wait_s: float) -> None:
    """Raise ValueError or TypeError for an invalid batch size or waiting time."""
    check_count("count_max", count_max)
    check_seconds("wait_s", wait_s, may_be_zero=True)


async def _wait_next(handout: Handout, batch: list[Delivered]) -> bool:
    """Add the next message, waiting for it if none is ready; False after stop."""
    return _add(batch, handout.next_message(collects=True)) or _add(
        batch, await handout.next(collects=True)
    )


def _add(batch: list[Delivered], delivered: Delivered | None) -> bool:
    if delivered is None:
        return False
    delivered[0].is_collected = True
    batch.append(delivered)
    return True
