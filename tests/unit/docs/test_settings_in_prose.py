"""Every setting that prose names is one, with the value and the default that prose gives."""

import re
from collections.abc import Iterable, Iterator
from enum import Enum
from functools import cache
from pathlib import Path

import pytest

from rockhopper.broker.kernel.tables import subscription_groups
from rockhopper.broker.settings import config_file
from rockhopper.broker.settings.config_file import (
    SETTING_PARTS,
    build_config,
    is_live,
    load_config,
    properties_of,
)
from rockhopper.broker.settings.setting_fields import (
    SettingError,
    format_value,
    parse_fields,
    settings_of,
    unit_of,
)
from tests.support.prose import ROOT, Line, Page, code, pages, said_to_be_defaults, sources

FIELDS = {
    known.key: (part, field, known) for part in SETTING_PARTS for field, known in settings_of(part)
}
# Earlier and RocketMQ's spellings, and keys of RocketMQ that have no effect or are refused.
OTHERS = config_file._KNOWN_KEYS | set(config_file._SPELLINGS) | set(config_file._PLACES)
# Names of RocketMQ's clients and tools, of formats and of other software.
FOREIGN = frozenset(
    {
        "sslEnabled",
        "sessionCredentials",
        "getBrokerEpoch",
        "electMaster",
        "includeHeaders",
        "lastProgress",
        "numInputRows",
        "allAckInSyncStateSet",
        "clientRebalance",
        "coldDataFlowControlEnable",
        "consumerFilter",
        "consumerProgress",
        "customizedTraceTopic",
        "enableMsgTrace",
        "enableSsl",
        "flushCommitLogLeastPages",
        "flushCommitLogThoroughInterval",
        "instanceName",
        "keyUsage",
        "messageTrack",
        "pollNameServerInterval",
        "processedRowsPerSecond",
        "putKVConfig",
        "queryMsgTraceById",
        "resetOffsetByTimeOld",
        "sendMsgTimeout",
        "setCredentialProvider",
        "setNamespace",
        "setNamespaceV2",
        "setPriority",
        "updateConsumeOffset",
        "updateSubGroup",
        "wipeWritePerm",
    }
)
# What an empty or a zero default comes to, as the settings themselves say.
DERIVED = {
    "haListenPort": {"10912", "`listenPort` + 1"},
    "minInSyncReplicas": {"2 of 3 or more"},
    "haAddress": {"`brokerIP1`"},
    "tlsClientCertPath": {"those above"},
    "tlsClientTrustCertPath": {"`tlsTrustCertPath`"},
}
# The file of a RocketMQ slave.
OF_ROCKETMQ = {("docs/migrating.md", "brokerId", "1"), ("docs/migrating.md", "brokerRole", "SLAVE")}
# Variables that are no settings: of the clients, of the compose files, of tools.
VARIABLES = frozenset(
    {
        "ACCESS_KEY",
        "SECRET_KEY",
        "CREDENTIALS_FILE",
        "PURE_PYTHON",
        "TLS",
        "TLS_CA",
        "TLS_CERT",
        "TLS_KEY",
        "TLS_VERIFY",
        "CONTEXT",
        "NAMESERVER",
        "SPARK_LOG",
        "LOST",
        "IMAGE",
        "ETCD_IMAGE",
        "NETWORK",
        "BROKER_PORT",
        "NAMESRV_PORT",
        "PROMETHEUS_PORT",
        "GRAFANA_PORT",
    }
)
# Names before "=" that belong to something else, as to a reader's options or a request's fields.
NOT_OURS = frozenset(
    {
        "indexType",
        "retryQueueNums",
        "withRetryTopics",
        "startingOffsets",
        "filterType",
        "failOnDataLoss",
        "commitOffsets",
        "includeProperties",
        "nameServer",
        "sinkId",
        "batchId",
        "keyUsage",
        "subjectAltName",
        "basicConstraints",
        "subjectKeyIdentifier",
        "authorityKeyIdentifier",
        "availableNow",
        "processingTime",
    }
)
_CAMEL = re.compile(r"(?<![\w./-])[a-z]+(?:[A-Z][a-z0-9]*)+\b")
_GIVEN = re.compile(r"(?<![\w.?&$-])([a-z]+(?:[A-Z]\w*)+)=((?:[^\s`\"'&),;|…]|,(?! ))*)")
_BEHIND = re.compile(r"[`\[](\w+)[`\]]+(?:\([^)]*\))?(?: times)? \(([^)]*)\)")
_UNIT_BEHIND = re.compile(
    r"(?:.*\bin )?(ms|s|seconds?|minutes?|hours?|days?|bytes|[KMG]iB)\b"
    r"(?: (?:from|after|before|that)|$|[,;.])"
)
_AT_THE_START = re.compile(
    r"not to be changed live|(?:cannot|can not) be changed (?:live|while)|needs? a restart"
    r"|(?:only after a|[Aa]t the next) (?:re)?start\b|(?:is|are) read at the start"
)
_AT_ONCE = re.compile(
    r"may be changed while (?:the|a) broker runs|(?:changes?|changed|set) live|without a restart"
    r"|(?:takes? effect|counts?|applies|apply|is taken) at once|while (?:the|a) broker is running"
)
_DEFAULT = re.compile(r"\(default|by default|the default\b")
_ENVIRONMENT = re.compile(r"\bROCKHOPPER_([A-Z][A-Z0-9_]*)")
_AMOUNT = re.compile(r"(?:([\d,]+)|an?)(?: ([a-zA-Z%µ/]+))?")
_TIMES = {"s": 1, "second": 1, "min": 60, "minute": 60, "h": 3600, "hour": 3600, "day": 86_400}
_SIZES = {
    "bytes": {"bytes": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30},
    "bytes/s": {"MiB/s": 1 << 20},
    "ms": {"ms": 1, **{name: seconds * 1000 for name, seconds in _TIMES.items()}},
    "s": _TIMES,
    "hours": {"h": 1, "hour": 1, "day": 24},
    "%": {"%": 1},
}


