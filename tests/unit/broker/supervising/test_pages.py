"""One page speaks for all brokers, of those that run and of those that do not."""

import pytest

from rockhopper.broker.kernel.families import render
from rockhopper.broker.kernel.metrics.broker_metrics import readiness
from rockhopper.broker.settings.broker_config import BrokerConfig
from rockhopper.broker.supervising.pages import merge_metrics, pages_of

REFUSED = ConnectionRefusedError("it is not running")
ONE = """\
# HELP topics Topics
# TYPE topics gauge
topics{node_id="b-0",x="a b"} 3.0
# HELP memory Bytes
# TYPE memory gauge
memory 4.7e+07
# TYPE info gauge
info{version="}"} 1.0
"""


class Shown:
    """A broker with pages by path."""

    def __init__(
        self,
        name: str,
        pages: dict[str, tuple[int, bytes]],
        starts: int = 1,
        reason: Exception = REFUSED,
    ) -> None:
        self.name = name
        self.start_count = starts
        self._pages = pages
        self._reason = reason

    async def page(self, path: str) -> tuple[int, bytes]:
        """Fail where there is none."""
        if path not in self._pages:
            raise self._reason
        return self._pages[path]


def test_families_stand_once_with_the_samples_of_all() -> None:
    merged = merge_metrics({"b-0": ONE, "b-1": ONE.replace("b-0", "b-1").replace("3.0", "5.0")})
    assert merged == (
        "# HELP topics Topics\n# TYPE topics gauge\n"
        'topics{node_id="b-0",x="a b"} 3.0\ntopics{node_id="b-1",x="a b"} 5.0\n'
        "# HELP memory Bytes\n# TYPE memory gauge\n"
        'memory{node_id="b-0"} 4.7e+07\nmemory{node_id="b-1"} 4.7e+07\n'
        "# TYPE info gauge\n"
        'info{node_id="b-0",version="}"} 1.0\ninfo{node_id="b-1",version="}"} 1.0\n'
    )


@pytest.mark.parametrize("reason", [REFUSED, TimeoutError()])
async def test_a_broker_that_does_not_answer_is_neither_up_nor_ready(reason: Exception) -> None:
    config = BrokerConfig(cluster_name="c", broker_name="b-0")
    ready, _ = await render(config, [readiness(is_ready=True)])
    there = Shown("b-0", {"/metrics": (200, ONE.encode() + ready)})
    shown = [there, Shown("b-1", {}, starts=4, reason=reason)]
    page = await pages_of(lambda: shown, "c")["/metrics"].make()
    assert page.status == 200
    found = page.body.decode().splitlines()
    assert 'memory{node_id="b-0"} 4.7e+07' in found
    b0, b1 = (f'{{cluster="c",node_id="b-{number}",node_type="broker"}}' for number in (0, 1))
    assert [line for line in found if 'node_id="b-1"' in line] == [
        f"rockhopper_ready{b1} 0",
        f"rockhopper_broker_up{b1} 0",
        f"rockhopper_broker_starts_total{b1} 4",
    ]
    assert f"rockhopper_broker_up{b0} 1" in found
    assert [line for line in found if "rockhopper_ready" in line and b1 not in line] == [
        "# HELP rockhopper_ready 1 when /readyz reports ready",
        "# TYPE rockhopper_ready gauge",
        f"rockhopper_ready{b0} 1.0",
    ]


@pytest.mark.parametrize(
    ("second", "healthy", "ready"),
    [
        ({"/healthz": (200, b"ok\n"), "/readyz": (200, b"ok\n")}, "ok", "ok"),
        (
            {"/healthz": (503, b"a disk\n"), "/readyz": (503, b"a disk\n")},
            "b-1: a disk",
            "b-1: a disk",
        ),
        # It is started again without anybody's help.
        ({}, "ok", "b-1: it is not running"),
    ],
)
async def test_the_state_is_the_worst_of_all(
    second: dict[str, tuple[int, bytes]], healthy: str, ready: str
) -> None:
    well = {"/healthz": (200, b"ok\n"), "/readyz": (200, b"ok\n")}
    pages = pages_of(lambda: [Shown("b-0", well), Shown("b-1", second)], "c")
    for path, expected in (("/healthz", healthy), ("/readyz", ready)):
        page = await pages[path].make()
        assert page.body.decode() == expected + "\n"
        assert page.status == (200 if expected == "ok" else 503)


async def test_nobody_is_ready_before_there_are_brokers() -> None:
    assert (await pages_of(list, "c")["/readyz"].make()).status == 503
