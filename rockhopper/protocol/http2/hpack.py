"""Header blocks (RFC 7541): a decoder with a dynamic table, and an encoder without one.

A field of a block begins with

    1xxxxxxx    name and value are in a table, at index x
    01xxxxxx    a value follows, after a name if x is 0; both are added to the dynamic table
    001xxxxx    the dynamic table has x octets from now on; only at the beginning of a block
    000nxxxx    as 01, but is not added to a table

Numbers that do not fit into the remaining bits continue in the following octets, seven bits each,
lowest first. Texts are a length, whose highest bit marks Huffman's code, and octets.

Clients repeat most of their header texts in every request. So decoded texts are cached for the
whole process, except those that never repeat or must not be kept.
"""

from rockhopper.protocol.http2.errors import HeaderCompressionError
from rockhopper.protocol.http2.huffman import decode_huffman

Fields = list[tuple[str, str]]

TABLE_SIZE_BYTES = 4096
FIELDS_MAX = 128
LIST_SIZE_BYTES_MAX = 16 << 10
_ENTRY_OVERHEAD_BYTES = 32
# Up to this many fields are not measured: they have at most this many times the table's size.
_FIELDS_USUAL = 32
_NUMBER_OCTETS_MAX = 5
_TEXTS_REMEMBERED_MAX = 4096
_TEXT_REMEMBERED_BYTES_MAX = 256
_FORGOTTEN_VALUES = frozenset({"authorization", "x-mq-date-time", "x-mq-request-id"})

STATIC_TABLE: tuple[tuple[str, str], ...] = (
    ("", ""),
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
)
_STATIC_COUNT = len(STATIC_TABLE)
# The place of an entry, from the end of the list, is this minus its index.
_NEWEST = _STATIC_COUNT - 1

# Encoded octets of a text, behind the bit for Huffman's code -> the text.
_texts: dict[bytes, str] = {}


class HpackDecoder:
    """Decodes the header blocks of one connection, in the order of arrival."""

    __slots__ = ("entries", "size_bytes", "size_bytes_max")

    def __init__(self) -> None:
        # The newest is the last.
        self.entries: list[tuple[str, str]] = []
        self.size_bytes = 0
        self.size_bytes_max = TABLE_SIZE_BYTES

    def decode(self, block: bytes) -> Fields:
        """Return the fields of a whole block.

        Raises:
            HeaderCompressionError: the block is malformed or too long; no later one can be decoded.
        """
        fields: Fields = []
        entries, add = self.entries, fields.append
        position, end = 0, len(block)
        while position < end:
            octet = block[position]
            if octet >= 0x80:
                index = octet & 0x7F
                position += 1
                if index == 0:
                    raise HeaderCompressionError("no header field has index 0")
                if index < _STATIC_COUNT:
                    add(STATIC_TABLE[index])
                    continue
                if index == 0x7F:
                    index, position = _number(block, position, 0x7F)
                # The newest entry has the smallest index.
                try:
                    add(entries[_NEWEST - index])
                except IndexError:
                    raise HeaderCompressionError(f"no header field has index {index}") from None
            elif octet & 0xE0 == 0x20:
                position = self._resize(block, position, is_first=not fields)
            else:
                field, position = self._literal(block, position, octet)
                add(field)
        if len(fields) > _FIELDS_USUAL or end > LIST_SIZE_BYTES_MAX // 2:
            _check_size(fields)
        return fields

    def _literal(self, block: bytes, position: int, octet: int) -> tuple[tuple[str, str], int]:
        mask = 0x3F if octet & 0x40 else 0x0F
        index = octet & mask
        position += 1
        if index == mask:
            index, position = _number(block, position, mask)
        if index:
            name = self._entry(index)[0]
        else:
            name, position = _text(block, position, is_kept=True)
        value, position = _text(block, position, is_kept=name not in _FORGOTTEN_VALUES)
        field = name, value
        if octet & 0x40:
            self._add(field)
        return field, position

    def _entry(self, index: int) -> tuple[str, str]:
        if 0 < index < _STATIC_COUNT:
            return STATIC_TABLE[index]
        place = index - _STATIC_COUNT
        if index == 0 or place >= len(self.entries):
            raise HeaderCompressionError(f"no header field has index {index}")
        return self.entries[-1 - place]

    def _add(self, field: tuple[str, str]) -> None:
        name, value = field
        self.entries.append(field)
        self.size_bytes += len(name) + len(value) + _ENTRY_OVERHEAD_BYTES
        if self.size_bytes > self.size_bytes_max:
            self._evict()

    def _evict(self) -> None:
        count = 0
        for name, value in self.entries:
            if self.size_bytes <= self.size_bytes_max:
                break
            self.size_bytes -= len(name) + len(value) + _ENTRY_OVERHEAD_BYTES
            count += 1
        del self.entries[:count]

    def _resize(self, block: bytes, position: int, *, is_first: bool) -> int:
        if not is_first:
            raise HeaderCompressionError("the table is resized after a header field")
        size_bytes = block[position] & 0x1F
        position += 1
        if size_bytes == 0x1F:
            size_bytes, position = _number(block, position, 0x1F)
        if size_bytes > TABLE_SIZE_BYTES:
            raise HeaderCompressionError(
                f"the table has {size_bytes} octets; {TABLE_SIZE_BYTES} are allowed"
            )
        self.size_bytes_max = size_bytes
        self._evict()
        return position


