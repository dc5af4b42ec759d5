# The front doors. Everything else is `python -m app --help`.
#
#   make setup        .venv with all packages, the GGUF engine and the demo model; quick when there is nothing to do
#   make gguf         compile the engine for GGUF files (llama.cpp) again
#   make run          the window, with the demo model and the server
#   make serve        the same without a window
#   make test         the whole suite: lint, import rules, types, tests
#   make bench        speed ratios, into bench/out/latest.json
#   make screenshots  every page of the window, into docs/screenshots/
#   make by-hand      the window on a virtual screen, used by a real mouse and real keys
#   make package      an installer for this system, installed and tried
#   make try-clients  the examples of docs/clients.md, run with the real client libraries
#
# ARGS is handed on:        make serve ARGS="--port 9000"
# A build of PyTorch:       make setup TORCH_INDEX_URL=https://download.pytorch.org/whl/cpu

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# torch's OpenMP threads must not spin while they wait; see app/environment.py.
export OMP_WAIT_POLICY ?= PASSIVE
export GOMP_SPINCOUNT ?= 0

VENV ?= .venv
PY := $(VENV)/bin/python
PYTHON ?= $(shell for p in python3 python3.11 python3.12 python3.13; do \
	if $$p -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' >/dev/null 2>&1; then echo $$p; break; fi; done)
PIP := $(PY) -m pip --disable-pip-version-check --no-input
PACKAGES := $(VENV)/.packages
TORCH_INDEX_URL ?=
TEST_DATA := $(CURDIR)/.data
# Two processes, each file whole in one of them: half the time, and 2 GB of memory more.
PYTEST_ARGS ?= -n 2 --dist loadfile
ARGS ?=

.PHONY: help setup packages gguf gguf-engine demo demo-test run serve test lint types screenshots by-hand bench package try-clients qt-offscreen qt-window clean

help:
	@sed -n '2,/^$$/s/^# \{0,1\}//p' Makefile

# --- environment ------------------------------------------------------------------------------------------------------

$(PY):
	@if [ -z "$(PYTHON)" ]; then \
		echo "miLLM Desktop needs Python 3.11, 3.12 or 3.13; none was found. Install one, or name it: make PYTHON=/path/to/python3" >&2; \
		exit 1; fi
	@$(PYTHON) -m venv $(VENV) || { rm -rf $(VENV); \
		echo "Could not make $(VENV). On Debian or Ubuntu: sudo apt-get install python3-venv" >&2; exit 1; }

$(PACKAGES): pyproject.toml constraints.txt | $(PY)
	@rm -f $@
	$(PIP) install --quiet -c constraints.txt setuptools
	@if [ -n "$(TORCH_INDEX_URL)" ]; then \
		echo "torch from $(TORCH_INDEX_URL)"; \
		$(PIP) install --quiet -c constraints.txt --index-url "$(TORCH_INDEX_URL)" \
			--extra-index-url https://pypi.org/simple torch; fi
	$(PIP) install --quiet --no-build-isolation -c constraints.txt -e ".[dev]"
	@touch $@

# Another build of torch than the one installed: take the old one out first, since its version number is the same.
ifneq ($(TORCH_INDEX_URL),)
$(PACKAGES): $(VENV)/.torch-index
$(VENV)/.torch-index: FORCE | $(PY)
	@if [ "$$(cat $@ 2>/dev/null)" != "$(TORCH_INDEX_URL)" ]; then \
		$(PIP) uninstall --quiet --yes torch 2>/dev/null || true; echo "$(TORCH_INDEX_URL)" > $@; fi
FORCE:
endif

packages: $(PACKAGES)

# llama-cpp-python has no wheel for most systems and compiles. The switches leave out what a server does not need (the
# part that reads images, the tools, HTTPS), and build for any machine of this kind instead of this one alone. Without
# it everything but GGUF files works, so a build that fails is said and stops nothing, unless GGUF_REQUIRED is set.
GGUF_ENGINE := $(VENV)/.gguf-engine
GGUF_LOG := $(VENV)/gguf-build.log
GGUF_REQUIRED ?=
GGUF_CMAKE_ARGS ?= -DLLAVA_BUILD=OFF '-DCMAKE_PROJECT_llama.cpp_INCLUDE=$(CURDIR)/packaging/llama-cpp.cmake' \
	-DLLAMA_OPENSSL=OFF -DGGML_CCACHE=OFF -DGGML_NATIVE=OFF

$(GGUF_ENGINE): packaging/llama-cpp.cmake constraints.txt | $(PACKAGES)
	@wanted="$$(sed -n 's/^llama_cpp_python==//p' constraints.txt)"; \
	if $(PY) -c "import sys; from importlib.metadata import version; sys.exit(version('llama-cpp-python') != '$$wanted')" \
		2>/dev/null; then touch $@; exit 0; fi; \
	if ! command -v c++ >/dev/null && ! command -v g++ >/dev/null && ! command -v clang++ >/dev/null; then \
		echo "GGUF files cannot be run yet: llama.cpp has to be compiled, and there is no C++ compiler." >&2; \
		echo "On Debian or Ubuntu: sudo apt-get install g++. Then: make gguf" >&2; \
		[ -z "$(GGUF_REQUIRED)" ]; exit; fi; \
	echo "Compiling the engine for GGUF files (llama.cpp $$wanted). It takes some minutes, once …"; \
	if CMAKE_ARGS="$(GGUF_CMAKE_ARGS)" $(PIP) install --quiet -c constraints.txt llama-cpp-python >$(GGUF_LOG) 2>&1; then \
		echo "The engine for GGUF files is installed."; \
	else \
		tail -n 5 $(GGUF_LOG) >&2; \
		echo "GGUF files cannot be run: llama.cpp could not be compiled (all of it: $(GGUF_LOG))." >&2; \
		echo "Everything else works. Try again: make gguf" >&2; \
		[ -z "$(GGUF_REQUIRED)" ] || exit 1; fi; \
	touch $@

gguf-engine: $(GGUF_ENGINE)

gguf:
	@rm -f $(GGUF_ENGINE)
	@$(MAKE) --no-print-directory gguf-engine GGUF_REQUIRED=1

# `demo status` answers in a moment and asks for no lock, so a window that is already open does not stand in the way.
demo: packages
	@$(PY) -m app demo status >/dev/null 2>&1 || $(PY) -m app demo install

demo-test: packages
	@$(PY) -m app demo status --data-dir $(TEST_DATA) >/dev/null 2>&1 || $(PY) -m app demo install --data-dir $(TEST_DATA)

setup: packages gguf-engine demo
	@echo "Ready. make run opens the window, make serve starts the server."

qt-offscreen:
	@$(or $(PYTHON),python3) -m app.system_libraries --offscreen

qt-window:
	@$(or $(PYTHON),python3) -m app.system_libraries --window

# --- the program ------------------------------------------------------------------------------------------------------

run: qt-window packages gguf-engine demo
	$(PY) -m app gui $(ARGS)

serve: packages gguf-engine demo
	$(PY) -m app serve $(ARGS)

# --- work on the program ----------------------------------------------------------------------------------------------

lint: packages
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: packages
	$(VENV)/bin/mypy

test: qt-offscreen gguf-engine lint types demo-test
	QT_QPA_PLATFORM=offscreen MILLM_DATA_DIR=$(TEST_DATA) HF_HUB_OFFLINE=1 $(PY) -m pytest $(PYTEST_ARGS)

bench: gguf-engine demo-test
	@[ -f bench/__main__.py ] || { echo "The benchmark is not in this version yet." >&2; exit 1; }
	MILLM_DATA_DIR=$(TEST_DATA) HF_HUB_OFFLINE=1 $(PY) -m bench $(ARGS)

screenshots: qt-offscreen gguf-engine demo-test
	@[ -f tests/ui/screenshots.py ] || { echo "The screenshot tool is not in this version yet." >&2; exit 1; }
	QT_QPA_PLATFORM=offscreen MILLM_DATA_DIR=$(TEST_DATA) HF_HUB_OFFLINE=1 $(PY) -m tests.ui.screenshots $(ARGS)

# By hand, not in CI: it takes some minutes a scene. ARGS="wheel small" names scenes; it says which packages are missing.
by-hand: packages demo-test
	$(PY) -m tests.by_hand $(ARGS)

# The build wants Qt (to draw icons) and installs PyInstaller itself. ARGS="--no-try" leaves the trying out.
package: qt-offscreen packages gguf-engine
	packaging/build.sh $(ARGS)

# By hand, not in CI: it installs other people's packages into environments of their own under .venv-clients, 3 GB in
# all, most of it Open WebUI's. ARGS="--skip open-webui" leaves that out, ARGS="openai langchain" names what to try.
try-clients: packages demo-test
	HF_HUB_OFFLINE=1 TORCH_INDEX_URL=$(TORCH_INDEX_URL) $(PY) -m tests.clients.try_clients $(ARGS)

clean:
	rm -rf $(VENV) .venv-clients packaging/out .data build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
