"""Compressed bodies: what clients write is read, within a limit, or an error says why not."""

import builtins
import sys
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from rockhopper.protocol.compression import compress_zlib, decompress
from rockhopper.protocol.errors import CompressionError
from rockhopper.protocol.message import StoredMessage

BODY = b"hello hello hello " * 1000
ZLIB_OLD, LZ4, ZSTD, ZLIB = 0x1, 0x101, 0x201, 0x301


def compress_lz4(data: bytes) -> bytes:
    compressed: bytes = pytest.importorskip("lz4.frame").compress(data)
    return compressed


def compress_zstd(data: bytes) -> bytes:
    compressed: bytes = pytest.importorskip("zstandard").ZstdCompressor().compress(data)
    return compressed


def compress_zstd_stream(data: bytes) -> bytes:
    compressor = pytest.importorskip("zstandard").ZstdCompressor().compressobj()
    compressed: bytes = compressor.compress(data) + compressor.flush()
    return compressed


KINDS = [
    pytest.param(ZLIB_OLD, compress_zlib, id="zlib of old clients"),
    pytest.param(ZLIB, compress_zlib, id="zlib"),
    pytest.param(LZ4, compress_lz4, id="lz4"),
    pytest.param(ZSTD, compress_zstd, id="zstd"),
    pytest.param(ZSTD, compress_zstd_stream, id="zstd without its size"),
]


@pytest.mark.parametrize(("sys_flag", "compress"), KINDS)
def test_reads_what_was_compressed(sys_flag: int, compress: Callable[[bytes], bytes]) -> None:
    assert decompress(compress(BODY), sys_flag, len(BODY)) == BODY
    assert decompress(compress(b""), sys_flag) == b""


@pytest.mark.parametrize(("sys_flag", "compress"), KINDS)
def test_bomb_is_refused_at_the_limit(sys_flag: int, compress: Callable[[bytes], bytes]) -> None:
    bomb = compress(bytes(50_000_000))
    with pytest.raises(CompressionError, match="larger than 1000 bytes"):
        decompress(bomb, sys_flag, 1000)


@pytest.mark.parametrize(("sys_flag", "compress"), KINDS)
def test_body_that_ends_early_is_refused(sys_flag: int, compress: Callable[[bytes], bytes]) -> None:
    data = compress(bytes(range(256)) * 100)
    for size in (0, 1, len(data) // 2, len(data) - 1):
        with pytest.raises(CompressionError):
            decompress(data[:size], sys_flag)


@pytest.mark.parametrize("sys_flag", [ZLIB_OLD, LZ4, ZSTD, ZLIB])
def test_garbage_is_refused(sys_flag: int) -> None:
    with pytest.raises(CompressionError):
        decompress(b"this is not compressed", sys_flag)


@pytest.mark.parametrize("sys_flag", [0x401, 0x501, 0x601, 0x701])
def test_unknown_type_is_refused(sys_flag: int) -> None:
    with pytest.raises(CompressionError, match="unknown compression type"):
        decompress(b"", sys_flag)


@pytest.mark.parametrize(
    ("sys_flag", "modules"), [(LZ4, ("lz4", "lz4.frame")), (ZSTD, ("zstandard",))]
)
def test_missing_package_is_named(
    sys_flag: int, modules: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    real_import = builtins.__import__

    def import_without(name: str, *arguments: Any, **options: Any) -> Any:
        if name in modules:
            raise ImportError(name)
        return real_import(name, *arguments, **options)

    for module in modules:
        monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setattr(builtins, "__import__", import_without)
    with pytest.raises(CompressionError, match=r"pip install 'rockhopper-mq\[compression\]'"):
        decompress(b"", sys_flag)


def test_stored_message_gives_the_body_of_the_application() -> None:
    message = StoredMessage("T", 0, 0, 0, zlib.compress(BODY), sys_flag=ZLIB)
    assert message.decompressed_body() == BODY
    with pytest.raises(CompressionError):
        message.decompressed_body(size_bytes_max=10)
