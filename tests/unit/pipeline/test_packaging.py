"""The zip for executors."""

import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rockhopper.pipeline.packaging import ship, write_zip

pytestmark = pytest.mark.costly


def test_the_zip_works_by_itself_and_has_no_broker(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "pipeline.zip"

    size = write_zip(file)

    assert size == file.stat().st_size
    names = zipfile.ZipFile(file).namelist()
    assert {name.partition("/")[0] for name in names} == {"rockhopper", "aiohappyeyeballs"}
    assert all(name.endswith(".py") for name in names)
    code = (
        f"import sys; sys.path.insert(0, {str(file)!r}); from rockhopper import pipeline; "
        "from rockhopper.pipeline.store_source import source; "
        "from rockhopper.pipeline.network import source as other; "
        "import rockhopper.client.network.connection_pool; "
        "print({m.__file__ for n, m in sys.modules.items()"
        " if n.partition('.')[0] in ('rockhopper', 'aiohappyeyeballs')"
        f" and not m.__file__.startswith({str(file)!r})}})"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout == "set()\n"  # nothing came from elsewhere


def test_the_same_sources_give_the_same_bytes(tmp_path: Path) -> None:
    write_zip(tmp_path / "a.zip")
    write_zip(tmp_path / "b.zip")

    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


class Context:
    """Of a session with some master."""

    def __init__(self, master: str) -> None:
        self.master = master
        self.files: list[str] = []

    def addPyFile(self, file: str) -> None:  # noqa: N802
        self.files.append(file)


class Session:
    """What ``ship`` needs of one."""

    def __init__(self, master: str) -> None:
        self.sparkContext = Context(master)


@pytest.mark.parametrize(
    ("master", "count"),
    [
        ("local[*]", 0),
        ("local", 0),
        ("spark://h:7077", 1),
        ("yarn", 1),
        ("local-cluster[2,1,1]", 1),
    ],
)
def test_only_executors_elsewhere_are_sent_it(
    master: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_exit: list[Any] = []
    monkeypatch.setattr("atexit.register", lambda *call, **_: at_exit.append(call))
    session: Any = Session(master)

    ship(session)

    files = session.sparkContext.files
    assert len(files) == len(at_exit) == count
    for file, (remove, directory) in zip(files, at_exit, strict=True):
        assert zipfile.is_zipfile(file)
        remove(directory)
        assert not Path(file).exists()
