"""What is said about engines that are missing: exactly what, and how to get it."""

from __future__ import annotations

import sys

import pytest

from engine.models.backends import engines


def test_llamacpp_is_there() -> None:
    state = engines.examine_gguf_engine()
    assert state.usable and state.version is not None
    assert state.in_words() == f"llama-cpp-python {state.version}"


def test_without_it_and_with_a_compiler() -> None:
    state = engines.gguf_engine(installed=False, which=lambda name: "/usr/bin/g++" if name == "g++" else None)
    assert not state.usable
    assert state.in_words() == (
        "GGUF files cannot be run yet: llama-cpp-python is not installed. Compile it (some minutes, once): make gguf"
    )


def test_without_a_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    state = engines.gguf_engine(installed=False, which=lambda name: None)
    assert "no C++ compiler" in (state.problem or "")
    assert state.remedy == "On Debian or Ubuntu: sudo apt-get install g++. Then: make gguf"


def test_in_an_installed_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "frozen", True, raising=False)
    assert "came without llama.cpp" in engines.gguf_engine(installed=False).in_words()


def test_a_library_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(name: str) -> None:
        raise OSError("libllama.so: cannot open shared object file")

    monkeypatch.setattr(engines.importlib, "import_module", broken)
    state = engines.examine_gguf_engine()
    assert "cannot open shared object file" in (state.problem or "") and "make gguf" in (state.remedy or "")
