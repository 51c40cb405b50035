"""Putting into the index what it lacks, from the records of the commit log.

Keys of a message: its unique key, then each piece of the property KEYS between blanks; none for a
transaction that was rolled back.
"""

from broker.store.index import MessageIndex
from broker.store.log_scan import Record
from protocol.java_hash import index_key_hash
from protocol.message_codec import SYS_FLAG_TRANSACTION_MASK, SYS_FLAG_TRANSACTION_ROLLBACK
from protocol.properties import PROPERTY_KEYS, PROPERTY_UNIQUE_KEY, decode_properties


def key_hashes(record: Record) -> list[int]:
    """The hashes under which a record stands in the index, in their order."""
    if record.sys_flag & SYS_FLAG_TRANSACTION_MASK == SYS_FLAG_TRANSACTION_ROLLBACK:
        return []
    properties = decode_properties(record.properties)
    keys = properties.get(PROPERTY_KEYS, "").split(" ")
    topic = record.topic.decode()
    unique_key = properties.get(PROPERTY_UNIQUE_KEY, "")
    return [index_key_hash(topic, key) for key in (unique_key, *keys) if key]


class IndexCatchUp:
    """Indexes records from where *index* ends."""

    def __init__(self, index: MessageIndex) -> None:
        self._index = index
        self.from_offset = index.end_commit_log_offset
        """Records in front of it are in the index."""
        self.put_count = 0

    def place(self, record: Record) -> None:
        """Index a record that is not in front of ``from_offset``.

        Raises:
            OSError: the index cannot grow.
        """
        hashes = key_hashes(record)
        if record.offset == self.from_offset:
            # Perhaps only some of this message's keys were put when the last run ended.
            for key_hash in self._index.hashes_at_end():
                if key_hash in hashes:
                    hashes.remove(key_hash)
        put = self._index.put
        for key_hash in hashes:
            put(key_hash, record.offset, record.store_time_ms)
        self.put_count += len(hashes)
