"""Batches on several brokers: what is kept, what is decided, and what outlives the process."""

from pathlib import Path

import pytest

from rockhopper.broker.features.sinks.publisher import SinkError
from rockhopper.protocol.bodies.sinks import SinkPart, SinkShares
from tests.support.open_stores import bodies
from tests.support.sink_rig import PARTS, SINK, WHOLE, Sinks

WANTED = [SinkPart(name, len(texts)) for name, texts in PARTS.items()]
SHARES: SinkShares = {"broker-a": WANTED, "broker-b": [SinkPart("0.9", 3)]}


async def test_prepared_parts_outlive_aborts_time_and_the_process(tmp_path: Path) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(4)
        assert await sinks.publisher.prepare(SINK, 4, WANTED) == (len(WHOLE), False)
        sinks.publisher.abort(SINK, 4, [])
        sinks.publisher.stage(SINK, 4, "of another try", 0, b"\x90", 0, set())
        sinks.passed.advance(10 * 3_600_000)
        sinks.publisher.expire()
    async with Sinks(tmp_path / "store") as sinks:
        sinks.publisher.abort(SINK, 4, [])
        assert await sinks.publish(4) == (len(WHOLE), False)
        assert bodies(sinks.store) == WHOLE
        assert sinks.publisher.shared.keeps() == set()
        assert await sinks.publisher.prepare(SINK, 4, WANTED) == (len(WHOLE), True)
        assert await sinks.publisher.prepare(SINK, 3, WANTED) == (0, True)


async def test_only_what_is_there_is_prepared(tmp_path: Path) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(4)
        with pytest.raises(SinkError, match="contains 700 messages, not 701"):
            await sinks.publisher.prepare(SINK, 4, [SinkPart("0.0", 701)])
        await sinks.publisher.prepare(SINK, 4, WANTED, "the query q")
        sinks.stage(3)
        with pytest.raises(SinkError, match=r"is preparing batch 4 here, but this is batch 3"):
            await sinks.publisher.prepare(SINK, 3, WANTED)
        with pytest.raises(SinkError, match="the query q"):
            await sinks.publisher.prepare(SINK, 4, WANTED, "the query r")


async def test_what_two_tries_have_prepared_is_kept_of_both(tmp_path: Path) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(4)
        await sinks.publisher.prepare(SINK, 4, WANTED[:1])
        await sinks.publisher.prepare(SINK, 4, WANTED[1:])
        assert len(sinks.publisher.shared.keeps()) == 2


async def test_the_first_word_decides_and_outlives_the_process(tmp_path: Path) -> None:
    other: SinkShares = {"broker-a": WANTED[:1]}
    async with Sinks(tmp_path / "store") as sinks:
        decide = sinks.publisher.decide
        assert await decide(SINK, 4, {}) == (-1, {})
        assert await decide(SINK, 4, SHARES, "the query q") == (4, SHARES)
        assert await decide(SINK, 4, other) == (4, SHARES)
        with pytest.raises(SinkError, match="the query q"):
            await decide(SINK, 4, other, "the query r")
    async with Sinks(tmp_path / "store") as sinks:
        assert await sinks.publisher.decide(SINK, 4, {}) == (4, SHARES)
        assert await sinks.publisher.decide(SINK, 5, other) == (4, SHARES)
        sinks.stage(4)
        await sinks.publish(4)
        assert await sinks.publisher.decide(SINK, 4, other) == (4, {})
        assert await sinks.publisher.decide(SINK, 5, {}) == (-1, {})
        assert await sinks.publisher.decide(SINK, 5, other) == (5, other)


async def test_a_decision_that_a_kill_kept_is_over_once_its_batch_is_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(4)
        await sinks.publisher.prepare(SINK, 4, WANTED)
        await sinks.publisher.decide(SINK, 4, SHARES)
        # The batch is remembered as published, and the process dies before it forgets the rest.
        monkeypatch.setattr(sinks.publisher.shared, "published", lambda *_: None)
        await sinks.publish(4)
    async with Sinks(tmp_path / "store") as sinks:
        other: SinkShares = {"broker-a": WANTED[:1]}
        assert await sinks.publisher.decide(SINK, 5, {}) == (-1, {})
        sinks.stage(5)
        await sinks.publisher.prepare(SINK, 5, WANTED[:1])
        assert await sinks.publisher.decide(SINK, 5, other) == (5, other)
        assert len(sinks.publisher.shared.keeps()) == 1


async def test_a_topic_that_is_deleted_takes_along_what_was_prepared_for_it(tmp_path: Path) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(4)
        await sinks.publisher.prepare(SINK, 4, WANTED)
        sinks.topics.delete("TopicA")
        assert await sinks.publish(4) == (len(WHOLE), False)
        assert bodies(sinks.store) == []


async def test_purging_forgets_what_was_prepared_and_decided(tmp_path: Path) -> None:
    async with Sinks(tmp_path / "store") as sinks:
        sinks.stage(4)
        await sinks.publisher.prepare(SINK, 4, WANTED)
        await sinks.publisher.decide(SINK, 4, SHARES)
        sinks.publisher.purge()
        assert sinks.publisher.shared.keeps() == set()
        assert await sinks.publisher.decide(SINK, 4, {}) == (-1, {})
