"""Decompresses the bodies that producers compressed; compresses with zlib.

The broker stores a compressed body unchanged, and readers decompress it. Every client supports zlib
streams (RFC 1950), and Rockhopper writes these. LZ4 (frame format) and Zstandard, which Java
clients may be configured to use, need the packages of the extra ``compression``. Decompression
stops at a limit, so a small body cannot exhaust the memory.
"""

import zlib
from collections.abc import Callable
from typing import Protocol

from rockhopper.protocol.errors import CompressionError
from rockhopper.protocol.sys_flags import (
    COMPRESSION_LZ4,
    COMPRESSION_ZLIB,
    COMPRESSION_ZSTD,
    compression_type,
)

# RocketMQ's clients compress from this size on, at this level.
COMPRESS_FROM_BYTES = 4096
ZLIB_LEVEL = 5
DECOMPRESSED_SIZE_BYTES_MAX = 64 * 1024 * 1024


class _Decompressor(Protocol):
    @property
    def eof(self) -> bool: ...


def compress_zlib(data: bytes, level: int = ZLIB_LEVEL) -> bytes:
    """Return *data* as a zlib stream, for a message with the flags COMPRESSED and zlib's type."""
    return zlib.compress(data, level)


def decompress(
    data: bytes, sys_flag: int, size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX
) -> bytes:
    """Decompress *data* by the compression type in *sys_flag*.

    Raises:
        CompressionError: *data* is damaged or of an unknown type, becomes larger than
            *size_bytes_max*, or needs a package that is not installed.
    """
    kind = compression_type(sys_flag)
    decode = _DECODERS.get(kind)
    if decode is None:
        raise CompressionError(f"unknown compression type {kind}: expected 1, 2 or 3")
    return decode(data, size_bytes_max)


def _decompress_zlib(data: bytes, size_bytes_max: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        body = decompressor.decompress(data, size_bytes_max + 1)
    except zlib.error as error:
        raise CompressionError(f"the body is not a zlib stream: {error}") from None
    _check("zlib", len(body), size_bytes_max, decompressor)
    return body


def _decompress_lz4(data: bytes, size_bytes_max: int) -> bytes:
    try:
        from lz4 import frame  # type: ignore[import-untyped]
    except ImportError:
        raise CompressionError(_missing("LZ4")) from None
    decompressor = frame.LZ4FrameDecompressor()
    try:
        body: bytes = decompressor.decompress(data, size_bytes_max + 1)
    except (RuntimeError, EOFError, ValueError) as error:
        raise CompressionError(f"the body is not an LZ4 frame: {error}") from None
    _check("LZ4", len(body), size_bytes_max, decompressor)
    return body


def _decompress_zstd(data: bytes, size_bytes_max: int) -> bytes:
    try:
        import zstandard
    except ImportError:
        raise CompressionError(_missing("Zstandard")) from None
    decompressor = zstandard.ZstdDecompressor(max_window_size=1 << 27)
    try:
        body = decompressor.stream_reader(data).read(size_bytes_max + 1)
        if len(body) <= size_bytes_max:
            # The reader returns a truncated frame as a short one. Only this object detects it, but
            # has no limit, so it is used only after the size was checked.
            whole = decompressor.decompressobj()
            whole.decompress(data)
            _check("Zstandard", len(body), size_bytes_max, whole)
    except zstandard.ZstdError as error:
        raise CompressionError(f"the body is not a Zstandard frame: {error}") from None
    if len(body) > size_bytes_max:
        raise CompressionError(_too_large(size_bytes_max))
    return body


def _check(name: str, size: int, size_bytes_max: int, decompressor: _Decompressor) -> None:
    if size > size_bytes_max:
        raise CompressionError(_too_large(size_bytes_max))
    if not decompressor.eof:
        raise CompressionError(f"the body is a {name} stream that ends early")


def _too_large(size_bytes_max: int) -> str:
    return f"the body becomes larger than {size_bytes_max} bytes when decompressed"


def _missing(name: str) -> str:
    return (
        f"the body is compressed with {name}, and the package that reads it is not installed: "
        "pip install 'rockhopper-mq[compression]'"
    )


_DECODERS: dict[int, Callable[[bytes, int], bytes]] = {
    0: _decompress_zlib,  # clients older than the type bits
    COMPRESSION_LZ4: _decompress_lz4,
    COMPRESSION_ZSTD: _decompress_zstd,
    COMPRESSION_ZLIB: _decompress_zlib,
}
