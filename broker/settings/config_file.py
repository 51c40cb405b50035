"""From broker.conf, the environment and flags to a BrokerConfig.

The file is a Java properties file, as RocketMQ's broker.conf (protocol/bodies/properties_text.py).
The environment names keys as ROCKHOPPER_<KEY>, in any case and with underscores anywhere:
ROCKHOPPER_LISTEN_PORT is listenPort. Keys that nobody knows bring a warning, not an error.
"""

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rockhopper.broker.settings.auth_config import SECRET_KEYS
from rockhopper.broker.settings.broker_config import (
    AuthConfig,
    BrokerConfig,
    NameServiceConfig,
    StoreConfig,
)
from rockhopper.broker.settings.classic_config import ClassicConfig
from rockhopper.broker.settings.following_config import FollowingConfig
from rockhopper.broker.settings.live_settings import LiveSettings, LiveStoreSettings
from rockhopper.broker.settings.replica_config import ReplicaConfig, in_our_terms
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
    TlsConfig,
    in_our_spelling,
    with_tls_file,
)
from rockhopper.protocol.addresses import is_loopback
from rockhopper.protocol.bodies.properties_text import decode_properties_text
from rockhopper.protocol.errors import MalformedBodyError

ENVIRONMENT_PREFIX = "ROCKHOPPER_"
_AUTO_CREATE_ENABLE = "autoCreateTopicEnable"
# An earlier spelling of initialOffset, and its values.
_YOUNG_QUEUE = "newGroupYoungQueue"
_INITIAL_OFFSETS = {"first": "compat", "client": "strict"}
_OUR_KEYS = frozenset(
    known.key
    for part in (
        BrokerConfig,
        LiveSettings,
        StoreConfig,
        LiveStoreSettings,
        NameServiceConfig,
        FollowingConfig,
        ReplicaConfig,
        ClassicConfig,
        AuthConfig,
        TlsConfig,
    )
    for _, known in settings_of(part)
)
# Keys of RocketMQ that name a file or a directory, and where that is here; None: there is none.
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
_LIVE_KEYS = frozenset(
    known.key for part in (LiveSettings, LiveStoreSettings) for _, known in settings_of(part)
)
_KNOWN_KEYS = (
    _OUR_KEYS | {_AUTO_CREATE_ENABLE, _YOUNG_QUEUE, TLS_FILE} | WITHOUT_EFFECT | REFUSED.keys()
)
HIDDEN = "(set)"
"""Shown in place of what must not be seen."""
# What this machine's clients read, see tls.py and credentials.py in client/network/.
_CLIENTS_OWN = frozenset(
    {
        *("TLS", "TLSCA", "TLSCERT", "TLSKEY", "TLSVERIFY"),
        *("ACCESSKEY", "SECRETKEY", "CREDENTIALSFILE"),
    }
)


class LoadedConfig(NamedTuple):
    """A configuration, and what its operator should be told about where it came from."""

    config: BrokerConfig
    warnings: list[str]
    ignored_keys: list[str]
    notes: Sequence[str] = ()


def parse_properties(text: bytes | str) -> dict[str, str]:
    """The entries of a properties file. Raises SettingError."""
    try:
        return decode_properties_text(text)
    except MalformedBodyError as error:
        raise SettingError("properties", str(text[:80]), str(error)) from None


