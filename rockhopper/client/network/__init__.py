"""Connections to brokers and name servers, and the routes of topics."""
