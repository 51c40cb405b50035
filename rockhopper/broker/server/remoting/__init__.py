"""RocketMQ's remoting protocol on sockets: connections, requests, responses; and the ports."""
