"""What is known of somebody before its protocol begins."""

from rockhopper.broker.server.listening.caller import DIRECT


def test_who_comes_directly_has_the_name_of_its_socket_and_no_tls() -> None:
    assert DIRECT.address is None
    assert not DIRECT.is_tls
