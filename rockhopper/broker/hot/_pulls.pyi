from mmap import mmap

from rockhopper.broker.hot.plain_pulls import Front, Taken

def take_pulls(
    fronts: list[Front],
    pieces: tuple[bytes, ...],
    limits: tuple[int, int, int, int],
    answers_size_max: int,
    log: mmap | bytes,
    base_offset: int,
    end_offset: int,
    unchecked_from: int,
    /,
) -> Taken: ...
