from pathlib import Path

from tests.support.tool_stores import run


def test_every_command_says_what_it_does() -> None:
    shown = run("--help").out
    for name in ("check", "show", "dump", "rebuild", "repair", "backup", "restore"):
        assert name in shown
        assert run(name, "--help").code == 0


def test_permission_errors_are_sentences(root: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ended = run("repair", root, "--into", tmp_path / "file" / "new", "--write")
    assert ended.code == 1
    assert ended.err.count("\n") == 1
    assert "file exists" in ended.err
