from rockhopper.broker.hot.plain_sends import Common, Sendable, Taken
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
) -> Taken | None: ...
