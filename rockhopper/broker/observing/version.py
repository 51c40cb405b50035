"""Which version of Rockhopper runs here."""

from functools import cache

DISTRIBUTION = "rockhopper-mq"


@cache
def own_version() -> str:
    """The version that is installed; "unknown" in a folder that never was."""
    from importlib import metadata  # 1.5 MB that an idle broker does without

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
