"""The consistent hash by which RocketMQ's proxy chooses the queue of a message group.

This is Guava's Hashing.consistentHash: if a queue is added, each group either stays or moves to the
new one. Its random numbers come from a linear congruential generator.
"""

_MULTIPLIER = 2_862_933_555_777_941_757
_MASK = (1 << 64) - 1


def consistent_hash(value: int, buckets: int) -> int:
    """Return the bucket of *value*, a Java int or long, among *buckets*."""
    state, candidate = value & _MASK, 0
    while True:
        state = (_MULTIPLIER * state + 1) & _MASK
        # A Java int: the highest 31 bits, with a sign that is never set.
        following = int((candidate + 1) / (((state >> 33) + 1) / 2.0**31))
        if not 0 <= following < buckets:
            return candidate
        candidate = following
