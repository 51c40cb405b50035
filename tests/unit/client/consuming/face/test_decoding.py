"""A body that cannot be decoded is never handed out; what becomes of it was chosen."""

from typing import Any

import pytest

from rockhopper.client.consuming.face.batches import collect
from rockhopper.client.consuming.redelivery import BY_THE_LADDER, DEAD_LETTER
from rockhopper.client.consuming.settings import ConsumerSettings
from rockhopper.client.serializers import JSON
from tests.unit.client.consuming.test_handout import Backs, handout, queue_of


@pytest.mark.parametrize("orderly", [False, True])
@pytest.mark.parametrize(
    ("bad_body", "sent"),
    [("retry", [(1, BY_THE_LADDER)]), ("dead-letter", [(1, DEAD_LETTER)]), ("skip", [])],
)
async def test_bad_bodies(
    bad_body: str, sent: list[Any], orderly: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if orderly and bad_body == "retry":
        return  # it is tried again here, for ever: see test_handout
    backs = Backs()
    line = handout(backs, deserializer=JSON(), bad_body=bad_body, orderly=orderly)
    held = queue_of(3)
    for message, body in zip(held.waiting, (b"1", b"{", b"3"), strict=True):
        message.stored.body = body
    line.offer(held)
    values = []
    for _ in range(2):
        delivered = await line.next()
        assert delivered is not None
        values.append(delivered[1].value)
        line.acknowledge(*delivered)
    await line.settle(60.0)
    assert (values, backs.sent, held.position) == ([1, 3], sent, 3)
    assert "is not JSON" in caplog.text


async def test_a_batch_has_only_bodies_that_can_be_decoded() -> None:
    line = handout(Backs(), deserializer=JSON(), bad_body="skip")
    held = queue_of(3)
    for message, body in zip(held.waiting, (b"1", b"{", b"3"), strict=True):
        message.stored.body = body
    line.offer(held)
    batch = await collect(line, 2, 60.0)
    assert [each.value for _, run in batch for each in run] == [1, 3]


def test_bad_bodies_of_nobody_who_decodes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"bad_body is 'skip', .* there is no deserializer"):
        ConsumerSettings("g", {}, bad_body="skip")


def test_another_word_is_refused() -> None:
    bad: Any = "explode"
    with pytest.raises(ValueError, match="retry, dead-letter, skip"):
        ConsumerSettings("g", {}, bad_body=bad)
