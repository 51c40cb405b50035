"""The settings of the name service, embedded or alone: the defaults and the costs."""

from dataclasses import dataclass

from rockhopper.broker.settings.setting_fields import check_fields, setting


@dataclass(frozen=True, kw_only=True)
class NameServiceConfig:
    """What the name service answers, embedded or alone."""

    order_message_enable: bool = setting("orderMessageEnable", False)
    """Fill orderTopicConf of a route from the key-value namespace ORDER_TOPIC_CONFIG."""

    all_topic_list_enable: bool = setting("enableAllTopicList", True)
    """Whether code 206 may list every topic."""

    topic_list_enable: bool = setting("enableTopicList", True)
    """Whether codes 224 and 311 to 313 may list topics."""

    delete_topic_with_registration: bool = setting("deleteTopicWithBrokerRegistration", False)
    """Drop what a broker's next registration no longer names. Off as in RocketMQ, where a broker
    may register its topics one by one; the embedded broker's deletions show at once anyway."""

    scan_interval_ms: int = setting("scanNotActiveBrokerInterval", 5000, least=10, most=3_600_000)
    """How often silent brokers are looked for.

    Cost: a long one leaves a broker that is away in routes for so much longer.
    """

    broker_expiry_ms: int = setting("brokerExpiryMillis", 120_000, least=100, most=86_400_000)
    """Ours. Silence after which a broker is dropped when its registration names no time.

    Cost: a long one sends clients to a broker that is away, a short one drops one that hesitates.
    """

    def __post_init__(self) -> None:
        check_fields(self)
