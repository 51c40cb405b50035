"""Bodies that Java clients compress are read with what the pipeline has anyway."""

import sys
import zlib
from collections.abc import Callable

import lz4.frame  # type: ignore[import-untyped]
import pytest
import zstandard

from rockhopper.pipeline.decoder.codecs import decompress
from rockhopper.protocol.errors import CompressionError

BODY = b"hello hello hello " * 1000
ZLIB, LZ4, ZSTD = 0x301, 0x101, 0x201
KINDS = [
    pytest.param(ZLIB, zlib.compress, id="zlib"),
    pytest.param(LZ4, lz4.frame.compress, id="lz4"),
    pytest.param(ZSTD, zstandard.compress, id="zstd"),
]

Compress = Callable[[bytes], bytes]


@pytest.fixture(autouse=True)
def _without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("lz4", "lz4.frame", "zstandard"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize(("sys_flag", "compress"), KINDS)
def test_reads_what_was_compressed(sys_flag: int, compress: Compress) -> None:
    assert decompress(compress(BODY), sys_flag, len(BODY)) == BODY
    assert decompress(compress(b""), sys_flag) == b""


@pytest.mark.parametrize(("sys_flag", "compress"), KINDS)
def test_a_bomb_is_refused_at_the_limit(sys_flag: int, compress: Compress) -> None:
    with pytest.raises(CompressionError, match="larger than 1000 bytes"):
        decompress(compress(bytes(5_000_000)), sys_flag, 1000)


@pytest.mark.parametrize(("sys_flag", "compress"), KINDS)
def test_what_ends_early_is_refused(sys_flag: int, compress: Compress) -> None:
    data = compress(bytes(range(256)) * 100)
    for size in (0, 1, len(data) // 2, len(data) - 1):
        with pytest.raises(CompressionError):
            decompress(data[:size], sys_flag)


@pytest.mark.parametrize("sys_flag", [ZLIB, LZ4, ZSTD])
def test_garbage_is_refused(sys_flag: int) -> None:
    with pytest.raises(CompressionError):
        decompress(b"this is not compressed", sys_flag)
