"""What docker/monitoring asks for is what a broker shows, and its alerts ring when they should."""

import asyncio
import contextlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from docs.site import metrics_page
from rockhopper.broker import Broker
from tests.support import dead_letters
from tests.support.direct import pull, send
from tests.support.hang import HANG_S

MONITORING = Path(__file__).parents[2] / "docker" / "monitoring"
DASHBOARD = MONITORING / "grafana" / "rockhopper.json"
COMMON = {"cluster", "node_id", "node_type", "instance", "job", "le"}
# Of the process, by Prometheus' library, and of the scrape.
OTHERS = {"process_cpu_seconds_total", "process_resident_memory_bytes"} | {
    "process_start_time_seconds",
    "up",
}
_METRIC = re.compile(r"\b(?:rocketmq|rockhopper|process)_[a-z_0-9]+\b|\bup\b")
_LABELS = re.compile(r"\b(?:by|on)\s*\(([^)]*)\)")
_MATCHERS = re.compile(r"\{([^}]*)\}")


def dashboard_expressions(found: Any) -> Iterator[str]:
    """Every query of a dashboard."""
    if isinstance(found, dict):
        if isinstance(found.get("expr"), str):
            yield found["expr"]
        if isinstance(found.get("definition"), str):
            yield found["definition"]
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from dashboard_expressions(each)


def rule_expressions() -> list[str]:
    """Every expression of the rules, whichever way it is written."""
    text = (MONITORING / "alerts.yml").read_text()
    found = re.findall(r"expr: (?:\|\n((?: {10}.*\n)+)|(.*)\n)", text)
    assert len(found) == text.count("- alert:")
    return [block or line for block, line in found]


@pytest.fixture(scope="module")
def declared() -> dict[str, set[str]]:
    """Every metric that a broker may show, with its labels."""
    shown = [
        *asyncio.run(metrics_page.of_a_broker()),
        *metrics_page.of_a_replica(),
        *metrics_page.of_tls(),
        *metrics_page.of_a_parent(),
    ]
    return {family.name: set(family.labels) for family in shown}


def test_all_that_is_asked_for_is_shown(declared: dict[str, set[str]]) -> None:
    expressions = [*dashboard_expressions(json.loads(DASHBOARD.read_text())), *rule_expressions()]
    assert len(expressions) > 60
    for expression in expressions:
        names = {
            re.sub(r"_(bucket|count|sum)$", "", name) if name not in declared else name
            for name in _METRIC.findall(expression)
        }
        assert names, expression
        assert names <= set(declared) | OTHERS, expression
        labels = COMMON.union(*(declared.get(name, set()) for name in names))
        asked = {each.strip() for group in _LABELS.findall(expression) for each in group.split(",")}
        for matchers in _MATCHERS.findall(expression):
            asked |= set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert asked <= labels, expression


def test_the_panels_of_the_dashboard_do_not_lie_on_each_other() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert at["x"] + at["w"] <= 24
        taken |= cells


