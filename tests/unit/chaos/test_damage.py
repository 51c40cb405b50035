"""Damage lies where a file has something to lose, and follows from its seed."""

import random
from pathlib import Path

from tests.chaos.bit_rot import choose_damage, files_of

CONTENT = bytes(range(1, 200)) + bytes(5000)


def test_a_damage_changes_what_is_used_of_a_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "file"
    kinds = set()
    for seed in range(60):
        damage = choose_damage(CONTENT, random.Random(seed))
        assert str(damage) == str(choose_damage(CONTENT, random.Random(seed)))
        path.write_bytes(CONTENT)
        damage.do(path)
        damaged = path.read_bytes()
        kinds.add(damage.kind)
        assert damage.start < 199
        assert damaged[: damage.start] == CONTENT[: damage.start]
        assert damaged != CONTENT
    assert kinds == {"flip", "zeros", "garbage", "cut"}


def test_every_file_with_content_may_rot_but_the_lock(tmp_path: Path) -> None:
    for name in ("lock", "commitlog/0", "config/topics.json", "empty"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"" if name == "empty" else b"x")
    assert files_of(tmp_path) == [Path("commitlog/0"), Path("config/topics.json")]
