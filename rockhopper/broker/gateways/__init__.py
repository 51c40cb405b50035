"""Gateways for clients that do not use remoting: gRPC and the web console."""
