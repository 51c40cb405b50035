"""The name service: which broker serves which topic, and at which address."""
