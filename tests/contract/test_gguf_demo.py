"""The demo GGUF (Q4_1) with the demo SAEs, which were trained on the transformers model: answers, dials, four clients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from app.demo.content import install_content
from app.demo.pack import SMOLLM2, PackPaths
from app.paths import Paths
from assets.demo.build.topics import TOPICS
from engine.engine import Engine
from server.config import ServerSettings
from server.thread import ServerThread
from tests.contract.conftest import READY_S, Live, start_engine, stop_engine

pytestmark = pytest.mark.demo

ROOT = Path(__file__).resolve().parents[2]
QUESTION = "Tell me about your day."


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    """The demo GGUF behind a server, with the demo pack installed and nothing attached."""
    file = PackPaths.of(Paths(ROOT / ".data"), SMOLLM2).gguf_file
    if not file.is_file():
        pytest.fail("the demo model is not in .data: run `make setup`, or leave this test out with -m 'not demo'")
    engine: Engine = start_engine(file, tmp_path_factory.mktemp("demo") / "millm.db")
    install_content(engine)
    thread = ServerThread(engine, ServerSettings(PORT=0))
    thread.start()
    yield Live(engine, thread, thread.wait_ready(READY_S))
    thread.stop(5)
    stop_engine(engine)


@pytest.fixture(scope="module")
def name(demo: Live) -> str:
    resident = demo.engine.shelf.resident
    assert resident is not None
    return resident.record.name


@pytest.fixture(scope="module")
def ask(demo: Live, name: str) -> Callable[..., str]:
    def asked(question: str, **body: Any) -> str:
        answer = demo.chat(model=name, messages=[{"role": "user", "content": question}], **{"max_tokens": 32, **body})
        assert answer.status_code == 200, answer.text
        return str(answer.json()["choices"][0]["message"]["content"])

    return asked


QUESTIONS = {
    "What is the capital of Japan?": "Tokyo",
    "What is the capital of Germany?": "Berlin",
    "Name the capital of England.": "London",
    "What is the opposite of hot?": "cold",
}
"""What the model knows in four bits: of France it only says that there is an Étoile, whoever runs the file."""


def test_it_answers_the_official_client(demo: Live, name: str) -> None:
    with demo.sdk() as client:
        chunks = client.chat.completions.create(
            model=name,
            messages=[{"role": "user", "content": "What is the capital of Japan?"}],
            max_tokens=24,
            temperature=0,
            stream=True,
        )
        choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert "".join(choice.delta.content or "" for choice in choices) == "The capital of Japan is Tokyo."
    assert choices[-1].finish_reason == "stop"


def test_four_clients_get_their_own_answers(ask: Callable[..., str]) -> None:
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda question: ask(question, max_tokens=12), QUESTIONS))
    for answer, (question, word) in zip(answers, QUESTIONS.items(), strict=True):
        assert word in answer, question


def test_the_demo_dial_brings_its_topic(demo: Live, ask: Callable[..., str]) -> None:
    engine = demo.engine
    for sae in engine.saes.list():
        engine.attachments.attach(sae.id)
    try:
        sea = next(topic for topic in TOPICS if topic.name == "sea")
        profile = next(each for each in engine.library.profiles.list() if "sea" in each.name.lower())
        plain = ask(QUESTION, max_tokens=60)
        steered = ask(QUESTION, max_tokens=60, profile=profile.name)
        assert sea.share(steered) > sea.share(plain) + 0.015
        bodies: list[dict[str, Any]] = [
            {},
            {"profile": profile.name},
            {"profile": profile.name, "steering_intensity": 0.6},
        ]
        alone = [ask(QUESTION, max_tokens=16, **body) for body in bodies]
        with ThreadPoolExecutor(3) as pool:
            together = [pool.submit(ask, QUESTION, max_tokens=16, **body) for body in bodies]
            assert [each.result() for each in together] == alone
        assert len(set(alone)) == 3
    finally:
        for sae_id in {each.sae_id for each in engine.desk.state.attachments}:
            engine.attachments.detach(sae_id)
