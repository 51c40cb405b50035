"""Make a BrokerConfig from broker.conf, the environment and flags.

The file is a Java properties file, like RocketMQ's broker.conf
(protocol/bodies/properties_text.py). The environment names keys as ROCKHOPPER_<KEY>, in any case
and with underscores anywhere: ROCKHOPPER_LISTEN_PORT is listenPort. Unknown keys cause a warning,
not an error. Variables that Kubernetes injects for a Service whose name begins with rockhopper are
not settings.
"""

import dataclasses
import os
import re
import stat
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from rockhopper.broker.settings.auth_config import GENERATE, SECRET_KEYS
from rockhopper.broker.settings.broker_config import (
    AuthConfig,
    BrokerConfig,
    NameServiceConfig,
    StoreConfig,
)
from rockhopper.broker.settings.classic_config import ClassicConfig
from rockhopper.broker.settings.config_layers import (
    Layer,
    Mistakes,
    file_layer,
    place_of,
)
from rockhopper.broker.settings.following_config import FollowingConfig
from rockhopper.broker.settings.live_settings import (
    LIVE_PARTS,
    LivePopSettings,
    LivePullSettings,
    LiveSettings,
    LiveStoreSettings,
    LiveTransactionSettings,
)
from rockhopper.broker.settings.replica_config import ReplicaConfig, translate_replica_settings
from rockhopper.broker.settings.rocketmq_keys import REFUSED, WITHOUT_EFFECT
from rockhopper.broker.settings.setting_fields import (
    SettingError,
    format_fields,
    format_value,
    parse_bool,
    parse_fields,
    settings_of,
)
from rockhopper.broker.settings.store_layout import StoreLayout
from rockhopper.broker.settings.tls_config import (
    SECRETS,
    TLS_FILE,
    TLS_SPELLINGS,
    TlsConfig,
    rename_tls_keys,
    with_tls_file,
)
from rockhopper.paths import expand_home
from rockhopper.protocol.addresses import is_loopback
from rockhopper.protocol.bodies.properties_text import decode_properties_text
from rockhopper.protocol.errors import MalformedBodyError
from rockhopper.protocol.store.delay_levels import delays_ms

_Part = TypeVar("_Part")

ENVIRONMENT_PREFIX = "ROCKHOPPER_"
_SERVICE_VARIABLE = re.compile(
    r".*_SERVICE_(HOST|PORT(_.*)?)|.*_PORT_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?", re.IGNORECASE
)
_SERVICE_ADDRESS = re.compile(r"(tcp|udp|sctp)://")
_AUTO_CREATE_ENABLE = "autoCreateTopicEnable"
# A former spelling of initialOffset, and its values.
_YOUNG_QUEUE = "newGroupYoungQueue"
_INITIAL_OFFSETS = {"first": "compat", "client": "strict"}
_SPELLINGS = {
    **TLS_SPELLINGS,
    _AUTO_CREATE_ENABLE: "autoCreateTopic",
    _YOUNG_QUEUE: "initialOffset",
    "totalReplicas": "haReplicas",
}
SETTING_PARTS: tuple[type, ...] = (
    BrokerConfig,
    LiveSettings,
    LivePullSettings,
    LivePopSettings,
    LiveTransactionSettings,
    StoreConfig,
    LiveStoreSettings,
    NameServiceConfig,
    FollowingConfig,
    ReplicaConfig,
    ClassicConfig,
    AuthConfig,
    TlsConfig,
)
"""The classes whose fields are the settings of a configuration."""
_OUR_KEYS = frozenset(known.key for part in SETTING_PARTS for _, known in settings_of(part))
# Keys of RocketMQ that name a file or a directory, and its place here; None: there is none.
_PLACES: dict[str, Callable[[StoreLayout], Path | None]] = {
    "abortFile": lambda layout: layout.abort,
    "configStorePath": lambda layout: layout.config,
    "kvConfigPath": lambda layout: layout.config / "kvConfig.json",
    "rocketmqHome": lambda layout: None,
    "storeCheckpoint": lambda layout: layout.checkpoint,
    "storePathBrokerIdentity": lambda layout: None,
    "storePathCheckpoint": lambda layout: layout.checkpoint,
    "storePathConsumeQueue": lambda layout: layout.consume_queues,
    "storePathDLedgerCommitLog": lambda layout: layout.commit_log,
    "storePathEpochFile": lambda layout: None,
    "storePathIndex": lambda layout: layout.index,
}
_READ_ONLY_LOGS = "readOnlyCommitLogStorePaths"
_LIVE_KEYS = frozenset(known.key for part in LIVE_PARTS for _, known in settings_of(part))
_KNOWN_KEYS = (
    _OUR_KEYS
    | {_AUTO_CREATE_ENABLE, _YOUNG_QUEUE, TLS_FILE}
    | WITHOUT_EFFECT.keys()
    | REFUSED.keys()
)
HIDDEN = "(set)"
"""Shown in place of a secret."""
# Settings of clients on this machine (tls.py and credentials.py in client/network/), and of the
# loader of compiled code (protocol/compiled.py).
_NOT_OURS = frozenset(
    {
        "PUREPYTHON",
        *("TLS", "TLSCA", "TLSCERT", "TLSKEY", "TLSVERIFY"),
        *("ACCESSKEY", "SECRETKEY", "CREDENTIALSFILE"),
    }
)