async def test_the_page_of_a_broker_is_read_by_prometheus_own_library(
    declared: dict[str, set[str]],
) -> None:
    async with Broker.temporary() as broker:
        await send(broker.address, "orders", b"hello")
        await pull(broker.address, "orders")
        broker.tables.offsets.commit("orders", "billing", 0, 0)
        text = (await broker.metrics()).body.decode()
    found = {family.name: family for family in text_string_to_metric_families(text)}
    ours = {name.removesuffix("_total") for name in found if name.startswith("ro")}
    assert ours <= {name.removesuffix("_total") for name in declared}
    for family in found.values():
        assert family.documentation
        seen = [(sample.name, tuple(sorted(sample.labels.items()))) for sample in family.samples]
        assert len(seen) == len(set(seen)), family.name
    sends = {
        sample.labels["le"]: sample.value
        for sample in found["rockhopper_send_latency_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert sends["+Inf"] == 1
    assert list(sends.values()) == sorted(sends.values())
    calls = {
        (sample.labels["request_code"], sample.labels["response_code"]): sample.value
        for sample in found["rocketmq_rpc_latency"].samples
        if sample.name.endswith("_count")
    }
    assert calls["send_message", "success"] == calls["pull_message", "success"] == 1


def program_of_prometheus(name: str) -> str:
    """Where it is; skips, or fails, where it is not."""
    program = shutil.which(name)
    if program is None:
        if os.environ.get("PROMTOOL_REQUIRED") == "1":
            pytest.fail(f"{name} is not there: it is in Debian's package prometheus")
        pytest.skip(f"{name} is not there (PROMTOOL_REQUIRED=1 makes that a failure)")
    return program


def promtool(*arguments: str) -> None:
    program = program_of_prometheus("promtool")
    ended = subprocess.run(
        [program, *arguments], cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", "alerts.yml"),
        ("check", "config", "prometheus.yml"),
        ("test", "rules", "alerts_test.yml"),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_promtool_is_content(arguments: Sequence[str]) -> None:
    promtool(*arguments)


def filled_in(expression: str) -> str:
    """A query of the dashboard, with values for Grafana's variables."""
    return re.sub(r"\$\w+", ".*", re.sub(r"\[\$__rate_interval\]", "[5m]", expression))


def test_the_dashboard_can_be_parsed_as_queries(tmp_path: Path) -> None:
    """Each query as a rule, with Grafana's variables filled in."""
    rules = []
    for number, panel in enumerate(json.loads(DASHBOARD.read_text())["panels"]):
        for expression in dashboard_expressions(panel):
            rules.append({"record": f"panel_{number}", "expr": filled_in(expression)})
    path = tmp_path / "rules.json"
    # JSON is YAML.
    path.write_text(json.dumps({"groups": [{"name": "dashboard", "rules": rules}]}))
    promtool("check", "rules", "--lint=none", str(path))


@contextlib.asynccontextmanager
async def prometheus(directory: Path, target: str) -> AsyncIterator[str]:
    """host:port of one that scrapes *target* and evaluates our rules."""
    job = {"job_name": "rockhopper", "static_configs": [{"targets": [target]}]}
    often = {"scrape_interval": "250ms", "evaluation_interval": "250ms"}
    rules = [str(MONITORING / "alerts.yml")]
    path = directory / "prometheus.json"
    path.write_text(json.dumps({"global": often, "scrape_configs": [job], "rule_files": rules}))
    running = await asyncio.create_subprocess_exec(
        program_of_prometheus("prometheus"),
        *(f"--config.file={path}", f"--storage.tsdb.path={directory / 'data'}"),
        "--web.listen-address=127.0.0.1:0",
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stderr is not None
    reading = None
    try:
        address = None
        line = b""
        async with asyncio.timeout(HANG_S):
            # It listens before it has opened its data, and answers 503 until then.
            while b"ready to receive web requests" not in line:
                line = await running.stderr.readline()
                assert line, "it has ended"
                if found := re.search(rb"address=([0-9.]+:[1-9][0-9]*)", line):
                    address = found[1].decode()
        assert address is not None
        reading = asyncio.create_task(running.stderr.read())
        yield address
    finally:
        running.terminate()
        await running.wait()
        if reading is not None:
            await reading


@pytest.mark.costly
async def test_no_panel_is_empty_beside_a_running_broker(tmp_path: Path) -> None:
    """But those of replica sets, of which this broker is none."""
    queries = {
        filled_in(expression)
        for expression in dashboard_expressions(json.loads(DASHBOARD.read_text())["panels"])
        if "rockhopper_ha_" not in expression
    }
    assert len(queries) > 30

    def ask(address: str, what: str, **query: str) -> Any:
        with urlopen(f"http://{address}/api/v1/{what}?{urlencode(query)}") as answer:
            return json.load(answer)["data"]

    async with Broker.temporary() as broker, prometheus(tmp_path, broker.http_address) as address:
        await dead_letters.send(broker, 3)
        await dead_letters.fail_on_all(broker, 3)
        await dead_letters.send(broker, 1)
        async with asyncio.timeout(HANG_S):
            while queries:
                for query in sorted(queries):
                    shown = await asyncio.to_thread(ask, address, "query", query=query)
                    if shown["result"]:
                        queries.discard(query)
        groups = (await asyncio.to_thread(ask, address, "rules"))["groups"]
    assert {rule["health"] for group in groups for rule in group["rules"]} <= {"ok", "unknown"}
