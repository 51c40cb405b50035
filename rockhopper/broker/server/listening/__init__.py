"""The one way in for every port: accept, look at the first bytes, TLS or plain, hand over."""
