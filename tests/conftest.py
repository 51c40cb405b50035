"""Settings for all suites: generated tests run the same examples everywhere, unless asked not to.

``pytest --hypothesis-profile=explore`` looks for new ones.
"""

import pytest
import structlog
from hypothesis import HealthCheck, settings

# These machines are shared: how long an example takes says nothing.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def _logs_can_be_captured() -> None:
    """A broker that finds logging set up leaves it alone; loggers that are cached stay so."""
    if not structlog.is_configured():
        structlog.configure(cache_logger_on_first_use=False)