class LoadedConfig(NamedTuple):
    """A configuration, and warnings about its sources for the operator."""

    config: BrokerConfig
    warnings: list[str]
    ignored_keys: list[str]
    notes: Sequence[str] = ()


def parse_properties(text: bytes | str) -> dict[str, str]:
    """Return the entries of a properties file. Raises SettingError."""
    try:
        return decode_properties_text(text)
    except MalformedBodyError as error:
        raise SettingError("properties", str(text[:80]), str(error)) from None


def _read_layers(
    path: Path | None, environment: Mapping[str, str], flags: Mapping[str, str]
) -> list[Layer]:
    return [
        file_layer(path) if path is not None else Layer(),
        _from_environment(environment),
        Layer(dict(flags), dict.fromkeys(flags, "command line")),
    ]


def _merge(layers: Iterable[Layer], mistakes: Mistakes) -> dict[str, str]:
    """Return the texts of all layers; those of later ones take precedence."""
    texts: dict[str, str] = {}
    for layer in layers:
        texts.update(mistakes.attempt(_expand_shorthand, layer.texts) or {})
    return texts


def _check_keys(
    texts: Mapping[str, str], layers: Sequence[Layer], place: Callable[[str], str | None]
) -> tuple[list[SettingError], list[str]]:
    """Return unknown and repeated keys, as faults and as warnings."""
    unknown = [key for key in texts if key not in _KNOWN_KEYS]
    repeated = [each for layer in layers for each in layer.repeated]
    faults = [_no_such_setting(key, texts[key]) for key in unknown] + repeated
    return faults, [_warning(key, place(key)) for key in unknown] + list(map(str, repeated))


def _set_name_server_port(texts: dict[str, str]) -> None:
    # A namesrv.conf of RocketMQ calls its port listenPort.
    if texts.get("role", "").lower() == "nameserver" and "listenPort" in texts:
        texts.setdefault("namesrvPort", texts["listenPort"])


def load_config(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
    *,
    strict: bool = False,
    foresee: Callable[[BrokerConfig, Collection[str]], Iterable[SettingError]] | None = None,
) -> LoadedConfig:
    """Return the configuration: defaults < file < environment < flags.

    *foresee* returns further problems of a configuration and the keys that were set.

    Raises:
        SettingError: a value is invalid, or with *strict* a key is unknown or repeated;
            SettingErrors for several, with all that could be found at once.
        OSError: the file cannot be read.
    """
    layers = _read_layers(path, environment or {}, flags or {})
    mistakes = Mistakes(fault for layer in layers for fault in layer.faults)
    texts = _merge(layers, mistakes)
    layers.insert(0, _tls_layer(texts))

    def place(key: str) -> str | None:
        return place_of(key, layers, _SPELLINGS)

    faults, warnings = _check_keys(texts, layers, place)
    if strict:
        mistakes.found += faults
        warnings = []
    mistakes.found += _refusals(texts)
    _set_name_server_port(texts)
    config = _build(mistakes.attempt(_translate_names, texts) or texts, mistakes)
    if foresee is not None and config is not None:
        mistakes.add_errors(foresee(config, texts))
    mistakes.raise_all(place, warnings)
    assert config is not None
    warnings += [str(each.set_place(place(each.key))) for each in _expiring(config)]
    warnings += _warnings(config, texts)
    warnings += _list_shown_secrets(path, layers[1])
    without_effect = sorted(WITHOUT_EFFECT.keys() & texts.keys())
    return LoadedConfig(config, warnings, without_effect, config.replication.notes())


def _tls_layer(texts: Mapping[str, str]) -> Layer:
    """Return the named TLS file as a layer, for places; another step reports an unreadable one."""
    named = texts.get(TLS_FILE, "").strip()
    try:
        return file_layer(expand_home(named)) if named else Layer()
    except OSError:
        return Layer()


def _translate_names(texts: Mapping[str, str]) -> dict[str, str]:
    return translate_replica_settings(with_tls_file(texts))[0]


