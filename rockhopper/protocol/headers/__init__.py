"""The three serialisations of a frame's header: JSON, RocketMQ's binary, msgpack."""
