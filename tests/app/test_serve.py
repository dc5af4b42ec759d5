"""``serve`` as a process: its one line, its errors, and its end."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.instance import current_holder
from app.paths import Paths
from engine.actions.models.importing import import_local_model
from engine.config import EngineSettings
from engine.engine import Engine
from engine.events import EventBus
from engine.library.database import Library
from engine.library.records import ModelStatus
from tests.app.processes import Running, app, started
from tests.made_saes import make_sae
from tests.waiting import wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals are sent differently there")

READY = re.compile(r"^Serving (?P<model>.+) at (?P<address>http://127\.0\.0\.1:\d+/v1)$")


@pytest.fixture
def data(tmp_path: Path, tiny_checkpoint: Path) -> Path:
    """A data directory whose library has the tiny model, never loaded."""
    paths = Paths(tmp_path / "data")
    paths.prepare()
    with Library.open(paths.database) as library:
        import_local_model(library, EventBus(), tiny_checkpoint)
    return paths.data_dir


@pytest.fixture
def taken_port() -> Iterator[int]:
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        yield listener.getsockname()[1]


def serve(*arguments: str) -> tuple[str, ...]:
    return ("-m", "app", "serve", "--port", "0", *arguments)


def ready(running: Running) -> tuple[str, str]:
    """Model and address of the line it prints."""
    match = READY.match(running.line())
    assert match is not None, running.lines
    return match["model"], match["address"]


def end(running: Running, number: int = signal.SIGTERM) -> None:
    """Send a signal; it must end with status 0 and without a word."""
    running.process.send_signal(number)
    assert running.process.wait(60) == 0
    assert running.errors() == ""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_line_is_printed_when_the_first_request_is_answered(data: Path, number: int) -> None:
    with started(*serve("--data-dir", str(data), "--model", "tiny-llama")) as running:
        model, address = ready(running)
        assert model == "tiny-llama"
        answer = httpx.post(
            f"{address}/chat/completions",
            json={"model": "tiny-llama", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
            timeout=60,
        )
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] >= 1
        end(running, number)
        assert running.lines == [f"Serving tiny-llama at {address}"]


def test_a_signal_ends_it_while_a_stream_is_open(data: Path) -> None:
    with started(*serve("--data-dir", str(data), "--model", "tiny-llama")) as running:
        _, address = ready(running)
        body = {"model": "tiny-llama", "prompt": "the", "stream": True, "max_tokens": 1900, "ignore_eos": True}
        with httpx.stream("POST", f"{address}/completions", json=body, timeout=60) as stream:
            lines = stream.iter_lines()
            assert next(lines).startswith("data: ")
            running.process.send_signal(signal.SIGTERM)
            rest = list(lines)
        assert rest, "the stream was cut without a word"
        assert running.process.wait(60) == 0
    with Library.open(Paths(data).database) as library:
        assert [record.name for record in library.models.list()] == ["tiny-llama"]


def test_a_signal_ends_it_while_the_model_is_loading(data: Path) -> None:
    with started(*serve("--data-dir", str(data), "--model", "tiny-llama", "--port", "0")) as running:
        # The port is noted when the server runs, which is before the model is read.
        wait_until(lambda: getattr(current_holder(Paths(data)), "port", 0), "the server", 120)
        end(running)


def test_the_model_used_last_is_served_again(data: Path) -> None:
    with started(*serve("--data-dir", str(data), "--model", "tiny-llama")) as running:
        ready(running)
        end(running)
    with started(*serve("--data-dir", str(data))) as running:
        assert ready(running)[0] == "tiny-llama"
        end(running)
    with Library.open(Paths(data).database) as library:
        library.models.reset_after_restart()
        assert library.models.list()[0].status is ModelStatus.READY


def test_auto_load_model_by_name_or_id(data: Path) -> None:
    for name in ("tiny-llama", "1"):
        with started(*serve("--data-dir", str(data)), AUTO_LOAD_MODEL=name) as running:
            assert ready(running)[0] == "tiny-llama"
            end(running)


def test_without_a_model_it_serves_none(tmp_path: Path) -> None:
    with started(*serve("--data-dir", str(tmp_path / "new"))) as running:
        model, address = ready(running)
        assert model == "no model"
        assert httpx.get(f"{address}/models", timeout=30).json()["data"] == []
        end(running)


def test_a_second_serve_names_pid_and_port(tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    with started(*serve("--data-dir", data)) as running:
        _, address = ready(running)
        port = address.split(":")[-1].removesuffix("/v1")
        for command in (["serve"], ["demo", "install"], ["demo", "remove"]):
            second = app(*command, "--data-dir", data)
            assert (second.returncode, second.stdout) == (1, "")
            assert f"pid {running.process.pid}" in second.stderr
            assert f"port {port}" in second.stderr
            assert second.stderr.count("\n") == 1
        end(running)
    assert app("demo", "remove", "--data-dir", data).returncode == 0


def test_a_killed_server_does_not_keep_the_next_from_starting(data: Path) -> None:
    with started(*serve("--data-dir", str(data), "--model", "tiny-llama")) as running:
        ready(running)
        os.kill(running.process.pid, signal.SIGKILL)
        running.process.wait(30)
    with started(*serve("--data-dir", str(data), "--model", "tiny-llama")) as running:
        assert ready(running)[0] == "tiny-llama"
        end(running)


def one_line(*arguments: str) -> str:
    """The one line on standard error of a start that fails with status 1."""
    ended = app("serve", *arguments)
    assert (ended.returncode, ended.stdout) == (1, ""), ended.stderr
    assert ended.stderr.count("\n") == 1, ended.stderr
    return ended.stderr


def test_an_unknown_model(data: Path) -> None:
    line = one_line("--data-dir", str(data), "--port", "0", "--model", "gpt-9")
    assert "'gpt-9'" in line
    assert "tiny-llama" in line


def test_a_taken_port(data: Path, taken_port: int) -> None:
    assert str(taken_port) in one_line("--data-dir", str(data), "--port", str(taken_port), "--model", "tiny-llama")


def test_another_address_without_a_key(tmp_path: Path) -> None:
    line = one_line("--data-dir", str(tmp_path / "d"), "--host", "0.0.0.0", "--port", "0")
    assert "--insecure" in line
    with started(*serve("--data-dir", str(tmp_path / "d"), "--host", "0.0.0.0", "--insecure")) as running:
        ready(running)
        end(running)


def test_a_model_whose_files_are_gone(data: Path, tiny_checkpoint: Path, tmp_path: Path) -> None:
    with Library.open(Paths(data).database) as library:
        library.models.update(1, local_path=str(tmp_path / "gone"))
    line = one_line("--data-dir", str(data), "--port", "0", "--model", "tiny-llama")
    assert "Could not load 'tiny-llama'" in line
    assert "gone" in line


def port_of(data: Path) -> int:
    """The port it listens on, which is noted before the model is read."""
    wait_until(lambda: getattr(current_holder(Paths(data)), "port", 0), "the server", 120)
    holder = current_holder(Paths(data))
    assert holder is not None and holder.port is not None
    return holder.port


@pytest.mark.parametrize("named", [True, False])
def test_a_client_that_cancels_the_first_load_ends_nothing(data: Path, named: bool) -> None:
    if not named:
        with Library.open(Paths(data).database) as library:
            library.models.set_status(1, ModelStatus.LOADED)
    arguments = ("--model", "tiny-llama") if named else ()
    with started(*serve("--data-dir", str(data), *arguments)) as running:
        base = f"http://127.0.0.1:{port_of(data)}"

        def cancelled() -> bool:
            # Refused until the load has begun.
            return httpx.post(f"{base}/api/models/1/cancel", timeout=60).status_code == 200

        wait_until(cancelled, "a load to cancel", 120)
        model, address = ready(running)
        assert model == "no model"
        assert httpx.get(f"{address}/models", timeout=30).status_code == 200
        # It can be loaded all the same.
        assert httpx.post(f"{base}/api/models/1/load", timeout=60).status_code in (200, 202)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
        assert "cancelled" in running.errors()


def test_the_model_used_last_that_is_gone_keeps_nothing_from_starting(data: Path, tmp_path: Path) -> None:
    with Library.open(Paths(data).database) as library:
        library.models.set_status(1, ModelStatus.LOADED)
        library.models.update(1, local_path=str(tmp_path / "gone"))
    with started(*serve("--data-dir", str(data))) as running:
        assert ready(running)[0] == "no model"
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
        errors = running.errors()
    assert errors.count("\n") == 1
    assert "Could not load 'tiny-llama'" in errors and "gone" in errors
    assert "Could not load 'tiny-llama'" in (Paths(data).logs / "millm.log").read_text(encoding="utf-8")


@pytest.mark.parametrize("restore", [True, False])
def test_what_was_attached_is_attached_again(data: Path, tmp_path: Path, restore: bool) -> None:
    with Library.open(Paths(data).database) as library:
        engine = Engine(EngineSettings(DTYPE="float32", CPU_THREADS=1), library)
        engine.start()
        engine.loader.load(1).result(120)
        engine.saes.import_local(make_sae(tmp_path / "made", layer=1), sae_id="made-sae")
        engine.attachments.attach("made-sae", 1)
        engine.hand_steering.set_value(3, 2.0)
        assert engine.stop(30)
    with started(*serve("--data-dir", str(data)), RESTORE_LAST=str(restore).lower()) as running:
        _, address = ready(running)
        view = httpx.get(f"{address.removesuffix('/v1')}/api/saes/attachment", timeout=30).json()["data"]
        steering = httpx.get(f"{address.removesuffix('/v1')}/api/saes/steering", timeout=30).json()["data"]
        end(running)
    assert view["is_attached"] is restore
    if restore:
        assert view["sae_id"] == "made-sae"
        assert (steering["enabled"], steering["values"]) == (False, {"3": 2.0})


def test_a_broken_database(tmp_path: Path) -> None:
    (tmp_path / "millm.db").write_bytes(b"this is no database" * 100)
    assert "millm.db" in one_line("--data-dir", str(tmp_path), "--port", "0")
