import shutil
import subprocess
import sys
from pathlib import Path

from rockhopper.broker.cli import main
from tests.support.rot import flip_bit
from tests.support.tool_stores import run


def test_check_ends_with_one_if_there_is_damage(root: Path) -> None:
    sound = run("check", root)
    assert (sound.code, sound.out.splitlines()[-1]) == (0, "Sound")
    assert "MB/s" in sound.out
    log = root / "commitlog" / f"{0:020d}"
    flip_bit(log, log.read_bytes().index(b"body 3"))
    damaged = run("check", root)
    assert (damaged.code, damaged.out.splitlines()[-1]) == (1, "Damage: 1 of kind record")
    value = run("check", root, "--json").objects[0]
    assert value["damages"][0]["kind"] == "record"
    assert (value["records"], value["live"]) == (60, False)


def test_wrong_usage_is_a_sentence(tmp_path: Path, root: Path) -> None:
    ended = run("check", tmp_path / "missing")
    assert ended.code == 2
    assert "name the directory in storePathRootDir" in ended.err
    (tmp_path / "bad.conf").write_text("maxIndexNum=many\n")
    assert run("check", root, "-c", tmp_path / "bad.conf").code == 2
    assert "no such file" in run("check", root, "-c", tmp_path / "no.conf").err
    assert "is not a time" in run("dump", root, "--from", "soon").err


def test_dump_writes_a_message_a_line(root: Path) -> None:
    ended = run("dump", root, "--max", 3)
    assert [each["body"] for each in ended.objects] == ["body 0", "body 1", "body 2"]
    assert run("dump", root, "--to", "2020-01-01").out == ""


def test_dump_names_a_topic_that_the_store_does_not_have(root: Path) -> None:
    ended = run("dump", root, "--topic", "Topic0", "--topic", "Topik1")
    assert (ended.code, len(ended.objects)) == (1, 30)
    assert "no message and no queue of topic 'Topik1': did you mean 'Topic1'?" in ended.err
    # No message before that time, and of a deleted topic the log has its messages still.
    assert run("dump", root, "--topic", "Topic0", "--to", "2020-01-01").code == 0
    shutil.rmtree(root / "consumequeue" / "Topic0")
    assert run("dump", root, "--topic", "Topic0").code == 0


def test_the_broker_serves_still_without_a_subcommand(root: Path) -> None:
    shown = run("--help", command=main).out
    assert "--listen-port" in shown
    assert "store" in shown.split("Commands:")[1]
    printed = run("--store", "/x", "--print-config", command=main)
    assert "storePathRootDir=/x" in printed.out
    mixed = run("--store", "/x", "store", "check", root, command=main)
    assert mixed.code == 2
    assert "after the store command" in mixed.err


def test_serving_imports_no_tool() -> None:
    code = (
        "import sys, rockhopper.broker.cli as m; from click.testing import CliRunner; "
        "CliRunner().invoke(m.main, ['--print-config']); "
        "sys.exit(any('tools' in name or name == 'rich' for name in sys.modules if 'rockhopper' in "
        "name or name == 'rich'))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
