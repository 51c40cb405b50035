"""The tutorial and the notebook of docs/, run as they stand."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hang import HANG_S
from tests.support.pipeline_broker import PipelineBroker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

DOCS = Path(__file__).parents[2] / "docs"
ORDERS = 40


@pytest.fixture
def broker() -> Iterator[PipelineBroker]:
    with PipelineBroker() as broker:
        yield broker


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """The directory that the tutorial begins with, and its files."""
    text = (DOCS / "tutorial.md").read_text()
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", text, re.DOTALL):
        (tmp_path / name).write_text(code)
    assert {path.name for path in tmp_path.iterdir()} == {"shop.py", "dashboard.py"}
    return tmp_path


def test_the_dashboard_has_each_order_once(shop: Path, broker: PipelineBroker) -> None:
    environment = os.environ | {"NAMESRV_ADDR": broker.nameserver}
    broker.create("orders", 4)

    def sell() -> None:
        command = [sys.executable, "shop.py", str(ORDERS)]
        subprocess.run(command, cwd=shop, env=environment, check=True, timeout=120)

    def told() -> int:
        page = shop / "dashboard.html"
        found = re.search(r"<h1>([\d,]+) orders", page.read_text() if page.exists() else "")
        return int(found[1].replace(",", "")) if found else 0

    def show(until: int) -> None:
        command = [sys.executable, "dashboard.py"]
        process = subprocess.Popen(command, cwd=shop, env=environment, start_new_session=True)
        try:
            give_up_at_s = time.monotonic() + HANG_S
            while told() < until and process.poll() is None and time.monotonic() < give_up_at_s:
                time.sleep(0.1)
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)

    sell()
    broker.send("orders", ["no JSON"], 0)
    show(ORDERS)
    assert told() == ORDERS
    sell()
    show(2 * ORDERS)
    assert told() == 2 * ORDERS
    page = (shop / "dashboard.html").read_text()
    assert [f"<tr><td>{region}<td>" in page for region in ("north", "east")] == [True] * 2


def test_the_notebook_runs_from_top_to_bottom(
    broker: PipelineBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NAMESRV_ADDR", broker.nameserver)
    import nbformat
    from nbclient import NotebookClient

    files: Any = nbformat
    notebook = files.read(DOCS / "spark.ipynb", as_version=4)
    where = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=300, resources=where).execute()
    told = "".join(
        output.get("text", "") + output.get("data", {}).get("text/plain", "")
        for cell in notebook.cells
        for output in cell.get("outputs", ())
    )
    assert "order-17" in told
    assert len(broker.bodies("notebook-orders")) == 1000
    assert len(broker.bodies("notebook-big")) == sum(n % 97 + 0.5 > 90 for n in range(1000))
    if saved := os.environ.get("ROCKHOPPER_NOTEBOOK"):
        files.write(notebook, saved)
