"""`rockhopper broker` and `rockhopper cluster`."""

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from rockhopper.client.commands.output import (
    convert_facts,
    format_time,
    parse_numbers,
    print_table,
    write_json,
    write_line,
    write_note,
)
from rockhopper.client.commands.running import (
    Failure,
    choose_nameserver,
    nameserver_option,
    report,
    run,
)
from rockhopper.client.commands.screen.family import AliasedGroup
from rockhopper.client.commands.screen.watching import run_shown, watch_options
from rockhopper.client.commands.shell.completion import complete_brokers, complete_settings
from rockhopper.client.commands.shell.reachable_brokers import list_reachable
from rockhopper.client.network.addresses import BrokerAddress
from rockhopper.client.printable import make_printable
from rockhopper.protocol.bodies.topics import ACCESS, ROCKHOPPER_VERSION

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin
    from rockhopper.protocol.bodies.setting_facts import SettingFacts

_broker_option = click.option(
    "--broker",
    "-b",
    metavar="NAME|ADDRESS",
    shell_complete=complete_brokers,
    help="Only this broker; default: all masters.",
)


@click.group(cls=AliasedGroup)
def broker() -> None:
    """Show the state of brokers, and change their settings."""


@broker.command()
@_broker_option
@click.option("--all", "-a", "is_all", is_flag=True, help="All values that the broker reports.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per broker.")
@watch_options
@nameserver_option
def status(broker: str | None, is_all: bool, as_json: bool) -> None:
    """Show rates, offsets and disk use."""
    names = choose_nameserver()
    run_shown(lambda: _status(broker, is_all, as_json, names))


async def _status(name: str | None, is_all: bool, as_json: bool, nameserver: str | None) -> None:
    async with list_reachable(nameserver, broker=name) as admin:
        for index, target in enumerate(await admin.masters(name)):
            facts = await admin.broker_status(target.address)
            if as_json:
                write_json(
                    {"broker": target.name, "address": target.address, **convert_facts(facts)}
                )
                continue
            if index:
                write_line("")
            write_line(f"{target.name} at {target.address}")
            chosen = sorted(facts.items()) if is_all else _main_facts(facts)
            width = max((len(key) for key, _ in chosen), default=0)
            for key, value in chosen:
                write_line(f"  {key:<{width}}  {make_printable(value)}")


def _main_facts(facts: dict[str, str]) -> list[tuple[str, str]]:
    """Choose the facts that an operator needs first, with readable names."""
    return [
        ("version", _version(facts)),
        *([("open to", facts[ACCESS])] if ACCESS in facts else []),
        ("started", _time(facts.get("bootTimestamp"))),
        ("messages in", _count(facts.get("msgPutTotalTodayNow"))),
        ("messages out", _count(facts.get("msgGetTotalTodayNow"))),
        ("in per second", _rates(facts.get("putTps"))),
        ("out per second", _rates(facts.get("getTransferredTps"))),
        (
            "commit log",
            f"{_count(facts.get('commitLogMinOffset'))} to "
            f"{_count(facts.get('commitLogMaxOffset'))}",
        ),
        ("dispatch behind", f"{_count(facts.get('dispatchBehindBytes'))} bytes"),
        ("oldest message", _time(facts.get("earliestMessageTimeStamp"))),
        ("disk used", _percent(facts.get("commitLogDiskRatio"))),
    ]


def _version(facts: dict[str, str], name: str = "Rockhopper ") -> str:
    """Return the broker's RocketMQ version, and for a Rockhopper broker its own."""
    spoken = facts.get("brokerVersionDesc", "-")
    own = facts.get(ROCKHOPPER_VERSION)
    return spoken if own is None else f"{spoken} ({name}{own})"


def _count(text: str | None) -> str:
    return f"{int(text):,}" if text and text.lstrip("-").isdigit() else text or "-"


def _time(text: str | None) -> str:
    return format_time(int(text)) if text and text.lstrip("-").isdigit() else text or "-"


def _rates(text: str | None) -> str:
    numbers = parse_numbers(text)
    if len(numbers) != 3:
        return text or "-"
    last_10_s, last_minute, last_10_min = numbers
    return f"{last_10_s:,.1f} (10 s), {last_minute:,.1f} (1 min), {last_10_min:,.1f} (10 min)"


def _percent(text: str | None) -> str:
    numbers = parse_numbers(text)
    return f"{numbers[0] * 100:.0f} %" if numbers and numbers[0] >= 0 else "-"


