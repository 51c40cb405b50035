"""What replay is asked for: where messages go, as the command line spells it."""

import pytest

from rockhopper.pipeline.jobs.replaying.options import ReplayOptions
from tests.support.called_jobs import call


@pytest.mark.parametrize(
    ("flags", "to"),
    [
        ([], None),
        (["--to", "copy"], "copy"),
        (["--to", "a=b"], {"a": "b"}),
        (["--to", "a=b", "--to", "c=d=e"], {"a": "b", "c": "d=e"}),
    ],
)
def test_messages_go_to_one_topic_or_each_to_its_own(
    flags: list[str], to: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    result, asked = call(monkeypatch, "replay", "history", "--yes", *flags)
    assert result.exit_code == 0, result.output
    assert asked["to"] == to


def test_one_topic_for_all_goes_with_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    result, asked = call(monkeypatch, "replay", "x", "--yes", "--to", "a", "--to", "b=c")
    assert (result.exit_code, asked) == (2, {})
    assert "--to a sends everything there, so it goes with no other --to" in result.stderr


def test_who_calls_it_names_the_name_service() -> None:
    with pytest.raises(TypeError, match="nameserver"):
        ReplayOptions("history")  # type: ignore[call-arg]
