"""The bits of sysFlag, by the numbers of MessageSysFlag and CompressionType."""

import pytest

from rockhopper.protocol import sys_flags
from rockhopper.protocol.sys_flags import compression_type, transaction_type


@pytest.mark.parametrize(
    ("sys_flag", "compression", "transaction"),
    [
        (0, 0, 0),
        (0x001, 0, 0),
        (0x101, sys_flags.COMPRESSION_LZ4, 0),
        (0x201, sys_flags.COMPRESSION_ZSTD, 0),
        (0x301, sys_flags.COMPRESSION_ZLIB, 0),
        (0x304, sys_flags.COMPRESSION_ZLIB, sys_flags.SYS_FLAG_TRANSACTION_PREPARED),
        (0x00A, 0, sys_flags.SYS_FLAG_TRANSACTION_COMMIT),
        (0x83C, 0, sys_flags.SYS_FLAG_TRANSACTION_ROLLBACK),
    ],
)
def test_each_kind_has_bits_of_its_own(sys_flag: int, compression: int, transaction: int) -> None:
    assert compression_type(sys_flag) == compression
    assert transaction_type(sys_flag) == transaction


def test_a_sender_that_compresses_with_zlib_says_so() -> None:
    assert sys_flags.SYS_FLAG_COMPRESSED_ZLIB == 0x301
