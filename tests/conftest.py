"""Settings for all suites: generated tests run the same examples everywhere, unless asked otherwise.

``pytest --hypothesis-profile=explore`` looks for new ones.
"""

from hypothesis import HealthCheck, settings

# These machines are shared: how long an example takes says nothing.
settings.register_profile(
    "repeatable", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile(
    "explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("repeatable")
