"""Places of settings, and mistakes found one after the other."""

from pathlib import Path

import pytest

from rockhopper.broker.settings.config_layers import Layer, Mistakes, file_layer, place_of
from rockhopper.broker.settings.setting_fields import SettingError


def test_the_last_line_of_a_key_counts_and_a_joined_one_begins_where_it_begins(
    tmp_path: Path,
) -> None:
    path = tmp_path / "broker.conf"
    path.write_text("a=1\n\nb=x\\\n  y\na=2\n")
    layer = file_layer(path)
    assert layer.texts == {"a": "2", "b": "xy"}
    assert layer.places == {"a": f"{path}:5", "b": f"{path}:3"}
    (repeated,) = layer.repeated
    assert str(repeated).startswith(f"{path}:1: setting a=1: it is ignored, because a is set ag")
    assert f" at {path}:5: " in str(repeated)


@pytest.mark.parametrize("key", ["tls.server.keyPassword", "tlsKeyPassword"])
def test_a_secret_that_comes_twice_is_not_shown(key: str) -> None:
    layer = Layer()
    for place in ("here", "there"):
        layer.set(key, "s3cret", place)
    assert "s3cret" not in str(layer.repeated[0])


def test_a_later_layer_and_our_own_spelling_are_the_place() -> None:
    first, second = Layer(), Layer()
    first.set("theirs", "1", "first")
    second.set("ours", "1", "second")
    assert place_of("ours", [first, Layer()], {"theirs": "ours"}) == "first"
    assert place_of("ours", [first, second], {"theirs": "ours"}) == "second"
    assert place_of("other", [first, second], {}) is None


def refusing(texts: dict[str, str]) -> int:
    for key in ("a", "b"):
        if texts.get(key) == "bad":
            raise SettingError(key, "bad", "good is allowed")
    if "a" not in texts:
        raise SettingError("c", None, "c needs a")
    return len(texts)


def test_what_follows_from_a_mistake_is_none() -> None:
    mistakes = Mistakes()
    mistakes.attempt(refusing, {"a": "bad", "b": "bad", "c": "x"})
    assert [each.key for each in mistakes.found] == ["a", "b"]
    alone = Mistakes()
    assert alone.attempt(refusing, {"b": "good"}) is None
    assert [each.key for each in alone.found] == ["c"]
    with pytest.raises(SettingError, match=r"^there: setting c="):
        alone.raise_all(lambda key: "there")
