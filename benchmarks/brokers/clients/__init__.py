"""The usual Python clients of each broker, each measured in a process of its own."""
