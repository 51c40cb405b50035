"""The Rockhopper broker.

    from rockhopper import Broker
    async with Broker.temporary() as broker:
        broker.nameserver

``Broker`` is imported when it is first asked for: the store's modules are used without it.
"""

TYPE_CHECKING = False  # Type checkers know this name: importing typing takes 5 ms.
if TYPE_CHECKING:
    from typing import Any

    from rockhopper.broker.app import Broker

if not __name__.startswith("rockhopper."):
    raise ImportError(
        "this package is imported as rockhopper.broker, and run as: python -m rockhopper.broker"
    )

__all__ = ["Broker"]


def __getattr__(name: str) -> "Any":
    if name == "Broker":
        from rockhopper.broker.app import Broker

        return Broker
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
