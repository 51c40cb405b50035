"""Clients that go on with another broker, over the connection that they have."""
