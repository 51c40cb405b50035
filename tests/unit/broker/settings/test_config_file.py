"""Settings from broker.conf, the environment and flags: precedence, warnings, refusals."""

from pathlib import Path

import pytest

from rockhopper.broker import Broker
from rockhopper.broker.settings.broker_config import BrokerConfig, Role
from rockhopper.broker.settings.config_file import apply_live, change_live, load_config
from rockhopper.broker.settings.live_settings import AutoCreateTopic, InitialOffset
from rockhopper.broker.settings.setting_fields import SettingError, SettingErrors
from rockhopper.protocol import compiled

SHIPPED = """\
# The broker.conf that RocketMQ ships, and keys that tutorials add to it.
brokerClusterName = DefaultCluster
brokerName = broker-a
brokerId = 0
deleteWhen = 04
fileReservedTime = 48
brokerRole = ASYNC_MASTER
flushDiskType = ASYNC_FLUSH
namesrvAddr=127.0.0.1:9876
bindAddress=0.0.0.0
brokerIP1=192.168.1.10
sendMessageThreadPoolNums=128
mapedFileSizeCommitLog=1073741824
storePathConsumeQueue=/data/store/consumequeue
abortFile=/data/store/abort
storePathRootDir=/data\\
    /store
"""


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_a_broker_conf_of_rocketmq_works_without_a_warning(tmp_path: Path) -> None:
    loaded = load_config(write(tmp_path / "broker.conf", SHIPPED))
    assert loaded.warnings == []
    assert loaded.config.namesrv_addr == ("127.0.0.1:9876",)
    assert loaded.config.broker_ip1 == "192.168.1.10"
    assert loaded.config.store.live.file_reserved_hours == 48
    assert loaded.config.store.root == Path("/data/store")
    assert "sendMessageThreadPoolNums" in loaded.ignored_keys


@pytest.mark.parametrize(
    ("key", "used"),
    [
        ("storePathConsumeQueue", "/data/consumequeue"),
        ("storePathIndex", "/data/index"),
        ("abortFile", "/data/abort"),
        ("storeCheckpoint", "/data/checkpoint"),
        ("storePathDLedgerCommitLog", "/data/commitlog"),
        ("kvConfigPath", "/data/config/kvConfig.json"),
    ],
)
def test_a_path_that_is_not_honoured_is_warned_about(key: str, used: str) -> None:
    loaded = load_config(flags={"storePathRootDir": "/data", key: "/elsewhere"})
    assert loaded.warnings == [f"setting {key}=/elsewhere has no effect: {used} is used"]
    assert load_config(flags={"storePathRootDir": "/data", key: used}).warnings == []


@pytest.mark.parametrize("key", ["readOnlyCommitLogStorePaths", "storePathCommitLog"])
def test_a_commit_log_in_several_directories_is_refused(key: str) -> None:
    with pytest.raises(SettingError, match=key):
        load_config(flags={key: "/disk1,/disk2"})


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    path = write(tmp_path / "broker.conf", "listenPort=1\nnamesrvPort=2\nhttpPort=3\n")
    config = load_config(
        path, {"ROCKHOPPER_NAMESRVPORT": "12", "ROCKHOPPER_HTTPPORT": "13"}, {"httpPort": "23"}
    ).config
    assert (config.listen_port, config.namesrv_port, config.http_port) == (1, 12, 23)


@pytest.mark.parametrize("service", ["rockhopper", "rockhopper-grpc", "rockhopper-listen"])
def test_variables_that_kubernetes_injects_for_a_service_are_no_settings(service: str) -> None:
    start = service.upper().replace("-", "_")
    environment = {
        f"{start}_SERVICE_HOST": "10.96.0.5",
        f"{start}_SERVICE_PORT": "8081",
        f"{start}_SERVICE_PORT_BROKER": "8081",
        f"{start}_PORT": "tcp://10.96.0.5:8081",
        f"{start}_PORT_8081_TCP": "tcp://10.96.0.5:8081",
        f"{start}_PORT_8081_TCP_PROTO": "tcp",
        f"{start}_PORT_8081_TCP_PORT": "8081",
        f"{start}_PORT_8081_TCP_ADDR": "10.96.0.5",
    }
    loaded = load_config(environment=environment, strict=True)
    assert loaded.warnings == load_config().warnings
    assert loaded.config == load_config().config


def test_the_variable_that_disables_compiled_code_is_no_setting() -> None:
    loaded = load_config(environment={compiled.SWITCH: "1"}, strict=True)
    assert loaded.warnings == load_config().warnings


def test_a_number_in_such_a_variable_is_a_setting() -> None:
    assert load_config(environment={"ROCKHOPPER_GRPC_PORT": "8081"}).config.grpc_port == 8081


