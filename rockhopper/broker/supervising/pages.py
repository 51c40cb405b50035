"""The operator's pages of several brokers as one: numbers side by side, the worst state of all."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from rockhopper.broker.server.remoting.health import state_page
from rockhopper.broker.server.remoting.http import Page, Readers, ServedPage

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OK = 200
_SAMPLE = re.compile(r"(?P<name>[^{ ]+)(?:\{(?P<labels>.*)\})? (?P<value>[^{}]*)")


class Shown(Protocol):
    """A broker that has pages."""

    name: str
    start_count: int

    async def page(self, path: str) -> tuple[int, bytes]:
        """Status and body. Raises OSError, TimeoutError."""


class _Answer(NamedTuple):
    broker: Shown
    status: int
    body: bytes


def pages_of(brokers: Callable[[], Sequence[Shown]], cluster: str) -> Mapping[str, ServedPage]:
    """The pages that speak for all *brokers* of *cluster* at the time when they are asked for.

    /healthz says what is wrong with a broker that answers; one that has ended is started again by
    its parent, which needs no help with that. /readyz says so until each of them takes messages.
    """

    async def ask(path: str) -> list[_Answer]:
        return await asyncio.gather(*(_ask(broker, path) for broker in brokers()))

    async def healthz() -> Page:
        return _state(answer for answer in await ask("/healthz") if answer.status)

    async def readyz() -> Page:
        answers = await ask("/readyz")
        return _state(answers) if answers else state_page("the brokers are starting or stopping")

    async def metrics() -> Page:
        answers = await ask("/metrics")
        pages = {
            answer.broker.name: answer.body.decode() for answer in answers if answer.status == _OK
        }
        pages[""] = "".join(_of_parent(answers, cluster))
        text = await asyncio.to_thread(merge_metrics, pages)
        return Page(text.encode(), content_type=METRICS_TYPE)

    return {
        "/healthz": ServedPage(healthz, Readers.BALANCERS),
        "/readyz": ServedPage(readyz, Readers.BALANCERS),
        "/metrics": ServedPage(metrics, Readers.OPERATORS),
    }


async def _ask(broker: Shown, path: str) -> _Answer:
    try:
        return _Answer(broker, *await broker.page(path))
    except (OSError, TimeoutError) as error:
        return _Answer(broker, 0, str(error).encode() or b"no answer in time")


def _state(answers: Iterable[_Answer]) -> Page:
    """What is wrong with any of the brokers, one line each."""
    lines = [
        f"{answer.broker.name}: {answer.body.decode().strip()}"
        for answer in answers
        if answer.status != _OK
    ]
    return state_page("\n".join(lines) or None)


PARENT_FAMILIES = (
    ("gauge", "rockhopper_broker_up", "1 while the process runs and answers"),
    ("counter", "rockhopper_broker_starts_total", "Starts of the process"),
)
"""What the parent says of each of its brokers: kind, name, meaning."""
READY = ("gauge", "rockhopper_ready", "1 when /readyz reports ready")
"""What the parent says in the place of a broker that shows no page."""


def _of_parent(answers: Sequence[_Answer], cluster: str) -> Iterator[str]:
    values: tuple[Callable[[_Answer], int | None], ...] = (
        lambda answer: int(answer.status == _OK),
        lambda answer: answer.broker.start_count,
        lambda answer: None if answer.status == _OK else 0,
    )
    for (kind, name, text), value in zip((*PARENT_FAMILIES, READY), values, strict=True):
        yield f"# HELP {name} {text}\n# TYPE {name} {kind}\n"
        for answer in answers:
            number = value(answer)
            if number is not None:
                node = f'cluster="{cluster}",node_id="{answer.broker.name}",node_type="broker"'
                yield f"{name}{{{node}}} {number}\n"


def merge_metrics(pages: Mapping[str, str]) -> str:
    """One page in Prometheus' text format out of those of several brokers, by name.

    A family stands once, with the samples of all; samples that do not say whose they are get the
    label node_id.
    """
    heads: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for node, page in pages.items():
        family = ""
        for line in page.splitlines():
            if line.startswith("# "):
                family = line.split(" ", 3)[2]
                if line not in heads.setdefault(family, []):
                    heads[family].append(line)
            elif line:
                samples.setdefault(family, []).append(_with_node(line, node))
    return "".join(
        f"{line}\n" for family, head in heads.items() for line in head + samples.get(family, [])
    )


def _with_node(line: str, node: str) -> str:
    found = _SAMPLE.fullmatch(line)
    if found is None or 'node_id="' in (found["labels"] or ""):
        return line
    labels = ",".join(filter(None, (f'node_id="{node}"', found["labels"])))
    return f"{found['name']}{{{labels}}} {found['value']}"