def default_of(key: str) -> str:
    """As broker.conf would have it."""
    _, field, known = FIELDS[key]
    return format_value(field.default, known.separator)


def is_default(key: str, said: str) -> bool:
    """Whether *said* means the default of *key*, in whichever unit."""
    default, said = default_of(key), said.strip("` ")
    if said == default or (not default and said in {"", "empty", "none"}):
        return True
    found = _AMOUNT.fullmatch(said)
    if found is None or not default.lstrip("-").isdigit():
        return False
    count = int((found[1] or "1").replace(",", ""))
    unit = unit_of(FIELDS[key][1].name)
    factor = _SIZES.get(unit, {}).get(_singular(found[2]), 1 if found[2] is None else None)
    return factor is not None and count * factor == int(default)


def _singular(unit: str | None) -> str:
    return (unit or "").removesuffix("s") if unit not in {"bytes", "ms", "s"} else unit


def is_amount(said: str) -> bool:
    """Whether *said* is a value rather than an explanation."""
    return bool(_AMOUNT.fullmatch(said)) or said in {"true", "false"}


def is_a_value(key: str, said: str) -> bool:
    """Whether *key* takes *said*."""
    try:
        parse_fields(FIELDS[key][0], {key: said})
        build_config({key: said})
    except SettingError as error:
        # What goes with it, or a file that is not there, is no fault of the value.
        return key not in str(error) or "allowed" not in str(error)
    return True


@cache
def known_words() -> frozenset[str]:
    """The words of the code, in the forms in which a field of it may be written."""
    words: set[str] = set()
    more = (path for top in ("docs/examples", "docker") for path in (ROOT / top).rglob("*.*"))
    for path in (*sources(".py", ".c", ".h", ".js", ".html", ".jinja", ".css"), *more):
        words.update(re.findall(r"\w+", path.read_text(encoding="utf-8")))
    return frozenset(words) | {word.replace("_", "").lower() for word in words}


def defaults_in_prose() -> Iterator[tuple[Line, str, str]]:
    """Settings with what prose says is their default."""
    for page in pages():
        for line in page.sentences():
            for found in _BEHIND.finditer(line.text):
                said = re.sub(r"^default:? |,? by default$|[;:].*", "", found[2])
                if found[1] in FIELDS and (is_amount(said) or said != found[2]):
                    yield line, found[1], said
        for table in page.tables():
            if (
                "default" in table.heads
                and table.heads[0] != "option"
                and page.name != "docs/settings.md"
            ):
                column = table.heads.index("default")
                for number, cells in table.rows:
                    keys = [key for key in re.findall(r"`(\w+)`", cells[0]) if key in FIELDS]
                    said = re.sub(r" \(.*", "", cells[column])
                    # "6000 | ms after its arrival": the unit is in the words behind.
                    unit = _UNIT_BEHIND.match(cells[-1])
                    if keys and cells[column]:
                        for key, each in zip(keys, said.split(", "), strict=False):
                            is_bare = each.strip("`").isdigit()
                            named = f"{each.strip('`')} {unit[1]}" if unit and is_bare else each
                            yield Line(page.name, number, "|".join(cells)), key, named
            key = table.heads[0].strip("`")
            if key in FIELDS:
                for number, cells in table.rows:
                    if _DEFAULT.search(cells[0]):
                        said = re.findall(r"`([^`]+)`", cells[0])[0]
                        yield Line(page.name, number, cells[0]), key, said


def test_defaults_are_those_of_the_code() -> None:
    found = list(defaults_in_prose())
    assert len(found) > 40
    assert [
        f"{key} is {default_of(key)}, not {said}: {line}"
        for line, key, said in found
        if not is_default(key, said) and said not in DERIVED.get(key, ())
    ] == []


