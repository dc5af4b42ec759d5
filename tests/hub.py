"""A stand-in for the Hugging Face hub on loopback: a real HTTP server that speaks as much of it as its client asks for.

Repositories are dictionaries of bytes. A test says beforehand what goes wrong: an answer cut short, other bytes than
announced, a status, an answer that hangs until the test lets go.
"""

from __future__ import annotations

import hashlib
import json
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

COMMIT = "0123456789abcdef0123456789abcdef01234567"
LARGE = (".safetensors", ".gguf", ".npz", ".pt")
"""Endings of files in large-file storage, which the hub announces with their SHA-256."""


@dataclass
class HubRepo:
    """A repository. ``announced`` are sizes that the listing states instead of the true ones."""

    files: dict[str, bytes]
    commit: str = COMMIT
    gated: bool = False
    token: str = "hf_good"
    pipeline_tag: str | None = "text-generation"
    parameters: int | None = None
    gguf: dict[str, Any] | None = None
    announced: dict[str, int] = field(default_factory=dict)
    downloads: int = 0


@dataclass(frozen=True)
class Asked:
    """One request that arrived."""

    method: str
    path: str
    range: str | None
    authorization: str | None


class StandInHub:
    """The server and what it was told to do wrong."""

    def __init__(self) -> None:
        self.repos: dict[str, HubRepo] = {}
        self.asked: list[Asked] = []
        self.cuts: dict[str, list[float]] = {}
        """File to the shares after which its next answers break off."""
        self.served: dict[str, list[bytes]] = {}
        """File to what its next answers hold instead of the true bytes; the last one stays."""
        self.statuses: dict[str, list[int]] = {}
        """File or ``api`` to the statuses of the next answers."""
        self.held: dict[str, float] = {}
        """File to the share after which its answers hang until :attr:`let_go` is set."""
        self.ignore_ranges = False
        self.searches: list[dict[str, list[str]]] = []
        """The parameters of the searches that arrived."""
        self.garbage = b""
        """What a search or the question for a repository is answered with instead."""
        self.let_go = threading.Event()
        self.hanging = threading.Event()
        """Set once an answer hangs."""
        self._server = _Server(("127.0.0.1", 0), _handler(self))
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def add(self, repo_id: str, files: dict[str, bytes], **more: Any) -> HubRepo:
        self.repos[repo_id] = HubRepo(files, **more)
        return self.repos[repo_id]

    def add_folder(self, repo_id: str, folder: Path, **more: Any) -> HubRepo:
        """All files of ``folder`` as a repository."""
        files = {
            path.relative_to(folder).as_posix(): path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.is_file()
        }
        return self.add(repo_id, files, **more)

    def fetched(self, name: str) -> list[Asked]:
        """The requests for the file ``name``."""
        return [each for each in self.asked if each.path.endswith(f"/{name}")]

    def close(self) -> None:
        self.let_go.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)


class _Server(ThreadingHTTPServer):
    """Clients that leave in the middle are the point of some tests, and no error."""

    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandInHub]:
    """A hub that this process's client talks to."""
    import huggingface_hub.constants

    hub = StandInHub()
    with monkeypatch.context() as patch:
        patch.setenv("HF_ENDPOINT", hub.address)
        patch.delenv("HF_HUB_OFFLINE", raising=False)
        patch.delenv("TRANSFORMERS_OFFLINE", raising=False)
        patch.delenv("HF_TOKEN", raising=False)
        # The client reads the variable once, when it is imported.
        patch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
        try:
            yield hub
        finally:
            hub.close()