@broker.command()
@click.argument(
    "settings",
    nargs=-1,
    metavar="[NAME | NAME=VALUE]...",
    shell_complete=complete_settings,
)
@_broker_option
@click.option(
    "--live", "only_live", is_flag=True, help="Only settings that change without a restart."
)
@click.option(
    "--changed", "only_changed", is_flag=True, help="Only settings that differ from their default."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per broker.")
@nameserver_option
def config(
    settings: tuple[str, ...],
    broker: str | None,
    only_live: bool,
    only_changed: bool,
    as_json: bool,
) -> None:
    """Show the settings, or change them while the broker runs.

    A change lasts until the broker's next start: write it into broker.conf to keep it. A broker
    applies all of the changes, or none if one of them needs a restart. If a name is unknown, no
    broker is changed.

    \b
    Examples:
      rockhopper broker config --changed
      rockhopper broker config flushDiskType
      rockhopper broker config fileReservedTime=48 flushDiskType=SYNC_FLUSH
      rockhopper broker config messageDelayLevel="1s 10s 1m 10m 1h"
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    changes = dict(text.split("=", 1) for text in settings if "=" in text)
    wanted = [text for text in settings if "=" not in text]
    if changes and wanted:
        raise click.UsageError("either show settings (NAME) or change them (NAME=VALUE)")

    choice = _SettingsChoice(wanted or list(changes), only_live, only_changed)
    run(_config(changes, choice, broker, as_json, choose_nameserver()))


@dataclass(frozen=True)
class _SettingsChoice:
    """The settings to show: the named ones, else those of a kind."""

    names: Sequence[str]
    only_live: bool
    only_changed: bool

    @property
    def is_choosy(self) -> bool:
        return self.only_live or self.only_changed

    def select(self, facts: "Sequence[SettingFacts]") -> "list[SettingFacts]":
        if self.names:
            known = {each.key: each for each in facts}
            return [known[name] for name in self.names]
        return [
            each
            for each in facts
            if (each.is_live or not self.only_live)
            and (each.value != each.default or not self.only_changed)
        ]


async def _config(
    changes: dict[str, str],
    choice: _SettingsChoice,
    name: str | None,
    as_json: bool,
    nameserver: str | None,
) -> None:
    async with list_reachable(nameserver, broker=name, changes=bool(changes)) as admin:
        targets = await admin.masters(name)
        found = await asyncio.gather(*(_settings(admin, each, choice) for each in targets))
        if changes:
            await _change(admin, targets, changes)
            await _tell_of_replicas(admin, targets)
            found = await asyncio.gather(*(_settings(admin, each, choice) for each in targets))
    for index, each in enumerate(found):
        chosen = choice.select(each.facts)
        if as_json:
            write_json(_settings_json(each.target, chosen, is_described=each.is_described))
            continue
        if len(targets) > 1:
            where = f"{each.target.name} at {each.target.address}"
            if index:
                write_line("")
            write_line(where)
        _print_settings(chosen, is_described=each.is_described, only_live=choice.only_live)


@dataclass(frozen=True)
class _Settings:
    """The settings of one broker."""

    target: BrokerAddress
    facts: "Sequence[SettingFacts]"
    is_described: bool


async def _settings(admin: "Admin", target: BrokerAddress, choice: _SettingsChoice) -> _Settings:
    described = await admin.describe_broker_config(target.address)
    if described is None and choice.is_choosy:
        raise Failure(f"{target.name} does not report which settings are live or not default")
    facts = described or await _list_undescribed(admin, target.address)
    _check_names(target.name, choice.names, [each.key for each in facts])
    return _Settings(target, facts, described is not None)


def _check_names(broker: str, names: Sequence[str], known: Sequence[str]) -> None:
    from rockhopper.client.admin.causes import find_nearest

    unknown = [name for name in names if name not in known]
    if unknown:
        near = [likely for name in unknown for likely in find_nearest(name, known)[:1]]
        meant = f": did you mean {' and '.join(near)}?" if near else ""
        raise Failure(f"{broker} has no setting {', '.join(unknown)}{meant}")


async def _change(
    admin: "Admin", targets: Sequence[BrokerAddress], changes: Mapping[str, str]
) -> None:
    """Change settings on one broker after the other.

    The names were checked before, because brokers accept unknown ones silently.
    """
    from rockhopper.client.errors import ClientError

    changed: list[str] = []
    for target in targets:
        try:
            await admin.update_broker_config(target.address, changes)
        except ClientError as error:
            if changed:
                error.add_note(f"before the failure it was changed on {', '.join(changed)}")
            raise
        changed.append(target.name)


async def _tell_of_replicas(admin: "Admin", targets: Sequence[BrokerAddress]) -> None:
    """Note that the change does not apply to a master's replicas, which accept no requests."""
    replicas = Counter(each.name for each in await admin.brokers() if not each.is_master)
    for target in targets:
        if count := replicas[target.name]:
            write_note(
                f"note: only the master of {target.name}, at {target.address}, is changed: "
                f"{'its replica goes' if count == 1 else f'its {count} replicas go'} by "
                "broker.conf after a failover, so write it into the broker.conf of each"
            )


async def _list_undescribed(admin: "Admin", address: str) -> "list[SettingFacts]":
    from rockhopper.protocol.bodies.setting_facts import SettingFacts

    settings = await admin.broker_config(address)
    return [
        SettingFacts(key, value, "", "", is_live=True, changed_since_start=False)
        for key, value in sorted(convert_facts(settings).items())
        if isinstance(value, (bool, int, str))
    ]


def _settings_json(
    target: BrokerAddress, facts: "Sequence[SettingFacts]", *, is_described: bool
) -> dict[str, Any]:
    settings: dict[str, Any] = {each.key: each.value for each in facts}
    if is_described:
        settings = {
            each.key: {
                "value": each.value,
                "default": each.default,
                "unit": each.unit or None,
                "live": each.is_live,
                "changedSinceStart": each.changed_since_start,
            }
            for each in facts
        }
    return {"broker": target.name, "address": target.address, "settings": settings}


def _print_settings(
    facts: "Sequence[SettingFacts]", *, is_described: bool, only_live: bool
) -> None:
    if not is_described:
        for each in facts:
            write_line(f"{each.key}={make_printable(str(each.value))}")
        return
    rows = [_setting_row(each) for each in facts]
    columns: tuple[str, ...] = ("SETTING", "VALUE", "UNIT", "CHANGES", "DEFAULT")
    is_any_changed = any(each.changed_since_start for each in facts)
    if only_live and not is_any_changed:  # "live" in every row is no information
        columns, rows = (*columns[:3], columns[4]), [(*row[:3], row[4]) for row in rows]
    print_table(columns, rows)
    if is_any_changed:
        write_line("live*: changed since the start; to keep it, write it into broker.conf")


def _setting_row(facts: "SettingFacts") -> tuple[str, ...]:
    default = "" if facts.value == facts.default else _setting_text(facts.default)
    return (facts.key, _setting_text(facts.value), facts.unit or "-", _changes(facts), default)


def _changes(facts: "SettingFacts") -> str:
    if facts.changed_since_start:
        return "live*"
    return "live" if facts.is_live else "restart"


def _setting_text(value: bool | int | str) -> str:
    """Format a value as in broker.conf."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if value != "" else '""'


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per broker.")
@watch_options
@nameserver_option
def cluster(as_json: bool) -> None:
    """List the brokers, and whether they answer."""
    names = choose_nameserver()
    run_shown(lambda: _cluster(as_json, names))


async def _cluster(as_json: bool, nameserver: str | None) -> None:
    from rockhopper.client.admin.admin import Admin

    async with Admin(nameserver) as admin:
        brokers, away = await asyncio.gather(admin.brokers(), admin.away())
        if not brokers:
            await admin.masters()  # raises an error that names the missing brokers
        answers = await asyncio.gather(*(_ask(admin, each) for each in brokers))
    failed = False
    rows: list[tuple[object, ...]] = []
    for each, (facts, problem) in zip(brokers, answers, strict=True):
        if as_json:
            write_json(_broker_json(each, facts, problem))
        rows.append(_broker_row(each, facts))
        if problem is not None:
            failed = True
            report(problem)
    if not as_json:
        version = "VERSION (OURS)"
        columns = ("CLUSTER", "BROKER", "ID", "ADDRESS", version, "IN/S", "OUT/S", "DISK")
        print_table(columns, rows)
    for who in away:
        report(f"not reachable: {who}")
    if failed:
        raise Failure("")


def _broker_json(
    broker: BrokerAddress, facts: dict[str, str], problem: str | None
) -> dict[str, Any]:
    return {
        "cluster": broker.cluster,
        "broker": broker.name,
        "id": broker.broker_id,
        "address": broker.address,
        "version": facts.get("brokerVersionDesc"),
        "rockhopperVersion": facts.get(ROCKHOPPER_VERSION),
        "putTps": _first_rate(facts, "putTps"),
        "getTps": _first_rate(facts, "getTransferredTps"),
        "commitLogDiskRatio": _first_rate(facts, "commitLogDiskRatio"),
        "error": problem,
    }


def _broker_row(broker: BrokerAddress, facts: dict[str, str]) -> tuple[object, ...]:
    return (
        broker.cluster,
        broker.name,
        broker.broker_id,
        broker.address,
        _version(facts, ""),
        f"{_first_rate(facts, 'putTps') or 0:,.1f}" if facts else "-",
        f"{_first_rate(facts, 'getTransferredTps') or 0:,.1f}" if facts else "-",
        _percent(facts.get("commitLogDiskRatio")),
    )


async def _ask(admin: "Admin", broker: BrokerAddress) -> tuple[dict[str, str], str | None]:
    from rockhopper.client.errors import ClientError

    try:
        return await admin.broker_status(broker.address), None
    except ClientError as error:
        return {}, str(error)


def _first_rate(facts: dict[str, str], key: str) -> float | None:
    numbers = parse_numbers(facts.get(key))
    return numbers[0] if numbers else None


broker.add_command(cluster, "list")
