"""Decompress bodies with the codecs of pyarrow, so reading needs no other package.

``protocol.compression``, which the client uses, supports only zlib without the extra
``compression``. The pipeline always has pyarrow, which brings LZ4 (frame format) and Zstandard.
"""

import pyarrow as pa

from rockhopper.protocol.compression import DECOMPRESSED_SIZE_BYTES_MAX
from rockhopper.protocol.compression import decompress as decompress_by_packages
from rockhopper.protocol.errors import CompressionError
from rockhopper.protocol.sys_flags import COMPRESSION_LZ4, COMPRESSION_ZSTD, compression_type

_CODECS = {COMPRESSION_LZ4: "lz4", COMPRESSION_ZSTD: "zstd"}


def decompress(
    data: bytes, sys_flag: int, size_bytes_max: int = DECOMPRESSED_SIZE_BYTES_MAX
) -> bytes:
    """Decompress *data*, with the compression type that *sys_flag* names.

    Raises:
        CompressionError: *data* is damaged, has an unknown type, or becomes larger than
            *size_bytes_max*.
    """
    codec = _CODECS.get(compression_type(sys_flag))
    if codec is None:
        return decompress_by_packages(data, sys_flag, size_bytes_max)
    if not data:
        raise CompressionError(f"the body is an {codec} frame that ends early")
    try:
        with pa.CompressedInputStream(pa.BufferReader(data), codec) as stream:
            body: bytes = stream.read(size_bytes_max + 1)
    except OSError as error:
        raise CompressionError(f"the body is not an {codec} frame: {error}") from None
    if len(body) > size_bytes_max:
        raise CompressionError(
            f"the body becomes larger than {size_bytes_max} bytes when decompressed"
        )
    return body
