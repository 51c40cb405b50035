"""The header of a frame in each of its serialisations: JSON, RocketMQ's binary, msgpack."""
