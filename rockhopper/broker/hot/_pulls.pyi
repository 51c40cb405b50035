from mmap import mmap

from rockhopper.broker.hot.plain_pulls import Readable, Taken
from rockhopper.protocol.frame import Frame

def take_pulls(
    frames: list[Frame],
    first: int,
    readable: dict[bytes, Readable],
    pieces: tuple[bytes, ...],
    limits: tuple[int, int, int, int],
    answers_size_max: int,
    log: mmap | bytes,
    base_offset: int,
    end_offset: int,
    unchecked_from: int,
    may_park: bool,
    /,
) -> Taken: ...
