"""Maven projects of mains of ours: compiled once, run by their class path."""

import os
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.support.one_at_a_time import one_at_a_time

QUICK_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xss512k")
"""For tests: a JVM that starts fast and stays small. Not for measuring."""


class BuildError(Exception):
    """A Maven project could not be built; the message ends with Maven's output."""


def missing_tools() -> list[str]:
    """Return which commands of a JDK and Maven this machine lacks."""
    return [name for name in ("java", "javac", "mvn") if shutil.which(name) is None]


@cache
def class_path(project: Path) -> str:
    """Return the class path of *project*, compiled when its sources changed.

    Raises:
        BuildError: a tool is missing, or Maven failed both offline and online.
    """
    if missing := missing_tools():
        raise BuildError(f"Not found: {', '.join(missing)}. Install a JDK (17 or later) and Maven.")
    jars = project / "target" / "classpath"
    with one_at_a_time(project):
        if not _is_fresh(project, jars):
            _compile(project)
            jars.touch()
    return f"{project / 'target' / 'classes'}{os.pathsep}{jars.read_text().strip()}"


def command(
    project: Path,
    main: str,
    home: Path,
    *,
    heap_mb: int,
    options: Sequence[str] = QUICK_JVM,
) -> list[str]:
    """Return the command of a main; what RocketMQ keeps in the home goes to *home*."""
    return [
        "java",
        f"-Xms{min(64, heap_mb)}m",
        f"-Xmx{heap_mb}m",
        f"-Duser.home={home}",
        "-Djava.net.preferIPv4Stack=true",
        *options,
        "-cp",
        class_path(project),
        f"interop.{main}",
    ]


def _compile(project: Path) -> None:
    output = ""
    for offline in (["-o"], []):
        maven = ["mvn", "-q", "-B", *offline, "compile"]
        done = subprocess.run(maven, cwd=project, capture_output=True, text=True)
        output = done.stdout + done.stderr
        if done.returncode == 0:
            return
    raise BuildError(f"mvn compile failed in {project}:\n{output[-3000:]}")


def _is_fresh(project: Path, jars: Path) -> bool:
    if not jars.exists():
        return False
    sources = [project / "pom.xml", *(project / "src").rglob("*.java")]
    return all(source.stat().st_mtime <= jars.stat().st_mtime for source in sources) and all(
        Path(jar).exists() for jar in jars.read_text().strip().split(os.pathsep)
    )
