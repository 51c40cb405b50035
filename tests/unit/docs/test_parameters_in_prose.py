"""Every parameter that a page names is one, with the default that it gives; each is on a page."""

import ast
import inspect
import re
from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import rockhopper
from rockhopper.client import sync
from rockhopper.client.admin.admin_groups import GroupAdmin
from rockhopper.client.admin.dead_letters import DeadLetters
from tests.support.prose import Line, code, pages, said_to_be_defaults

# What a program calls of a broker in its process; the rest is for the broker's own start.
OF_BROKERS = frozenset({"temporary"})
# Public for the client's own modules, and described on no page.
INTERNAL = frozenset(
    {
        "Connections.join",
        "Connections.leave",
        "Message.wire_properties",
        "Credentials.more_fields",
        "GroupAdmin",
        "DeadLetters",
    }
)
# Of other software: Kafka, Django, gRPC's clients, compose files, Prometheus, etcd.
FOREIGN = frozenset(
    {
        "local_lock",
        "on_commit",
        "set_access_url",
        "set_enable_tls",
        "stop_grace_period",
        "sync_interval",
        "sync_to_async",
        "tls_enable",
        "x86_64",
    }
)
_DURATION = re.compile(r"([\d.,]+|an?) ?(s|ms|KiB|MiB|minutes?|hours?|h)?")
_FACTORS = {None: 1, "s": 1, "ms": 0.001, "KiB": 1 << 10, "MiB": 1 << 20, "h": 3600}


def classes() -> Iterator[tuple[str, type]]:
    """What programs make objects of."""
    for home, names in ((rockhopper, rockhopper.__all__), (sync, sync.__all__)):
        for name in names:
            found = getattr(home, name)
            if inspect.isclass(found) and not issubclass(found, (Enum, BaseException)):
                yield name, found
    yield from (("GroupAdmin", GroupAdmin), ("DeadLetters", DeadLetters))


@cache
def parameters() -> dict[str, dict[str, inspect.Parameter]]:
    """By ``Producer.send``, or ``Producer`` for what makes one, the parameters of each."""
    found: dict[str, dict[str, inspect.Parameter]] = {}
    for name, cls in classes():
        is_broker = name in {"Broker", "ThreadedBroker"}
        functions: dict[str, Callable[..., Any]] = {} if is_broker else {name: cls}
        for member, function in inspect.getmembers(cls, callable):
            if not member.startswith("_") and (not is_broker or member in OF_BROKERS):
                functions[f"{name}.{member}"] = function
        for called, function in functions.items():
            if called not in INTERNAL:
                try:
                    signature = inspect.signature(function)
                except (TypeError, ValueError):
                    continue
                found.setdefault(called, {}).update(signature.parameters)
    return found


def test_each_parameter_is_on_a_page() -> None:
    text = "\n".join(page.text for page in pages())
    missing = sorted(
        f"{called}({name})"
        for called, of_it in parameters().items()
        for name, parameter in of_it.items()
        if not name.startswith("_")
        and name not in {"self", "cls"}
        and parameter.kind not in {parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL}
        and not re.search(rf"\b{name}\b", text)
    )
    assert missing == []


def calls() -> Iterator[tuple[Line, str, str]]:
    """Where, what and by which keyword the examples of pages call."""
    for page in pages():
        for block in page.blocks():
            if block.language not in {"python", "py"}:
                continue
            try:
                tree = ast.parse(block.text)
            except SyntaxError:
                continue
            for node in ast.walk(tree):
                if isinstance(node, ast.Call):
                    match node.func:
                        case ast.Name(id=called) | ast.Attribute(attr=called):
                            line = Line(page.name, block.number + node.lineno, called)
                            yield from (
                                (line, called, each.arg) for each in node.keywords if each.arg
                            )
        for quoted in page.quoted():
            for called, arguments in re.findall(r"\b([A-Z]\w+)\(([^()]*)\)", quoted.text):
                for keyword in re.findall(r"(?<![\w.])([a-z]\w*)=", arguments):
                    yield quoted, called, keyword


