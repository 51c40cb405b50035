"""The name server: which brokers serve a topic, and at which addresses."""
