"""Where the server may listen: the probe, the bind and the rule about keys."""

from __future__ import annotations

import socket

import pytest

from engine.errors import MillmError, PortInUse, UnsafeBinding
from server.config import ServerSettings, api_key_of, is_loopback
from server.thread import bind, check_binding


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "localhost", "LOCALHOST", "::1", "[::1]"])
def test_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "example.org", ""])
def test_not_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize("key", [None, "", "  "])
def test_beyond_this_machine_a_key_is_needed(key: str | None) -> None:
    settings = ServerSettings(HOST="0.0.0.0", API_KEY=key)
    with pytest.raises(UnsafeBinding) as caught:
        check_binding(settings, insecure=False)
    assert "0.0.0.0" in caught.value.message
    check_binding(settings, insecure=True)
    check_binding(ServerSettings(HOST="0.0.0.0", API_KEY="k"), insecure=False)
    check_binding(ServerSettings(), insecure=False)


def test_a_blank_key_is_no_key() -> None:
    assert api_key_of(ServerSettings(API_KEY=" ")) is None
    assert api_key_of(ServerSettings(API_KEY=" k ")) == "k"


def test_a_taken_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(PortInUse) as caught:
            bind("127.0.0.1", port)
    assert str(port) in caught.value.message
    assert caught.value.details == {"host": "127.0.0.1", "port": port}


def test_a_port_that_is_bound_but_not_listened_on_is_taken_too() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        with pytest.raises(PortInUse):
            bind("127.0.0.1", other.getsockname()[1])


def test_any_free_port() -> None:
    with bind("127.0.0.1", 0) as listener:
        assert listener.getsockname()[1] > 0


def test_a_port_that_does_not_exist_is_a_typed_error() -> None:
    with pytest.raises(MillmError) as caught:
        bind("127.0.0.1", 70000)
    assert "70000" in caught.value.message


def test_an_address_that_is_not_ours_is_a_typed_error() -> None:
    with pytest.raises(MillmError) as caught:
        bind("203.0.113.7", 0)
    assert "203.0.113.7" in caught.value.message
