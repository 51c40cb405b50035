"""What both commands do before their imports, so that they start quickly.

``--version`` and ``--help`` are answered without click, which takes longer to import than Python
takes to start. The help is the file ``help.txt`` in the command's package: what click prints on a
terminal of 80 columns or more, written by ``make pages``.

The garbage collector pauses during the imports. It would examine each of their objects several
times, and find none to free.
"""

import gc
import os
import sys
from collections.abc import Callable
from importlib import import_module

from rockhopper.streams import abandon_output, use_standard_streams
from rockhopper.version import own_version

HELP_FILE = "help.txt"
HELP_COLUMNS = 80
"""A terminal of this width or more shows the saved help; for others click breaks the lines."""


def answer_at_once(program: str, package: str) -> bool:
    """Print the version or the help if the command line asks for no more than that.

    *package* is the directory of the command's package. Returns False if click must answer.
    """
    arguments = sys.argv[1:]
    if arguments == ["--version"]:
        text = f"{program}, version {own_version()}\n"
    elif arguments in (["--help"], ["-h"]) and _prints_as_saved(program):
        try:
            with open(os.path.join(package, HELP_FILE), encoding="utf-8") as file:
                text = file.read()
        except OSError:
            return False
    else:
        return False
    with use_standard_streams(program):
        try:
            sys.stdout.write(text)
            sys.stdout.flush()
        except BrokenPipeError:
            abandon_output()
            sys.exit(1)
    return True


def _prints_as_saved(program: str) -> bool:
    """Whether click would print the saved help."""
    if os.path.basename(sys.argv[0]) != program or sys.platform != "linux":
        return False  # it names the program otherwise, or has other commands
    if "COLUMNS" in os.environ or sys.stdout is None or sys.stdout.encoding.lower() != "utf-8":
        return False
    try:
        columns = os.get_terminal_size(sys.stdout.fileno()).columns
    except (OSError, ValueError):
        columns = 0  # no terminal; some terminals do not know their width either
    return columns == 0 or columns >= HELP_COLUMNS


def import_main(module: str) -> Callable[[], object]:
    """Return the function ``main`` of *module*; exit with one line if its C modules are stale."""
    from rockhopper.protocol.compiled import StaleModuleError

    try:
        main: Callable[[], object] = import_module(module).main
    except StaleModuleError as error:
        sys.exit(f"Error: {error}")
    return main


def pause_collections() -> None:
    """Pause the garbage collector, until ``resume_collections``."""
    gc.disable()


def resume_collections() -> None:
    """Resume the garbage collector, if it pauses; what exists now is never examined."""
    if not gc.isenabled():
        gc.freeze()
        gc.enable()
