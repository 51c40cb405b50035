from mmap import mmap

from rockhopper.protocol.store.walking import Found

def walk_plain(
    data: mmap | bytes, position: int, end: int, base_offset: int, check_crc: bool, /
) -> Found: ...
def whole_end(data: mmap | bytes, position: int, end: int, /) -> int: ...
