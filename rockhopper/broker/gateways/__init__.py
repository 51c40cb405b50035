"""Ports for other clients than remoting's: gRPC, and the web console."""
