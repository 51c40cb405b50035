"""Commands, flags, metrics, files, targets and HTTP paths that prose names are there."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import click
import pytest

from rockhopper.broker.cli import main as broker_main
from rockhopper.broker.settings.config_file import build_config, properties_of
from rockhopper.client.cli import main as client_main
from rockhopper.protocol.store.store_paths import ABORT_FILE
from tests.support.prose import ROOT, Line, code, page, pages, sources

# Flags of other programs.
FOREIGN_FLAGS = frozenset(
    {
        "--apparent-size",
        "--archives",
        "--health-cmd",
        "--no-binary",
        "--now",
        "--option",
        "--py-files",
        "--read-only",
        "--reflink",
        "--sparse",
        "--stop-timeout",
        "--tmpfs",
        "--workers",
    }
)
_METRIC = re.compile(r"\b(?:rocketmq|rockhopper)_[a-z0-9_]+(?=\b[^*_\w(]|$)")
# What a histogram or a summary has beside its name.
_PARTS = re.compile(r"_(?:bucket|count|sum|created)$")
# Modules, variables and labels that begin like metrics.
NO_METRICS = frozenset(
    {
        "rocketmq_keys",
        "rocketmq_offsets",
        "rockhopper_broker",
        "rockhopper_dlq_requeue",
        "rockhopper_ha_",
        "rockhopper_mq",
        "rockhopper_settings",
    }
)


def commands(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Every command below *command* that does something, by its full name."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for each in command.list_commands(context):
            inner = command.get_command(context, each)
            if inner is not None and not inner.hidden:
                yield from commands(inner, f"{name} {each}")
    else:
        yield name, command


COMMANDS = dict([*commands(client_main, "rockhopper"), *commands(broker_main, "rockhopper-broker")])


@cache
def listed_commands() -> frozenset[str]:
    """The commands that the two pages of them name, with ``topic list|create`` spelt out."""
    found: set[str] = set()
    for name in ("docs/command-line.md", "docs/store-tools.md"):
        of_it = page(ROOT / name)
        for quoted in of_it.quoted():
            first, *verbs = quoted.text.replace("\\|", "|").split("|")
            found.add(first)
            group = first.partition(" ")[0]
            found.update(f"{group} {verb}" for verb in verbs)
        for block in of_it.blocks():
            found.update(
                line.removeprefix("rockhopper-broker ").removeprefix("rockhopper ")
                for line in block.text.splitlines()
            )
    return frozenset(found)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_is_on_a_page_of_commands(name: str) -> None:
    shown = name.partition(" ")[2]
    assert any(each == shown or each.startswith(f"{shown} ") for each in listed_commands())


def test_flags_are_there() -> None:
    paths = [*sources(".py", ".sh"), *(ROOT / "tests").rglob("*.py"), ROOT / "docker/compose.sh"]
    known = FOREIGN_FLAGS | {"--help"}
    known |= {
        flag
        for path in paths
        if path.name != "test_names_in_prose.py"
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text("utf-8"))
    }
    found = [
        (flag, quoted)
        for each in pages()
        for quoted in each.quoted()
        for flag in re.findall(r"(?<![\w-])--[a-z][\w-]*", quoted.text)
    ]
    assert len(found) > 100
    assert [f"{flag}: {quoted}" for flag, quoted in found if flag not in known] == []


@cache
def metrics() -> frozenset[str]:
    """What a broker shows, and RocketMQ's that it does not: as docs/metrics.md has them."""
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    # A follower of a RocketMQ master has some of its own.
    text += (ROOT / "rockhopper/broker/replication/rocketmq/slave/follower.py").read_text(
        encoding="utf-8"
    )
    return frozenset(re.findall(r"\b(?:rocketmq|rockhopper)_[a-z0-9_]+", text))


