"""What becomes of files on a disk that rots."""

from pathlib import Path


def overwrite(path: Path, position: int, data: bytes) -> bytes:
    """Put *data* into a file at *position*; what the file held before."""
    held = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    return held


def flip_bit(path: Path, position: int, bit: int = 0) -> bytes:
    """Turn one bit of the byte at *position*; what the file held before."""
    held = path.read_bytes()
    path.write_bytes(flipped(held, 8 * position + bit))
    return held


def flipped(data: bytes, bit: int) -> bytes:
    """*data* with one bit turned."""
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)
