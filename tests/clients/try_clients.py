"""Tries other people's programs with a real server: ``python -m tests.clients.try_clients`` (`make try-clients`).

Run by hand, not in CI: it installs other people's packages, each client's into an environment of its own under
`.venv-clients` (ignored by git), which later runs use again. The Python examples run as they stand on docs/clients.md,
with only the port of the address changed; the figures of lm-evaluation-harness are held against transformers' own
(``harness.py``); Open WebUI is started and used over its own HTTP API (``open_webui.py``).

    python -m tests.clients.try_clients [CLIENT …] [--skip CLIENT …]
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from tests.clients import harness, open_webui

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "clients.md"
HOME = ROOT / ".venv-clients"
_EXAMPLE = re.compile(r"^## (.+?)\n|^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ADDRESS = "http://127.0.0.1:8000"


@dataclass(frozen=True)
class Client:
    """One program that is tried.

    Attributes:
        name: What the command line calls it, and its environment.
        heading: Its part of docs/clients.md.
        packages: What is installed for it.
        asked: Distributions whose versions are said.
        size: What its environment takes on the disk, measured on Linux.
    """

    name: str
    heading: str
    packages: tuple[str, ...]
    asked: tuple[str, ...]
    size: str


CLIENTS = (
    Client("openai", "openai", ("openai",), ("openai",), "70 MB"),
    Client("langchain", "LangChain", ("langchain-openai",), ("langchain-openai", "langchain-core", "openai"), "140 MB"),
    Client(
        "llamaindex",
        "LlamaIndex",
        ("llama-index-llms-openai-like",),
        ("llama-index-llms-openai-like", "llama-index-core", "openai"),
        "290 MB",
    ),
    Client("lm-eval", "lm-evaluation-harness", ("lm_eval[api]", "transformers"), ("lm_eval", "transformers"), "930 MB"),
    Client("open-webui", "Open WebUI", ("open-webui",), ("open-webui",), "2.7 GB, more with a CUDA build of PyTorch"),
)


def examples() -> list[tuple[str, str]]:
    """(heading, code) of each example, in the order of the page."""
    found, heading = [], ""
    for head, code in _EXAMPLE.findall(PAGE.read_text(encoding="utf-8")):
        if head:
            heading = head.strip()
        else:
            found.append((heading, code))
    return found


def environment(client: Client) -> Path:
    """The interpreter that has the client, made when it is not there."""
    home = HOME / client.name
    python = home / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    # A client that wants torch gets the build this environment has, which is not always the index's own.
    torch = metadata.version("torch").split("+")[0]
    with tempfile.TemporaryDirectory() as scratch:
        pins = Path(scratch, "pins.txt")
        pins.write_text(f"torch=={torch}\n", encoding="utf-8")
        pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
        if index := os.environ.get("TORCH_INDEX_URL"):
            pip += ["--extra-index-url", index]
        subprocess.run([*pip, "-c", pins, *client.packages], check=True)
    return python


def versions(client: Client, python: Path) -> str:
    """The versions of ``client`` in its environment."""
    code = "import sys; from importlib.metadata import version; print(', '.join(f'{n} {version(n)}' for n in sys.argv[1:]))"
    done = subprocess.run([python, "-c", code, *client.asked], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@contextmanager
def our_server() -> Iterator[str]:
    """The address of a server with the demo model and its SAEs attached, without ``/v1``."""
    data = os.environ.get("MILLM_DATA_DIR") or str(ROOT / ".data")
    server = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", "--data-dir", data, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        # In float32, so that figures can be held against others.
        env={**os.environ, "DTYPE": "float32", **open_webui.OUR_SETTINGS},
    )
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = line.rsplit(" at ", 1)[-1].strip().removesuffix("/v1")
        if not address.startswith("http"):
            raise RuntimeError(f"the server did not start: {line!r}")
        attach = urllib.request.Request(
            f"{address}/api/saes/attach-set",
            data=b'{"name": "Demo: layers 10, 15 and 20"}',
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(attach, timeout=600).close()
        yield address
    finally:
        server.terminate()
        server.wait(30)


def try_examples(client: Client, python: Path, address: str) -> list[str]:
    """Run the page's examples for ``client``; what failed, in words."""
    failed = []
    of_client = [code for heading, code in examples() if heading == client.heading]
    for number, code in enumerate(of_client, 1):
        with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8", delete=False) as file:
            file.write(code.replace(_ADDRESS, address))
        done = subprocess.run([python, file.name], capture_output=True, text=True, timeout=600, check=False)
        Path(file.name).unlink()
        print(done.stdout.strip())
        if done.returncode != 0 or not done.stdout.strip():
            failed.append(f"example {number} of {client.heading}: {done.stderr[-2000:]}")
    return failed if of_client else [f"the page has no example for {client.heading}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try them all; 1 when one of them failed."""
    names = [client.name for client in CLIENTS]
    parser = argparse.ArgumentParser(prog="try_clients", description="Try other programs with a real server.")
    parser.add_argument("clients", nargs="*", metavar="CLIENT", help=f"those to try: {', '.join(names)} (all)")
    parser.add_argument("--skip", nargs="+", default=[], metavar="CLIENT", help="those to leave out")
    asked = parser.parse_args(arguments)
    if unknown := sorted({*asked.clients, *asked.skip} - {*names}):
        parser.error(f"no client is called {', '.join(unknown)}; there are {', '.join(names)}")
    wanted = [c for c in CLIENTS if c.name in (asked.clients or names) and c.name not in asked.skip]
    failures: list[str] = []
    with our_server() as address:
        for client in wanted:
            print(f"--- {client.heading} (its environment takes {client.size})", flush=True)
            started = time.monotonic()
            python = environment(client)
            print(f"{versions(client, python)}, installed in {time.monotonic() - started:.0f} s", flush=True)
            started = time.monotonic()
            if client.name == "open-webui":
                failed = open_webui.try_it(python, address)
            elif client.name == "lm-eval":
                (example,) = (code for heading, code in examples() if heading == client.heading)
                failed = harness.try_it(python, address, example.replace(_ADDRESS, address))
            else:
                failed = try_examples(client, python, address)
            print(
                f"--- {client.heading}: {'FAILED' if failed else 'good'} ({time.monotonic() - started:.0f} s)",
                flush=True,
            )
            failures += failed
    for failure in failures:
        print(f"FAILED: {failure}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
