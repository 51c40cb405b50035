"""The settings of the name server, embedded or alone: defaults and costs."""

from rockhopper.broker.settings.setting_fields import check_fields, setting, settings_dataclass


@settings_dataclass(frozen=True)
class NameServiceConfig:
    """The name server's settings, embedded or alone."""

    order_message_enable: bool = setting("orderMessageEnable", False)
    """Fill orderTopicConf of a route from the key-value namespace ORDER_TOPIC_CONFIG."""

    all_topic_list_enable: bool = setting("enableAllTopicList", True)
    """Whether code 206 may list every topic."""

    topic_list_enable: bool = setting("enableTopicList", True)
    """Whether codes 224 and 311 to 313 may list topics."""

    delete_topic_with_registration: bool = setting("deleteTopicWithBrokerRegistration", False)
    """Drop topics that a broker's next registration no longer names. Off as in RocketMQ, where a
    broker may register its topics one by one. Topics deleted on the embedded broker disappear at
    once in any case."""

    scan_interval_ms: int = setting("scanNotActiveBrokerInterval", 5000, least=10, most=3_600_000)
    """How often the name server looks for silent brokers.

    Cost: with a long interval, a broker that is gone stays in routes for that much longer.
    """

    broker_expiry_ms: int = setting("brokerExpiryMillis", 120_000, least=100, most=86_400_000)
    """Ours. After how much silence a broker is dropped, when its registration names no time.

    Cost: a long time sends clients to a broker that is gone; a short one drops a broker that
    hesitates.
    """

    def __post_init__(self) -> None:
        check_fields(self)
