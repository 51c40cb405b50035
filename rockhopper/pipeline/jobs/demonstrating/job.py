"""The job ``demo``: stream, count, archive, replay, check, show."""

import asyncio
import shutil
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.demonstrating.broker import RunningBroker, run_throw_away_broker
from rockhopper.pipeline.jobs.demonstrating.options import DemoOptions
from rockhopper.pipeline.jobs.demonstrating.text import passages, words
from rockhopper.pipeline.jobs.options import job
from rockhopper.pipeline.jobs.results import JobResult, UsageProblem, format_count

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rockhopper.pipeline.jobs.demonstrating.words import WordCounts

TOPIC, COPY_TOPIC = "reference", "reference-again"
PAGE_FILE = "demo.html"
QUEUES = 4
SLICE_S = 0.1
_BAR_WIDTH = 34

_Lines: TypeAlias = Sequence[tuple[str, str]]
"""Lines, each with the name of its chapter."""


@dataclass
class DemoResult(JobResult):
    """The result of the demo."""

    page: str
    archive: str
    messages: int = 0
    words: int = 0
    micro_batches: int = 0
    archived: int = 0
    replayed: int = 0
    top_words: dict[str, int] = field(default_factory=dict)
    checks: list[str] = field(default_factory=list)
    seconds: float = 0.0
    dry_run: bool = False

    def lines(self) -> Iterator[str]:
        """See JobResult."""
        if self.dry_run:
            yield f"would stream {format_count(self.messages, 'line')} and write {self.page}"
            return
        yield "Words of four letters or more in Python's reference:"
        yield ""
        most = max(self.top_words.values(), default=1)
        for word, times in self.top_words.items():
            bar = "█" * max(round(times / most * _BAR_WIDTH), 1)
            yield f"  {word:>12} {bar:{_BAR_WIDTH}} {times:,}"
        yield ""
        yield (
            f"{self.messages:,} messages streamed, {self.words:,} words counted in "
            f"{format_count(self.micro_batches, 'micro-batch', 'micro-batches')},"
        )
        yield (
            f"{self.archived:,} messages archived, {self.replayed:,} replayed, all of it in "
            f"{self.seconds:.0f} s"
        )
        for check in self.checks:
            yield f"  ✓ {check}"
        yield f"plot:    {self.page}"
        yield f"archive: {self.archive}"


@job(DemoOptions)
def demo(asked: DemoOptions) -> DemoResult:
    """Start a broker, stream text through it for *stream_s* seconds, and show Spark's results.

    The page and the archive go to the directory *output* and replace those of an earlier demo.

    Raises:
        PipelineError: a step failed or gave a wrong result.
    """
    from rockhopper.pipeline.jobs.spark import job_session

    started = time.monotonic()
    if asked.stream_s <= 0:
        raise UsageProblem(
            f"the text cannot be streamed within {asked.stream_s:g} seconds: give more"
        )
    directory = Path(asked.output)
    result = DemoResult(str(directory / PAGE_FILE), str(directory / "archive"))
    lines = passages()
    if asked.dry_run:
        result.dry_run, result.messages = True, len(lines)
        return result
    asked.progress.step("starting a broker and Spark")
    with run_throw_away_broker() as broker:
        session = job_session("demo", asked.spark, asked.master)
        counts = _stream(asked, session, broker, lines)
        _check_counts(counts, lines, result)
        _archive_and_replay(asked, session, broker.nameserver, result)
        _check_copy(session, broker.nameserver, len(lines), result)
    result.seconds = round(time.monotonic() - started, 1)
    _show(counts, result)
    return result


def _stream(
    asked: DemoOptions, spark: "SparkSession", broker: RunningBroker, lines: _Lines
) -> "WordCounts":
    from rockhopper.pipeline.jobs.demonstrating.words import WordCounts, start

    nameserver, progress = broker.nameserver, asked.progress
    asyncio.run(_create_topics(nameserver))
    counts = WordCounts()
    query = start(spark, nameserver, TOPIC, f"{broker.store}-checkpoint", counts)
    try:
        # The first micro-batch takes seconds, mostly to load code.
        query.processAllAvailable()
        progress.step("streaming text, counting words", len(lines))
        with _sending(nameserver, lines, asked.stream_s) as sending:
            while sending.is_alive():
                sending.join(0.5)
                progress.reach(sending.sent, _most_frequent(counts))
        query.processAllAvailable()
    finally:
        query.stop()
    return counts


def _most_frequent(counts: "WordCounts") -> str:
    return ", ".join(f"{word} {times:,}" for word, times in counts.totals().most_common(3))


async def _create_topics(nameserver: str) -> None:
    from rockhopper.client import Admin

    async with Admin(nameserver) as admin:
        for topic in (TOPIC, COPY_TOPIC):
            await admin.create_topic(topic, queues=QUEUES)


