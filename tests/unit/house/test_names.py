"""Names that are defined twice, or say nothing."""

from pathlib import Path

from tests.house import names
from tests.support.small_house import house


def test_a_name_is_repeated_with_an_underscore_as_well(tmp_path: Path) -> None:
    tree = house(
        tmp_path,
        broker__a="class Record: ...\nclass Once: ...\n",
        client__b="def f():\n    class _Record: ...\n",
    )
    assert list(names.repeated_class_names(tree)) == ["Record: broker/a.py:1, client/b.py:2"]


def test_methods_of_classes_count_and_functions_and_calls_do_not(tmp_path: Path) -> None:
    text = "class A:\n    async def take(self): ...\n\ndef take(): A().take()\n"
    tree = house(tmp_path, broker__a=text)
    assert list(names.classes_with_method(tree, "take")) == ["broker/a.py:1 A.take"]