def test_metrics_are_there() -> None:
    """In pages, in the alert rules and in the dashboard."""
    texts = {each.name: each.text for each in pages() if each.name != "docs/metrics.md"}
    for path in (ROOT / "docker/monitoring").rglob("*.*"):
        texts[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    found = [
        (at, name)
        for at, text in texts.items()
        for name in _METRIC.findall(text)
        if name not in NO_METRICS
    ]
    assert len(found) > 50
    assert [
        f"{name}: {at}"
        for at, name in found
        if name not in metrics() and _PARTS.sub("", name) not in metrics()
    ] == []


def test_what_the_page_of_metrics_names_above_its_tables_is_in_them() -> None:
    text = (ROOT / "docs/metrics.md").read_text(encoding="utf-8")
    by_hand, _, made = text.partition("<!-- Made by `make pages`")
    made_of_code = set(re.findall(r"\b(?:rocketmq|rockhopper)_[a-z0-9_]+", made))
    used = {name for name in _METRIC.findall(by_hand) if name.startswith("rockhopper_")}
    assert len(used) > 3
    assert {name for name in used if _PARTS.sub("", name) not in made_of_code} == set()


def test_targets_of_make_are_there() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    found = [
        (target, quoted)
        for each in pages()
        for quoted in each.quoted()
        for target in re.findall(r"^make ([a-z][a-z-]*)\b", quoted.text)
    ]
    assert len(found) > 20
    assert [f"{target}: {quoted}" for target, quoted in found if target not in targets] == []


def test_files_of_the_repository_are_there() -> None:
    """``store_layout.py``, ``docker/broker.conf``, ``tests/chaos``."""
    folders = ("broker", "client", "protocol", "pipeline", "docs", "docker", "tests", "benchmarks")
    paths = [path for top in (*folders, "rockhopper") for path in (ROOT / top).rglob("*.py")]
    names = {path.name for path in paths}
    wrong: list[str] = []
    for each in pages():
        for quoted in each.quoted():
            text = quoted.text.rstrip("/")
            if re.fullmatch(r"[\w-]+\.py", text) and text not in names | EXAMPLES:
                wrong.append(str(quoted))
            if (
                re.fullmatch(r"[\w./-]+", text)
                and text.partition("/")[0] in {*folders, ".ci"}
                and "/" in text
                and "…" not in text
            ):
                found = (ROOT / text, ROOT / f"{text}.py")
                if not any(path.exists() for path in found) and text not in EXAMPLES:
                    wrong.append(str(quoted))
    assert wrong == []


# Files of the reader's, and ones that a run makes.
EXAMPLES = frozenset({"shop.py", "dashboard.py", "tests/test_orders.py"})


def store_files() -> Iterator[tuple[Line, str]]:
    """The files below a store's directory that prose names."""
    for each in pages():
        for quoted in each.quoted():
            found = re.fullmatch(
                r"(?:<store>/)?((?:rockhopper|config)/[\w./-]+\.[a-z]+)", quoted.text
            )
            if found and not found[1].endswith(".py"):
                yield quoted, found[1]


@cache
def paths_in_code() -> frozenset[str]:
    """What the code joins with ``/``, or names in one text: ``config/users.json``."""
    constants = code().assigned

    def joined(node: ast.AST) -> list[str]:
        match node:
            case ast.BinOp(left=left, op=ast.Div(), right=right):
                return [f"{begin}/{end}" for begin in joined(left) for end in joined(right)]
            case ast.Constant(value=str(value)):
                return [value]
            case ast.Name(id=name) | ast.Attribute(attr=name):
                if name in constants:
                    return sorted(constants[name])
                return [{"config": "config", "own": "rockhopper"}.get(name, "…")]
        return ["…"]

    found = {path for node in code().joined for path in joined(node)}
    for _, text in code().texts:
        found.add(text)
        found.update(re.findall(r"(?:rockhopper|config)/[\w./-]+\w", text))
    return frozenset(found)


def is_in_a_store(name: str) -> bool:
    """Whether the code has the whole path *name*, and its last part as a name of its own.

    RocketMQ's tables, of which some are named without their folder, are in ``config``.
    """
    folder, _, last = name.rpartition("/")
    ends = [path for path in paths_in_code() if path == last or path.endswith(f"/{last}")]
    is_ours = any(path.startswith("rockhopper/") for path in ends)
    if name not in paths_in_code():
        return folder == "config" and last in ends and not is_ours
    return bool(ends)


def test_files_of_a_store_are_those_of_the_code() -> None:
    found = list(store_files())
    assert len(found) > 8
    assert [f"{name}: {line}" for line, name in found if not is_in_a_store(name)] == []


def test_files_that_are_named_without_a_folder_are_those_of_the_code() -> None:
    """``topics.json``, the file ``abort``, ``data/abort``."""
    found = [
        (quoted, quoted.text)
        for each in pages()
        for quoted in each.quoted()
        if each.name.startswith("docs/") and re.fullmatch(r"[\w-]+\.json", quoted.text)
    ]
    for each in pages():
        for line in each.sentences():
            found += [(line, name) for name in re.findall(r"\bfiles? `([\w-]+)`", line.text)]
        for block in each.blocks():
            names = re.findall(r"\b(?:data|store)/([a-z]+)(?![\w./-])", block.text)
            found += [(Line(block.page, block.number, name), name) for name in names]
    assert {"abort", "UNFINISHED", "topics.json"} <= {name for _, name in found}
    known = {path.rpartition("/")[2] for path in paths_in_code()} | OF_ROCKETMQ
    assert [f"{name}: {line}" for line, name in found if name not in known] == []


OF_ROCKETMQ = frozenset({"consumerFilter.json"})


def test_the_file_with_the_number_of_the_process_is_the_abort_file() -> None:
    text = "\n".join(" ".join(each.text.split()) for each in pages())
    named = re.findall(r"file `(\w+)` in it holds its process number", text)
    named += re.findall(r"\bkill [^`\n]*?\$\(cat [\w./]*?/?(\w+)\)", text)
    assert len(named) > 1
    assert set(named) == {ABORT_FILE}


@pytest.mark.parametrize(
    ("name", "is_so"),
    [
        ("config/acls.json", True),
        ("config/rules.json", False),
        ("rockhopper/sinks/homes.json", True),
        ("rockhopper/homes.json", False),
        ("rockhopper/users.json", False),
        ("config/topic-ids.json", False),
    ],
)
def test_a_file_of_a_store_is_looked_for_in_its_folder(name: str, is_so: bool) -> None:
    assert is_in_a_store(name) is is_so


def test_http_paths_are_served() -> None:
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources(".py"))
    found = {
        quoted.text
        for each in pages()
        for quoted in each.quoted()
        if re.fullmatch(r"/(?:healthz|readyz|metrics|[a-z]+z)", quoted.text)
    }
    assert {"/healthz", "/readyz", "/metrics"} <= found
    assert {path for path in found if f'"{path}"' not in text} == set()


