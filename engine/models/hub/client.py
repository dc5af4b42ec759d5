"""The Hugging Face hub, as far as models and SAEs come from it: what a repository holds, and its files as streams.

``huggingface_hub`` is the client. The address is read from ``HF_ENDPOINT`` at each call, and a token is handed on and
forgotten: it is in no row, no log line and no error. Every failure leaves here as one of our own errors, in words.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from engine.counting import so_many
from engine.errors import (
    DownloadFailed,
    GatedRepo,
    HubOffline,
    HubUnavailable,
    InvalidHfToken,
    InvalidParameter,
    MillmError,
    RepoNotFound,
    described,
)
from engine.models.hub.breaker import CircuitBreaker

_TOKEN = re.compile(r"[\x21-\x7e]+")
T = TypeVar("T")

DEFAULT_ENDPOINT = "https://huggingface.co"
MAIN = "main"
MAX_REPO_ID = 255
MAX_REVISION = 100
TIMEOUT_S = 15.0
"""Seconds without a byte after which a connection counts as broken."""

SHOWN: Final = ("downloads", "likes", "gated", "safetensors", "gguf", "lastModified")
"""What a search asks the hub to tell of each repository."""

MAX_SMALL_BYTES = 16_000_000
"""Of a file that is read whole, such as a config."""

_MAX_TEXT = 200
_MAX_NAME_BYTES = 255

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError, RecursionError)
"""What the client, and we, stumble with over an answer that is no JSON or has other types than the hub's."""

_REPO_ID = re.compile(r"[\w-][\w.-]*/[\w.-]+", re.ASCII)
_FALSE = frozenset({"", "0", "false", "no", "off"})


@dataclass(frozen=True)
class HubFile:
    """One file of a repository.

    Attributes:
        path: Below the repository's root, with forward slashes.
        size: Bytes.
        sha256: Of its content, for files in large-file storage; else None.
        blob_id: Git's own SHA-1 of it, for the others.
    """

    path: str
    size: int
    sha256: str | None
    blob_id: str | None


@dataclass(frozen=True)
class HubHeader:
    """What the hub read in the header of a repository's GGUF files; None where it says nothing."""

    architecture: str | None
    context_length: int | None
    has_chat_template: bool


@dataclass(frozen=True)
class Repository:
    """What a revision of a repository holds; ``commit`` is the revision as a commit, which never changes.

    ``parameters`` are the hub's own count of the values in its weights, None where it has none; ``gguf`` what it read
    in its GGUF files, None where it has none or has not looked.
    """

    repo_id: str
    revision: str
    commit: str
    pipeline_tag: str | None
    gated: bool
    private: bool
    parameters: int | None
    files: tuple[HubFile, ...]
    gguf: HubHeader | None = None

    def file(self, path: str) -> HubFile | None:
        """The file of that path, or None."""
        return next((file for file in self.files if file.path == path), None)


@dataclass(frozen=True)
class HubFound:
    """A repository as a search shows it. ``parameters`` is the hub's count of its weights, None where it has none.

    ``gated``: its authors ask for consent first.
    """

    repo_id: str
    downloads: int
    likes: int
    gated: bool
    parameters: int | None
    last_modified: str | None


def is_repo_id(text: str) -> bool:
    """Whether ``text`` reads ``owner/name``."""
    sound = len(text) <= MAX_REPO_ID and _REPO_ID.fullmatch(text) is not None and ".." not in text
    return sound and not text.endswith((".git", "-", "."))


def check_repo_id(repo_id: str, param: str = "repo_id") -> str:
    """``repo_id`` when it reads ``owner/name``, else :class:`InvalidParameter`."""
    if not is_repo_id(repo_id):
        raise InvalidParameter(
            f"{repo_id[:120]!r} is not a hub repository.",
            param=param,
            remedy="Write it as owner/name, for example HuggingFaceTB/SmolLM2-135M-Instruct.",
        )
    return repo_id


def endpoint() -> str:
    """The hub's address as it is set now."""
    return (os.environ.get("HF_ENDPOINT", "").strip() or DEFAULT_ENDPOINT).rstrip("/")


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        return (
            parts.scheme in ("http", "https")
            and bool(parts.hostname)
            and not re.search(r"\s", text)
            and parts.port != 0
        )
    except ValueError:
        return False


