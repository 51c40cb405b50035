"""The broker's server: ports and connections, protocols and the event loop."""
