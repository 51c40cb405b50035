"""Java's ``String.hashCode``, by which RocketMQ filters tags and finds keys.

    h = 31·h + c  for every UTF-16 code unit c, in 32 bits

Python bytecode for each character would cost microseconds per key, and every message has at least
one new key. But keys share parts: a client's unique keys start alike and end in two counters. So
the hashes of a string's front part, and of pieces of four characters, are cached in dictionaries of
bounded size, and combined:

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

# Four characters -> hash; all but the last eight characters of a key -> hash times 31⁸; topic ->
# hash of topic + "#".
_pieces: dict[str, int] = {}
_fronts: dict[str, int] = {}
_seeds: dict[str, int] = {}


def java_string_hash(text: str) -> int:
    """Return ``text.hashCode()`` of Java: a signed 32-bit number."""
    value = _hash(text)
    return value if value < 0x80000000 else value - 0x100000000


def index_key_hash(topic: str, key: str) -> int:
    """Return the hash of *key* of *topic* in an index file: 0 to 2³¹−1."""
    try:
        seed = _seeds[topic]
    except KeyError:
        seed = index_key_seed(topic)
    return hash_index_key_seeded(seed, key)


def index_key_seed(topic: str) -> int:
    """Return the seed of a topic for ``hash_index_key_seeded``."""
    if len(_seeds) >= _SEEDS_MAX:
        _seeds.clear()
    seed = _seeds[topic] = _hash(topic + "#")
    return seed


def hash_index_key_seeded(seed: int, key: str) -> int:
    """Return ``index_key_hash`` for the topic of *seed*."""
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
    # Java: Math.abs, but the one number without an absolute value becomes 0.
    return 0x100000000 - value if value != 0x80000000 else 0


def _hash(text: str) -> int:
    if not text.isascii():
        return _hash_units(text)
    return _hash_ascii(text) if len(text) >= 8 else _fold(text.encode())


def _hash_ascii(text: str) -> int:
    """Return the hash of at least eight ASCII characters; caches its parts."""
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
    """Return the hash of four ASCII characters; caches it."""
    value = _pieces.get(piece)
    if value is None:
        if len(_pieces) >= _PIECES_MAX:
            _pieces.clear()
        value = _pieces[piece] = _fold(piece.encode())
    return value


def _fold(data: bytes) -> int:
    """Return the hash of ASCII characters, computed one by one."""
    value = 0
    for start in range(0, len(data), 64):
        # Masking at every step would cost more than these numbers of three words.
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
