"""Java's ``String.hashCode``, by which RocketMQ filters tags and finds keys.

    h = 31·h + c  for every UTF-16 code unit c, in 32 bits

Bytecode for every character would cost microseconds a key, and every message has at least one that
was never seen before. But keys share parts: a client's unique keys all start alike and end in two
counters. So the hash of a string's front part, and of pieces of four characters, is remembered in
dictionaries of bounded size, and combined:

    hash(front + piece) = hash(front) · 31⁴ + hash(piece)   mod 2³²
"""

import struct

_MASK = 0xFFFFFFFF
_P4 = 31**4
_P8 = 31**8 & _MASK
_POWERS = tuple(pow(31, n, 2**32) for n in range(256))

_PIECES_MAX = 1 << 17
_FRONTS_MAX = 1 << 12
_SEEDS_MAX = 1 << 14

# Four characters -> hash; everything but the last eight characters of a key -> hash times 31⁸;
# topic -> hash of topic + "#".
_pieces: dict[str, int] = {}
_fronts: dict[str, int] = {}
_seeds: dict[str, int] = {}


def java_string_hash(text: str) -> int:
    """What ``text.hashCode()`` is in Java: a signed 32-bit number."""
    value = _hash(text)
    return value if value < 0x80000000 else value - 0x100000000


def index_key_hash(topic: str, key: str) -> int:
    """The hash under which an index file keeps *key* of *topic*: 0 to 2³¹−1."""
    try:
        seed = _seeds[topic]
    except KeyError:
        seed = index_key_seed(topic)
    return seeded_index_key_hash(seed, key)


def index_key_seed(topic: str) -> int:
    """What ``seeded_index_key_hash`` needs to know of a topic."""
    if len(_seeds) >= _SEEDS_MAX:
        _seeds.clear()
    seed = _seeds[topic] = _hash(topic + "#")
    return seed


def seeded_index_key_hash(seed: int, key: str) -> int:
    """``index_key_hash`` for the topic that *seed* was made of."""
    size = len(key)
    if 8 <= size < 256 and key.isascii():
        try:
            value = (
                seed * _POWERS[size]
                + _fronts[key[:-8]]
                + _pieces[key[-8:-4]] * _P4
                + _pieces[key[-4:]]
            ) & _MASK
        except KeyError:
            value = (seed * _POWERS[size] + _hash_ascii(key)) & _MASK
    else:
        value = (seed * pow(31, _unit_count(key), 2**32) + _hash(key)) & _MASK
    if value < 0x80000000:
        return value
    # Java: Math.abs, where the one number without an absolute value counts as 0.
    return 0x100000000 - value if value != 0x80000000 else 0


def _hash(text: str) -> int:
    if not text.isascii():
        return _hash_units(text)
    return _hash_ascii(text) if len(text) >= 8 else _fold(text.encode())


def _hash_ascii(text: str) -> int:
    """The hash of at least eight ASCII characters; remembers its parts."""
    front = text[:-8]
    value = _fronts.get(front)
    if value is None:
        value = _fold(front.encode()) * _P8 & _MASK
        if len(front) < 256:
            if len(_fronts) >= _FRONTS_MAX:
                _fronts.clear()
            _fronts[front] = value
    return (value + _hash_piece(text[-8:-4]) * _P4 + _hash_piece(text[-4:])) & _MASK


def _hash_piece(piece: str) -> int:
    """The hash of four ASCII characters; remembers it."""
    value = _pieces.get(piece)
    if value is None:
        if len(_pieces) >= _PIECES_MAX:
            _pieces.clear()
        value = _pieces[piece] = _fold(piece.encode())
    return value


def _fold(data: bytes) -> int:
    """The hash of ASCII characters, one by one."""
    value = 0
    for start in range(0, len(data), 64):
        # Masking at every step would take longer than the numbers of three words that come of this.
        for unit in data[start : start + 64]:
            value = value * 31 + unit
        value &= _MASK
    return value


def _hash_units(text: str) -> int:
    data = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(data) // 2}H", data):
        value = (value * 31 + unit) & _MASK
    return value


def _unit_count(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode("utf-16-be", "surrogatepass")) // 2
