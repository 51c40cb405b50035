"""Names of sockets as the broker says them."""


def socket_address(name: object) -> tuple[str, int]:
    """Host and port of a socket name, an IPv4-mapped IPv6 address as IPv4."""
    if not isinstance(name, tuple) or len(name) < 2:
        return "127.0.0.1", 0
    host = str(name[0])
    if host.startswith("::ffff:") and "." in host:
        host = host[7:]
    return host, int(name[1])
