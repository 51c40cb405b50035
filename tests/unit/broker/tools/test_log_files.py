from pathlib import Path

from rockhopper.broker.tools import log_files
from tests.support.store_directories import LogWriter


def test_a_log_may_be_divided_over_directories(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    writer.append_many(60)
    second = tmp_path / "second"
    second.mkdir()
    (tmp_path / "commitlog" / f"{4096:020d}").rename(second / f"{4096:020d}")
    files, problems = log_files.find([tmp_path / "commitlog", second])
    assert [file.base_offset for file in files.files] == list(range(0, writer.end, 4096))
    assert problems == []
    assert log_files.find_written_end(files, 0) == writer.end


def test_odd_files_are_named_and_the_rest_is_read(tmp_path: Path) -> None:
    LogWriter(tmp_path).append_many(60)
    directory = tmp_path / "commitlog"
    (directory / "notes.txt").write_text("mine")
    (directory / f"{8192:020d}").write_bytes(bytes(100))
    (directory / f"{1 << 20:020d}").touch()
    files, problems = log_files.find([directory])
    reasons = {problem.path.name: problem.reason for problem in problems}
    assert "does not belong" in reasons["notes.txt"]
    assert "100 bytes" in reasons[f"{8192:020d}"]
    assert "empty" in reasons[f"{1 << 20:020d}"]
    assert [problem.path.name for problem in problems if problem.is_refused] == [f"{8192:020d}"]
    assert files.files[1].base_offset == 4096


def test_the_log_of_a_live_store_ends_where_it_ended(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    writer.append_many(40)
    files, _ = log_files.find([tmp_path / "commitlog"])
    end = log_files.find_written_end(files, 4096)
    log_files.end_at(files, end)
    writer.append_many(40)
    assert files.next_base_offset == end


def test_a_file_that_was_made_ahead_holds_nothing(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    writer.append_many(40)
    (tmp_path / "commitlog" / f"{writer.end // 4096 * 4096 + 4096:020d}").write_bytes(bytes(4096))
    files, _ = log_files.find([tmp_path / "commitlog"])
    assert log_files.find_written_end(files, 0) == writer.end


def test_a_file_at_an_offset_where_none_begins_is_passed_over(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path)
    writer.append_many(60)
    directory = tmp_path / "commitlog"
    stray = directory / f"{777:020d}"
    stray.write_bytes((directory / f"{0:020d}").read_bytes())
    files, problems = log_files.find([directory])
    assert [problem.path for problem in problems] == [stray]
    assert [file.base_offset for file in files.files] == list(range(0, writer.end, 4096))
