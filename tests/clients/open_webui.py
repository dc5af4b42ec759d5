"""Open WebUI with our server, as a person uses it, over Open WebUI's own HTTP API. Part of ``try_clients``.

A chat from its window goes through a queue there: the request names a session and a message, the answer and its side
calls (title, tags, follow-ups) are saved with the chat. So this sends what the window sends and reads the chat. What
arrives at our server is watched through its own event socket.
"""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.server.management.sockets import EventSocket

OUR_SETTINGS = {"DEFAULT_MAX_TOKENS": "64"}
"""What our server is told: a small model's side calls ramble."""

MODEL = "SmolLM2-135M-Instruct"
CLUSTER = "Demo: sea, ships and sailing"
START_S, ANSWER_S = 600.0, 600.0
_SIDE_CALLS = {"title", "tags", "follow-up"}
_LONG = "word " * 9000


class Watch:
    """The ended requests our server tells of."""

    def __init__(self, address: str) -> None:
        self._ended: dict[int, dict[str, Any]] = {}
        self._socket = EventSocket(int(address.rsplit(":", 1)[1]))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        try:
            while True:
                message = self._socket.next()
                if message["event"] == "server:request" and message["data"]["status"] is not None:
                    self._ended[message["data"]["number"]] = message["data"]
        except (AssertionError, OSError):
            return  # the server, or we, are done

    def chats(self) -> list[dict[str, Any]]:
        """Chat completions, the oldest first."""
        return [e for _, e in sorted(self._ended.items()) if e["path"] == "/v1/chat/completions"]


class Person:
    """Somebody signed in to an Open WebUI at ``base``."""

    def __init__(self, base: str) -> None:
        self._http = httpx.Client(base_url=base, timeout=ANSWER_S)
        answer = self._http.post("/api/v1/auths/signin", json={"email": "admin@localhost", "password": "admin"})
        self._http.headers["Authorization"] = f"Bearer {answer.raise_for_status().json()['token']}"

    def models(self) -> list[str]:
        """The models it offers."""
        found = self._http.get("/api/models", params={"refresh": "true"}).raise_for_status().json()
        return [each["id"] for each in found["data"]]

    def offer_no_tools(self) -> None:
        """What *Function Calling: Legacy* under Models, Model Defaults, Model Parameters does in its admin settings."""
        config = self._http.get("/api/v1/configs/models").raise_for_status().json()
        config["DEFAULT_MODEL_PARAMS"] = {"function_calling": "legacy"}
        self._http.post("/api/v1/configs/models", json=config).raise_for_status()

    def ask(self, text: str, *, stream: bool, **custom: Any) -> httpx.Response:
        """A chat as a program sends it to Open WebUI: no session, so no tools and no side calls."""
        messages = [{"role": "user", "content": text}]
        body = {"model": MODEL, "stream": stream, "messages": messages, **custom}
        return self._http.post("/api/chat/completions", json=body)

    def say(self, text: str, after: tuple[str, str] | None = None, **custom: Any) -> tuple[tuple[str, str], str]:
        """A chat as its window sends it, with ``custom`` as the custom parameters of the chat's controls.

        Returns:
            (chat, message) to go on from, and the answer, or the error that is shown in its place.
        """
        chat, parent = after or (None, None)
        question, answer = str(uuid.uuid4()), str(uuid.uuid4())
        body = {
            "stream": True,
            "model": MODEL,
            "params": {"custom_params": {name: str(value) for name, value in custom.items()}},
            "session_id": uuid.uuid4().hex,
            "id": answer,
            "parent_id": parent,
            "message_ids": [{"model_id": MODEL, "message_id": answer, "modelIdx": 0}],
            "user_message": {
                "id": question,
                "parentId": parent,
                "childrenIds": [answer],
                "role": "user",
                "content": text,
                "timestamp": int(time.time()),
                "models": [MODEL],
            },
            "background_tasks": {"title_generation": True, "tags_generation": True, "follow_up_generation": True},
        }
        if chat is not None:
            body["chat_id"] = chat
        sent = self._http.post("/api/chat/completions", json=body).raise_for_status().json()
        chat = str(sent.get("chat_id") or chat)

        def shown() -> str | None:
            saved = self._http.get(f"/api/v1/chats/{chat}").raise_for_status().json()["chat"]
            message = saved["history"]["messages"].get(answer, {})
            if message.get("error"):
                return str(message["error"].get("content"))
            return str(message["content"]) if message.get("done") else None

        return (chat, answer), _until(shown, "an answer in Open WebUI")


