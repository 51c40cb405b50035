"""Encodes and decodes the RocketMQ protocol and store formats; no I/O, no clock."""

if not __name__.startswith("rockhopper."):
    raise ImportError(f"this package is imported as rockhopper.{__name__}")
