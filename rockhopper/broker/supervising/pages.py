"""Combine the operator's pages of several brokers: all metrics, and the worst state."""

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from rockhopper.broker.server.remoting.health import state_page
from rockhopper.broker.server.remoting.http import Page, PageReaders, ServedPage

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_OK = 200
_SAMPLE = re.compile(r"(?P<name>[^{ ]+)(?:\{(?P<labels>.*)\})? (?P<value>[^{}]*)")


class SupervisedBroker(Protocol):
    """A broker that has pages."""

    name: str
    start_count: int

    async def page(self, path: str) -> tuple[int, bytes]:
        """Return status and body. Raises OSError, TimeoutError."""


class _BrokerAnswer(NamedTuple):
    broker: SupervisedBroker
    status: int
    body: bytes


def pages_of(
    brokers: Callable[[], Sequence[SupervisedBroker]], cluster: str
) -> Mapping[str, ServedPage]:
    """Return pages that cover all *brokers* of *cluster* at the time of the request.

    /healthz reports problems of brokers that answer. A broker that has ended does not count,
    because its parent restarts it without help. /readyz reports problems until every broker accepts
    messages.
    """

    async def ask(path: str) -> list[_BrokerAnswer]:
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
        "/healthz": ServedPage(healthz, PageReaders.BALANCERS),
        "/readyz": ServedPage(readyz, PageReaders.BALANCERS),
        "/metrics": ServedPage(metrics, PageReaders.OPERATORS),
    }


async def _ask(broker: SupervisedBroker, path: str) -> _BrokerAnswer:
    try:
        return _BrokerAnswer(broker, *await broker.page(path))
    except (OSError, TimeoutError) as error:
        return _BrokerAnswer(broker, 0, str(error).encode() or b"no answer in time")


def _state(answers: Iterable[_BrokerAnswer]) -> Page:
    """Return a page with the problems of all brokers, one line each."""
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
"""The metrics that the parent reports for each of its brokers: kind, name, meaning."""
READY = ("gauge", "rockhopper_ready", "1 when /readyz reports ready")
"""The metric that the parent reports in place of a broker without a page."""


def _of_parent(answers: Sequence[_BrokerAnswer], cluster: str) -> Iterator[str]:
    values: tuple[Callable[[_BrokerAnswer], int | None], ...] = (
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
    """Merge the metrics pages of several brokers into one, in Prometheus' text format.

    Each family occurs once, with the samples of all brokers. Samples without a node get the label
    node_id.
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
