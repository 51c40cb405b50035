"""Read and write topics and store directories with Spark.

    from rockhopper import pipeline
    spark = pipeline.local_session()        # or pipeline.register(your_session)
    spark.read.format("rocketmq-store").option("path", "data").load()

``decoder`` turns records into Arrow batches, ``schema`` names the columns, ``store_source`` reads
store directories. Importing this package needs no package besides Python itself.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rockhopper.pipeline.errors import PipelineError

if TYPE_CHECKING:
    from rockhopper.pipeline.decoding import decoded
    from rockhopper.pipeline.history import history_view
    from rockhopper.pipeline.session import local_session, register

if not __name__.startswith("rockhopper."):
    raise ImportError(
        "this package is imported as rockhopper.pipeline, and run as: python -m rockhopper.pipeline"
    )

__all__ = ["PipelineError", "decoded", "history_view", "local_session", "register"]
_HOMES = {
    "decoded": "decoding",
    "history_view": "history",
    "local_session": "session",
    "register": "session",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
