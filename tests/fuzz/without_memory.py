"""Let the allocations of each compiled call fail: ``python -m tests.fuzz.without_memory``.

The calls are those of the fuzzer's seeds. In each, one allocation fails, or one and all that
follow, whichever it is. Then the call must raise MemoryError or leave the work to Python, and must
not keep anything. This needs a process of its own, because other threads would get the failures,
too. Exit code 1 names the calls that keep memory.
"""

import _testcapi  # type: ignore[import-not-found]  # CPython's own
import gc
import sys

from tests.support.compiled_calls import Call, copy_arguments, record_calls

SPARE = 8
"""A call has no more allocations if so many failures in a row do not reach it."""
KEPT_BLOCKS_MAX = 2
"""The interpreter keeps some itself, such as a cached exception."""


def fail_each(call: Call) -> int:
    """Make *call* with each of its allocations failing; return how many failures it raised."""
    raised, number, last = 0, 0, 0
    while number - last < SPARE:
        for end in (number + 1, 0):
            if _raises_without_memory(call, number, end):
                raised, last = raised + 1, number
        number += 1
    return raised


def _raises_without_memory(call: Call, begin: int, end: int) -> bool:
    """Make *call* while allocations from number *begin* to *end* fail, 0 for all that follow."""
    function, args = call.function, copy_arguments(call.args)
    _testcapi.set_nomemory(begin, end)
    try:
        function(*args)
    except MemoryError:
        return True
    except (TypeError, ValueError, OverflowError):
        return False
    finally:
        _testcapi.remove_mem_hooks()
    return False


def main() -> int:
    """Fail the allocations of all calls."""
    calls = record_calls(0)
    raised = kept = 0
    gc.collect()
    gc.freeze()
    for call in calls:
        fail_each(call)
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(3):
            raised += fail_each(call)
        gc.collect()
        blocks = sys.getallocatedblocks() - before
        if blocks > KEPT_BLOCKS_MAX:
            kept += 1
            print(f"{call.function.__name__} keeps {blocks} blocks: {call.args!r:.300}")
    print(f"{len(calls)} calls, {raised} failures, {kept} calls keep memory")
    return int(kept > 0 or raised < len(calls))


if __name__ == "__main__":
    sys.exit(main())