def is_offline() -> bool:
    """Whether the environment tells programs not to use the hub."""
    return any(
        os.environ.get(name, "").strip().lower() not in _FALSE for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    )


class HubClient:
    """Asks the hub. Blocks; not for a window's thread.

    Args:
        breaker: Leaves the hub alone for a while after several failures in a row.
        offline: Whether a setting forbids it, asked at each call.
    """

    def __init__(self, breaker: CircuitBreaker, offline: Callable[[], bool]) -> None:
        self._breaker = breaker
        self._offline = offline

    def repository(self, repo_id: str, revision: str = MAIN, *, token: str | None = None) -> Repository:
        """The files of a revision with their sizes and checksums.

        Raises :class:`RepoNotFound`, :class:`GatedRepo`, :class:`InvalidHfToken`, :class:`HubOffline` and
        :class:`HubUnavailable`.
        """

        def ask() -> Any:
            # Not above: it reads the address as it is imported, and fails on one that is none.
            from huggingface_hub import HfApi

            return HfApi(endpoint=endpoint()).model_info(
                repo_id, revision=revision, files_metadata=True, timeout=TIMEOUT_S, token=token
            )

        return self._asked(lambda: _repository(ask(), repo_id, revision), repo_id, revision, token)

    def search(
        self, words: str, limit: int, *, generating: bool = False, token: str | None = None
    ) -> tuple[HubFound, ...]:
        """Repositories whose names hold ``words``, the most downloaded first; ``generating``: that generate text alone.

        Raises :class:`HubOffline`, :class:`InvalidHfToken` and :class:`HubUnavailable`.
        """
        asked = {"search": words, "sort": "downloads", "limit": limit, "expand": list(SHOWN)}
        if generating:
            asked["pipeline_tag"] = "text-generation"

        def ask() -> tuple[HubFound, ...]:
            return tuple(_found(each) for each in _listed(asked, token) if is_repo_id(each["id"]))

        return self._asked(ask, "the search", MAIN, token)

    def read(self, repository: Repository, path: str, *, token: str | None = None) -> bytes:
        """A small file, whole. Raises as :meth:`repository`, and :class:`DownloadFailed` for one that is not small."""
        file = repository.file(path)
        if file is not None and file.size > MAX_SMALL_BYTES:
            raise DownloadFailed(f"{path} of {repository.repo_id} has {file.size} bytes, more than any such file.")

        def ask() -> bytes:
            with _stream(repository, path, token, 0) as (_, chunks):
                data = bytearray()
                for chunk in chunks:
                    data += chunk
                    if len(data) > MAX_SMALL_BYTES:
                        raise DownloadFailed(f"{path} of {repository.repo_id} does not end.")
                return bytes(data)

        return self._asked(ask, repository.repo_id, repository.revision, token)

    @contextmanager
    def stream(
        self, repository: Repository, path: str, *, start: int = 0, token: str | None = None
    ) -> Iterator[tuple[bool, Iterator[bytes]]]:
        """The bytes of a file from ``start`` on: whether the hub honours the start, and the bytes as they come.

        Raises as :meth:`repository`, before and between chunks.
        """
        self._require_online()
        _check_token(token)
        if not self._breaker.allow():
            raise self._resting()
        told = False

        def tell(report: Callable[[], None]) -> None:
            nonlocal told
            if not told:
                told = True
                report()

        try:
            with _stream(repository, path, token, start) as (resumed, chunks):
                tell(self._breaker.succeeded)
                yield resumed, chunks
        except MillmError:
            raise
        except Exception as error:
            failure = _translated(error, repository.repo_id, repository.revision, token)
            if failure is None:
                raise
            tell(self._breaker.failed if isinstance(failure, HubUnavailable) else self._breaker.succeeded)
            raise failure from error
        finally:
            tell(self._breaker.given_up)

    # --- steps ------------------------------------------------------------------------------------------------------

    def _asked(self, ask: Callable[[], T], repo_id: str, revision: str, token: str | None) -> T:
        self._require_online()
        _check_token(token)
        if not self._breaker.allow():
            raise self._resting()
        try:
            answer = ask()
        except MillmError:
            self._breaker.given_up()
            raise
        except Exception as error:
            failure = _translated(error, repo_id, revision, token)
            if failure is None:
                self._breaker.given_up()
                if isinstance(error, _UNREADABLE):
                    raise HubUnavailable(
                        f"What the Hugging Face hub at {endpoint()} answers cannot be read: it has not the hub's form.",
                        remedy="Try again later; where HF_ENDPOINT names a mirror, or the network has a page to sign "
                        "in at, look there.",
                    ) from error
                raise
            if isinstance(failure, HubUnavailable):
                self._breaker.failed()
            else:
                self._breaker.succeeded()
            raise failure from error
        self._breaker.succeeded()
        return answer

    def _require_online(self) -> None:
        if self._offline() or is_offline():
            raise HubOffline(
                "The Hugging Face hub is not asked: the setting HF_HUB_OFFLINE is on.",
                remedy="Switch HF_HUB_OFFLINE off, or import files that are on this machine.",
            )
        if not _is_address(endpoint()):
            raise HubUnavailable(
                f"HF_ENDPOINT is {described(endpoint())}, which is no web address, so no hub is asked.",
                remedy=f"Give it one like {DEFAULT_ENDPOINT}, or leave it out, and start the program again.",
            )

    def _resting(self) -> HubUnavailable:
        wait = self._breaker.retry_after()
        return HubUnavailable(
            f"The Hugging Face hub failed several times in a row and is left alone for {wait} more seconds.",
            remedy="Check the network connection, and try again then.",
            retry_after=wait,
        )


