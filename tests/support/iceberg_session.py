"""A session of the newest Spark that Iceberg supports, in a process with its own PySpark.

The program executes commands, one line of JSON each: an archive run, with an event ``meanwhile``
(between the writing of the rows and the commit), or SQL.
"""

import json
import os
import subprocess
import sys
import sysconfig
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
REQUIRED = "ICEBERG_REQUIRED"
_PYSPARK = "pyspark==4.1.*"
_ANSWER = "@@"
_INSTALL_S = 600


class IcebergMissingError(Exception):
    """PySpark 4.1 or its Iceberg is not available here."""


def python_with_old_pyspark() -> Path:
    """Return a Python with PySpark 4.1, and all other packages of this one.

    It is created below build/ and kept. Raises IcebergMissingError.
    """
    home = ROOT / "build" / "pyspark-4.1"
    python = home / "bin" / "python"
    is_made = home / ".made"
    if is_made.exists():
        return python
    if subprocess.run([sys.executable, "-m", "venv", "--clear", home], check=False).returncode:
        raise IcebergMissingError(f"no environment could be made in {home}")
    installed = subprocess.run(
        [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _PYSPARK],
        capture_output=True,
        text=True,
        timeout=_INSTALL_S,
        check=False,
    )
    if installed.returncode:
        said = (installed.stderr.strip().splitlines() or ["pip said nothing"])[-1]
        raise IcebergMissingError(f"{_PYSPARK} could not be installed: {said}")
    ours = sysconfig.get_path("purelib")
    (target,) = (home / "lib").glob("python*/site-packages")
    (target / "ours.pth").write_text(f"import site; site.addsitedir({ours!r})\n")
    is_made.touch()
    return python


class IcebergSession:
    """The process; its first archive creates the session."""

    def __init__(self, warehouse: Path, log: Path) -> None:
        self.warehouse = warehouse
        self.python = python_with_old_pyspark()
        with open(log, "w") as errors:
            self._process = subprocess.Popen(
                [self.python, "-m", "tests.support.iceberg_session"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                cwd=ROOT,
                start_new_session=True,
            )

    def _ask(self, **command: Any) -> Any:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if line.startswith(_ANSWER):
                answer = json.loads(line.removeprefix(_ANSWER))
                if "failed" in answer:
                    raise AssertionError(answer["failed"])
                return answer["said"]
        raise AssertionError("the session has ended")

    def archive(self, table: str, *, meanwhile: str = "", **options: Any) -> Any:
        """Return the number of messages that a run has added, or its error."""
        target = {"directory": f"iceberg:{table}", "warehouse": str(self.warehouse)}
        return self._ask(archive=target | options, meanwhile=meanwhile)

    def twice(self, table: str, **options: Any) -> list[Any]:
        """Return the results of two concurrent runs, each as ``archive`` does."""
        target = {"directory": f"iceberg:{table}", "warehouse": str(self.warehouse)}
        found = self._ask(archive=target | options, twice=True)
        assert isinstance(found, list)
        return found

    def view(self, name: str, table: str, **options: Any) -> None:
        """Create a view of a table's history and of the live messages."""
        self._ask(view={"name": name, "archive": f"iceberg:{table}", **options})

    def rows(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query."""
        found = self._ask(sql=sql)
        assert isinstance(found, list)
        return found

    def close(self) -> None:
        """End the process."""
        with self._process:  # closes its pipes, which ends it, and waits
            pass


def _archive(given: dict[str, Any]) -> Any:
    from rockhopper.pipeline import jobs
    from rockhopper.pipeline.errors import PipelineError

    try:
        return jobs.archive(**given).rows
    except PipelineError as error:
        return str(error)


def _archive_while(given: dict[str, Any], meanwhile: str) -> Any:
    from rockhopper.pipeline.jobs.archiving.iceberg.table import IcebergTable

    table: Any = IcebergTable
    stage = IcebergTable.stage

    def stage_and_wait(self: IcebergTable, *of: Any) -> Any:
        table.stage = stage
        staged = stage(self, *of)
        if meanwhile == "archive":
            assert _archive(given) > 0
        else:
            _rows(meanwhile)
        return staged

    table.stage = stage_and_wait
    return _archive(given)


def _archive_twice(given: dict[str, Any]) -> list[Any]:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    found: list[Any] = []
    threads = [
        threading.Thread(target=lambda: found.append(_archive({**given, "spark": session})))
        for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def _rows(sql: str) -> list[list[Any]]:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    assert session is not None
    return [list(row) for row in session.sql(sql).collect()]


def _view(name: str, **options: Any) -> None:
    from pyspark.sql import SparkSession

    from rockhopper import pipeline

    session = SparkSession.getActiveSession()
    assert session is not None
    pipeline.register(session)
    pipeline.history_view(session, name, **options)


def _do(command: dict[str, Any]) -> Any:
    if "sql" in command:
        return _rows(command["sql"])
    if "view" in command:
        return _view(**command["view"])
    if command.get("twice"):
        return _archive_twice(command["archive"])
    if command["meanwhile"]:
        return _archive_while(command["archive"], command["meanwhile"])
    return _archive(command["archive"])


def main() -> None:
    """Execute commands until there are no more."""
    for line in sys.stdin:
        try:
            answer = {"said": _do(json.loads(line))}
        except Exception as error:
            answer = {"failed": f"{type(error).__name__}: {error}"}
        print(_ANSWER + json.dumps(answer, default=str), flush=True)
    os._exit(0)  # whatever Java is still doing


if __name__ == "__main__":
    main()
