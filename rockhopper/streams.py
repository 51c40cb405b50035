"""Standard streams that are closed: ``2>&-``, supervisors that pass none.

Whatever a process opens next gets the number of a closed stream, and what it prints ends up there.
"""

import os
import sys

_DESCRIPTORS = {0: "stdin", 1: "stdout", 2: "stderr"}


def open_standard_streams() -> None:
    """Open /dev/null as each of the descriptors 0 to 2 that is closed; before anything else."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR)
        if descriptor not in _DESCRIPTORS:
            os.close(descriptor)
            break
        os.set_inheritable(descriptor, True)
    for descriptor, name in _DESCRIPTORS.items():
        if getattr(sys, name) is None:
            mode = "r" if descriptor == 0 else "w"
            stream = open(descriptor, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)
            setattr(sys, f"__{name}__", stream)