def _check_size(fields: Fields) -> None:
    size_bytes = sum(len(name) + len(value) + _ENTRY_OVERHEAD_BYTES for name, value in fields)
    if len(fields) > FIELDS_MAX or size_bytes > LIST_SIZE_BYTES_MAX:
        raise HeaderCompressionError(
            f"{len(fields)} header fields of {size_bytes} octets; {FIELDS_MAX} of "
            f"{LIST_SIZE_BYTES_MAX} are allowed"
        )


def _number(block: bytes, position: int, value: int) -> tuple[int, int]:
    """Return a number that began with *value*, and the position after it."""
    for place in range(_NUMBER_OCTETS_MAX):
        if position >= len(block):
            break
        octet = block[position]
        position += 1
        value += (octet & 0x7F) << 7 * place
        if octet < 0x80:
            return value, position
    raise HeaderCompressionError("a number in a header block does not end")


def _text(block: bytes, position: int, *, is_kept: bool) -> tuple[str, int]:
    """Return a text, and the position after it."""
    if position >= len(block):
        raise HeaderCompressionError("a header block ends before a string")
    first = block[position]
    size = first & 0x7F
    begin = position + 1
    if size == 0x7F:
        size, begin = _number(block, begin, 0x7F)
    end = begin + size
    if end > len(block):
        raise HeaderCompressionError("a header block ends inside a string")
    raw = block[position:end]
    text = _texts.get(raw)
    if text is not None:
        return text, end
    octets = block[begin:end]
    text = (decode_huffman(octets) if first & 0x80 else octets).decode("latin-1")
    if is_kept and len(raw) <= _TEXT_REMEMBERED_BYTES_MAX:
        if len(_texts) >= _TEXTS_REMEMBERED_MAX:
            _texts.clear()
        _texts[raw] = text
    return text, end


def encode_fields(fields: Fields) -> bytes:
    """Return a block that adds nothing to the peer's table, so it can be cached and sent again."""
    block = bytearray()
    for name, value in fields:
        if (name, value) in STATIC_TABLE:
            block.append(0x80 | STATIC_TABLE.index((name, value)))
            continue
        block.append(0)
        for text in (name, value):
            octets = text.encode("latin-1")
            _put_number(block, len(octets), 0x7F)
            block += octets
    return bytes(block)


def _put_number(block: bytearray, value: int, mask: int) -> None:
    if value < mask:
        block.append(value)
        return
    block.append(mask)
    value -= mask
    while value >= 0x80:
        block.append(value & 0x7F | 0x80)
        value >>= 7
    block.append(value)
