"""What wraps the asynchronous clients has their signatures and docstrings."""

import inspect
from typing import Any

from rockhopper import client, sync


def test_signatures_and_docstrings_are_the_asynchronous_ones() -> None:
    there: Any = client.Producer.send
    here: Any = sync.Producer.send
    assert inspect.signature(here) == inspect.signature(there)
    assert here.__doc__ == there.__doc__
    assert "timeout_s" in inspect.signature(sync.Producer).parameters
