"""Runs the Python examples of docs/clients.md against a real server: ``python -m tests.clients.try_clients`` (`make try-clients`).

Run by hand, not in CI: it installs other people's packages into an environment of its own (`.venv-clients`, ignored by
git). Each example runs as it stands on the page, with only the port of the address changed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "clients.md"
HOME = ROOT / ".venv-clients"
PACKAGES = ("openai", "langchain-openai", "llama-index-llms-openai-like")
_EXAMPLE = re.compile(r"^## (.+?)\n|^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_ADDRESS = "http://127.0.0.1:8000"


def examples() -> list[tuple[str, str]]:
    """(heading, code) of each example, in the order of the page."""
    found, heading = [], ""
    for head, code in _EXAMPLE.findall(PAGE.read_text(encoding="utf-8")):
        if head:
            heading = head.strip()
        else:
            found.append((heading, code))
    return found


def environment() -> Path:
    """The interpreter that has the clients, made when it is not there."""
    python = HOME / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", HOME], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
    return python


def main() -> int:
    """Try them all; 1 when one of them failed."""
    python = environment()
    data = os.environ.get("MILLM_DATA_DIR") or str(ROOT / ".data")
    server = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", "--data-dir", data, "--port", "0"],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    failed = []
    try:
        assert server.stdout is not None
        line = server.stdout.readline()
        address = line.rsplit(" at ", 1)[-1].strip().removesuffix("/v1")
        if not address.startswith("http"):
            print(f"the server did not start: {line!r}")
            return 1
        attach = urllib.request.Request(
            f"{address}/api/saes/attach-set",
            data=b'{"name": "Demo: layers 10, 15 and 20"}',
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(attach, timeout=600).close()
        for heading, code in examples():
            with tempfile.NamedTemporaryFile("w", suffix=".py", encoding="utf-8", delete=False) as file:
                file.write(code.replace(_ADDRESS, address))
            done = subprocess.run([python, file.name], capture_output=True, text=True, timeout=600, check=False)
            Path(file.name).unlink()
            good = done.returncode == 0 and done.stdout.strip() != ""
            print(f"--- {heading}: {'good' if good else 'FAILED'}\n{done.stdout.strip()}")
            if not good:
                failed.append(heading)
                print(done.stderr[-2000:])
    finally:
        server.terminate()
        server.wait(30)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
