"""Corrupt files, like a failing disk."""

from pathlib import Path


def overwrite(path: Path, position: int, data: bytes) -> bytes:
    """Write *data* into a file at *position*; return the old content of the file."""
    held = path.read_bytes()
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)
    return held


def flip_bit(path: Path, position: int, bit: int = 0) -> bytes:
    """Flip one bit of the byte at *position*; return the old content of the file."""
    held = path.read_bytes()
    path.write_bytes(flipped(held, 8 * position + bit))
    return held


def flipped(data: bytes, bit: int) -> bytes:
    """Return *data* with one bit flipped."""
    damaged = bytearray(data)
    damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)
