"""Writes the help of both commands into the files that ``rockhopper/starting.py`` prints.

python -m docs.site.help_files     (`make pages`)
"""

import sys
from pathlib import Path

import click
from click.testing import CliRunner

from rockhopper.broker.cli import main as broker_main
from rockhopper.client.cli import main as client_main
from rockhopper.starting import HELP_COLUMNS, HELP_FILE

ROOT = Path(__file__).resolve().parents[2]
COMMANDS: dict[str, tuple[click.Command, str]] = {
    "rockhopper": (client_main, f"rockhopper/client/{HELP_FILE}"),
    "rockhopper-broker": (broker_main, f"rockhopper/broker/{HELP_FILE}"),
}
"""Program -> its command, and the file with its help."""


def format_help(program: str) -> str:
    """Return what click prints for ``--help`` on a terminal of usual width."""
    command, _ = COMMANDS[program]
    environment = {"COLUMNS": str(HELP_COLUMNS)}
    ran = CliRunner().invoke(command, ["--help"], prog_name=program, env=environment)
    return str(ran.output)


def main() -> int:
    """Write the files."""
    for program, (_, name) in COMMANDS.items():
        (ROOT / name).write_text(format_help(program), encoding="utf-8")
        print(f"{name} is up to date")
    return 0


if __name__ == "__main__":
    sys.exit(main())
