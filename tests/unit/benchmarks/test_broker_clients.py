"""Python clients of the comparison: the tally of a consumer, and what a client's process prints."""

import argparse
import asyncio
import contextlib
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence

import pytest

from benchmarks.brokers.clients import __main__ as clients
from benchmarks.brokers.clients import client as ways
from benchmarks.brokers.clients import running
from benchmarks.brokers.clients.client import Client, Tally, Times
from benchmarks.brokers.results import ClientSample
from benchmarks.errors import BenchError


class Memory(Client):
    """A broker in the process: one list of messages."""

    library = "pytest"
    ways = {ways.ONE: "append", ways.GATHERED: "gather", ways.EACH: "a loop", ways.LIVE: "a loop"}  # noqa: RUF012
    fails = False

    async def open(self) -> None:
        self.bodies: list[bytes] = []
        self.takers: list[Callable[[bytes], None]] = []

    async def send(self, body: bytes) -> None:
        if self.fails:
            raise OSError("the disk is full")
        self.bodies.append(body)
        for take in self.takers:
            take(body)

    async def consume_each(self, group: str, tally: Tally) -> None:
        for seen in itertools.count(ways.LOOK_EVERY, ways.LOOK_EVERY):
            if tally.is_over(seen):
                return

    async def receive(self, group: str, take: Callable[[bytes], None]) -> None:
        self.takers.append(take)
        await asyncio.get_running_loop().create_future()


def options(*words: str) -> argparse.Namespace:
    return argparse.Namespace(
        port=0,
        nameserver_port=0,
        pid=os.getpid(),
        ways=",".join(words),
        rounds=2,
        seconds=0.01,
        consume_seconds=5.0,
        count=1000,
        catch_up=0,
        body=128,
    )


async def printed(
    capsys: pytest.CaptureFixture[str], client_class: type[Client], *words: str
) -> running.ClientRun:
    await clients.measure_all(client_class, options(*words))
    return running.read_lines(capsys.readouterr().out)


def moments(*walls_s: float) -> Callable[[], Times]:
    found = iter([Times(wall_s, wall_s / 2, wall_s / 4) for wall_s in walls_s])
    return lambda: next(found)


def test_a_tally_counts_from_its_first_look_on() -> None:
    began_s = time.perf_counter()
    tally = Tally(moments(began_s, began_s + 2), 100, 60.0)
    assert [tally.is_over(seen) for seen in (64, 128, 192)] == [False, False, True]
    assert tally.messages == 128
    assert tally.began is not None
    assert tally.ended is not None
    assert clients.sample_of(tally.messages, tally.began, tally.ended).messages_per_s == 64


def test_a_tally_ends_after_its_seconds() -> None:
    tally = Tally(moments(time.perf_counter() - 10, 0.0), 1000, 5.0)
    assert [tally.is_over(seen) for seen in (64, 128)] == [False, True]


def test_figures_are_per_message_and_percentiles_of_the_times() -> None:
    took_us = [float(each) for each in range(1, 102)]
    found = clients.sample_of(100, Times(10, 1, 2), Times(12, 1.5, 3), took_us)
    assert found == ClientSample(50, 5000, 10_000, p50_us=51, p99_us=100)


async def test_every_way_of_a_client_has_its_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    found = await printed(capsys, Memory)
    assert list(found.samples) == [ways.ONE, ways.GATHERED, ways.EACH, ways.LIVE]
    assert [len(samples) for samples in found.samples.values()] == [2, 2, 2, 2]
    assert found.samples[ways.ONE][0].p50_us > 0
    assert found.samples[ways.LIVE][0].p50_us > 0
    assert found.failures == []


async def test_a_way_that_fails_is_named_and_the_others_go_on(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(self: Memory, bodies: Sequence[bytes]) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(Memory, "send_gathered", fail)
    found = await printed(capsys, Memory, ways.ONE, ways.GATHERED)
    assert list(found.samples) == [ways.ONE]
    assert found.failures == ["gathered: OSError: the disk is full"]


def test_a_client_that_is_not_installed_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "aio_pika", None)
    monkeypatch.delitem(sys.modules, "benchmarks.brokers.clients.rabbitmq", raising=False)
    with pytest.raises(BenchError, match=r"aio-pika is not installed .*test-brokers"):
        clients.find_client("aio-pika")
    assert clients.main(["aio-pika", "--port", "1", "--pid", "1"]) == 2
    assert "aio-pika is not installed" in capsys.readouterr().err


def test_every_client_has_titles_for_its_ways() -> None:
    for name in clients.CLIENTS:
        with contextlib.suppress(BenchError):  # not installed
            assert set(clients.find_client(name).ways) <= set(ways.WAYS)


def test_a_line_that_was_cut_is_left_out() -> None:
    lines = [
        {"version": "1.2", "ways": {"one": "send"}},
        {"way": "one", "samples": [{"messages_per_s": 1.0, "client_us": 2.0, "server_us": 3.0}]},
        {"way": "live", "failure": "TimeoutError: "},
    ]
    output = "".join(json.dumps(line) + "\n" for line in lines) + '{"way": "each", "sam'
    found = running.read_lines(output)
    assert (found.version, found.ways) == ("1.2", {"one": "send"})
    assert found.samples == {"one": [ClientSample(1.0, 2.0, 3.0)]}
    assert found.failures == ["live: TimeoutError: "]
