"""The hub's token and the way to the hub: kept in a keyring or a file, handed on through the environment."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringError, PasswordDeleteError

from app.network import Network, is_proxy
from app.token_store import TokenStore, system_vault
from engine.errors import InvalidParameter


class MemoryKeyring(KeyringBackend):
    """A keyring as the library has them, in memory; ``broken`` makes each call fail as a locked one does."""

    priority = 5  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[tuple[str, str], str] = {}
        self.broken = False

    def _check(self) -> None:
        if self.broken:
            raise KeyringError("locked")

    def get_password(self, service: str, username: str) -> str | None:
        self._check()
        return self.kept.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._check()
        self.kept[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._check()
        if self.kept.pop((service, username), None) is None:
            raise PasswordDeleteError("not found")


@pytest.fixture
def ring() -> Iterator[MemoryKeyring]:
    before = keyring.get_keyring()
    made = MemoryKeyring()
    keyring.set_keyring(made)
    yield made
    keyring.set_keyring(before)


def test_the_keyring_keeps_it(tmp_path: Path, ring: MemoryKeyring) -> None:
    store = TokenStore(tmp_path, environ={})
    assert not store.state().known and store.token() is None
    state = store.save("  hf_secret\n")
    assert state.known and "keyring" in state.words and "hf_secret" not in repr(state)
    assert list(ring.kept.values()) == ["hf_secret"]
    assert TokenStore(tmp_path, environ={}).token() == "hf_secret"
    assert list(tmp_path.iterdir()) == []
    assert not store.forget().known
    assert not store.forget().known
    assert ring.kept == {}


def test_without_a_keyring_a_file_of_the_owners_keeps_it(tmp_path: Path) -> None:
    store = TokenStore(tmp_path, environ={}, vault=lambda: None)
    assert "since there is no keyring here" in store.state().words
    state = store.save("hf_secret")
    assert str(tmp_path / "hf-token") in state.words and "only you can read" in state.words
    if os.name == "posix":
        assert (tmp_path / "hf-token").stat().st_mode & 0o777 == 0o600
    assert TokenStore(tmp_path, environ={}, vault=lambda: None).token() == "hf_secret"
    assert not store.forget().known and list(tmp_path.iterdir()) == []


def test_a_keyring_that_refuses_falls_back_to_the_file(tmp_path: Path, ring: MemoryKeyring) -> None:
    ring.broken = True
    store = TokenStore(tmp_path, environ={})
    assert "hf-token" in store.save("hf_secret").words
    assert store.token() == "hf_secret"


def test_a_vault_that_cannot_even_be_looked_for_is_none(tmp_path: Path) -> None:
    def fails() -> None:
        raise RuntimeError("no bus")

    assert TokenStore(tmp_path, environ={}, vault=fails).save("hf_x").known


def test_a_keyring_that_came_later_takes_over_the_file(tmp_path: Path, ring: MemoryKeyring) -> None:
    TokenStore(tmp_path, environ={}, vault=lambda: None).save("hf_old")
    store = TokenStore(tmp_path, environ={})
    assert store.token() == "hf_old"
    store.save("hf_new")
    assert not (tmp_path / "hf-token").exists() and store.token() == "hf_new"


@pytest.mark.parametrize("text", ["", "two words", "x" * 300, "naïve", "a\nb"])
def test_what_is_no_token_is_refused_without_being_repeated(tmp_path: Path, text: str) -> None:
    store = TokenStore(tmp_path, environ={}, vault=lambda: None)
    with pytest.raises(InvalidParameter) as caught:
        store.save(text)
    assert not text or text not in caught.value.one_line()


def test_the_environment_wins(tmp_path: Path) -> None:
    store = TokenStore(tmp_path, environ={"HF_TOKEN": "hf_env"}, vault=lambda: None)
    assert store.token() == "hf_env" and store.state().locked
    both = TokenStore(tmp_path, environ={"HF_TOKEN": "a", "MILLM_HF_TOKEN": "b"}, vault=lambda: None)
    assert both.token() == "b"


def test_a_headless_machine_has_no_keyring(request: pytest.FixtureRequest) -> None:
    from keyring.backends.fail import Keyring

    before = keyring.get_keyring()
    request.addfinalizer(lambda: keyring.set_keyring(before))
    keyring.set_keyring(Keyring())
    assert system_vault() is None


def test_changes_are_told(tmp_path: Path) -> None:
    told: list[str] = []
    store = TokenStore(tmp_path, environ={}, changed=lambda: told.append("changed"), vault=lambda: None)
    store.save("hf_x")
    store.forget()
    assert told == ["changed", "changed"]


def test_proxy_and_token_go_into_the_environment_and_come_out_again() -> None:
    environ = {"HTTPS_PROXY": "http://given:1", "NO_PROXY": "intranet"}
    network = Network(environ)
    network.use("http://mine:2", "hf_x")
    assert environ == {
        "HTTP_PROXY": "http://mine:2",
        "HTTPS_PROXY": "http://mine:2",
        "http_proxy": "http://mine:2",
        "https_proxy": "http://mine:2",
        "NO_PROXY": "intranet,localhost,127.0.0.1,::1",
        "no_proxy": "localhost,127.0.0.1,::1",
        "HF_TOKEN": "hf_x",
    }
    network.use(None, None)
    assert environ == {"HTTPS_PROXY": "http://given:1", "NO_PROXY": "intranet"}


@pytest.mark.parametrize(
    ("text", "sound"),
    [
        ("http://proxy:3128", True),
        ("socks5h://127.0.0.1:9050", True),
        ("https://user:pass@proxy.example.org", True),
        ("proxy:3128", False),
        ("ftp://proxy", False),
        ("http://", False),
        ("http://proxy:notaport", False),
        ("http://[::1", False),
    ],
)
def test_proxies(text: str, sound: bool) -> None:
    assert is_proxy(text) is sound
