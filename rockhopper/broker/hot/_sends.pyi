from typing import Any

from rockhopper.broker.hot.plain_sends import Common, Counted, Front, Signers
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.frame import Frame

def take_sends(
    fronts: list[Front],
    count_max: int,
    common: Common,
    id_start: bytes,
    id_number: int,
    log_offset: int,
    room_end: int,
    store_time_ms: int,
    /,
) -> tuple[Any, ...]: ...
def set_classes(run: type[Run], tail: type[QueueTail], traffic: type[Traffic], /) -> None: ...
def count_up(counted: Counted, /) -> None: ...
def make_key(secret: bytes, /) -> bytes: ...
def find_signer(frame: Frame, signers: Signers, /) -> str | None: ...
