"""Bytes of the RocketMQ protocol and store to values and back; no I/O, no clock."""
