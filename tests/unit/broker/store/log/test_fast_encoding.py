"""Which form of the encoder is used; that both give the same is tests/property's."""

import os
import subprocess
import sys
import zlib
from importlib.util import find_spec

import pytest

from rockhopper.broker.store.log import encoding, fast_encoding
from rockhopper.broker.store.log.fast_encoding import crc32

_NAMES = (
    "encode_plain",
    "encode_batch",
    "encode_run",
    "count_run",
    "message_ids",
    "put_entries",
    "put_timed_entries",
    "count_sound",
    "gather_sound",
)
_TWINS = {"encoding", "checking"}
_ASK = """
from rockhopper.protocol.compiled import extent
from rockhopper.broker.store.log import fast_encoding
for name in {names!r}:
    found = getattr(fast_encoding, name)
    print(name, getattr(found, "__module__", found))
print("extent", extent())
"""


def modules(pure: str) -> dict[str, str]:
    """Where the functions come from with ROCKHOPPER_PURE_PYTHON set so."""
    done = subprocess.run(
        [sys.executable, "-c", _ASK.format(names=_NAMES)],
        env={**os.environ, "ROCKHOPPER_PURE_PYTHON": pure},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split(maxsplit=1) for line in done.stdout.splitlines())


def test_the_compiled_form_can_be_turned_off() -> None:
    pure = modules("1")
    assert pure.pop("extent") == "none: slower; ROCKHOPPER_PURE_PYTHON=1 is set"
    assert {name.rpartition(".")[2] for name in pure.values()} == _TWINS


def test_it_is_all_of_one_form() -> None:
    found = modules("0")
    is_compiled = found.pop("extent") == "all"
    assert is_compiled == (find_spec("rockhopper.broker.store.log._encoding") is not None)
    expected = {"_encoding"} if is_compiled else _TWINS
    assert {name.rpartition(".")[2] for name in found.values()} == expected


def test_the_checksum_is_that_of_zlib_at_every_size() -> None:
    data = os.urandom(300)
    assert [crc32(data[:size]) for size in range(300)] == [
        zlib.crc32(data[:size]) for size in range(300)
    ]


@pytest.mark.skipif(fast_encoding.put_entries is encoding.put_entries, reason="it is not compiled")
@pytest.mark.parametrize("geometry", [(1 << 61, 60, 2), (5, (1 << 63) - 1, 2), (5, 60, 1 << 60)])
def test_entries_outside_the_index_file_are_refused(geometry: tuple[int, int, int]) -> None:
    file, key = bytearray(400), encoding.INDEX_KEY.pack(0, 4096)
    with pytest.raises(ValueError, match="do not fit"):
        fast_encoding.put_entries(file, *geometry, 17, key)
    assert file == bytes(400)
