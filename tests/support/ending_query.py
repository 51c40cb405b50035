"""Run streaming queries to their end, on a machine of any speed.

Spark gives the Python process of a source ten seconds to start (no setting changes that), and ends
the query if it takes longer, for example beside thirty busy processes. A restarted query continues
at its checkpoint, so the result is the same.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.support.hang import HANG_S

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

STARTS_MAX = 20
_TOO_SLOW = "Python worker failed to connect back"


def run_to_end(start: "Callable[[], StreamingQuery]") -> list[dict[str, Any]]:
    """Start a query until it ends well; return the progress of the batches with rows."""
    from pyspark.errors import StreamingQueryException

    batches: list[dict[str, Any]] = []
    for _ in range(STARTS_MAX):
        query = start()
        try:
            assert query.awaitTermination(int(HANG_S))
        except StreamingQueryException as error:
            if _TOO_SLOW not in str(error):
                raise
        batches += [each for each in query.recentProgress if each["numInputRows"]]
        if query.exception() is None:
            return batches
    raise AssertionError(f"Spark did not start a Python process within 10 s, {STARTS_MAX} times")
