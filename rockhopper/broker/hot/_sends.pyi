from rockhopper.broker.hot.plain_sends import Common, Counted, Sendable, Taken
from rockhopper.broker.observing.stats import Traffic
from rockhopper.broker.store.queues.queue_tail import QueueTail, Run
from rockhopper.protocol.frame import Frame

def take_sends(
    frames: list[Frame],
    first: int,
    sendable: Sendable,
    common: Common,
    born_host: bytes,
    log_offset: int,
    room_end: int,
    store_time_ms: int,
    /,
) -> Taken | str | None: ...
def set_classes(run: type[Run], tail: type[QueueTail], traffic: type[Traffic], /) -> None: ...
def count_up(counted: Counted, /) -> None: ...
