"""The layouts of consume queues, index files and the checkpoint; all integers big-endian, signed.

Consume queue unit, 20 bytes; file names are byte offsets, so a queue offset is a position / 20:

    offset  size  field
         0     8  commit log offset of the message
         8     4  size of its record in bytes
        12     8  tags code: Java's hash of the tags; in SCHEDULE_TOPIC_XXXX the time of delivery
                  in ms; at or below −2³¹−1 the address of a consume queue extension unit

Batch consume queue unit, 46 bytes; its queue offsets are not derived from its position:

         0     8  commit log offset
         8     4  size in bytes
        12     8  tags code
        20     8  store time in ms
        28     8  queue offset of the first message in the record
        36     2  number of messages in the record
        38     4  compacted offset, −1
        42     4  zeros

Index file: header of 40 bytes, then 4-byte slots, then 20-byte entries (entry 0 is never used):

         0     8  store time in ms of the first entry
         8     8  store time in ms of the last entry
        16     8  commit log offset of the first entry
        24     8  commit log offset of the last entry
        32     4  number of slots that are not empty
        36     4  number of the next free entry, from 1 on

    slot:  the number of the newest entry of its chain, 0 when empty
    entry: 0: 4 key hash, 4: 8 commit log offset, 12: 4 seconds since the header's first time,
           16: 4 number of the entry before it in the chain, 0 at the end

Checkpoint: five numbers at the start of a page of 4096 bytes, see broker/store/checkpoint.py.
"""

import struct

CONSUME_QUEUE_UNIT = struct.Struct(">qiq")
CONSUME_QUEUE_UNIT_SIZE_BYTES = 20
# Fills the first file of a queue up to its first offset (RocketMQ: preBlank).
BLANK_UNIT_SIZE = 0x7FFFFFFF
BLANK_UNIT = CONSUME_QUEUE_UNIT.pack(0, BLANK_UNIT_SIZE, 0)

BATCH_CONSUME_QUEUE_UNIT = struct.Struct(">qiqqqhii")
BATCH_CONSUME_QUEUE_UNIT_SIZE_BYTES = 46

INDEX_HEADER = struct.Struct(">qqqqii")
INDEX_SLOT = struct.Struct(">i")
INDEX_ENTRY = struct.Struct(">iqii")

CHECKPOINT = struct.Struct(">qqqqq")
