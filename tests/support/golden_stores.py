"""Store directories that RocketMQ wrote, kept beside the checkout or where the environment says."""

import os
import shutil
from pathlib import Path

import pytest

_BESIDE_THE_CHECKOUT = Path(__file__).parents[2] / "../shared/golden"


def golden_directory() -> Path:
    """Return the directory of golden stores; skip the test if it does not exist."""
    directory = Path(os.environ.get("ROCKHOPPER_GOLDEN", _BESIDE_THE_CHECKOUT))
    if not directory.is_dir():
        pytest.skip("no golden stores here")
    return directory


def copy_golden_store(name: str, to: Path) -> Path:
    """Copy the golden store *name* to the new directory *to*, writable, and return it."""
    shutil.copytree(golden_directory() / name, to)
    for path in (to, *to.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    return to
