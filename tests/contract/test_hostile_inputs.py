"""Inputs made to stop a server: each is refused by itself, and others are answered meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.engine import Engine
from engine.models.backends.templates import chat as chat_templates
from engine.models.backends.templates import renderer
from engine.models.backends.tokenizer import CheckpointTokenizer
from server import body as body_module
from tests.conftest import CheckpointMaker
from tests.contract.conftest import MODEL, Live

LONG_TEXT = "the sea " * 3_700_000
"""Thirty megabytes."""

ENDLESS = (
    "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    "{% for a in range(n or 1) %}{% for b in range(n or 1) %}{% endfor %}{% endfor %}"
)


def test_health_and_others_are_answered_beside_templates_that_do_not_end(
    own_engine: Callable[..., Engine],
    serve: Callable[..., Live],
    checkpoint: CheckpointMaker,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = serve(own_engine(checkpoint("llama", chat_template=ENDLESS)))
    assert live.chat().status_code == 200
    inside, release = threading.Semaphore(0), threading.Event()
    run = chat_templates.shared().run

    class Held:
        """The program's renderer; it keeps the endless jobs until the test has looked."""

        def run(self, job: dict[str, Any]) -> Any:
            if job.get("variables", {}).get("n"):
                inside.release()
                assert release.wait(60)
            return run(job)

    monkeypatch.setattr(chat_templates, "shared", Held)
    monkeypatch.setattr(renderer, "CPU_S", 0.5)
    with ThreadPoolExecutor(8) as pool:
        endless = [pool.submit(live.chat, chat_template_kwargs={"n": 99999}) for _ in range(5)]
        for _ in endless:
            assert inside.acquire(timeout=60)
        try:
            with live.http() as client:
                assert client.get("/api/health").status_code == 200
                assert client.get("/api/models").status_code == 200
            assert live.text().status_code == 200
            assert live.chat().status_code == 200
        finally:
            release.set()
        for each in endless:
            error = each.result(120).json()["error"]
            assert (each.result().status_code, error["param"]) == (400, "messages")
            assert "does not end" in error["message"]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lengths of the texts that were made tokens of."""
    seen: list[int] = []
    plain = CheckpointTokenizer._ids

    def counted(self: CheckpointTokenizer, text: str, add_special_tokens: bool) -> list[int]:
        seen.append(len(text))
        return plain(self, text, add_special_tokens)

    monkeypatch.setattr(CheckpointTokenizer, "_ids", counted)
    return seen


def test_thirty_megabytes_are_refused_by_their_length_on_every_route(live: Live, read: list[int]) -> None:
    messages = [{"role": "user", "content": LONG_TEXT}]
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 4}),
        ("/v1/chat/completions", {"messages": messages, "stream": True}),
        ("/v1/chat/completions", {"messages": messages, "max_tokens": 1, "logprobs": True, "allowed_token_ids": [70]}),
        ("/v1/completions", {"prompt": LONG_TEXT, "max_tokens": 4}),
        ("/v1/completions", {"prompt": ["a", LONG_TEXT], "max_tokens": 4}),
        ("/v1/completions", {"prompt": LONG_TEXT, "max_tokens": 1, "logprobs": 2, "allowed_token_ids": [70, 80]}),
        ("/v1/embeddings", {"input": ["a", LONG_TEXT]}),
    ]
    with live.http() as client:
        for path, body in asked:
            answer = client.post(path, json={"model": MODEL, **body})
            error = answer.json()["error"]
            assert (answer.status_code, error["code"]) == (400, "context_length_exceeded"), (path, error)
            assert "at least" in error["message"]
            assert "2048" in error["message"]
    assert sum(read) < 100_000


def test_a_body_of_millions_of_objects_is_refused_before_it_is_read(
    live: Live, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    plain = body_module.from_json

    def noted(raw: bytes, **options: Any) -> Any:
        read.append(len(raw))
        return plain(raw, **options)

    monkeypatch.setattr(body_module, "from_json", noted)
    start = f'{{"model": "{MODEL}", "max_tokens": 1, "prompt": '.encode()
    with live.http() as client:
        for path in ("/v1/completions", "/v1/embeddings", "/api/saes/read"):
            answer = client.post(path, content=start + b'"x", "y": [' + b"{}," * 300_000 + b"1]}")
            assert answer.status_code in (400, 422)
            assert "300,002 objects and lists" in answer.text
        assert read == []
        # Brackets within a text are text.
        answer = client.post("/v1/completions", content=start + b'"' + b"[{" * 300_000 + b'"}')
        assert answer.json()["error"]["code"] == "context_length_exceeded"
