"""Which version of Rockhopper runs here."""

from functools import cache
from importlib import metadata

DISTRIBUTION = "rockhopper-mq"


@cache
def own_version() -> str:
    """The version that is installed; "unknown" in a folder that never was."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
