"""What a program has imported: tests count modules, because times depend on the machine."""

from collections.abc import Iterable

LIBRARIES = frozenset(
    (
        *("aiohappyeyeballs", "click", "cryptography", "google", "jinja2", "msgpack", "msgspec"),
        *("prometheus_client", "rich", "structlog", "uvloop"),
    )
)
"""The libraries that any part of ours uses at run time."""


def libraries(modules: Iterable[str]) -> set[str]:
    """The libraries among *modules*."""
    return {name.partition(".")[0] for name in modules} & LIBRARIES


def ours(modules: Iterable[str]) -> set[str]:
    """Our own among *modules*."""
    return {name for name in modules if name.partition(".")[0] == "rockhopper"}
