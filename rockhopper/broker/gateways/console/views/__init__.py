"""The views of the console: each queries brokers and returns the values of a page."""
