"""RocketMQ's remoting protocol on sockets: connections, requests, answers; and the ports."""
