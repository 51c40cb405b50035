"""Settings: those of each broker, which ones can change at runtime, and changing one."""

import ast
import asyncio
import inspect
import textwrap
import threading
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple

from rockhopper.broker.gateways.console.visit import Moved, TemplatePage, Visit, WrongInput
from rockhopper.broker.settings import setting_fields
from rockhopper.broker.settings.config_file import SETTING_PARTS
from rockhopper.broker.settings.live_settings import LIVE_PARTS
from rockhopper.broker.users.access import CLUSTER, Action
from rockhopper.broker.users.errors import NoPermission
from rockhopper.client.errors import RequestRefusedError

_PARSING = threading.Lock()
"""CPython 3.11 builds syntax trees in one thread at a time; two at once raise SystemError."""


class SettingRow(NamedTuple):
    """One setting of a broker."""

    key: str
    value: str
    default: str
    about: str
    is_live: bool

    @property
    def is_changed(self) -> bool:
        """Whether it differs from the default."""
        return bool(self.about) and self.value != self.default


class _SettingInfo(NamedTuple):
    default: str
    about: str
    is_live: bool


@lru_cache
def list_known() -> Mapping[str, _SettingInfo]:
    """Return what this version knows about each setting, by key."""
    found = {}
    for part in SETTING_PARTS:
        texts = _texts(part)
        for field, setting in setting_fields.settings_of(part):
            default = setting_fields.format_value(field.default, setting.separator)
            found[setting.key] = _SettingInfo(
                default, texts.get(field.name, ""), part in LIVE_PARTS
            )
    return found


def _texts(part: type) -> dict[str, str]:
    """Return the docstring of each field of a class."""
    with _PARSING:
        body = ast.parse(textwrap.dedent(inspect.getsource(part))).body[0]
    assert isinstance(body, ast.ClassDef)
    texts = {}
    for node, after in zip(body.body, body.body[1:], strict=False):
        match node, after:
            case ast.AnnAssign(target=ast.Name(name)), ast.Expr(value=ast.Constant(str() as text)):
                texts[name] = " ".join(text.replace("`", "").split())
    return texts


def _rows(settings: Mapping[str, str], wanted: str) -> Iterable[SettingRow]:
    nothing = _SettingInfo("", "", False)
    for key, value in sorted(settings.items(), key=lambda pair: pair[0].lower()):
        row = SettingRow(key, value, *list_known().get(key, nothing))
        if wanted.lower() in f"{row.key} {row.about}".lower():
            yield row


async def show(visit: Visit) -> TemplatePage:
    """Show the settings of one broker."""
    return await _form(visit, visit.query)


def _check_may_see(visit: Visit) -> None:
    if visit.closed or not visit.access.may(visit.principal, Action.ADMINISTER, CLUSTER):
        raise NoPermission(
            f"Settings are only shown on this host, but you are at {visit.principal.host}: set "
            "remoteAdmin=true on the broker to see them from elsewhere."
            if visit.access.is_open and not visit.closed
            else visit.why_not
        )


async def _form(visit: Visit, fields: Mapping[str, str], problem: str = "") -> TemplatePage:
    masters = await visit.admin.masters()
    chosen = fields.get("broker") or masters[0].name
    (broker,) = await visit.masters(chosen)
    _check_may_see(visit)
    wanted = fields.get("search", "").strip()
    await asyncio.to_thread(list_known)
    rows = list(_rows(await visit.admin.broker_config(broker.address), wanted))
    if fields.get("live"):
        rows = [row for row in rows if row.is_live]
    if fields.get("changed"):
        rows = [row for row in rows if row.is_changed]
    edited = fields.get("edit") or fields.get("key", "")
    values = {
        "fields": fields,
        "problem": problem,
        "refusal": visit.hindrance(Action.UPDATE, CLUSTER.name, CLUSTER.kind),
        "masters": masters,
        "broker": broker,
        "rows": rows,
        "wanted": wanted,
        "edited": next((row for row in rows if row.key == edited and row.is_live), None),
    }
    return TemplatePage("settings.html", values, 400 if problem else 200)


async def change(visit: Visit, form: Mapping[str, str]) -> Moved | TemplatePage:
    """Change a setting of one broker or all, until they restart.

    An invalid value is shown with its problem.
    """
    key, value = form.get("key", "").strip(), form.get("value", "").strip()
    broker = form.get("broker", "")
    entry = list_known().get(key)
    if entry is None or not entry.is_live:
        raise WrongInput(f"{key[:100]!r} is not a setting that can change while the broker runs")
    every = await visit.admin.masters()
    targets = every if form.get("everywhere") else await visit.masters(broker)
    changed: list[str] = []
    for target in targets:
        try:
            await visit.admin.update_broker_config(target.address, {key: value})
        except RequestRefusedError as error:
            if error.is_forbidden:
                raise
            problem = f"{target.name} refuses {key}={value[:100]}: {error.remark or error}"
            problem += f" (It was changed on {', '.join(changed)}.)" if changed else ""
            return await _form(visit, {**form, "search": key}, problem)
        changed.append(target.name)
    names = ", ".join(changed)
    return Moved(
        "settings",
        {"broker": broker},
        f"{key} is {value} on {names} until the next start; add it to broker.conf to keep it.",
    )
