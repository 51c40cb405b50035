"""bash, zsh and fish on a terminal: type a line, press Tab, and read the line back."""

import os
import pty
import re
import select
import shlex
import subprocess
import sys
from pathlib import Path

from tests.support.hang import HANG_S

PROGRAMS = ("rockhopper", "rockhopper-broker")
SCRIPTS = Path(sys.executable).parent
# Ctrl-T shows the line and begins another one.
_PREPARE = {
    "bash": """bind 'set enable-bracketed-paste off'; PS1=; {scripts}
shown() {{ printf '<<%s>>' "$READLINE_LINE"; READLINE_LINE=; READLINE_POINT=0; }}
bind -x '"\\C-t": shown'
""",
    "zsh": """PS1=; autoload -Uz compinit; compinit -u -D; unsetopt zle_bracketed_paste; {scripts}
shown() {{ printf '<<%s>>' "$BUFFER"; BUFFER=; }}; zle -N shown; bindkey '^T' shown
""",
}
_SCRIPT = {
    "bash": "source <(rockhopper completion bash {program})",
    "zsh": "source <(rockhopper completion zsh {program})",
    "fish": "rockhopper completion fish {program} | source",
}
_COMMAND = {"bash": ["bash", "--norc", "--noprofile", "-i"], "zsh": ["zsh", "-f", "-i"]}


def _environment(home: Path) -> dict[str, str]:
    path = f"{SCRIPTS}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "HOME": str(home), "XDG_CONFIG_HOME": str(home)} | {
        "TERM": "dumb",
        "NAMESRV_ADDR": "",
    }


def _scripts(shell: str) -> str:
    return "; ".join(_SCRIPT[shell].format(program=program) for program in PROGRAMS)


def completed(shell: str, lines: list[str], home: Path) -> list[str]:
    """Return each of *lines* after Tab; each line has one completion."""
    if shell == "fish":
        return _completed_by_fish(lines, home)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        _COMMAND[shell],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=_environment(home),
        start_new_session=True,
    )
    os.close(slave)
    try:
        prepare = _PREPARE[shell].format(scripts=_scripts(shell))
        os.write(master, f"{prepare}printf '<<%s>>' ready\n".encode())
        found = [_shown(master, "ready")]
        for line in lines:
            os.write(master, f"{line}\t\x14".encode())
            found.append(_shown(master))
        return found[1:]
    finally:
        process.kill()
        process.wait()
        os.close(master)


def _shown(master: int, text: str | None = None) -> str:
    """Return the next line that the shell shows; with *text*, wait for that line."""
    seen = b""
    wanted = re.compile(rb"<<(%s)>>" % (text or "[^%]*?").encode())
    while (match := wanted.search(seen)) is None:
        ready, _, _ = select.select([master], [], [], HANG_S)
        assert ready, seen
        seen += os.read(master, 65536)
    return match[1].decode()


def _completed_by_fish(lines: list[str], home: Path) -> list[str]:
    asked = [f"echo '<<'; complete -C {shlex.quote(line)}" for line in lines]
    answer = subprocess.run(
        ["fish", "--no-config", "-c", "; ".join([_scripts("fish"), *asked])],
        env=_environment(home),
        capture_output=True,
        text=True,
        check=True,
    )
    found = []
    for line, told in zip(lines, answer.stdout.split("<<\n")[1:], strict=True):
        (word,) = [each.partition("\t")[0] for each in told.splitlines()]
        found.append(f"{line.rpartition(' ')[0]} {word}" + " " * (not word.endswith("=")))
    return found
