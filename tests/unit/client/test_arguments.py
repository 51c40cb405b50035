"""Numbers of the wrong kind are told by their names, when the client is made."""

from typing import Any

import pytest

from rockhopper.client import Admin, Consumer, Producer, PullConsumer
from rockhopper.client.arguments import check_count, check_seconds


@pytest.mark.parametrize("wrong", ["1", None, True, 1.5])
def test_a_count_is_a_whole_number(wrong: Any) -> None:
    with pytest.raises(TypeError, match=f"n is {wrong!r}: it must be a whole number"):
        check_count("n", wrong)
    check_count("n", 1)


@pytest.mark.parametrize("wrong", [-1, -0.5, float("nan")])
def test_a_time_is_not_below_zero(wrong: float) -> None:
    with pytest.raises(ValueError, match=f"t is {wrong} s: it must be 0 or above"):
        check_seconds("t", wrong, may_be_zero=True)
    check_seconds("t", 0, may_be_zero=True)
    with pytest.raises(ValueError, match="above 0"):
        check_seconds("t", 0)


@pytest.mark.parametrize(
    ("kind", "options", "wrong"),
    [
        (Producer, {"timeout_s": "3"}, TypeError),
        (Producer, {"retries": "2"}, TypeError),
        (Admin, {"request_timeout_s": "3"}, TypeError),
        (PullConsumer, {"poll_s": "3"}, TypeError),
        (PullConsumer, {"batch_size": "3"}, TypeError),
        (
            lambda **options: Consumer("billing", "orders", **options),
            {"concurrency": "4"},
            TypeError,
        ),
        (
            lambda **options: Consumer("billing", "orders", **options),
            {"concurrency": 0},
            ValueError,
        ),
        (lambda **options: Consumer("billing", "orders", **options), {"poll_s": "1"}, TypeError),
    ],
)
def test_clients_tell_when_they_are_made(
    kind: Any, options: dict[str, Any], wrong: type[Exception]
) -> None:
    with pytest.raises(wrong, match=f"^{next(iter(options))} is "):
        kind(**options)


def test_batches_tell_when_they_are_asked_for() -> None:
    count: Any = "a"
    with pytest.raises(TypeError, match="count_max is 'a'"):
        Consumer("billing", "orders").batches(count, 1.0)


async def test_a_batch_is_of_messages() -> None:
    bodies: Any = [b"x"]
    async with Producer() as producer:
        with pytest.raises(TypeError, match=r"Message\(topic, body\)"):
            await producer.send_batch(bodies)
