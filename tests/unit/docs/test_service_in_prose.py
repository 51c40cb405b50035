"""What the page on the service says is what the unit, the image and the manifests do."""

import re

import pytest

from tests.support.prose import ROOT, Page, page, pages

UNIT = (ROOT / "docker/systemd/rockhopper-broker.service").read_text(encoding="utf-8")
LINES = [line for line in UNIT.splitlines() if re.match(r"[A-Z]\w+=", line)]
KEYS = {line.partition("=")[0] for line in LINES}
SERVICE = page(ROOT / "docs/operations/service.md")
CONTAINERS = page(ROOT / "docs/operations/containers.md")
DOCKERFILE = (ROOT / "docker/Dockerfile").read_text(encoding="utf-8")
HEALTHY = (ROOT / "docker/healthy.sh").read_text(encoding="utf-8")
MANIFEST = (ROOT / "docker/kubernetes/replica-set.yaml").read_text(encoding="utf-8")
NUMBERS = {"1": "one", "2": "two", "3": "three", "4": "four", "5": "five"}


def faults_of_unit(of: Page) -> list[str]:
    """Lines of the unit that a page names and the unit does not have."""
    return [
        str(quoted)
        for quoted in of.quoted()
        if quoted.text.partition("=")[0] in KEYS
        and re.fullmatch(r"\w+=\S+", quoted.text)
        and quoted.text not in LINES
    ]


@pytest.mark.parametrize("of", pages(), ids=lambda of: of.name)
def test_lines_of_the_unit_are_in_it(of: Page) -> None:
    assert faults_of_unit(of) == []


def test_the_table_of_the_unit_has_lines_of_it() -> None:
    (table,) = [each for each in SERVICE.tables() if each.rows[0][1][0].startswith("`Type=")]
    named = [each for _, cells in table.rows for each in re.findall(r"`([^`]+)`", cells[0])]
    begins = [each.rstrip("…") for each in named if each.endswith(("…", "="))]
    assert len(begins) == 3
    assert [each for each in begins if not any(line.startswith(each) for line in LINES)] == []
    assert [each for each in named if each.rstrip("…") not in begins and each not in LINES] == []


def test_another_line_of_the_unit_is_found() -> None:
    assert faults_of_unit(Page("page", "| `WatchdogSec=5min` | killed after that |")) != []
    assert faults_of_unit(Page("page", "`TimeoutStopSec=30s` is enough")) != []


def test_what_is_not_started_again_is_the_unit_s() -> None:
    (status,) = re.findall(r"^RestartPreventExitStatus=(\d+)$", UNIT, re.MULTILINE)
    text = " ".join(SERVICE.text.split())
    assert re.findall(r"not after exit code (\d+)", text) == [status]


def test_the_user_and_the_places_are_the_unit_s() -> None:
    assert "User=rockhopper\nGroup=rockhopper\nStateDirectory=rockhopper\n" in UNIT
    text = SERVICE.text
    (made,) = re.findall(r"useradd --system --home-dir (\S+) .* (\w+)$", text, re.MULTILINE)
    assert made == ("/var/lib/rockhopper", "rockhopper")
    (program, conf) = re.findall(r"^ExecStart=(\S+) -c (\S+)$", UNIT, re.MULTILINE)[0]
    assert f"{program} -c {conf} " in text
    assert f"`{conf}`, as RocketMQ's" in text


def test_what_the_image_asks_is_what_the_pages_say() -> None:
    (check,) = re.findall(
        r"^HEALTHCHECK --interval=(\d+)s .*--retries=(\d+) CMD \[\"([\w-]+)\"\]$",
        DOCKERFILE,
        re.MULTILINE,
    )
    interval, retries, command = check
    (row,) = [
        cells[1]
        for table in CONTAINERS.tables()
        for _, cells in table.rows
        if cells[0] == "health check"
    ]
    assert row.startswith(f"`{command}`")
    assert re.findall(r"every (\d+) s\b", row) == [interval]
    assert re.findall(r"unhealthy after (\w+)", row) == [NUMBERS[retries]]
    assert f"docker/healthy.sh /opt/rockhopper/bin/{command}" in DOCKERFILE
    (told,) = [
        cells
        for table in SERVICE.tables()
        for _, cells in table.rows
        if cells[0].startswith(f"`{command}`")
    ]
    (path,) = re.findall(r"GET (/\w+) HTTP", HEALTHY)
    (code,) = re.findall(r'\$code" = (\d+)', HEALTHY)
    assert told[1].startswith(f"exit code 0 when `{path}` returns {code};")
    assert re.findall(r"every (\d+) s\b", told[1]) == [interval]


def test_what_stops_a_container_is_what_the_pages_say() -> None:
    (row,) = [
        cells[1] for table in CONTAINERS.tables() for _, cells in table.rows if cells[0] == "stop"
    ]
    (signal,) = re.findall(r"^STOPSIGNAL (\w+)$", DOCKERFILE, re.MULTILINE)
    assert row.startswith(f"{signal};")
    assert set(re.findall(r"give it (\d+) s", row)) == set(
        re.findall(r"--stop-timeout (\d+)", CONTAINERS.text)
    )


def test_each_of_the_two_health_paths_is_for_what_kubernetes_asks_it() -> None:
    probes = dict(re.findall(r"(\w+)Probe:.*\n?[^#]*?path: (/\w+)", MANIFEST))
    rows = {
        path: cells[1]
        for table in SERVICE.tables()
        for _, cells in table.rows
        for path in re.findall(r":\d+(/\w+)`", cells[0])
    }
    assert "balancers" in rows[probes["readiness"]]
    assert "restart" in rows[probes["liveness"]]
    assert "balancers" not in rows[probes["liveness"]]
