"""What a command imports, and what it answers without any import."""

import fcntl
import gc
import os
import pty
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from docs.site.help_files import format_help
from rockhopper import starting
from rockhopper.version import own_version
from tests.support.imports import LIBRARIES, libraries, ours

PACKAGES = {"rockhopper": "client", "rockhopper-broker": "broker"}
AT_ONCE = {"", ".streams", ".version", ".starting"}
"""Our modules that an answer needs which no library has a part in, besides the command's own."""

# A command as its script runs it; the modules that it has imported, on standard error.
SCRIPT = """
import sys
program, sys.argv = sys.argv[1], sys.argv[1:]
package = {packages}[program]
sys.argv[0] = "/usr/bin/" + program
try:
    __import__("importlib").import_module(f"rockhopper.{{package}}.__main__").main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def run(*command: str, **environment: str) -> "subprocess.CompletedProcess[str]":
    own = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.format(packages=PACKAGES), *command],
        capture_output=True,
        text=True,
        env=own | environment,
    )


def imported(ran: "subprocess.CompletedProcess[str]") -> set[str]:
    """The modules that a command has imported: the last line of its standard error."""
    return set(ran.stderr.splitlines()[-1].split())


def test_stale_compiled_modules_end_a_command_with_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "made_up_command.py").write_text(
        "from rockhopper.protocol.compiled import StaleModuleError\n"
        "raise StaleModuleError('compile it again')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SystemExit, match=r"^Error: compile it again$"):
        starting.import_main("made_up_command")


@pytest.mark.parametrize("program", PACKAGES)
@pytest.mark.parametrize("option", ["--version", "--help", "-h"])
def test_version_and_help_need_no_library(program: str, option: str) -> None:
    ran = run(program, option)
    expected = f"{program}, version {own_version()}\n"
    assert ran.stdout == (expected if option == "--version" else format_help(program))
    assert ran.returncode == 0
    package = f".{PACKAGES[program]}"
    assert ours(imported(ran)) == {
        f"rockhopper{name}" for name in AT_ONCE | {package, f"{package}.__main__"}
    }
    others = {"asyncio", "typing", "re", "pathlib", "importlib.metadata"}
    assert not imported(ran) & (LIBRARIES | others)


@pytest.mark.parametrize(
    ("command", "environment"),
    [
        (("--help",), {"COLUMNS": "60"}),
        (("--help", "--version"), {}),
        (("--help",), {"PYTHONIOENCODING": "latin-1"}),
    ],
)
def test_click_answers_what_is_not_saved(
    command: tuple[str, ...], environment: dict[str, str]
) -> None:
    ran = run("rockhopper", *command, **environment)
    assert ran.stdout.startswith("Usage: rockhopper [OPTIONS]")
    assert "click" in imported(ran)


def test_a_narrow_terminal_gets_lines_that_fit() -> None:
    master, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 50, 0, 0))
    script = SCRIPT.format(packages=PACKAGES)
    environment = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
    with subprocess.Popen(
        [sys.executable, "-c", script, "rockhopper", "--help"],
        stdout=terminal,
        stderr=subprocess.DEVNULL,
        env=environment,
    ):
        os.close(terminal)
        text = b""
        with open(master, "rb", buffering=0) as screen:
            try:
                while data := screen.read(65_536):
                    text += data
            except OSError:  # the other end is closed
                pass
    lines = text.decode().split("\r\n")
    assert lines[0] == "Usage: rockhopper [OPTIONS] COMMAND [ARGS]..."
    assert max(map(len, lines)) <= 50


@pytest.mark.parametrize("module", ["client", "broker"])
def test_a_module_names_itself_in_its_help(module: str) -> None:
    ran = subprocess.run(
        [sys.executable, "-m", f"rockhopper.{module}", "--help"], capture_output=True, text=True
    )
    assert ran.stdout.startswith(f"Usage: python -m rockhopper.{module} [OPTIONS]")


def test_without_the_file_click_prints_the_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["rockhopper", "--help"])
    monkeypatch.delenv("COLUMNS", raising=False)
    assert not starting.answer_at_once("rockhopper", str(tmp_path))
    (tmp_path / starting.HELP_FILE).write_text("saved\n")
    assert starting.answer_at_once("rockhopper", str(tmp_path))
    assert capsys.readouterr().out == "saved\n"


def test_a_reader_that_has_gone_is_no_error_of_ours() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    ran = subprocess.run(
        [sys.executable, "-m", "rockhopper.client", "--version"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert (ran.returncode, ran.stderr) == (1, "")


def test_a_command_imports_what_it_uses_and_no_more() -> None:
    ran = run("rockhopper", "topic", "list", "--nameserver", "127.0.0.1:1")
    assert "127.0.0.1:1 refused the connection" in ran.stderr
    modules = imported(ran)
    assert libraries(modules) == {"aiohappyeyeballs", "click", "msgpack", "msgspec"}
    own = ours(modules)
    # Beside the topic command, the modules that all commands share.
    commands = {name for name in own if name.startswith("rockhopper.client.commands.")}
    assert {name for name in commands if name.count(".") == 3} <= {
        f"rockhopper.client.commands.{name}"
        for name in ("output", "parameters", "running", "screen", "shell", "topic")
    }
    assert not any(name.startswith("rockhopper.broker") for name in own)
    assert not {"rockhopper.client.consumer", "rockhopper.client.producer"} & own
    assert not modules & {"shutil", "tempfile"}
    assert len(own) <= 100


def test_the_collector_pauses_for_the_imports_only() -> None:
    assert gc.isenabled()
    frozen = gc.get_freeze_count()
    starting.resume_collections()
    assert gc.get_freeze_count() <= frozen, "nothing is frozen in a program that did not pause"
    try:
        starting.pause_collections()
        assert not gc.isenabled()
        starting.resume_collections()
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.enable()
