"""Encodes and decodes messages: records, batches, checks, ids."""

from rockhopper.protocol.addresses import host_bytes, host_text, ip_bytes, ip_text
from rockhopper.protocol.message_ids import (
    decode_offset_message_id,
    make_unique_id,
    offset_message_id,
)
from rockhopper.protocol.store.message_codec.batch import (
    BATCH_COUNT_MAX,
    BATCHED_SIZE_BYTES,
    INNER_BATCH_COUNT_MAX,
    decode_batch,
    decode_messages,
    encode_batch,
    list_inner_messages,
    unwrap_inner_batch,
)
from rockhopper.protocol.store.message_codec.plain_records import PlainRecord, split_plain_records
from rockhopper.protocol.store.message_codec.record import (
    BODY_CRC_MASK,
    body_crc,
    decode_message,
    encode_message,
    encode_stored_message,
)
from rockhopper.protocol.store.message_codec.record_check import (
    RecordCheck,
    RecordStatus,
    check_record,
)
from rockhopper.protocol.sys_flags import (
    SYS_FLAG_BORN_HOST_V6,
    SYS_FLAG_COMPRESSED,
    SYS_FLAG_COMPRESSED_ZLIB,
    SYS_FLAG_COMPRESSION_MASK,
    SYS_FLAG_INNER_BATCH,
    SYS_FLAG_MULTI_TAGS,
    SYS_FLAG_NEED_UNWRAP,
    SYS_FLAG_STORE_HOST_V6,
    SYS_FLAG_TRANSACTION_COMMIT,
    SYS_FLAG_TRANSACTION_MASK,
    SYS_FLAG_TRANSACTION_NONE,
    SYS_FLAG_TRANSACTION_PREPARED,
    SYS_FLAG_TRANSACTION_ROLLBACK,
    transaction_type,
)

__all__ = [
    "BATCHED_SIZE_BYTES",
    "BATCH_COUNT_MAX",
    "BODY_CRC_MASK",
    "INNER_BATCH_COUNT_MAX",
    "SYS_FLAG_BORN_HOST_V6",
    "SYS_FLAG_COMPRESSED",
    "SYS_FLAG_COMPRESSED_ZLIB",
    "SYS_FLAG_COMPRESSION_MASK",
    "SYS_FLAG_INNER_BATCH",
    "SYS_FLAG_MULTI_TAGS",
    "SYS_FLAG_NEED_UNWRAP",
    "SYS_FLAG_STORE_HOST_V6",
    "SYS_FLAG_TRANSACTION_COMMIT",
    "SYS_FLAG_TRANSACTION_MASK",
    "SYS_FLAG_TRANSACTION_NONE",
    "SYS_FLAG_TRANSACTION_PREPARED",
    "SYS_FLAG_TRANSACTION_ROLLBACK",
    "PlainRecord",
    "RecordCheck",
    "RecordStatus",
    "body_crc",
    "check_record",
    "decode_batch",
    "decode_message",
    "decode_messages",
    "decode_offset_message_id",
    "encode_batch",
    "encode_message",
    "encode_stored_message",
    "host_bytes",
    "host_text",
    "ip_bytes",
    "ip_text",
    "list_inner_messages",
    "make_unique_id",
    "offset_message_id",
    "split_plain_records",
    "transaction_type",
    "unwrap_inner_batch",
]
