"""The addresses at which other machines of the local network reach this one. Blocking for milliseconds."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping, Sequence

import psutil

VIRTUAL = ("docker", "br-", "veth", "virbr", "vmnet", "vboxnet", "zt", "tailscale", "utun", "vethernet", "wsl")
"""Beginnings of the names of interfaces that lead to containers, virtual machines or private tunnels."""


def lan_addresses() -> list[str]:
    """IPv4 addresses of this machine that others may reach, the likeliest first; empty without a network."""
    states = psutil.net_if_stats()
    found = {
        name: [each.address for each in addresses if each.family == socket.AF_INET]
        for name, addresses in psutil.net_if_addrs().items()
        if name in states and states[name].isup
    }
    return choose(found)


def choose(by_interface: Mapping[str, Sequence[str]]) -> list[str]:
    """The addresses worth showing: private ones of real interfaces first, no loopback and no link-local ones."""
    ranked: list[tuple[int, str]] = []
    for name, addresses in by_interface.items():
        virtual = name.lower().startswith(VIRTUAL)
        for text in addresses:
            address = ipaddress.ip_address(text)
            if address.is_loopback or address.is_link_local or address.is_unspecified:
                continue
            ranked.append((2 * virtual + (not address.is_private), text))
    return list(dict.fromkeys(text for _rank, text in sorted(ranked, key=lambda each: each[0])))


def base_url(host: str, address: str) -> str:
    """The server's base URL as another machine writes it: ``address`` with its host replaced."""
    port = address.rsplit(":", 1)[1]
    return f"http://{host}:{port}"