def _check_token(token: str | None) -> None:
    """A token travels in a header, which holds visible ASCII only."""
    if token is not None and not _TOKEN.fullmatch(token):
        raise InvalidParameter(
            f"That is no token ({so_many(len(token), 'character')}): it is one word of letters, digits and signs.",
            param="hf_token",
            remedy="Copy it from huggingface.co → Settings → Access Tokens; it begins with hf_.",
        )


def _listed(asked: dict[str, Any], token: str | None) -> list[dict[str, Any]]:
    """One page of repositories. Asked for by hand: the client's own listing tries again for half a minute."""
    from huggingface_hub import get_session, hf_raise_for_status
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, but not said to types

    response = get_session().get(
        f"{endpoint()}/api/models", params=asked, headers=build_hf_headers(token=token), timeout=TIMEOUT_S
    )
    hf_raise_for_status(response)
    return list(response.json())


def _repository(info: Any, repo_id: str, revision: str) -> Repository:
    """What the client made of the hub's answer, in which every value may be of any type."""
    files = [
        HubFile(
            path=sibling.rfilename,
            size=_positive(sibling.size) or 0,
            sha256=_text(sibling.lfs.sha256) if sibling.lfs is not None else None,
            blob_id=_text(sibling.blob_id),
        )
        for sibling in info.siblings or ()
        if is_plain_path(sibling.rfilename)
    ]
    return Repository(
        repo_id=repo_id,
        revision=revision,
        commit=_text(info.sha) or revision,
        pipeline_tag=_text(info.pipeline_tag),
        gated=bool(info.gated),
        private=bool(info.private),
        parameters=_parameters(info),
        files=tuple(sorted(files, key=lambda file: file.path)),
        gguf=_header(info),
    )


def _found(told: dict[str, Any]) -> HubFound:
    stated = told.get("safetensors") or told.get("gguf") or {}
    changed = told.get("lastModified")
    return HubFound(
        repo_id=told["id"],
        downloads=_positive(told.get("downloads")) or 0,
        likes=_positive(told.get("likes")) or 0,
        gated=bool(told.get("gated")),
        parameters=_positive(stated.get("total")),
        last_modified=changed[:10] if isinstance(changed, str) and changed else None,
    )


def _parameters(info: Any) -> int | None:
    stated = getattr(getattr(info, "safetensors", None), "total", None)
    if stated is None:
        gguf = getattr(info, "gguf", None)
        stated = gguf.get("total") if isinstance(gguf, dict) else None
    return _positive(stated)


def _header(info: Any) -> HubHeader | None:
    stated = getattr(info, "gguf", None)
    if not isinstance(stated, dict):
        return None
    architecture = stated.get("architecture")
    return HubHeader(
        architecture=_text(architecture),
        context_length=_positive(stated.get("context_length")),
        has_chat_template=bool(stated.get("chat_template")),
    )