class _DemoSender(threading.Thread):
    """Sends the text gradually, like people who write it."""

    def __init__(self, nameserver: str, lines: _Lines, seconds: float) -> None:
        super().__init__(daemon=True, name="demo-producer")
        self._nameserver = nameserver
        self._lines = lines
        self._seconds = seconds
        self._stopped = threading.Event()
        self.sent = 0
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            asyncio.run(self._send())
        except BaseException as error:
            self.error = error

    async def _send(self) -> None:
        from rockhopper.client import Message, Producer

        began = time.monotonic()
        async with Producer(self._nameserver) as producer:
            while self.sent < len(self._lines) and not self._stopped.is_set():
                share = min((time.monotonic() - began) / self._seconds, 1.0)
                due = self._lines[self.sent : max(int(share * len(self._lines)), self.sent)]
                messages = [Message(TOPIC, line.encode(), keys=chapter) for chapter, line in due]
                await asyncio.gather(*map(producer.send, messages))
                self.sent += len(due)
                await asyncio.sleep(SLICE_S)

    def stop(self) -> None:
        """Make the thread stop soon."""
        self._stopped.set()


@contextmanager
def _sending(nameserver: str, lines: _Lines, seconds: float) -> Iterator[_DemoSender]:
    sending = _DemoSender(nameserver, lines, seconds)
    sending.start()
    try:
        yield sending
    finally:
        sending.stop()
        sending.join()
    if sending.error is not None:
        raise PipelineError(f"the text could not be sent: {sending.error}") from sending.error


def _check_counts(counts: "WordCounts", lines: _Lines, result: DemoResult) -> None:
    expected = Counter(word for _, line in lines for word in words(line))
    found = counts.totals()
    if found != expected:
        wrong = next(word for word in expected | found if expected[word] != found[word])
        raise PipelineError(
            f"Spark counted {wrong!r} {found[wrong]} times, and it is there "
            f"{expected[wrong]} times: please report this"
        )
    result.messages, result.words = len(lines), found.total()
    result.micro_batches = counts.batches
    result.top_words = dict(found.most_common(10))
    result.checks.append("the stream's counts are those of plain Python, word for word")


def _archive_and_replay(
    asked: DemoOptions, spark: "SparkSession", nameserver: str, result: DemoResult
) -> None:
    from rockhopper.pipeline.jobs.archiving.job import archive
    from rockhopper.pipeline.jobs.replaying.job import replay

    progress = asked.progress
    shutil.rmtree(result.archive, ignore_errors=True)
    Path(asked.output).mkdir(parents=True, exist_ok=True)
    progress.step("archiving")
    archived = archive(
        result.archive, nameserver=nameserver, topics=[TOPIC], spark=spark, progress=progress
    )
    progress.step("replaying")
    state = Path(result.archive) / "_demo"
    for _ in range(2):  # the second replay has nothing to send
        replayed = replay(
            result.archive,
            nameserver=nameserver,
            to=COPY_TOPIC,
            delivery="exactly-once",
            job_id="demo",
            state=state,
            spark=spark,
            progress=progress,
        )
        result.replayed += replayed.sent
    result.archived = archived.rows


def _check_copy(spark: "SparkSession", nameserver: str, count: int, result: DemoResult) -> None:
    from pyspark.sql import functions as f

    from rockhopper.pipeline.jobs.spark import describe_jobs

    found = []
    for topic in (TOPIC, COPY_TOPIC):
        options = {"nameServer": nameserver, "subscribe": topic, "columns": "body"}
        bodies = spark.read.format("rocketmq").options(**options).load()
        with describe_jobs(spark, f"demonstration: checking {topic}"):
            found.append(tuple(bodies.agg(f.count("*"), f.sum(f.crc32("body"))).collect()[0]))
    if found[0] != found[1] or found[0][0] != count or result.replayed != count:
        raise PipelineError(
            f"{COPY_TOPIC} holds {found[1][0]} messages and {TOPIC} {found[0][0]} of {count}, or "
            "their bodies differ: please report this"
        )
    result.checks.append("both topics hold the same messages, each once, after two replays")


def _show(counts: "WordCounts", result: DemoResult) -> None:
    from rockhopper.pipeline.jobs.demonstrating.page import page
    from rockhopper.pipeline.jobs.reporting.tables import replace

    facts = [
        (f"{result.messages:,}", "messages streamed"),
        (f"{result.words:,}", "words counted"),
        (f"{result.micro_batches:,}", "micro-batches"),
        (f"{result.archived:,}", "messages archived"),
        (f"{result.replayed:,}", "messages replayed"),
        (f"{result.seconds:.0f} s", "from start to end"),
    ]
    text = page(counts, facts, result.checks)
    replace(Path(result.page), lambda file: file.write(text.encode()))