def _refusals(texts: Mapping[str, str]) -> list[SettingError]:
    errors: list[SettingError] = []
    for key, why in REFUSED.items():
        try:
            if key in texts and parse_bool(key, texts[key]):
                errors.append(SettingError(key, texts[key], why))
        except SettingError as error:
            errors.append(error)
    if logs := texts.get(_READ_ONLY_LOGS, "").strip():
        why = (
            "a commit log spread over several directories is not supported: move its files "
            "together, to the directory of storePathCommitLog, and remove the setting"
        )
        errors.append(SettingError(_READ_ONLY_LOGS, logs, why))
    return errors


def _warnings(config: BrokerConfig, texts: Mapping[str, str]) -> list[str]:
    """Return warnings about a valid configuration."""
    warnings = _place_warnings(texts, StoreLayout.from_config(config.store))
    warnings += (
        translate_replica_settings(texts)[1]
        + config.replication.warnings()
        + config.slave_warnings()
    )
    if (
        config.broker_ip1
        and is_loopback(config.bind_address)
        and not is_loopback(config.broker_ip1)
    ):
        warnings.append(
            f"clients connect to brokerIP1={config.broker_ip1}, but the broker listens on "
            f"bindAddress={config.bind_address}: set bindAddress=0.0.0.0 to let them in"
        )
    return warnings


def build_config(texts: Mapping[str, str]) -> BrokerConfig:
    """Return a configuration from values by key. Raises SettingError."""
    mistakes = Mistakes()
    config = _build(_translate_names(_expand_shorthand(texts)), mistakes)
    mistakes.raise_all()
    assert config is not None
    return config


def _build(texts: Mapping[str, str], mistakes: Mistakes) -> BrokerConfig | None:
    def part(kind: Callable[..., _Part], **inner: object) -> _Part | None:
        # An invalid part is omitted: with its defaults, further problems can be found.
        return mistakes.attempt(
            lambda left: kind(**inner, **parse_fields(cast(type, kind), left)), texts
        )

    store = part(StoreConfig, **_read_given(live=part(LiveStoreSettings)))
    return part(
        BrokerConfig,
        **_read_given(
            live=part(LiveSettings),
            pull=part(LivePullSettings),
            pop=part(LivePopSettings),
            transactions=part(LiveTransactionSettings),
            store=store and store.round_up_sizes(),
            name_service=part(NameServiceConfig),
            following=part(FollowingConfig),
            replication=part(ReplicaConfig),
            classic=part(ClassicConfig),
            auth=part(AuthConfig),
            tls=part(TlsConfig),
        ),
    )


def _read_given(**parts: object) -> dict[str, object]:
    return {name: part for name, part in parts.items() if part is not None}


def change_live(config: BrokerConfig, texts: Mapping[str, str]) -> BrokerConfig:
    """Return *config* with those changes of *texts* that may be made while the broker runs.

    Unknown keys are ignored, as in RocketMQ.

    Raises:
        SettingError: a value is invalid, or a setting needs a restart.
    """
    changes = _expand_shorthand(texts)
    current = properties_of(config)
    for key, text in changes.items():
        if key in _OUR_KEYS and key not in _LIVE_KEYS and current[key] != text.strip():
            raise SettingError(key, text, "a change needs a restart of the broker")
    if config.is_replicated:
        _check_unchanged("flushDiskType", changes, current)

    def change(part: _Part) -> _Part:
        changed: _Part = dataclasses.replace(cast(Any, part), **parse_fields(type(part), changes))
        return changed

    in_store = change(config.store.live)
    changed = dataclasses.replace(
        config,
        live=change(config.live),
        pull=change(config.pull),
        pop=change(config.pop),
        transactions=change(config.transactions),
        store=dataclasses.replace(config.store, live=in_store),
    )
    if not {"fileReservedTime", "messageDelayLevel"}.isdisjoint(changes):
        for error in _expiring(changed):
            raise error
    return changed


def _check_unchanged(key: str, changes: Mapping[str, str], current: Mapping[str, str]) -> None:
    if key in changes and changes[key].strip() != current[key]:
        raise SettingError(key, changes[key], "with replicas or slaves, a change needs a restart")


def _expiring(config: BrokerConfig) -> list[SettingError]:
    """Return an error if a message would expire while it waits at a delay level."""
    longest_ms = max(delays_ms(config.live.delay_levels))
    hours = config.store.live.file_reserved_hours
    if longest_ms < hours * 3_600_000:
        return []
    why = (
        f"messages wait up to {longest_ms / 3600000:g} hours at delay levels "
        "(messageDelayLevel), and would expire before delivery: set a longer time"
    )
    return [SettingError("fileReservedTime", hours, why)]


def apply_live(config: BrokerConfig, changed: BrokerConfig) -> None:
    """Copy the live settings of *changed* into the shared objects of *config*."""
    for shared, part in zip(parts_of(config), parts_of(changed), strict=True):
        if isinstance(shared, LIVE_PARTS):
            vars(shared).update(vars(part))


