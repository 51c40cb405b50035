"""The common parts of all subcommands: connection options, the event loop, errors, exit codes.

Exit codes: 0 success, 1 a broker refused or could not be reached, 2 the command line is wrong, 128
plus its number after a signal (130: Ctrl-C). An error is one sentence on standard error.
"""

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import IO, Any, TypeVar

import click

from rockhopper.client.commands.output import write_note
from rockhopper.client.commands.shell.completion import complete_brokers, complete_contexts
from rockhopper.client.commands.shell.context_choice import (
    choose_nameserver as choose_nameserver,
)
from rockhopper.client.commands.shell.context_choice import (
    get_context_in_use as get_context_in_use,
)
from rockhopper.client.commands.shell.context_choice import (
    set_variable,
)
from rockhopper.client.network.credentials import (
    ACCESS_KEY_VARIABLE,
    FILE_VARIABLE,
    SECRET_KEY_VARIABLE,
)
from rockhopper.client.network.tls import (
    CA_VARIABLE,
    CERTIFICATE_VARIABLE,
    KEY_VARIABLE,
    TLS_VARIABLE,
    VERIFY_VARIABLE,
)
from rockhopper.starting import resume_collections
from rockhopper.streams import abandon_output

EXIT_REFUSED = 1
EXIT_USAGE = 2
EXIT_SIGNALLED = 128
EXIT_INTERRUPTED = EXIT_SIGNALLED + signal.SIGINT
_INCOMPLETE = f"{__name__}.incomplete"

_Command = TypeVar("_Command", bound=Callable[..., Any])


class Failure(Exception):
    """A failed command: prints this text, if any, and exits with code 1."""


def nameserver_option(command: _Command) -> _Command:
    """Add --nameserver, --context, TLS options and --credentials.

    They may also be given before the subcommand.
    """
    asked = click.option(
        "--context",
        metavar="NAME",
        callback=_choose,
        expose_value=False,
        shell_complete=complete_contexts,
        help="Use the cluster saved under this name: rockhopper context list.",
    )
    return click.option(
        "--nameserver",
        "-n",
        metavar="HOST:PORT[;...]",
        callback=_inherit,
        expose_value=False,
        help="The name server; else $NAMESRV_ADDR, the context's, 127.0.0.1:9876.",
    )(asked(access_options(command)))


broker_option = click.option(
    "--broker",
    "-b",
    shell_complete=complete_brokers,
    help="Only this broker, by name or address; default: all.",
)
"""An option for commands that work on all brokers, or on one."""


