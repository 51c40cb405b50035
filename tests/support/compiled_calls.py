"""The calls of compiled functions that the fuzzer's targets make, to make them again."""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any, NamedTuple

from tests.fuzz import appended_runs, grpc_sends, http2_twins, targets
from tests.fuzz.seeds import SEEDS


class Call(NamedTuple):
    """One call; it may be made again and again."""

    function: Callable[..., Any]
    args: tuple[Any, ...]

    def repeat(self) -> None:
        """Call the function with the same arguments; the error is as expected as the result."""
        with suppress(TypeError, ValueError, OverflowError):
            self.function(*copy_arguments(self.args))


class _Recorder:
    """A module whose functions are recorded when they are called."""

    def __init__(self, module: Any, calls: list[Call]) -> None:
        self._module, self._calls = module, calls

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._module, name)

        def record(*args: Any) -> Any:
            self._calls.append(Call(function, copy_arguments(args)))
            return function(*args)

        return record


def copy_arguments(value: Any) -> Any:
    """Copy what a call, or a target after it, changes."""
    if type(value) in (list, tuple):
        return type(value)(map(copy_arguments, value))
    return bytearray(value) if type(value) is bytearray else value


@contextmanager
def _recording(calls: list[Call]) -> Iterator[None]:
    places = [
        (module, name)
        for module in (targets, appended_runs, grpc_sends, http2_twins)
        for name, value in vars(module).items()
        if isinstance(value, ModuleType) and name.startswith("_")
    ]
    real = [getattr(*place) for place in places]
    for (module, name), compiled in zip(places, real, strict=True):
        setattr(module, name, _Recorder(compiled, calls))
    try:
        yield
    finally:
        for (module, name), compiled in zip(places, real, strict=True):
            setattr(module, name, compiled)


def record_calls(mutations: int) -> list[Call]:
    """Return the calls of all targets for their seeds, and for *mutations* of each."""
    calls: list[Call] = []
    generator = random.Random(1)
    with _recording(calls):
        for seed in SEEDS:
            targets.run(seed)
            for _ in range(mutations):
                targets.run(_mutate(seed, generator))
    return calls


def _mutate(seed: bytes, generator: random.Random) -> bytes:
    """Damage a seed behind the byte that chooses its target: bytes, or where it ends."""
    damaged = bytearray(seed)
    for _ in range(generator.randint(1, 3)):
        damaged[generator.randrange(1, len(seed))] = generator.choice(
            (0, 1, 0x22, 0x2C, 0x5C, 0x7B, 0x7F, 0xFF, generator.randrange(256))
        )
    if generator.random() < 0.3:
        del damaged[generator.randrange(2, len(seed)) :]
    return bytes(damaged)
