"""The Huffman code of header texts (RFC 7541, appendix B).

The code is canonical: symbols of the same length have consecutive codes in the order of their
values, and shorter codes come before longer ones. So the lengths define the whole code: those of
the 256 octets, and that of the end of a string, which must not occur in a text. The decoder reads
four bits per step and has one state per inner node of the tree.
"""

from rockhopper.protocol.http2.errors import HeaderCompressionError

# The length of each symbol's code in bits, one octet each; the end of a string is last.
CODE_LENGTHS = bytes.fromhex(
    "0d171c1c1c1c1c1c1c181e1c1c1e1c1c1c1c1c1c1c1c1e1c1c1c1c1c1c1c1c1c060a0a0c0d06080b0a0a080b"
    "080606060505050606060606060607080f060c0a0d0607070707070707070707070707070707070707070707"
    "0807080d130d0e060f05060506050606060507070606060506070605050607070707070f0b0e0d1c14161414"
    "1616161716171717171718171818161718171717171516171617171816151416161717151716161815161717"
    "151516151716171714161616171616171a1a1413161716191a1a1a1b1b1a181913151a1b1b1a1b1815151a1a"
    "1c1b1b1b14181415161515171616191918181a171a1b1a1a1b1b1b1b1b1c1b1b1b1b1b1a1e"
)
_END_OF_STRING = 256
_STEP_BITS = 4

_Node = list["_Node | int | None"]
# The result of a step: the next state, the completed octet (−1 for none), and whether a text may
# end there.
_Steps = list[tuple[int, int, bool]]


def _codes() -> list[tuple[int, int]]:
    """Return (code, length in bits) of each symbol."""
    found = [(0, 0)] * len(CODE_LENGTHS)
    code = length = 0
    for symbol in sorted(
        range(len(CODE_LENGTHS)), key=lambda symbol: (CODE_LENGTHS[symbol], symbol)
    ):
        code <<= CODE_LENGTHS[symbol] - length
        length = CODE_LENGTHS[symbol]
        found[symbol] = code, length
        code += 1
    return found


def _tree() -> tuple[list[_Node], set[int]]:
    """Return the inner nodes, root first, and the numbers of those that padding alone can reach."""
    root: _Node = [None, None]
    nodes = [root]
    for symbol, (code, length) in enumerate(_CODES):
        node = root
        for shift in range(length - 1, 0, -1):
            child = node[code >> shift & 1]
            if not isinstance(child, list):
                child = node[code >> shift & 1] = [None, None]
                nodes.append(child)
            node = child
        node[code & 1] = symbol
    padded, node = {0}, root
    numbers = {id(node): number for number, node in enumerate(nodes)}
    for _ in range(7):
        following = node[1]
        assert isinstance(following, list)
        node = following
        padded.add(numbers[id(node)])
    return nodes, padded


def _transitions() -> list[_Steps]:
    nodes, padded = _tree()
    numbers = {id(node): number for number, node in enumerate(nodes)}
    table = []
    for start in nodes:
        steps: _Steps = []
        for bits in range(1 << _STEP_BITS):
            node, octet = start, -1
            for shift in range(_STEP_BITS - 1, -1, -1):
                child = node[bits >> shift & 1]
                if isinstance(child, list):
                    node = child
                    continue
                # No code is shorter than a step, so at most one octet ends in it.
                octet = _END_OF_STRING if child is None else child
                node = nodes[0]
            state = numbers[id(node)]
            steps.append((state, octet, state in padded))
        table.append(steps)
    return table


_CODES = _codes()
_TRANSITIONS = _transitions()


def decode_huffman(data: bytes) -> bytes:
    """Decode a text. Raises HeaderCompressionError."""
    table, found = _TRANSITIONS, bytearray()
    state, may_end = 0, True
    try:
        for octet in data:
            state, symbol, _ = table[state][octet >> 4]
            if symbol >= 0:
                found.append(symbol)
            state, symbol, may_end = table[state][octet & 15]
            if symbol >= 0:
                found.append(symbol)
    except ValueError:
        raise HeaderCompressionError("a Huffman string contains EOS") from None
    if not may_end:
        raise HeaderCompressionError("a Huffman string is not padded with the start of EOS")
    return bytes(found)


def encode_huffman(text: bytes) -> bytes:
    """Encode a text, padded to whole octets."""
    bits = size = 0
    for octet in text:
        code, length = _CODES[octet]
        bits, size = bits << length | code, size + length
    padding = -size % 8
    return ((bits << padding) | ((1 << padding) - 1)).to_bytes((size + padding) // 8, "big")