def _inherit(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        from rockhopper.client.network.addresses import parse_nameservers

        try:
            parse_nameservers(value)
        except ValueError as error:
            raise click.BadParameter(str(error), context, parameter) from None
        context.find_root().meta["nameserver"] = value


def _choose(context: click.Context, _parameter: click.Parameter, value: str | None) -> None:
    if value is not None:
        context.find_root().meta["context"] = value


def run(action: Coroutine[Any, Any, Any], *, fast: bool = False) -> None:
    """Run a subcommand's coroutine; errors end the program with a message and exit code 1.

    With `fast` it runs on uvloop if that is installed; loading it takes a moment.
    """
    from rockhopper.client.errors import ClientError, MessageRejectedError, RouteNotFoundError
    from rockhopper.protocol.errors import ProtocolError

    resume_collections()
    try:
        with asyncio.Runner(loop_factory=_find_uvloop() if fast else None) as runner:
            runner.run(action)
        sys.stdout.flush()
        if _meta().get(_INCOMPLETE):
            sys.exit(EXIT_REFUSED)
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except BrokenPipeError:
        abandon_output()
        sys.exit(0)  # the reader of the output has seen enough (`| head`)
    except MessageRejectedError as error:
        report(error)
        sys.exit(EXIT_USAGE)
    except RouteNotFoundError as error:
        from rockhopper.client.admin.causes import explain

        report(asyncio.run(explain(error, choose_nameserver())))
        sys.exit(EXIT_REFUSED)
    except (ClientError, ProtocolError, ValueError, Failure) as error:
        report(error)
        sys.exit(EXIT_REFUSED)
    except OSError as error:
        abandon_output()
        report(f"reading or writing failed: {error.strerror or error}")
        sys.exit(EXIT_REFUSED)


def note_incomplete() -> None:
    """Make the program exit with code 1 although the command completes what it can."""
    _meta()[_INCOMPLETE] = True


def _meta() -> dict[str, Any]:
    context = click.get_current_context(silent=True)
    return {} if context is None else context.find_root().meta


def may_ask() -> bool:
    """Whether a person can answer questions at the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str, yes: bool) -> None:
    """Ask for confirmation unless `yes`; end the program on a no, or without a terminal."""
    if yes:
        return
    question = check_may_ask(question, yes)
    with _interrupt_at_once():
        click.confirm(question, abort=True, err=True)


def check_may_ask(question: str, yes: bool) -> str:
    """Return the question with the context's name; end the program if no one can answer it.

    With `yes` no answer is needed. Use it in commands that ask only after querying the brokers.
    """
    if click.get_current_context(silent=True) is not None:
        choose_nameserver()  # chooses the context, whose name belongs in the question
    name = get_context_in_use()
    question = question if name is None else f"[{name}] {question}"
    if not yes and not may_ask():
        raise NoTerminal(f"{question} There is no terminal to answer at: add --yes")
    return question


class NoTerminal(click.ClickException):
    """A question, and nobody who could answer it; `message` names the option that does."""

    exit_code = 2

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the message without a usage banner: the command line is right."""
        report(self.message)


@contextmanager
def _interrupt_at_once() -> Iterator[None]:
    """Let Ctrl-C end a question at once: asyncio's handler would wait for the blocked loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)


def _find_uvloop() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def report(error: BaseException | str) -> None:
    """Write an error to standard error."""
    text = str(error)
    if not text:
        return
    name = get_context_in_use()
    who = "rockhopper" if name is None else f"rockhopper [{name}]"
    try:
        write_note(f"{who}: {text}")
        for note in getattr(error, "__notes__", ()):
            write_note(f"{who}: {note}")
    except BrokenPipeError:
        pass


def _make_setter(variable: str, text: str | None = None) -> Callable[..., None]:
    def take(context: click.Context, _parameter: click.Parameter, value: Any) -> None:
        if value:
            set_variable(context.find_root(), TLS_VARIABLE, "true")
            set_variable(context.find_root(), variable, str(value) if text is None else text)

    return take


def _take_credentials(
    context: click.Context, _parameter: click.Parameter, value: str | None
) -> None:
    if value:
        for variable in (ACCESS_KEY_VARIABLE, SECRET_KEY_VARIABLE):
            set_variable(context.find_root(), variable, "")
        set_variable(context.find_root(), FILE_VARIABLE, value)


def access_options(command: _Command) -> _Command:
    """Add the options of TLS, and --credentials, to `command`.

    They override the environment: they set its variables while the command runs, for its clients
    and its child processes.
    """
    file = click.Path(exists=True, dir_okay=False)
    # Paths are relative to where the command runs, also for child processes elsewhere.
    for decorator in reversed(
        (
            click.option(
                "--tls",
                is_flag=True,
                expose_value=False,
                callback=_make_setter(TLS_VARIABLE, "true"),
                help="Use TLS; default: $ROCKHOPPER_TLS.",
            ),
            click.option(
                "--tls-ca",
                type=file,
                metavar="FILE",
                expose_value=False,
                callback=_make_setter(CA_VARIABLE),
                help="Trust these CAs instead of the system's.",
            ),
            click.option(
                "--tls-cert",
                type=file,
                metavar="FILE",
                expose_value=False,
                callback=_make_setter(CERTIFICATE_VARIABLE),
                help="The certificate to present.",
            ),
            click.option(
                "--tls-key",
                type=file,
                metavar="FILE",
                expose_value=False,
                callback=_make_setter(KEY_VARIABLE),
                help="Its key.",
            ),
            click.option(
                "--tls-no-verify",
                is_flag=True,
                expose_value=False,
                callback=_make_setter(VERIFY_VARIABLE, "false"),
                help="Accept any certificate, which allows a man in the middle.",
            ),
            click.option(
                "--credentials",
                type=file,
                metavar="FILE",
                expose_value=False,
                callback=_take_credentials,
                help="A file with accessKey and secretKey of the user.",
            ),
        )
    ):
        command = decorator(command)
    return command
