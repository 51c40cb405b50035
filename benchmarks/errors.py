"""What ends a measurement."""


class BenchError(Exception):
    """The measurement cannot be made; the message says what to do."""
