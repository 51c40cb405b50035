"""The installed version of Rockhopper."""

from functools import cache

DISTRIBUTION = "rockhopper-mq"


@cache
def own_version() -> str:
    """Return the installed version; "unknown" in a folder that was never installed."""
    from importlib import metadata  # 1.5 MB that an idle broker saves

    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "unknown"
