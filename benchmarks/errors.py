"""The error that ends a measurement."""


class BenchError(Exception):
    """The measurement is impossible; the message says what to do."""