def _positive(value: object) -> int | None:
    """A count or a size, where it is one that the library's 64 bits hold."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63 else None


def _text(value: object) -> str | None:
    """A name, a tag or a checksum, where it is one."""
    return value if isinstance(value, str) and 0 < len(value) <= _MAX_TEXT else None


def is_plain_path(path: str) -> bool:
    """Whether a repository's path is one below its root on every system: no ``..``, no root, no drive, no backslash,
    and no name that is too long or no Unicode.
    """
    try:
        lengths = [len(part.encode("utf-8")) for part in path.split("/")]
    except UnicodeEncodeError:
        return False
    parts = path.split("/")
    return (
        bool(path)
        and max(lengths) <= _MAX_NAME_BYTES
        and not any(part in ("", ".", "..") or "\\" in part or ":" in part or "\0" in part for part in parts)
    )


@contextmanager
def _stream(repository: Repository, path: str, token: str | None, start: int) -> Iterator[tuple[bool, Iterator[bytes]]]:
    from huggingface_hub import get_session, hf_hub_url, hf_raise_for_status
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]  # public, but not said to types

    url = hf_hub_url(repository.repo_id, path, revision=repository.commit, endpoint=endpoint())
    # As stored: a compressed answer has no length of its own and cannot be resumed.
    headers = {**build_hf_headers(token=token), "Accept-Encoding": "identity"}
    if start:
        headers["Range"] = f"bytes={start}-"
    with get_session().stream("GET", url, headers=headers, timeout=TIMEOUT_S, follow_redirects=True) as response:
        if start and response.status_code == 416:
            yield False, iter(())
            return
        hf_raise_for_status(response)
        yield response.status_code == 206, response.iter_bytes()


def _translated(error: Exception, repo_id: str, revision: str, token: str | None) -> MillmError | None:
    """An error of the client as one of ours; None for what is no failure of the hub or the way there."""
    from huggingface_hub import errors

    http_error = errors.HfHubHTTPError.__mro__[1]  # of whichever HTTP library this version uses
    facts = {"repo_id": repo_id, "revision": revision, "endpoint": endpoint()}
    response = getattr(error, "response", None)
    status = getattr(response, "status_code", None)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return HubOffline(
            "The Hugging Face hub is not asked: the program was started with HF_HUB_OFFLINE set.",
            remedy="Start it without that variable, or import files that are on this machine.",
        )
    if isinstance(error, errors.GatedRepoError):
        what = "and the token may not have it" if token else "and no token was given"
        return GatedRepo(
            f"{repo_id} is gated: its authors ask for consent first, {what}.",
            param="hf_token",
            details=facts,
            remedy=f"Accept the terms at {endpoint()}/{repo_id}, then give a token of your account (hf_token).",
        )
    if isinstance(error, errors.RevisionNotFoundError):
        return RepoNotFound(
            f"{repo_id} has no revision {revision!r}.", param="revision", details=facts, remedy="Name a branch or tag."
        )
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return RepoNotFound(f"{repo_id} has no such file at {revision!r} any more.", param="repo_id", details=facts)
    if status == 401 and token and not isinstance(error, errors.RepositoryNotFoundError):
        return InvalidHfToken(
            "The hub does not know the token.", param="hf_token", details=facts, remedy="Check it, or make a new one."
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return RepoNotFound(
            f"The hub has no repository {repo_id}, or shows it only to its members.",
            param="repo_id",
            details=facts,
            remedy="Check its name; for a private one give a token (hf_token).",
        )
    if status in (401, 403):
        return InvalidHfToken(
            f"The hub refuses {repo_id} (status {status}).",
            param="hf_token",
            details=facts,
            remedy="Give a token of an account that may read it (hf_token).",
        )
    if status == 404:
        return RepoNotFound(f"The hub has nothing there for {repo_id}.", param="repo_id", details=facts)
    if isinstance(error, errors.HFValidationError):
        return InvalidParameter(f"The hub cannot be asked for {repo_id[:120]!r}: {error}", param="repo_id")
    if isinstance(error, http_error | OSError):
        said = f"it answered with status {status}" if status else type(error).__name__
        return HubUnavailable(
            f"The Hugging Face hub at {endpoint()} could not be reached or broke off: {said}.",
            details=facts,
            remedy="Check the network connection and try again.",
        )
    return None
