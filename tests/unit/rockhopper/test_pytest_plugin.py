"""What the pytest plugin makes of an ini file and of marks."""

from typing import cast

import pytest

from rockhopper.pytest_plugin import _ini_settings, _marked_settings


class Given:
    """Stands for pytest's configuration and for a test."""

    def __init__(self, lines: list[str] | None = None, marks: list[pytest.Mark] | None = None):
        self._lines = lines or []
        self._marks = marks or []

    def getini(self, _name: str) -> list[str]:
        return self._lines

    def iter_markers(self, _name: str) -> list[pytest.Mark]:
        return self._marks


def ini(*lines: str) -> dict[str, object]:
    return _ini_settings(cast("pytest.Config", Given(list(lines))))


def marked(*marks: pytest.MarkDecorator) -> dict[str, object]:
    return _marked_settings(cast("pytest.Item", Given(marks=[each.mark for each in marks])))


def test_lines_are_settings() -> None:
    assert ini("autoCreateTopic = off", "brokerName=b=c") == {
        "autoCreateTopic": "off",
        "brokerName": "b=c",
    }


def test_a_line_that_is_none_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="must look like key = value"):
        ini("no setting")


def test_the_nearest_mark_wins() -> None:
    mark = pytest.mark.rockhopper
    nearest, far = mark(settings={"a": 1}), mark(settings={"a": 2, "b": 3})
    assert marked(nearest, far) == {"a": 1, "b": 3}
    assert marked() == {}


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.mark.rockhopper("a=1"),
        pytest.mark.rockhopper(settings="a=1"),
        pytest.mark.rockhopper(setting={"a": 1}),
        pytest.mark.rockhopper(),
    ],
)
def test_a_mark_without_a_mapping_is_refused(wrong: pytest.MarkDecorator) -> None:
    with pytest.raises(pytest.UsageError, match="takes settings, a mapping"):
        marked(wrong)
