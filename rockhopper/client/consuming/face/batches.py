"""Batches: up to a number of messages, or those that arrived within a time.

In orderly mode a batch holds consecutive messages of each of its queues. No other message of these
queues is delivered before the outcome of the batch is known.
"""

import asyncio

from rockhopper.client.arguments import check_count, check_seconds
from rockhopper.client.consuming.handout import DeliveredRun, Handout
from rockhopper.client.errors import ClientError


async def collect(handout: Handout, count_max: int, wait_s: float) -> list[DeliveredRun]:
    """Return up to `count_max` messages, at most `wait_s` after the first; none after stop.

    Cancelling puts the collected messages back.
    """
    batch: list[DeliveredRun] = []
    try:
        left = await _fill(handout, batch, count_max)
        if not left or not batch:
            return batch
        try:
            async with asyncio.timeout(wait_s):
                while left and not handout.is_stopped:
                    left = await _fill(handout, batch, left)
        except TimeoutError:
            pass
        except ClientError as error:
            handout.fail(error)  # raised by the next call: this batch is valid
    except BaseException:
        handout.put_back_all(batch)
        raise
    finally:
        for held, _ in batch:
            held.is_collected = False
    return batch


async def _fill(handout: Handout, batch: list[DeliveredRun], left: int) -> int:
    """Wait for messages, and add what is ready; return how many are still missing."""
    share = handout.share(left)
    run = handout.next_run(share) or await handout.wait_run(left)
    while run is not None:
        batch.append(run)
        left -= len(run[1])
        run = handout.next_run(min(share, left)) if left else None
    return left


def check_batches(count_max: int, wait_s: float) -> None:
    """Raise ValueError or TypeError for an invalid batch size or waiting time."""
    check_count("count_max", count_max)
    check_seconds("wait_s", wait_s, may_be_zero=True)