def _handler(hub: StandInHub) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            self._answer(with_body=True)

        def do_HEAD(self) -> None:
            self._answer(with_body=False)

        def log_message(self, format: str, *args: object) -> None:
            return

        def _answer(self, *, with_body: bool) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.asked.append(Asked(self.command, path, self.headers.get("Range"), self.headers.get("Authorization")))
            parts = path.strip("/").split("/")
            if parts == ["api", "models"]:
                self._search(parse_qs(urlsplit(self.path).query))
            elif parts[:2] == ["api", "models"]:
                self._listing("/".join(parts[2:4]), parts[4:])
            elif len(parts) >= 5 and parts[2] == "resolve":
                self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]), with_body)
            else:
                self._refuse(404, "", "not found")

        def _search(self, asked: dict[str, list[str]]) -> None:
            hub.searches.append(asked)
            if hub.statuses.get("api"):
                self._refuse(hub.statuses["api"].pop(0), "", "a planned failure")
                return
            words = asked.get("search", [""])[0].lower().split()
            wanted = asked.get("pipeline_tag", [None])[0]
            found = [
                {
                    "_id": "1",
                    "id": name,
                    "modelId": name,
                    "downloads": repo.downloads,
                    "likes": 3,
                    "gated": "manual" if repo.gated else False,
                    "lastModified": "2026-03-04T05:06:07.000Z",
                    **(
                        {"safetensors": {"parameters": {"F32": repo.parameters}, "total": repo.parameters}}
                        if repo.parameters
                        else {}
                    ),
                }
                for name, repo in hub.repos.items()
                if all(word in name.lower() for word in words) and wanted in (None, repo.pipeline_tag)
            ]
            found.sort(key=lambda each: -int(str(each["downloads"])))
            body = hub.garbage or json.dumps(found[: int(asked["limit"][0])]).encode()
            self._send(200, body, {"Content-Type": "application/json"})

        def _listing(self, repo_id: str, rest: list[str]) -> None:
            if hub.statuses.get("api"):
                self._refuse(hub.statuses["api"].pop(0), "", "a planned failure")
                return
            repo = hub.repos.get(repo_id)
            if repo is None:
                # As the hub does, which does not say whether there is a repository that one may not see.
                self._refuse(401, "RepoNotFound", "Repository not found")
                return
            if rest[:1] == ["revision"] and rest[1] not in ("main", repo.commit):
                self._refuse(404, "RevisionNotFound", "Invalid rev id")
                return
            siblings = [_sibling(name, data, repo.announced.get(name, len(data))) for name, data in repo.files.items()]
            body = {
                "_id": "1",
                "id": repo_id,
                "modelId": repo_id,
                "sha": repo.commit,
                "private": False,
                "gated": "manual" if repo.gated else False,
                "disabled": False,
                "downloads": 0,
                "likes": 0,
                "tags": [],
                "siblings": siblings,
            }
            if repo.pipeline_tag is not None:
                body["pipeline_tag"] = repo.pipeline_tag
            if repo.parameters is not None:
                body["safetensors"] = {"parameters": {"F32": repo.parameters}, "total": repo.parameters}
            if repo.gguf is not None:
                body["gguf"] = repo.gguf
            self._send(200, hub.garbage or json.dumps(body).encode(), {"Content-Type": "application/json"})

        def _file(self, repo_id: str, revision: str, name: str, with_body: bool) -> None:
            repo = hub.repos.get(repo_id)
            if repo is None or name not in repo.files:
                self._refuse(404, "EntryNotFound" if repo else "RepoNotFound", "not found")
                return
            if repo.gated and self.headers.get("Authorization") != f"Bearer {repo.token}":
                self._refuse(403 if self.headers.get("Authorization") else 401, "GatedRepo", "Access is restricted")
                return
            if hub.statuses.get(name):
                self._refuse(hub.statuses[name].pop(0), "", "a planned failure")
                return
            data = repo.files[name]
            if name in hub.served:
                planned = hub.served[name]
                data = planned.pop(0) if len(planned) > 1 else planned[0]
            start = 0
            wanted = self.headers.get("Range")
            if wanted and not hub.ignore_ranges:
                start = int(wanted.removeprefix("bytes=").removesuffix("-"))
                if start >= len(data):
                    self._refuse(416, "", "out of range")
                    return
            headers = {"Content-Type": "application/octet-stream", "ETag": f'"{hashlib.sha256(data).hexdigest()}"'}
            if start:
                headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
            self.send_response(206 if start else 200)
            for key, value in {
                **headers,
                "Content-Length": str(len(data) - start),
                "X-Repo-Commit": repo.commit,
            }.items():
                self.send_header(key, value)
            self.end_headers()
            if with_body:
                self._write(name, data, start)

        def _write(self, name: str, data: bytes, start: int) -> None:
            try:
                if hub.cuts.get(name):
                    self.wfile.write(data[start : max(start, int(len(data) * hub.cuts[name].pop(0)))])
                    self.wfile.flush()
                    self.close_connection = True
                    self.connection.shutdown(socket.SHUT_RDWR)
                    return
                if name in hub.held:
                    middle = max(start, int(len(data) * hub.held[name]))
                    self.wfile.write(data[start:middle])
                    self.wfile.flush()
                    hub.hanging.set()
                    hub.let_go.wait(60)
                    start = middle
                self.wfile.write(data[start:])
            except OSError:
                self.close_connection = True  # the client has left

        def _refuse(self, status: int, code: str, message: str) -> None:
            headers = {"X-Error-Message": message}
            if code:
                headers["X-Error-Code"] = code
            self._send(status, json.dumps({"error": message}).encode(), {**headers, "Content-Type": "application/json"})

        def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

    return Handler


def _sibling(name: str, data: bytes, size: int) -> dict[str, Any]:
    blob = hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
    entry: dict[str, Any] = {"rfilename": name, "size": size, "blobId": blob}
    if name.endswith(LARGE):
        entry["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": size, "pointerSize": 130}
    return entry
