"""The event loop's time: what o'clock it is, whose turn it is, and who kept it too long."""