@cache
def texts_of_code() -> str:
    """Every text of the code, in one line each."""
    return "\n".join(" ".join(text.split()) for _, text in code().texts)


def test_sentences_in_backticks_are_what_the_code_says() -> None:
    """``a reader was moved back``: a log entry or message that was reworded is found."""
    phrases = [
        quoted
        for each in pages()
        if each.name.startswith("docs/")
        for quoted in each.quoted()
        if re.fullmatch(r"[a-z][a-z']*(?: [a-z'-]+){3,}[.!]?", quoted.text)
        and quoted.text.partition(" ")[0] not in PROGRAMS
    ]
    assert len(phrases) > 10
    assert [
        str(quoted)
        for quoted in phrases
        if quoted.text not in texts_of_code() and quoted.text not in ROCKETMQ_SAYS
    ] == []


PROGRAMS = frozenset({"cp", "docker", "make", "mqadmin", "pip", "rockhopper", "systemctl"}) | {
    name.split(" ")[1] for name in COMMANDS
}
ROCKETMQ_SAYS = frozenset({"master pushed offset not equal the max phy offset in slave"})


def test_alarms_are_there() -> None:
    found = [
        (alarm, line)
        for each in pages()
        for line in each.sentences()
        for alarm in re.findall(r"\balarms? `([a-z-]+)`", line.text)
    ]
    assert len(found) > 3
    known = (ROOT / "rockhopper/broker/replication/roles/alarms.py").read_text(encoding="utf-8")
    assert [f"{alarm}: {line}" for alarm, line in found if f'"{alarm}"' not in known] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_names_settings_and_flags_that_there_are(name: str) -> None:
    command = COMMANDS[name]
    text = " ".join(command.get_help(click.Context(command, info_name=name)).split())
    for key, value in re.findall(r"\b([a-z]+(?:[A-Z]\w*)+)=([A-Za-z0-9_]+)(?![\w:])", text):
        build_config({key: value})
        assert key in properties_of(build_config({})), f"{key}={value}"
    of_all = (
        {
            flag
            for each in COMMANDS.values()
            for parameter in each.params
            for flag in (*parameter.opts, *parameter.secondary_opts)
        }
        | {"--help"}
        | OF_PROGRAMS
    )
    assert set(re.findall(r"(?<![\w-])--[a-z][\w-]*", text)) - of_all == set()


OF_PROGRAMS = frozenset(
    flag
    for program in (client_main, broker_main)
    for parameter in program.params
    for flag in (*parameter.opts, *parameter.secondary_opts)
)
