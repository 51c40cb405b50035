"""The options of a subscriber besides its topics: those of a Consumer."""

import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import TypedDict

from rockhopper.client.consuming.allocation import Allocation
from rockhopper.client.consuming.face.callbacks import QueuesCallback
from rockhopper.client.consuming.settings import StartFrom
from rockhopper.client.middleware.hooks import Middleware
from rockhopper.client.network.credentials import CredentialsChoice
from rockhopper.client.network.sharing import SharedConnections
from rockhopper.client.network.tls import Tls
from rockhopper.client.serializers import BadBody, Serializer


class ConsumerOptions(TypedDict, total=False):
    """The options of Consumer that an App does not set itself; see Consumer."""

    start_from: StartFrom
    broadcast: bool
    orderly: bool
    allocation: str | Allocation
    max_reconsume_times: int | None
    batch_size: int
    poll_s: float
    queue_count_max: int
    queue_bytes_max: int
    consumer_count_max: int
    consumer_bytes_max: int
    commit_interval_s: float
    suspend_s: float
    request_timeout_s: float
    close_timeout_s: float
    hand_over_s: float
    offsets_directory: Path | str | None
    deserializer: Serializer | None
    bad_body: BadBody
    on_assigned: QueuesCallback | None
    on_revoked: QueuesCallback | None
    trace: bool | str
    middleware: Iterable[Middleware]
    tls: Tls
    credentials: CredentialsChoice
    connections: SharedConnections | None


def check_options(names: Iterable[str]) -> None:
    """Raise TypeError for an unknown option of a subscriber."""
    known = ConsumerOptions.__annotations__
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise TypeError(f"a subscriber has no option {name!r}{hint}")