def test_examples_name_parameters_that_there_are() -> None:
    takes: dict[str, set[str]] = {}
    for called, of_it in parameters().items():
        takes.setdefault(called.rpartition(".")[2], set()).update(of_it)
    found = [each for each in calls() if each[1] in takes and each[1][0].isupper()]
    assert len(found) > 60
    assert [
        f"{called}({keyword}=): {line}"
        for line, called, keyword in found
        if keyword not in takes[called] and not takes[called] & {"kwargs", "options"}
    ] == []


@cache
def names_in_code() -> frozenset[str]:
    """Parameters, fields and functions of the whole package."""
    in_texts = {name for _, text in code().texts for name in re.findall(r"\w+", text)}
    return code().names | in_texts


def test_snake_case_names_in_backticks_are_in_the_code() -> None:
    """``request_timeout_s``, ``admin.dead_letters.requeue``: a name that was changed is found."""
    known = names_in_code()
    wrong = [
        f"{name}: {quoted}"
        for page in pages()
        for quoted in page.quoted()
        if page.name.startswith(("docs/", "README", "CHANGELOG")) and page.name != "docs/metrics.md"
        for name in re.findall(
            r"(?<![\w./@:<-])[a-z][a-z0-9]*(?:_[a-z0-9]+)+(?![\w/*-]|\.\w)", quoted.text
        )
        if name not in known | FOREIGN
        # test_names_in_prose.py has those of metrics.
        and not name.startswith(("rocketmq_", "rockhopper_"))
        and not name.endswith("_total")
    ]
    assert wrong == []


def defaults_in_prose() -> Iterator[tuple[Line, str, str]]:
    """Parameters with what prose says is their default."""
    names = {name for of_it in parameters().values() for name in of_it}
    for page in pages():
        for table in page.tables():
            if "default" in table.heads and page.name != "docs/spark.md":
                column = table.heads.index("default")
                for number, cells in table.rows:
                    keys = [each for each in re.findall(r"`(\w+)`", cells[0]) if each in names]
                    values = cells[column].split(", ")
                    yield from (
                        (Line(page.name, number, cells[0]), key, value)
                        for key, value in zip(keys, values, strict=False)
                    )
        for line in page.sentences():
            for key, said in re.findall(
                r"`(\w+)`(?:, | \()(?:by default )?([\d.,]+ ?(?:s|KiB|MiB))\b", line.text
            ):
                if key in names:
                    yield line, key, said
            for key, said in re.findall(r"`(\w+)` \((?:by )?(?:default:? )?([\d.,]+)\)", line.text):
                if key in names:
                    yield line, key, said
            # Of one that the sentence names.
            for said in said_to_be_defaults(line.text):
                keys = [each for each in re.findall(r"`(\w+)=?`", line.text) if each in names]
                if keys:
                    yield line, "|".join(keys), said


def is_default(key: str, said: str) -> bool:
    """Whether a parameter *key*, or one of several with "|" between, has the default *said*."""
    defaults = [
        of_it[each].default
        for of_it in parameters().values()
        for each in key.split("|")
        if each in of_it
    ]
    said = said.strip("`")
    if said.strip('"') in map(str, defaults):
        return True
    found = _DURATION.fullmatch(said)
    if found is None or found[2] not in _FACTORS:
        return False
    amount = float(found[1].replace(",", "")) * _FACTORS[found[2]]
    return any(isinstance(each, (int, float)) and abs(each - amount) < 1e-9 for each in defaults)


def test_defaults_are_those_of_the_code() -> None:
    found = list(defaults_in_prose())
    assert len(found) > 15
    assert [f"{key} {said}: {line}" for line, key, said in found if not is_default(key, said)] == []


def test_other_defaults_are_found() -> None:
    assert is_default("group|timeout_s", "3 s")
    assert not is_default("group|timeout_s", "4 s")
    assert is_default("close_timeout_s", "30 s")
    assert not is_default("close_timeout_s", "31 s")
    assert not is_default("compress_above_bytes", "4 MiB")