def _until(look: Callable[[], str | None], what: str, seconds: float = ANSWER_S) -> str:
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if (found := look()) is not None:
            return found
        time.sleep(0.5)
    raise TimeoutError(f"gave up waiting for {what} after {seconds:g} s")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(python: Path, address: str, data: Path) -> Iterator[str]:
    """An Open WebUI that uses our server for chats and fetches nothing; its address."""
    port = _free_port()
    told = {
        "DATA_DIR": str(data),
        "WEBUI_AUTH": "False",
        "WEBUI_SECRET_KEY": "try",
        "OPENAI_API_BASE_URL": f"{address}/v1",
        "OPENAI_API_KEY": "any",
        "ENABLE_OLLAMA_API": "False",
        "OFFLINE_MODE": "True",
        "HF_HUB_OFFLINE": "1",
        "ENABLE_VERSION_UPDATE_CHECK": "False",
        # Else it looks for an embedding model of its own for documents.
        "RAG_EMBEDDING_ENGINE": "openai",
        "RAG_OPENAI_API_BASE_URL": f"{address}/v1",
        "RAG_OPENAI_API_KEY": "any",
        "DO_NOT_TRACK": "true",
        "SCARF_NO_ANALYTICS": "true",
        "ANONYMIZED_TELEMETRY": "false",
    }
    program = python.parent / ("open-webui.exe" if os.name == "nt" else "open-webui")
    with (data / "open-webui.log").open("w+", encoding="utf-8") as log:
        process = subprocess.Popen(
            [program, "serve", "--host", "127.0.0.1", "--port", str(port)],
            env={**os.environ, **told},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        base = f"http://127.0.0.1:{port}"

        def up() -> str | None:
            if process.poll() is not None:
                log.seek(0)
                raise RuntimeError(f"Open WebUI ended: {log.read()[-2000:]}")
            try:
                return base if httpx.get(f"{base}/health", timeout=5).status_code == 200 else None
            except httpx.HTTPError:
                return None

        try:
            yield _until(up, "Open WebUI", START_S)
        finally:
            process.terminate()
            process.wait(60)


def try_it(python: Path, address: str) -> list[str]:
    """Use it for everything docs/clients.md says of it; what failed, in words."""
    failed: list[str] = []

    def see(what: str, good: bool, seen: object) -> None:
        print(f"{'good  ' if good else 'FAILED'}  {what}: {str(seen)[:300]}", flush=True)
        if not good:
            failed.append(f"Open WebUI, {what}: {seen}")

    watch = Watch(address)
    with tempfile.TemporaryDirectory() as folder, running(python, address, Path(folder)) as base:
        person = Person(base)
        models = person.models()
        see("our models are in its list", MODEL in models, models)
        plain = person.ask("Name the capital of France.", stream=False, temperature=0, max_tokens=24)
        see("an answer in one piece", "Paris" in plain.text, plain.text)
        streamed = person.ask("Name the capital of France.", stream=True, temperature=0, max_tokens=24)
        see("a streamed answer", "data: [DONE]" in streamed.text and streamed.text.count("data: ") > 5, streamed.text)

        at, text = person.say("Name the capital of France.", temperature=0, max_tokens=24)
        see("a chat in the window", "Paris" in text, text)
        _, text = person.say("And of Italy?", at, temperature=0, max_tokens=24)
        see("the conversation goes on", "Rome" in text, text)
        ignored = [entry["ignored_fields"] for entry in watch.chats() if entry["stream"]]
        see("the tools it offered are left out, and named", ["tools"] in ignored, ignored)

        _, text = person.say(
            "Tell me about your day.", temperature=0, max_tokens=40, profile=CLUSTER, steering_intensity=1
        )
        steering = [entry["steering"] or "" for entry in watch.chats() if entry["side_call"] is None]
        see("steered by custom parameters", any(CLUSTER in each for each in steering), text)

        def kinds() -> str | None:
            found = {entry["side_call"] for entry in watch.chats()}
            return ", ".join(sorted(found - {None})) if found >= _SIDE_CALLS else None

        try:
            see("its side calls are marked", True, _until(kinds, "the side calls"))
        except TimeoutError:
            found = sorted({str(entry["side_call"]) for entry in watch.chats()})
            see("its side calls are marked", False, found)

        person.offer_no_tools()
        before = len(watch.chats())
        _, text = person.say("Name the capital of France.", temperature=0, max_tokens=24)
        ignored = [entry["ignored_fields"] for entry in watch.chats()[before:] if entry["stream"]]
        see("with Function Calling set to Legacy it offers no tools", "Paris" in text and ignored == [[]], ignored)

        _, text = person.say("Hello", profile="no such thing")
        see("an unknown profile is told in words", "There is no profile named 'no such thing'" in text, text)
        _, text = person.say(_LONG)
        see("a prompt too long is told in words", "the context window of" in text, text)
    return failed
