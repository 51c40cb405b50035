"""The command ``rockhopper-broker``: serve until a signal says stop.

Exit codes: 0 after SIGTERM, SIGINT or SIGHUP, 1 when the broker cannot start or the store fails, 2
when a setting or an option is invalid. An error is one line on standard error.
"""

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, NoReturn, Protocol

# structlog would import rich, for tracebacks that this process prints plainly: a tenth of the time
# that it takes to start, and of its memory.
if "rich" not in sys.modules:
    sys.modules["rich"] = None  # type: ignore[assignment]
    import structlog

    del sys.modules["rich"]

import click
import structlog

from rockhopper.broker.observing import log as logging
from rockhopper.broker.server.loop.garbage import ShortCollections
from rockhopper.broker.server.loop.systems import (
    ServiceManager,
    keep_freed_memory,
    refusal,
    shortcomings,
)
from rockhopper.broker.server.remoting.limits import raise_open_files_limit
from rockhopper.broker.server.remoting.startup import (
    StartError,
    find_expired_certificates,
    foreseen,
)
from rockhopper.broker.settings.broker_config import BrokerConfig, Role
from rockhopper.broker.settings.config_file import (
    LoadedConfig,
    load_config,
    parts_of,
    properties_of,
)
from rockhopper.broker.settings.rocketmq_keys import WITHOUT_EFFECT
from rockhopper.broker.settings.setting_fields import SettingError, settings_of
from rockhopper.broker.settings.store_modes import use_umask
from rockhopper.broker.supervising.broker_process import Parent
from rockhopper.starting import resume_collections
from rockhopper.streams import use_standard_streams
from rockhopper.tasks import start_request
from rockhopper.version import own_version

log = structlog.get_logger("broker.main")

THREAD_TURN_S = 0.0005
FREEZE_AFTER_S = 1.0


class Service(Protocol):
    """A broker, or a name server alone."""

    failed: asyncio.Event

    def prepare(self) -> None:
        """Take the ports, so that their addresses are known. Raises StartError."""

    async def start(self) -> None:
        """Serve. Raises StartError."""

    async def announce(self) -> None:
        """Return when other name servers know this broker."""

    async def stop(self) -> None:
        """Close everything. Raises OSError."""

    def hurry(self) -> None:
        """Make ``stop`` wait for no more clients."""

    def facts(self) -> dict[str, str]:
        """Return the fields of the first log line."""

    def outcome(self) -> dict[str, int]:
        """Return the fields of the last log line, after ``stop``."""


