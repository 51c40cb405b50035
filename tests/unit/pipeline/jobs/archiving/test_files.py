"""Files of an archive: the same in a directory and behind pyarrow.fs, and what a lock keeps out."""

import os
from pathlib import Path

import pytest

from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.jobs.archiving.files import Files, LocalFiles, RemoteFiles, files_at


@pytest.fixture(params=["local", "remote"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    if request.param == "local":
        return LocalFiles(tmp_path)
    return RemoteFiles(tmp_path.as_uri())


def test_a_file_is_made_with_its_directory_and_replaced(files: Files) -> None:
    assert files.read("a/b/c") is None
    for data in (b"one", b"", b"three"):
        files.write("a/b/c", data)
        assert files.read("a/b/c") == data
    assert files.names("a/b") == ["c"]  # nothing is left of the writing


def test_names_come_in_order(files: Files) -> None:
    for name in ("b", "a", "C/x"):
        files.write(name, b"")

    assert files.names("") == ["C", "a", "b"]
    assert files.names("nothing") == []


def test_what_is_there(files: Files) -> None:
    files.write("a/b", b"")

    assert [files.exists(name) for name in ("a", "a/b", "a/c", "")] == [True, True, False, True]


def test_directories_may_be_there_already(files: Files) -> None:
    for _ in range(2):
        files.create_directory("a/b")
        files.create_leaf("a/b/c")
    assert files.names("a/b") == ["c"]


def test_files_are_moved_and_replace_others(files: Files) -> None:
    for name in ("from/a", "from/b", "to/b"):
        files.write(name, name.encode())

    files.move([("from/a", "to/a"), ("from/b", "to/b")])

    assert (files.names("from"), files.names("to")) == ([], ["a", "b"])
    assert files.read("to/b") == b"from/b"


def test_what_is_removed_may_be_gone_already(files: Files) -> None:
    files.write("a/b/c", b"")
    files.write("d", b"")
    for _ in range(2):
        files.remove("d")
        files.remove_tree("a")
    assert files.names("") == []


def test_what_is_written_in_pieces_has_its_size_and_is_read(files: Files) -> None:
    with files.open_output("part") as output:
        output.write(b"12")
        output.write(b"345")

    assert files.settle("part") == 5
    with files.open_input("part") as source:
        source.seek(1)
        assert source.read() == b"2345"
    with pytest.raises(FileNotFoundError):
        files.open_input("nothing")


def test_what_counts_is_on_disk_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []

    def note_sync(descriptor: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{descriptor}"))
        size = os.fstat(descriptor).st_size if path.is_file() else "/"
        steps.append(f"sync {path.relative_to(tmp_path).name or '.'} {size}")

    def note_move(source: Path, target: Path) -> None:
        steps.append(f"move {target.name}")
        real_move(source, target)

    real_move = os.replace
    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "replace", note_move)
    files = LocalFiles(tmp_path)

    files.write("a", b"1234")
    assert steps == [f"sync .a.{os.getpid()} 4", "move a", "sync . /"]
    steps.clear()
    files.create_directory("b/c")
    assert sorted(steps) == ["sync . /", "sync b /"]
    steps.clear()
    files.move([("a", "b/c/a")])
    assert steps == ["move a", "sync c /"]
    steps.clear()
    files.settle("b/c/a")
    assert steps == ["sync a 4"]


def test_a_lock_names_its_holder_and_goes_with_it(tmp_path: Path) -> None:
    one, other = LocalFiles(tmp_path / "root"), LocalFiles(tmp_path / "root")
    with one.lock("own/lock"):
        said = f"^process {os.getpid()} on .* is at work on {tmp_path}/root: wait until it is done"
        with pytest.raises(PipelineError, match=said), other.lock("own/lock"):
            raise AssertionError
    with other.lock("own/lock"):
        pass
    assert (tmp_path / "root" / "own" / "lock").read_bytes() == b""


def test_nobody_locks_what_is_elsewhere(tmp_path: Path) -> None:
    files = RemoteFiles(tmp_path.as_uri())
    with files.lock("lock"), files.lock("lock"):
        assert files.names("") == []


def test_where_nothing_can_be_written_is_known_beforehand(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    files = LocalFiles(tmp_path)

    files.check_writable("to/be/made")
    with pytest.raises(NotADirectoryError):
        files.check_writable("file/below")
    assert files.names("") == ["file"]
    RemoteFiles(tmp_path.as_uri()).check_writable("file/below")


@pytest.mark.parametrize(
    ("location", "kind", "found"),
    [
        ("/a b/c", LocalFiles, "/a b/c"),
        ("a", LocalFiles, f"{Path.cwd()}/a"),
        ("~/a", LocalFiles, f"{Path.home()}/a"),
        ("file:///a%20b", LocalFiles, "/a b"),
        ("mock://bucket/a", RemoteFiles, "mock://bucket/a"),
    ],
)
def test_a_location_says_what_kind_it_is(location: str, kind: type[Files], found: str) -> None:
    files = files_at(location)
    assert (type(files), files.location) == (kind, found)


def test_a_place_that_nobody_knows() -> None:
    with pytest.raises(PipelineError, match=r"gopher://x cannot be reached .*or a URI that pyar"):
        files_at("gopher://x")


@pytest.mark.parametrize(
    ("uri", "path"), [("file:///root/", "/root/a"), ("file:///root", "/root/a"), ("file:///", "/a")]
)
def test_a_slash_at_the_end_means_nothing(uri: str, path: str) -> None:
    assert RemoteFiles(uri).path("a") == path