@pytest.mark.parametrize(
    "name", ["ROCKHOPPER_LISTENPORT", "ROCKHOPPER_LISTEN_PORT", "rockhopper_listenPort"]
)
def test_the_environment_may_spell_a_key_in_any_case(name: str) -> None:
    loaded = load_config(environment={name: "4711", "PATH": "/bin"})
    assert loaded.config.listen_port == 4711
    assert loaded.warnings == []


def test_an_unknown_key_brings_a_warning_with_the_nearest_known_one() -> None:
    (warning,) = load_config(flags={"listenPrt": "1"}).warnings
    assert "listenPrt" in warning
    assert "listenPort" in warning


def test_a_test_s_broker_refuses_a_key_that_is_none() -> None:
    with pytest.raises(SettingError, match="no such setting; did you mean autoCreateT"):
        Broker.temporary({"autoCreateTopics": "off"})


def test_an_unknown_key_unlike_all_others_brings_a_warning_too() -> None:
    (warning,) = load_config(environment={"ROCKHOPPER_XYZZY": "1"}).warnings
    assert "XYZZY" in warning
    assert "nearest" not in warning


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"autoCreateTopicEnable": "false"}, AutoCreateTopic.OFF),
        ({"autoCreateTopicEnable": "true"}, AutoCreateTopic.ON_SEND),
        ({"autoCreateTopic": "on-lookup"}, AutoCreateTopic.ON_LOOKUP),
        (
            {"autoCreateTopicEnable": "true", "autoCreateTopic": "on-lookup"},
            AutoCreateTopic.ON_LOOKUP,
        ),
    ],
)
def test_rocketmqs_switch_and_ours_for_topic_creation(
    settings: dict[str, str], expected: AutoCreateTopic
) -> None:
    assert load_config(flags=settings).config.live.auto_create_topic is expected


def test_a_later_layers_switch_beats_an_earlier_layers_choice(tmp_path: Path) -> None:
    path = write(tmp_path / "broker.conf", "autoCreateTopic=on-lookup\n")
    config = load_config(path, {"ROCKHOPPER_AUTOCREATETOPICENABLE": "false"}).config
    assert config.live.auto_create_topic is AutoCreateTopic.OFF


def test_access_control_that_would_not_be_served_stops_the_start() -> None:
    with pytest.raises(SettingError, match="aclEnable"):
        load_config(flags={"aclEnable": "true"})
    assert load_config(flags={"aclEnable": "false"}).warnings == []


def test_an_address_at_which_nobody_listens_is_warned_about() -> None:
    (warning,) = load_config(flags={"brokerIP1": "192.168.1.10"}).warnings
    assert "bindAddress=0.0.0.0" in warning
    assert load_config(flags={"brokerIP1": "127.0.0.1"}).warnings == []


def test_a_namesrv_conf_names_its_port_as_rocketmqs_does() -> None:
    config = load_config(flags={"role": "nameserver", "listenPort": "19876"}).config
    assert (config.role, config.namesrv_port) == (Role.NAMESERVER, 19876)


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        load_config(tmp_path / "broker.conf")


def test_live_settings_change_in_place_and_others_need_a_restart() -> None:
    config = BrokerConfig()
    apply_live(config, change_live(config, {"brokerPermission": "4", "listenPort": "10911"}))
    assert config.live.broker_permission == 4
    with pytest.raises(SettingError, match="restart"):
        change_live(config, {"listenPort": "1"})
    with pytest.raises(SettingError, match="brokerPermission"):
        change_live(config, {"brokerPermission": "8"})
    assert change_live(config, {"noSuchKey": "1"}) == config


def test_what_would_expire_while_it_waits_is_refused() -> None:
    config = BrokerConfig()
    assert change_live(config, {"fileReservedTime": "3"}).store.live.file_reserved_hours == 3
    for changes in ({"fileReservedTime": "2"}, {"messageDelayLevel": "1s 3d"}):
        with pytest.raises(SettingError, match="would expire before delivery"):
            change_live(config, changes)
    both = {"fileReservedTime": "2", "messageDelayLevel": "1s 1h"}
    assert change_live(config, both).live.delay_levels == "1s 1h"


@pytest.mark.parametrize("strict", [False, True])
def test_a_store_that_has_what_would_expire_opens_with_a_warning(
    tmp_path: Path, strict: bool
) -> None:
    path = write(tmp_path / "broker.conf", "\nfileReservedTime=1\n")
    (warning,) = load_config(path, strict=strict).warnings
    assert warning.startswith(f"{path}:2: setting fileReservedTime=1: messages wait up to 2 hours")


def test_replicas_and_slaves_count_on_the_flush_mode_that_there_is() -> None:
    assert change_live(BrokerConfig(), {"flushDiskType": "SYNC_FLUSH"})
    config = load_config(flags={"followMaster": "10.0.0.1:10911"}).config
    with pytest.raises(SettingError, match="a change needs a restart"):
        change_live(config, {"flushDiskType": "SYNC_FLUSH"})
    assert change_live(config, {"flushDiskType": "ASYNC_FLUSH"})