class _BrokerCommand(click.Group):
    """Serves without a subcommand; imports a subcommand only when it is used."""

    def main(self, *args: Any, **options: Any) -> Any:
        with use_standard_streams("rockhopper-broker"):
            return super().main(*args, **options)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [] if refusal() else ["store"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name != "store":
            return None
        if reason := refusal():
            raise click.ClickException(reason)
        from rockhopper.broker.tools.repair.commands import store

        return store


def _complete_setting(_context: object, _parameter: object, incomplete: str) -> list[str]:
    key, equals, _ = incomplete.partition("=")
    settings = {
        known.key: getattr(part, field.name)
        for part in parts_of(BrokerConfig())
        for field, known in settings_of(part)
    }
    found = [f"{name}=" for name in sorted(settings)]
    if equals:
        value = settings.get(key)
        of_type = ["true", "false"] if isinstance(value, bool) else []
        choices = [each.value for each in type(value)] if isinstance(value, Enum) else of_type
        found = [f"{key}={choice}" for choice in choices]
    return [each for each in found if each.startswith(incomplete)]


@click.group(
    cls=_BrokerCommand,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    subcommand_metavar="[store COMMAND …]",
)
@click.option(
    "-c",
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    help="A broker.conf with RocketMQ's keys.",
)
@click.version_option(own_version(), prog_name="rockhopper-broker")
@click.option(
    "-n",
    "--namesrv-addr",
    metavar="HOST:PORT;…",
    help="Also register with these name servers, host:port with ; between.",
)
@click.option("--store", metavar="DIRECTORY", help="The store directory (storePathRootDir).")
@click.option("--name", metavar="NAME", help="The broker's name (brokerName).")
@click.option(
    "--brokers", metavar="N", help="Number of brokers to run side by side; 0: one for each core."
)
@click.option("--bind-address", metavar="HOST", help="Address on which the ports listen.")
@click.option("--listen-port", metavar="PORT", help="Port of the broker; 0 picks a free one.")
@click.option("--namesrv-port", metavar="PORT", help="Port of the embedded name server.")
@click.option(
    "--http-port", metavar="PORT", help="Port of health, metrics and console; -1 for none."
)
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    help="What this process serves.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    shell_complete=_complete_setting,
    help="Any setting; can be repeated.",
)
@click.option(
    "--leave-set", is_flag=True, help="Serve a replica's store on its own: set haLeaveSet."
)
@click.option("--parent", type=int, hidden=True)
@click.option(
    "--strict", is_flag=True, help="Refuse unknown settings, and settings that occur twice."
)
@click.option("-p", "--print-config", is_flag=True, help="Print all settings and exit.")
@click.option("--log-level", type=click.Choice(logging.LEVELS), default="info", show_default=True)
@click.pass_context
def main(
    context: click.Context,
    /,
    config_path: Path | None,
    settings: tuple[str, ...],
    leave_set: bool,
    parent: int | None,
    strict: bool,
    print_config: bool,
    log_level: str,
    **named: str | None,
) -> None:
    """Run a Rockhopper broker, with its name server, in the foreground.

    Settings come from the defaults, then broker.conf, then the environment (ROCKHOPPER_<KEY>), then
    these options.
    """
    if context.invoked_subcommand is not None:
        _prepare_tool(config_path, settings, named)
        return
    if not print_config:
        logging.use_stream()
    flags = _flags(settings, named) | ({"haLeaveSet": "true"} if leave_set else {})
    loaded = _load(config_path, flags, strict=strict)
    logging.configure(log_level, node="" if parent is None else loaded.config.broker_name)
    if print_config:
        for warning in loaded.warnings:
            _say(warning)
        for key, value in properties_of(loaded.config).items():
            click.echo(f"{key}={value}")
        return
    if reason := refusal():
        _fail(reason, 1)
    raise_open_files_limit()
    keep_freed_memory()
    try:
        exit_code = _run(serve(loaded, parent))
    except OSError:
        log.exception("unexpected error")
        exit_code = 1
    sys.exit(exit_code)


_KEY_OF_OPTION = {
    "bind_address": "bindAddress",
    "brokers": "brokers",
    "http_port": "httpPort",
    "listen_port": "listenPort",
    "name": "brokerName",
    "namesrv_addr": "namesrvAddr",
    "namesrv_port": "namesrvPort",
    "role": "role",
    "store": "storePathRootDir",
}


def _flags(settings: tuple[str, ...], named: dict[str, str | None]) -> dict[str, str]:
    flags = {}
    for text in settings:
        key, separator, rest = text.partition("=")
        if not separator or not key.strip():
            raise click.BadParameter(f"{text!r} is not KEY=VALUE", param_hint="--set")
        flags[key.strip()] = rest
    for option, value in named.items():
        if value is not None:
            flags[_KEY_OF_OPTION[option]] = value
    return flags


def _load(path: Path | None, flags: dict[str, str], *, strict: bool) -> LoadedConfig:
    try:
        loaded = load_config(path, os.environ, flags, strict=strict, foresee=foreseen)
    except SettingError as error:
        for line in (*error.warnings, *str(error).splitlines()):
            _say(line)
        sys.exit(2)
    except OSError as error:
        _fail(f"{path} cannot be read ({error.strerror}): check the path after -c", 2)
    loaded.warnings.extend(find_expired_certificates(loaded.config, time.time()))
    return loaded


def _fail(line: str, exit_code: int) -> NoReturn:
    _say(line)
    sys.exit(exit_code)


def _say(line: str) -> None:
    click.echo(f"rockhopper-broker: {line}", err=True)


def _run(main: Coroutine[Any, Any, int]) -> int:
    # The longest time that a computing thread delays the event loop, once for each event.
    sys.setswitchinterval(THREAD_TURN_S)
    try:
        import uvloop
    except ImportError:
        return asyncio.run(main)
    return uvloop.run(main)


