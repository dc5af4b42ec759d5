"""The Hugging Face token: in the system's keyring, or where there is none in a file only its owner can read.

``MILLM_HF_TOKEN`` or ``HF_TOKEN`` in the environment wins. The token is never logged and never shown again.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from engine.errors import DataDirectoryUnusable, InvalidParameter
from ui.context.services import TokenState

log = logging.getLogger(__name__)

SERVICE = "miLLM Desktop"
ACCOUNT = "Hugging Face token"
FILE_NAME = "hf-token"
VARIABLES = ("MILLM_HF_TOKEN", "HF_TOKEN")
MAX_LENGTH = 255
_SHAPE = re.compile(r"[\x21-\x7e]+")


class Vault(Protocol):
    """A place of the system for secrets. Methods raise what the keyring library raises."""

    name: str

    def get(self) -> str | None: ...

    def set(self, secret: str) -> None: ...

    def remove(self) -> None: ...


class KeyringVault:
    """The system's keyring, through the ``keyring`` package; made by :func:`system_vault`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get(self) -> str | None:
        import keyring

        return keyring.get_password(SERVICE, ACCOUNT)

    def set(self, secret: str) -> None:
        import keyring

        keyring.set_password(SERVICE, ACCOUNT, secret)

    def remove(self) -> None:
        import keyring
        from keyring.errors import PasswordDeleteError

        try:
            keyring.delete_password(SERVICE, ACCOUNT)
        except PasswordDeleteError:
            log.debug("there was no token in the keyring to remove")


def system_vault() -> Vault | None:
    """The system's keyring; None where there is none that can be used (a headless Linux has none)."""
    import keyring

    backend = keyring.get_keyring()
    if getattr(backend, "priority", 0) <= 0:
        return None
    return KeyringVault(str(getattr(backend, "name", "the system's keyring")))


class TokenStore:
    """Keeps the token; implements :class:`ui.context.services.TokenControl`. Thread-safe.

    Args:
        folder: Where the file lies if there is no keyring: the data directory.
        environ: The environment; the process's own when None.
        changed: Called after each change, on the thread that made it.
        vault: Finds the keyring, on first use, since that may take a moment.
    """

    def __init__(
        self,
        folder: Path,
        *,
        environ: Mapping[str, str] | None = None,
        changed: Callable[[], None] = lambda: None,
        vault: Callable[[], Vault | None] = system_vault,
    ) -> None:
        self._file = folder / FILE_NAME
        # As it was at the start: what is put in force later is put there too, and is no person's doing.
        self._environ = dict(os.environ if environ is None else environ)
        self._changed = changed
        self._find_vault = vault
        self._vault: Vault | None = None
        self._looked = False
        self._lock = threading.Lock()

    def token(self) -> str | None:
        """The token, for the downloader; None where there is none."""
        if (found := self._from_environment()) is not None:
            return found[1]
        with self._lock:
            return self._kept()[0]

    def state(self) -> TokenState:
        """Whether there is one and where it is kept."""
        if (found := self._from_environment()) is not None:
            return TokenState(True, True, f"Set by the environment variable {found[0]}.")
        with self._lock:
            token, place = self._kept()
            if token is None:
                return TokenState(False, False, f"None is kept. One that is saved goes into {self._place()}.")
            return TokenState(True, False, f"Kept in {place}.")

    def save(self, token: str) -> TokenState:
        """Keep ``token``. Raises :class:`InvalidParameter` for what cannot be one."""
        token = token.strip()
        if len(token) > MAX_LENGTH or not _SHAPE.fullmatch(token):
            raise InvalidParameter(
                "That is no token: it is one word of letters, digits and signs.",
                param="hf_token",
                remedy="Copy it from huggingface.co → Settings → Access Tokens; it begins with hf_.",
            )
        with self._lock:
            if not self._save_in_vault(token):
                self._write(token)
            else:
                self._file.unlink(missing_ok=True)
        self._changed()
        return self.state()

    def forget(self) -> TokenState:
        with self._lock:
            if (vault := self._keyring()) is not None:
                try:
                    vault.remove()
                except Exception as error:
                    log.warning("the keyring could not be asked to forget the token: %s", type(error).__name__)
            self._file.unlink(missing_ok=True)
        self._changed()
        return self.state()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _from_environment(self) -> tuple[str, str] | None:
        for name in VARIABLES:
            if value := self._environ.get(name, "").strip():
                return name, value
        return None

    def _keyring(self) -> Vault | None:
        if not self._looked:
            self._looked = True
            try:
                self._vault = self._find_vault()
            except Exception as error:
                log.warning("no keyring can be used here: %s", type(error).__name__)
        return self._vault

    def _kept(self) -> tuple[str | None, str]:
        if (vault := self._keyring()) is not None:
            try:
                if token := vault.get():
                    return token, f"the system's keyring ({vault.name})"
            except Exception as error:
                # A keyring that is locked or gone: the file may still have it.
                log.warning("the keyring could not be read: %s", type(error).__name__)
        try:
            token = self._file.read_text(encoding="utf-8").strip()
        except (FileNotFoundError, NotADirectoryError):
            return None, ""
        return token or None, f"the file {self._file}, which only you can read: no keyring can be used here"

    def _place(self) -> str:
        vault = self._keyring()
        if vault is not None:
            return f"the system's keyring ({vault.name})"
        return f"the file {self._file}, readable by you alone, since there is no keyring here"

    def _save_in_vault(self, token: str) -> bool:
        vault = self._keyring()
        if vault is None:
            return False
        try:
            vault.set(token)
        except Exception as error:
            log.warning("the keyring did not take the token, so it goes into a file: %s", type(error).__name__)
            self._vault = None
            return False
        return True

    def _write(self, token: str) -> None:
        """Write it readable by its owner from the first byte on."""
        temporary = self._file.with_name(f".{FILE_NAME}.new")
        try:
            temporary.unlink(missing_ok=True)
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                out.write(token + "\n")
            os.replace(temporary, self._file)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise DataDirectoryUnusable(
                f"The token could not be kept: {self._file} cannot be written ({error.strerror or error}).",
                details={"path": str(self._file)},
                remedy="Free some space or correct the folder's permissions.",
            ) from error
