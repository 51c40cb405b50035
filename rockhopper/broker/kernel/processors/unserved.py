"""RocketMQ 5.5's request codes that are not served, and which users miss each.

``make compatibility`` generates ``docs/compatibility.md`` from this and the processor tables. Each
code is either served or listed here; a test compares both with the codes of Apache's broker and
name server.
"""

from collections.abc import Sequence
from typing import NamedTuple


class Unserved(NamedTuple):
    """Related codes, and the users who will miss them."""

    codes: Sequence[int]
    what: str
    missed_by: str


UNSERVED = (
    Unserved(
        (905, 906, 908),
        "master and slaves of a broker",
        "906 and 908 are served under `haMode=classic`. Not 905, for slaves that act as the "
        "master: a replica set elects one instead.",
    ),
    Unserved(
        range(1001, 1019),
        "the controller's elections",
        "Clusters in controller mode: a [replica set](replication.md) elects its master without a "
        "controller. Its members serve 1007.",
    ),
    Unserved(
        range(5001, 5002),
        "switching the timer engine",
        "Nobody: there is only one timer engine.",
    ),
    Unserved(
        range(200_056, 200_057),
        "taking pop records back out of RocksDB",
        "Nobody: pop records are never in RocksDB here.",
    ),
    Unserved(
        range(200_070, 200_080),
        "LITE topics",
        "`LITE` consumers of RocketMQ 5.5 (gRPC and remoting). They read light queues, which are "
        "served: a consumer that knows their names can pull them.",
    ),
)
