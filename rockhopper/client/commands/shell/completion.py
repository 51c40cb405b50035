"""Completion in bash, zsh and fish: commands, options, and existing topics and groups.

The user is waiting, so names that do not arrive within a moment are omitted, and errors are not
printed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
from click.shell_completion import get_completion_class

if TYPE_CHECKING:
    from rockhopper.client.admin.admin import Admin

TIMEOUT_S = 1.5
PROGRAMS = "rockhopper", "rockhopper-broker"
_NAMES_MAX = 2000
# click's scripts do not handle a "=" or ":" inside a word: bash splits words there, the other
# shells replace the whole word.
_MENDED = {
    "bash": {
        "    local response\n": """\
    local response word cur rest=$COMP_LINE words=()
    for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
        if [[ ${#words[@]} -gt 0 && $rest != [[:space:]]* ]]; then
            words[-1]+=$word
        else
            words+=("$word")
        fi
        rest=${rest#"${rest%%%%[![:space:]]*}"}
        rest=${rest#"$word"}
    done
    cur=${words[-1]}
""",
        '"${COMP_WORDS[*]}" COMP_CWORD=$COMP_CWORD': '"${words[*]}" COMP_CWORD=$((${#words[@]}-1))',
        "            COMPREPLY+=($value)\n": """\
            [[ $value != *= ]] || compopt -o nospace
            rest=${cur#-*=}
            value=${value#"${rest%%"${rest##*[=:]}"}"}
            [[ $cur == *[\\'\\"]* || -z $value ]] || printf -v value %%q "$value"
            COMPREPLY+=("$value")
""",
    },
    "zsh": {
        "        compadd -U -V unsorted": """\
        local -a ending
        [[ $PREFIX == -*=* ]] && completions=("${PREFIX%%%%=*}="${^completions})
        [[ $completions[1] == *= ]] && ending=(-S '')
        compadd -U "${ending[@]}" -V unsorted""",
    },
    "fish": {
        "    for completion in": """\
    set -l option (string match -r -- '^-[^=]*=' (commandline -ct));

    for completion in""",
        "echo $metadata[2]": 'echo "$option$metadata[2]"',
    },
}


@click.command(short_help="Complete commands, topics and groups in a shell.")
@click.argument("shell", type=click.Choice(list(_MENDED)))
@click.argument("program", type=click.Choice(PROGRAMS), default=PROGRAMS[0])
def completion(shell: str, program: str) -> None:
    """Print the script with which SHELL completes commands, options, topics and groups of PROGRAM.

    \b
    bash:  rockhopper completion bash > ~/.local/share/bash-completion/completions/rockhopper
    zsh:   rockhopper completion zsh > "${fpath[1]}/_rockhopper"
    fish:  rockhopper completion fish > ~/.config/fish/completions/rockhopper.fish
    """  # noqa: D301  click's mark for a paragraph that stays as it is
    made = get_completion_class(shell)
    assert made is not None
    template = made.source_template
    for of_click, ours in _MENDED[shell].items():
        template = template.replace(of_click, ours)
    # click asks an installed bash for its version and warns; the shell need not be installed here.
    name = program.replace("-", "_")
    click.echo(
        template
        % {
            "complete_func": f"_{name}_completion",
            "complete_var": f"_{name.upper()}_COMPLETE",
            "prog_name": program,
        }
    )


def complete_topics(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the topics that begin with `incomplete`; system topics only if it begins with "%"."""

    async def topics(admin: "Admin") -> list[str]:
        from rockhopper.client.commands.screen.rates import is_systems

        names, brokers = await asyncio.gather(admin.topics(), admin.brokers())
        is_all = incomplete.startswith("%")
        return [name for name in names if is_all or not is_systems(name, brokers)]

    return _ask_names(context, topics, incomplete)


def complete_groups(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the groups that begin with `incomplete`."""
    return _ask_names(context, lambda admin: admin.groups.names(), incomplete)


def complete_settings(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the broker settings that begin with `incomplete`."""

    async def settings(admin: "Admin") -> list[str]:
        first = (await admin.masters())[0]
        return sorted(await admin.broker_config(first.address))

    return _ask_names(context, settings, incomplete)


def complete_dead_groups(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the groups with dead letters that begin with `incomplete`."""

    async def groups(admin: "Admin") -> list[str]:
        return [each.group for each in await admin.dead_letters.counts()]

    return _ask_names(context, groups, incomplete)


def complete_brokers(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the broker names that begin with `incomplete`."""

    async def brokers(admin: "Admin") -> list[str]:
        return sorted({each.name for each in await admin.brokers()})

    return _ask_names(context, brokers, incomplete)


def complete_queues(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the queues of the command line's topic; as BROKER:ID if it has several brokers."""

    async def queues(admin: "Admin") -> list[str]:
        # If the value of an option is missing, click does not process the arguments.
        route = await admin.route(context.params.get("topic") or context.args[0])
        found = sorted({*route.read_queues, *route.write_queues})
        if ":" in incomplete or len(route.brokers) > 1:
            return [f"{each.broker_name}:{each.queue_id}" for each in found]
        return [str(each.queue_id) for each in found]

    return _ask_names(context, queues, incomplete)


def complete_positions(
    _context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return completions of a position, according to the option's metavar."""
    words = (parameter.metavar or "").split("|")
    found = [word for word in words if word.islower()]
    found += ["-30m", "-1h", "-1d"] if "TIME" in words else []
    return [word for word in found if word.startswith(incomplete)]


def complete_contexts(
    _context: click.Context, _parameter: click.Parameter, incomplete: str
) -> list[str]:
    """Return the contexts that begin with `incomplete`."""
    from rockhopper.client.commands.shell.contexts import ContextError, Contexts

    try:
        names = Contexts.load().by_name
    except ContextError:
        return []
    return [name for name in sorted(names) if name.startswith(incomplete)]


def _ask_names(
    context: click.Context, ask: "Callable[[Admin], Awaitable[list[str]]]", incomplete: str
) -> list[str]:
    """Return the names that a query finds; nothing if it fails or times out."""
    from rockhopper.client.admin.admin import Admin
    from rockhopper.client.commands.shell.context_choice import choose_nameserver

    async def names() -> list[str]:
        async with asyncio.timeout(TIMEOUT_S):
            async with Admin(choose_nameserver(), request_timeout_s=TIMEOUT_S) as admin:
                return await ask(admin)

    logging.disable(logging.CRITICAL)
    try:
        with context.scope(cleanup=False):
            found = asyncio.run(names())
    # Ignore every error: it cannot be reported during completion.
    except Exception:
        return []
    finally:
        logging.disable(logging.NOTSET)
    return [name for name in found if name.startswith(incomplete)][:_NAMES_MAX]