def load_config(
    path: Path | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """The configuration: defaults < file < environment < flags.

    Raises:
        SettingError: a value makes no sense.
        OSError: the file cannot be read.
    """
    layers = [
        parse_properties(path.read_bytes()) if path is not None else {},
        _from_environment(environment or {}),
        dict(flags or {}),
    ]
    texts: dict[str, str] = {}
    for layer in layers:
        texts.update(_without_shorthand(layer))
    warnings = [_warning(key) for key in texts if key not in _KNOWN_KEYS]
    ignored = sorted(key for key in texts if key in WITHOUT_EFFECT)
    for key, why in REFUSED.items():
        if key in texts and parse_bool(key, texts[key]):
            raise SettingError(key, texts[key], why)
    if texts.get("role", "").lower() == "nameserver" and "listenPort" in texts:
        # A namesrv.conf of RocketMQ's names the port so.
        texts.setdefault("namesrvPort", texts["listenPort"])
    if texts.get(_READ_ONLY_LOGS, "").strip():
        raise SettingError(
            _READ_ONLY_LOGS,
            texts[_READ_ONLY_LOGS],
            "a commit log divided over directories is not served: move its files together, to "
            "where storePathCommitLog points, and remove the setting",
        )
    config = build_config(texts)
    warnings += _place_warnings(texts, StoreLayout.of(config.store))
    warnings += in_our_terms(texts)[1] + config.replication.warnings() + config.slave_warnings()
    if (
        config.broker_ip1
        and is_loopback(config.bind_address)
        and not is_loopback(config.broker_ip1)
    ):
        warnings.append(
            f"clients are told brokerIP1={config.broker_ip1} and the broker listens on "
            f"bindAddress={config.bind_address}: set bindAddress=0.0.0.0 to let them in"
        )
    return LoadedConfig(config, warnings, ignored, config.replication.notes())


def build_config(texts: Mapping[str, str]) -> BrokerConfig:
    """A configuration from values by key. Raises SettingError."""
    texts, _ = in_our_terms(with_tls_file(_without_shorthand(texts)))
    store = StoreConfig(
        live=LiveStoreSettings(**parse_fields(LiveStoreSettings, texts)),
        **parse_fields(StoreConfig, texts),
    )
    return BrokerConfig(
        live=LiveSettings(**parse_fields(LiveSettings, texts)),
        store=store.in_whole_entries(),
        name_service=NameServiceConfig(**parse_fields(NameServiceConfig, texts)),
        following=FollowingConfig(**parse_fields(FollowingConfig, texts)),
        replication=ReplicaConfig(**parse_fields(ReplicaConfig, texts)),
        classic=ClassicConfig(**parse_fields(ClassicConfig, texts)),
        auth=AuthConfig(**parse_fields(AuthConfig, texts)),
        tls=TlsConfig(**parse_fields(TlsConfig, texts)),
        **parse_fields(BrokerConfig, texts),
    )


def change_live(config: BrokerConfig, texts: Mapping[str, str]) -> BrokerConfig:
    """*config* with those changes of *texts* that may be made while the broker runs.

    Unknown keys are left out, as RocketMQ does.

    Raises:
        SettingError: a value makes no sense, or a setting needs a restart.
    """
    changes = _without_shorthand(texts)
    current = properties_of(config)
    for key, text in changes.items():
        if key in _OUR_KEYS and key not in _LIVE_KEYS and current[key] != text.strip():
            raise SettingError(key, text, "it changes only with a restart of the broker")
    replace = dataclasses.replace
    in_store = replace(config.store.live, **parse_fields(LiveStoreSettings, changes))
    return replace(
        config,
        live=replace(config.live, **parse_fields(LiveSettings, changes)),
        store=replace(config.store, live=in_store),
    )


def apply_live(config: BrokerConfig, changed: BrokerConfig) -> None:
    """Have everybody who obeys the live settings of *config* obey those of *changed*."""
    vars(config.live).update(vars(changed.live))
    vars(config.store.live).update(vars(changed.store.live))


def properties_of(config: BrokerConfig) -> dict[str, str]:
    """Every setting with its value, by RocketMQ's key, as request code 26 and ``-p`` show them."""
    properties = {
        **format_fields(config),
        **format_fields(config.live),
        **format_fields(config.store),
        **format_fields(config.store.live),
        **format_fields(config.name_service),
        **format_fields(config.following),
        **format_fields(config.replication),
        **format_fields(config.classic),
        **format_fields(config.auth),
        **format_fields(config.tls),
    }
    for key in (*SECRETS, *SECRET_KEYS):
        properties[key] = HIDDEN if properties[key] else ""
    properties[_AUTO_CREATE_ENABLE] = format_value(properties["autoCreateTopic"] != "off")
    return dict(sorted(properties.items()))


def _without_shorthand(texts: Mapping[str, str]) -> dict[str, str]:
    """*texts* with autoCreateTopicEnable written as autoCreateTopic, which has more values.

    And newGroupYoungQueue as initialOffset, and RocketMQ's tls.* as ours.
    """
    full = in_our_spelling(texts)
    young = full.pop(_YOUNG_QUEUE, None)
    if young is not None:
        full.setdefault("initialOffset", _INITIAL_OFFSETS.get(young.strip().lower(), young))
    enabled = full.pop(_AUTO_CREATE_ENABLE, None)
    if enabled is not None and "autoCreateTopic" not in full:
        full["autoCreateTopic"] = "on-send" if parse_bool(_AUTO_CREATE_ENABLE, enabled) else "off"
    return full


def _from_environment(environment: Mapping[str, str]) -> dict[str, str]:
    key_of = {key.upper(): key for key in _KNOWN_KEYS}
    texts = {}
    for name, text in environment.items():
        if name.upper().startswith(ENVIRONMENT_PREFIX):
            bare = name[len(ENVIRONMENT_PREFIX) :].replace("_", "")
            if bare.upper() in _CLIENTS_OWN:
                continue
            texts[key_of.get(bare.upper(), bare)] = text
    return texts


def check_keys(texts: Mapping[str, str]) -> None:
    """Raise SettingError for a key that is not known."""
    for key, text in texts.items():
        if key not in _KNOWN_KEYS:
            raise SettingError(key, text, f"there is no such setting{_nearest(key)}")


def _place_warnings(texts: Mapping[str, str], layout: StoreLayout) -> list[str]:
    """What to say of keys that name another place than the one where the thing is."""
    warnings = []
    for key, place_in in _PLACES.items():
        named, place = texts.get(key, "").strip(), place_in(layout)
        if not named or (place is not None and Path(named).resolve() == place.resolve()):
            continue
        instead = f": {place} is used" if place is not None else ""
        warnings.append(f"setting {key}={named} has no effect{instead}")
    return warnings


def _warning(key: str) -> str:
    return f"setting {key} is not known and has no effect{_nearest(key)}"


def _nearest(key: str) -> str:
    lower_case = {known.lower(): known for known in _KNOWN_KEYS}
    nearest = difflib.get_close_matches(key.lower(), lower_case, n=1)
    return f"; the nearest known one is {lower_case[nearest[0]]}" if nearest else ""
