"""The server: the event loop, listening sockets and TLS, and the remoting protocol."""