def _stop_signals() -> list[signal.Signals]:
    numbers = [signal.SIGTERM, signal.SIGINT]
    # A closing terminal sends SIGHUP; a broker started by nohup must ignore it.
    hangup = getattr(signal, "SIGHUP", None)
    if hangup is not None and signal.getsignal(hangup) is not signal.SIG_IGN:
        numbers.append(hangup)
    return numbers


def _prepare_tool(
    config_path: Path | None, settings: tuple[str, ...], named: Mapping[str, str | None]
) -> None:
    if config_path or settings or any(named.values()):
        raise click.UsageError(
            "options before 'store' apply to serving only: put them after the store command"
        )
    resume_collections()
    logging.configure_tool("rockhopper-broker")


async def serve(loaded: LoadedConfig, parent_http: int | None = None) -> int:
    """Serve until a signal or a failure of the store; return the exit code.

    *parent_http* is the HTTP port of the parent process, if there is one.
    """
    parent = None if parent_http is None else Parent(parent_http)
    # A parent speaks for its children.
    try:
        use_umask(loaded.config)
    except SettingError as error:
        _say(str(error))
        return 2
    manager = ServiceManager(os.environ if parent is None else {})
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_log_stray_exception)
    service = _make_service(loaded.config, parent)
    resume_collections()
    stopping = asyncio.Event()

    def stop() -> None:
        if stopping.is_set():
            service.hurry()
        stopping.set()

    for number in _stop_signals():
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stop)
    if parent is not None:
        parent.watch(stop)
    try:
        service.prepare()
        log.info("starting", **service.facts())
        _tell_about_settings(loaded)
        for shortcoming in shortcomings():
            log.warning(shortcoming)
        await service.start()
    except StartError as error:
        click.echo(f"rockhopper-broker: {error}", err=True)
        return 1
    collections = ShortCollections()
    collections.start()
    log.info("serving", **service.facts())
    manager.serving(service.facts())
    if parent is not None:
        await service.announce()
        parent.tell_serving(service.facts())
    # Objects loaded by then stay, so garbage collections need not examine them again.
    freezing = loop.call_later(FREEZE_AFTER_S, collections.freeze)
    try:
        await _first_of(stopping.wait, service.failed.wait)
    finally:
        freezing.cancel()
        collections.stop()
    if service.failed.is_set():
        log.error("stopping because the store has failed")
    else:
        log.info("shutting down")
    manager.stopping()
    return await _stop(service)


def _tell_about_settings(loaded: LoadedConfig) -> None:
    for warning in loaded.warnings:
        log.warning(warning)
    for note in loaded.notes:
        log.info(note)
    by_meaning: dict[str, list[str]] = {}
    for key in loaded.ignored_keys:
        by_meaning.setdefault(WITHOUT_EFFECT[key], []).append(key)
    for meaning, keys in by_meaning.items():
        log.info("RocketMQ settings without effect", about=meaning, keys=keys)


async def _stop(service: Service) -> int:
    try:
        await service.stop()
    except OSError as error:
        log.error("not everything was saved at shutdown", reason=str(error))
        return 1
    if service.failed.is_set():
        return 1
    log.info("stopped", **service.outcome())
    return 0


def _make_service(config: BrokerConfig, parent: Parent | None) -> Service:
    count = config.brokers or _core_count()
    if count > 1 and config.role is not Role.NAMESERVER:
        from rockhopper.broker.supervising.supervisor import Supervisor

        return Supervisor(config, count, sys.argv[1:])
    if config.role is Role.NAMESERVER:
        from rockhopper.broker.name_server.alone import NameServer

        return NameServer(config)
    from rockhopper.broker.app import Broker

    return Broker(config, None if parent is None else parent.http_socket)


def _core_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


async def _first_of(*waits: Callable[[], Awaitable[Any]]) -> None:
    tasks = [start_request(wait()) for wait in waits]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


def _log_stray_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    log.error(
        "unexpected exception", where=context.get("message"), exc_info=context.get("exception")
    )
