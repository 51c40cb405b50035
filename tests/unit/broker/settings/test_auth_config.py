"""The settings of users: what makes no sense is refused, and no secret is shown."""

import pytest

from rockhopper.broker.settings.config_file import build_config, properties_of
from rockhopper.broker.settings.setting_fields import SettingError

USER = '{"username": "root", "password": "a secret of root"}'


def test_secrets_are_not_shown() -> None:
    config = build_config({"initAuthenticationUser": USER})
    assert config.auth.first_user is not None
    assert config.auth.first_user.secret == "a secret of root"
    assert properties_of(config)["initAuthenticationUser"] == "(set)"
    assert "a secret" not in f"{config!r}"


@pytest.mark.parametrize(
    "text", [USER[:-1], "{}", '{"username": "root", "password": ""}', "[]", '{"password": "hid"}']
)
def test_what_is_no_user_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(SettingError) as caught:
        build_config({"initAuthenticationUser": text})
    assert text[1:-1] == "" or text not in str(caught.value)


@pytest.mark.parametrize(
    "texts", [{"authorizationEnabled": "true"}, {"authenticationWhitelist": "105,all"}]
)
def test_what_makes_no_sense(texts: dict[str, str]) -> None:
    with pytest.raises(SettingError):
        build_config(texts)