@pytest.mark.parametrize(("young", "offset"), [("first", "compat"), ("client", "strict")])
def test_an_earlier_spelling_of_the_initial_offset_works(young: str, offset: str) -> None:
    loaded = load_config(flags={"newGroupYoungQueue": young})
    assert loaded.config.live.initial_offset is InitialOffset(offset)
    assert loaded.warnings == []
    both = load_config(flags={"newGroupYoungQueue": young, "initialOffset": "compat"})
    assert both.config.live.initial_offset is InitialOffset.COMPAT


WRONG = """\
brokerName = broker a
listenPort=abc
storePathRootDir=\\
   /data/store
x\\u12=1
authenticationEnabled=tru
authorizationEnabled=true
newGroupYoungQueue=maybe
tls.server.mode=sometimes
tls.server.certPath=/x
aclEnable=true
minInSyncReplicas=a
listenPrt=1
"""


def test_all_that_is_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "broker.conf", WRONG)
    with pytest.raises(SettingErrors) as raised:
        load_config(path, {"ROCKHOPPER_NAMESRV_PORT": "x"}, {"httpPort": "-7"})
    places = [(each.place or "").removeprefix(f"{path}:") for each in raised.value.errors]
    assert places == [
        *("1", "2", "5", "6", "8", "9", "10", "11", "12"),
        *("environment variable ROCKHOPPER_NAMESRV_PORT", "command line"),
    ]
    assert "authorizationEnabled" not in {each.key for each in raised.value.errors}
    assert all(each.place for each in raised.value.errors)
    (unknown,) = raised.value.warnings
    assert unknown.startswith(f"{path}:13: setting listenPrt is unknown")
    assert f"{path}:2: setting listenPort=abc: expected a whole number" in str(raised.value)


def test_a_setting_that_comes_twice_is_said_and_refused_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    path = write(tmp_path / "broker.conf", "listenPort=abc\nlistenPort=10911\n")
    (warning,) = load_config(path).warnings
    assert warning.startswith(f"{path}:1: setting listenPort=abc: it is ignored")
    with pytest.raises(SettingError, match=r":1: setting listenPort=abc: it is ignored"):
        load_config(path, strict=True)
    write(path, "listenPort=abc\nlistenPort=70000\n")
    with pytest.raises(SettingErrors) as raised:
        load_config(path, strict=True)
    assert [each.place for each in raised.value.errors] == [f"{path}:1", f"{path}:2"]


def test_mistakes_in_the_file_of_tls_have_its_lines(tmp_path: Path) -> None:
    of_tls = write(tmp_path / "tls.conf", "\ntls.server.mode=a\ntls.server.mode=b\n")
    path = write(tmp_path / "broker.conf", f"tls.config.file={of_tls}\n")
    with pytest.raises(SettingErrors) as raised:
        load_config(path, strict=True)
    assert [each.place for each in raised.value.errors] == [f"{of_tls}:2", f"{of_tls}:3"]


def test_what_is_unknown_is_refused_where_that_is_asked_for(tmp_path: Path) -> None:
    path = write(tmp_path / "broker.conf", "\n# a comment\nlistenPrt=1\n")
    (warning,) = load_config(path).warnings
    assert warning.startswith(f"{path}:3: setting listenPrt is unknown")
    with pytest.raises(SettingError, match=r":3: setting listenPrt=1: there is no such .* listenP"):
        load_config(path, strict=True)
    shipped = write(tmp_path / "shipped.conf", SHIPPED)
    assert load_config(shipped, strict=True).warnings == []


def test_one_part_that_is_wrong_makes_nothing_else_wrong() -> None:
    flags = {"brokerRole": "SYNC_MASTER", "haMode": "classic", "minInSyncReplicas": "2"}
    assert load_config(flags={**flags, "inSyncReplicas": "2"}).config.acknowledging_slaves == 1
    with pytest.raises(SettingError) as raised:
        load_config(flags={**flags, "inSyncReplicas": "two"})
    assert str(raised.value) == "command line: setting inSyncReplicas=two: expected a whole number"


@pytest.mark.parametrize(("mode", "is_warned"), [(0o600, False), (0o640, True), (0o644, True)])
def test_a_file_of_secrets_that_others_can_read_is_warned_about(
    mode: int, is_warned: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / "broker.conf", "tls.server.keyPassword=s3cret\n")
    path.chmod(mode)
    warnings = load_config(path).warnings
    assert [f"chmod 600 {path}" in each for each in warnings] == [True] * is_warned
    assert "s3cret" not in str(warnings)
    for harmless in ("listenPort=1", "initAuthenticationUser=generate"):
        write(path, f"{harmless}\n").chmod(0o644)
        assert load_config(path).warnings == []
