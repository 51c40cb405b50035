"""Stand-in directories: made once, whole or not at all, wherever the user may write."""

from pathlib import Path

import pytest

from rockhopper.pipeline.stand_ins import stand_in


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rockhopper-mq"


class Filling:
    def __init__(self) -> None:
        self.times = 0

    def __call__(self, directory: Path) -> None:
        self.times += 1
        (directory / "whole").write_text(str(self.times))


def is_whole(directory: Path) -> bool:
    return (directory / "whole").exists()


def test_one_is_made_once_for_each_home(cache: Path) -> None:
    fill = Filling()
    first = stand_in("java", Path("/opt/java 17"), fill, is_whole)
    assert first == cache / "java-opt-java-17"
    assert stand_in("java", Path("/opt/java 17"), fill, is_whole) == first
    assert stand_in("java", Path("/opt/java 21"), fill, is_whole) != first
    assert fill.times == 2
    assert [path.name for path in cache.iterdir() if path.name.startswith(".")] == []


def test_one_that_is_not_whole_is_made_anew(cache: Path) -> None:
    (cache / "java-home" / "old").mkdir(parents=True)
    made = stand_in("java", Path("/home"), Filling(), is_whole)
    assert is_whole(made)
    assert not (made / "old").exists()


def test_one_that_another_process_made_meanwhile_is_taken(cache: Path) -> None:
    fill = Filling()

    def fill_late(directory: Path) -> None:
        fill(directory)
        other = cache / "java-home"
        other.mkdir()
        (other / "whole").write_text("theirs")

    made = stand_in("java", Path("/home"), fill_late, is_whole)
    assert (made / "whole").read_text() == "theirs"
    assert [path.name for path in cache.iterdir()] == ["java-home"]


def test_without_a_cache_it_is_somewhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    made = stand_in("java", Path("/home"), Filling(), is_whole)
    assert is_whole(made)
    assert tmp_path in made.parents
