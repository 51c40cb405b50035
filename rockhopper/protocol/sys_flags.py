"""The bits of a message's sysFlag (MessageSysFlag, CompressionType), a pull's, a topic's perm."""

SYS_FLAG_COMPRESSED = 0x1
SYS_FLAG_MULTI_TAGS = 0x2
SYS_FLAG_TRANSACTION_NONE = 0x0
SYS_FLAG_TRANSACTION_PREPARED = 0x4
SYS_FLAG_TRANSACTION_COMMIT = 0x8
SYS_FLAG_TRANSACTION_ROLLBACK = 0xC
SYS_FLAG_TRANSACTION_MASK = 0xC
SYS_FLAG_BORN_HOST_V6 = 0x10
SYS_FLAG_STORE_HOST_V6 = 0x20
SYS_FLAG_NEED_UNWRAP = 0x40
SYS_FLAG_INNER_BATCH = 0x80
SYS_FLAG_COMPRESSION_MASK = 0x700
SYS_FLAG_COMPRESSION_SHIFT = 8

COMPRESSION_LZ4 = 1
COMPRESSION_ZSTD = 2
COMPRESSION_ZLIB = 3
# The flags of a body compressed with zlib.
SYS_FLAG_COMPRESSED_ZLIB = SYS_FLAG_COMPRESSED | COMPRESSION_ZLIB << SYS_FLAG_COMPRESSION_SHIFT

PULL_FLAG_COMMIT_OFFSET = 0x1
PULL_FLAG_SUSPEND = 0x2
PULL_FLAG_SUBSCRIPTION = 0x4
PULL_FLAG_CLASS_FILTER = 0x8
PULL_FLAG_LITE_PULL = 0x10
PULL_FLAG_BROWSE = 0x1_0000
"""Rockhopper's: the reader only browses, so the read is not counted. RocketMQ ignores it."""

PERM_INHERIT = 0x1
PERM_WRITE = 0x2
PERM_READ = 0x4
PERM_MASK = PERM_INHERIT | PERM_WRITE | PERM_READ


def compression_type(sys_flag: int) -> int:
    """Return the compression type of a body; 0, from clients that do not set it, means zlib."""
    return (sys_flag & SYS_FLAG_COMPRESSION_MASK) >> SYS_FLAG_COMPRESSION_SHIFT


def transaction_type(sys_flag: int) -> int:
    """Return one of the SYS_FLAG_TRANSACTION numbers."""
    return sys_flag & SYS_FLAG_TRANSACTION_MASK