def parts_of(config: BrokerConfig) -> tuple[object, ...]:
    """Return the parts of a configuration that hold settings."""
    return (
        config,
        config.live,
        config.pull,
        config.pop,
        config.transactions,
        config.store,
        config.store.live,
        config.name_service,
        config.following,
        config.replication,
        config.classic,
        config.auth,
        config.tls,
    )


def is_live(key: str) -> bool:
    """Return whether a setting may change while the broker runs."""
    return key in _LIVE_KEYS


def properties_of(config: BrokerConfig) -> dict[str, str]:
    """Return all settings by RocketMQ's keys, as request code 26 and ``-p`` show them."""
    properties: dict[str, str] = {}
    for part in parts_of(config):
        properties |= format_fields(part)
    for key in (*SECRETS, *SECRET_KEYS):
        properties[key] = HIDDEN if properties[key] not in ("", GENERATE) else properties[key]
    properties[_AUTO_CREATE_ENABLE] = format_value(properties["autoCreateTopic"] != "off")
    return dict(sorted(properties.items()))


def _expand_shorthand(texts: Mapping[str, str]) -> dict[str, str]:
    """Return *texts* with autoCreateTopicEnable replaced by autoCreateTopic, which has more values.

    It also replaces newGroupYoungQueue by initialOffset, and RocketMQ's tls.* by our keys.
    """
    full = rename_tls_keys(texts)
    young = full.pop(_YOUNG_QUEUE, None)
    if young is not None:
        full.setdefault("initialOffset", _INITIAL_OFFSETS.get(young.strip().lower(), young))
    enabled = full.pop(_AUTO_CREATE_ENABLE, None)
    if enabled is not None and "autoCreateTopic" not in full:
        full["autoCreateTopic"] = "on-send" if parse_bool(_AUTO_CREATE_ENABLE, enabled) else "off"
    return full


def _from_environment(environment: Mapping[str, str]) -> Layer:
    key_of = {key.upper(): key for key in _KNOWN_KEYS}
    layer = Layer()
    for name, text in environment.items():
        if name.upper().startswith(ENVIRONMENT_PREFIX) and not _is_of_kubernetes(name, text):
            bare = name[len(ENVIRONMENT_PREFIX) :].replace("_", "")
            if bare.upper() in _NOT_OURS:
                continue
            layer.set(key_of.get(bare.upper(), bare), text, f"environment variable {name}")
    return layer


def _is_of_kubernetes(name: str, text: str) -> bool:
    """Return whether Kubernetes injects this variable for a Service of the namespace.

    A Service rockhopper-grpc adds ROCKHOPPER_GRPC_PORT=tcp://10.96.0.5:8081 to every pod. A number
    in that variable is grpcPort.
    """
    return bool(_SERVICE_VARIABLE.fullmatch(name) or _SERVICE_ADDRESS.match(text))


def check_keys(texts: Mapping[str, str]) -> None:
    """Raise SettingError for an unknown key."""
    for key, text in texts.items():
        if key not in _KNOWN_KEYS:
            raise _no_such_setting(key, text)


def _no_such_setting(key: str, text: str) -> SettingError:
    return SettingError(key, text, f"there is no such setting{_nearest(key)}")


def _list_shown_secrets(path: Path | None, layer: Layer) -> list[str]:
    """Return a warning if other users of this machine can read a file that holds secrets."""
    texts = rename_tls_keys(layer.texts)
    secrets = [
        key for key in (*SECRETS, *SECRET_KEYS) if texts.get(key, "").strip() not in ("", GENERATE)
    ]
    # Windows reports every file as readable by all.
    if path is None or not secrets or os.name != "posix":
        return []
    if not path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        return []
    named = ", ".join(secrets)
    return [
        f"other users of this machine can read {path}, which contains {named}: chmod 600 {path}"
    ]


def _place_warnings(texts: Mapping[str, str], layout: StoreLayout) -> list[str]:
    """Return warnings about keys that name another place than the one in use."""
    warnings = []
    for key, place_in in _PLACES.items():
        named, place = texts.get(key, "").strip(), place_in(layout)
        if not named or (place is not None and Path(named).resolve() == place.resolve()):
            continue
        instead = f": {place} is used" if place is not None else ""
        warnings.append(f"setting {key}={named} has no effect{instead}")
    return warnings


def _warning(key: str, place: str | None) -> str:
    where = f"{place}: " if place else ""
    return f"{where}setting {key} is unknown and has no effect{_nearest(key)}"


def _nearest(key: str) -> str:
    lower_case = {known.lower(): known for known in _KNOWN_KEYS}
    import difflib  # of errors only

    nearest = difflib.get_close_matches(key.lower(), lower_case, n=1)
    return f"; did you mean {lower_case[nearest[0]]}?" if nearest else ""