@pytest.mark.parametrize(
    ("key", "said", "is_so"),
    [
        ("fileReservedTime", "72 hours", True),
        ("fileReservedTime", "3 days", True),
        ("fileReservedTime", "48", False),
        ("flushDiskType", "ASYNC_FLUSH", True),
        ("flushDiskType", "SYNC_FLUSH", False),
        ("sinkStagedExpireMs", "an hour", True),
        ("sinkStagedExpireMs", "3600", False),
        ("bindAddress", "0.0.0.0", False),
    ],
)
def test_a_default_is_compared_in_its_unit(key: str, said: str, is_so: bool) -> None:
    assert is_default(key, said) is is_so


def given_in_prose() -> Iterator[tuple[str, str, str]]:
    """Where, key and value of each ``key=value`` of pages, files and messages."""
    texts = [(page.name, page.text) for page in pages()]
    for top in ("docker", ".github", "benchmarks"):
        for path in (ROOT / top).rglob("*"):
            if (
                path.suffix in {".conf", ".yml", ".yaml", ".sh", ".service", ".Dockerfile", ""}
                and path.is_file()
                and ".build" not in path.parts  # what the benchmarks compile
            ):
                texts.append((path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8")))
    for at, text in texts:
        for key, value in _GIVEN.findall(text):
            yield at, key, value.rstrip(".:*")


def test_what_a_sentence_says_is_the_default_is_that_of_a_setting_that_it_names() -> None:
    wrong = [
        f"{said}: {line}"
        for page in pages()
        for line in page.sentences()
        for said in said_to_be_defaults(line.text)
        if (keys := [key for key in re.findall(r"`(\w+)[`=]", line.text) if key in FIELDS])
        if not any(is_default(key, said) for key in keys)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "text",
    [
        "4 s is the default",
        "it is 4 s by default",
        "by default 4 s",
        "(default: 4 s)",
        "(default 4 s)",
        "the default is `4 s`",
    ],
)
def test_what_is_said_to_be_a_default_is_found(text: str) -> None:
    assert said_to_be_defaults(text) == ["4 s"]


def test_what_is_said_of_a_group_s_fields_is_their_default() -> None:
    """``retryMaxTimes`` (16), ``retryMaxTimes`` times (16)."""
    fields = {key: default for key, (_, default) in subscription_groups._FIELDS.items()}
    found = [
        (line, key, said)
        for page in pages()
        for line in page.sentences()
        for key, said in re.findall(r"`(\w+)`(?: times)? \(([\d,]+|true|false)\)", line.text)
        if key in fields
    ]
    found += [
        (line, "retryMaxTimes", said)
        for page in pages()
        for line in page.sentences()
        for said in re.findall(r"`max_reconsume_times` \([^)]*\b(\d+)\)", line.text)
    ]
    assert len(found) > 2
    assert [
        f"{key} is {fields[key]}: {line}"
        for line, key, said in found
        if said.replace(",", "") != str(fields[key]).lower()
    ] == []


def test_what_is_set_in_prose_is_a_setting_with_a_value_that_it_takes() -> None:
    found = list(given_in_prose())
    assert len(found) > 100
    assert [
        f"{at}: {key}={value}"
        for at, key, value in found
        if key not in FIELDS and key not in OTHERS | NOT_OURS
    ] == []
    assert [
        f"{at}: {key}={value}"
        for at, key, value in found
        if key in FIELDS and value and not re.search(r"[<$\\{]|\.\.", value)
        if (at, key, value) not in OF_ROCKETMQ and not is_a_value(key, value)
    ] == []


def test_what_only_unless_it_is_set_is_not_the_default() -> None:
    """Refused unless ``remoteAdmin=true`` says that it is false."""
    found = [
        (line, key, value)
        for page in pages()
        for line in page.sentences()
        for clause in re.findall(r"\bunless ([^.;]*)", line.text)
        for key, value in _GIVEN.findall(clause)
        if key in FIELDS
    ]
    assert len(found) > 3
    image = properties_of(load_config(ROOT / "docker/broker.conf").config)
    assert [
        f"{key}={value}: {line}"
        for line, key, value in found
        if (image[key] == value if " image " in line.text else is_default(key, value))
    ] == []


def said_to_be_live(of_pages: Iterable[Page]) -> Iterator[tuple[Line, str, bool]]:
    """Settings that prose changes in a running broker, and those that it says cannot be."""
    for page in of_pages:
        for block in page.blocks():
            for command in re.findall(r"rockhopper broker config ([^#\n]*)", block.text):
                for key, _ in _GIVEN.findall(command):
                    yield Line(page.name, block.number, command), key, True
        for line in page.sentences():
            keys = [key for key in re.findall(r"`(\w+)(?:=[^`]*)?`", line.text) if key in FIELDS]
            if _AT_THE_START.search(line.text):
                yield from ((line, key, False) for key in keys)
            elif _AT_ONCE.search(line.text):
                yield from ((line, key, True) for key in keys)


def test_what_is_live_is_so() -> None:
    found = list(said_to_be_live(pages()))
    assert {is_so for _, _, is_so in found} == {True, False}
    assert [f"{key}: {line}" for line, key, is_so in found if is_live(key) != is_so] == []


@pytest.mark.parametrize(
    "text",
    [
        "`listenPort` takes effect at once.",
        "Change `haMode` without a restart.",
        "`timerMaxDelaySec` may be changed while the broker runs.",
        "`fileReservedTime` takes effect at the next start.",
        "`metricsQueuesMax` needs a restart.",
        "`brokerPermission` is read at the start.",
    ],
)
def test_what_is_not_live_or_is_so_is_found(text: str) -> None:
    ((_, key, is_so),) = said_to_be_live([Page("docs/page.md", text)])
    assert is_live(key) is not is_so


def test_names_in_backticks_are_known() -> None:
    """What looks like a setting is one, or stands in the code, or belongs to somebody else."""
    words = known_words()
    wrong = [
        f"{name}: {quoted}"
        for page in pages()
        for quoted in page.quoted()
        for name in _CAMEL.findall(quoted.text)
        if name not in FIELDS
        and name not in OTHERS | FOREIGN
        and name not in words
        and name.lower() not in words
    ]
    assert wrong == []


def test_no_name_is_excused_that_nobody_uses() -> None:
    text = "\n".join(page.text for page in pages())
    assert [name for name in FOREIGN | NOT_OURS if not re.search(rf"\b{name}\b", text)] == []


def test_variables_of_the_environment_are_settings() -> None:
    settings = {key.upper() for key in FIELDS.keys() | OTHERS}
    texts = {page.name: page.text for page in pages()}
    for top in ("docker", ".github"):
        for path in (ROOT / top).rglob("*"):
            if path.is_file() and path.suffix not in {".json", ".pyc", ".png"}:
                texts[path.relative_to(ROOT).as_posix()] = path.read_text(encoding="utf-8")
    found = [(at, name) for at, text in texts.items() for name in _ENVIRONMENT.findall(text)]
    assert len(found) > 30
    assert [
        f"{at}: ROCKHOPPER_{name}"
        for at, name in found
        if name.replace("_", "") not in settings
        and name not in VARIABLES | {"PUBLISHED_ON", "PORT"}
    ] == []


@pytest.mark.parametrize(
    "path", sorted((ROOT / "docker").glob("*.conf")), ids=lambda path: path.name
)
def test_the_image_s_settings_are_read_without_a_warning(path: Path) -> None:
    loaded = load_config(path, {}, {})
    assert [warning for warning in loaded.warnings if "unknown" in warning] == []


def test_messages_and_docstrings_set_what_there_is() -> None:
    """``set haMode=classic`` in an error, a log entry or a docstring."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sources(".py"))
    found = [
        (f"{path.relative_to(ROOT)}: {key}={value}", key, value.rstrip(".:*`"))
        for path, string in code().texts
        for key, value in _GIVEN.findall(string)
    ]
    assert len(found) > 60
    assert [
        at
        for at, key, value in found
        # A name cut off by "//", by a placeholder, or that is one.
        if key in FIELDS and value and not re.search(r"[<$\\{/]|\.\.|^(?:n|static)$", value)
        if not is_a_value(key, value)
    ] == []
    assert [
        at
        for at, key, _ in found
        if key not in FIELDS.keys() | OTHERS | NOT_OURS
        and f'"{key}"' not in text
        and key not in {"topicA", "groupA", "viewBox"}
    ] == []


def test_choices_are_those_of_the_code() -> None:
    """A table of a setting's values has all of them, and a row about one names no other value."""
    choices = {
        key: {str(each.value) for each in type(field.default)}
        for key, (_, field, _) in FIELDS.items()
        if isinstance(field.default, Enum)
    }
    tables = 0
    for of_page in pages():
        for table in of_page.tables():
            key = table.heads[0].strip("`")
            if key in choices:
                tables += 1
                values = [re.findall(r"`([\w-]+)`", cells[0])[0] for _, cells in table.rows]
                assert set(values) == choices[key], (of_page.name, key)
            for number, cells in table.rows:
                keys = [each for each in re.findall(r"`(\w+)`", cells[0]) if each in choices]
                if len(keys) == 1 and of_page.name != "docs/settings.md":
                    named = set(re.findall(r"`([a-z-]+)`(?=[,;:.])", "|".join(cells[1:])))
                    assert named <= choices[keys[0]], (of_page.name, number)
    assert tables > 1
