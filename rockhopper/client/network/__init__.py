"""Connections to brokers and name services, and the routes of topics."""
