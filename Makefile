# The front doors. Everything else is `python -m app --help`.
#
#   make setup        .venv with all packages, and the demo model; quick when there is nothing to do
#   make run          the window, with the demo model and the server
#   make serve        the same without a window
#   make test         the whole suite: lint, import rules, types, tests
#   make bench        speed ratios, into bench/out/latest.json
#   make screenshots  every page of the window, into docs/screenshots/
#   make package      an installer for this system
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
PYTEST_ARGS ?=
ARGS ?=

.PHONY: help setup packages demo demo-test run serve test lint types screenshots bench package qt-offscreen qt-window clean

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

# `demo status` answers in a moment and asks for no lock, so a window that is already open does not stand in the way.
demo: packages
	@$(PY) -m app demo status >/dev/null 2>&1 || $(PY) -m app demo install

demo-test: packages
	@$(PY) -m app demo status --data-dir $(TEST_DATA) >/dev/null 2>&1 || $(PY) -m app demo install --data-dir $(TEST_DATA)

setup: packages demo
	@echo "Ready. make run opens the window, make serve starts the server."

qt-offscreen:
	@$(or $(PYTHON),python3) -m app.system_libraries --offscreen

qt-window:
	@$(or $(PYTHON),python3) -m app.system_libraries --window

# --- the program ------------------------------------------------------------------------------------------------------

run: qt-window packages demo
	$(PY) -m app gui $(ARGS)

serve: packages demo
	$(PY) -m app serve $(ARGS)

# --- work on the program ----------------------------------------------------------------------------------------------

lint: packages
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/lint-imports

types: packages
	$(VENV)/bin/mypy

test: qt-offscreen lint types demo-test
	QT_QPA_PLATFORM=offscreen MILLM_DATA_DIR=$(TEST_DATA) HF_HUB_OFFLINE=1 $(PY) -m pytest $(PYTEST_ARGS)

bench: demo-test
	@[ -f bench/__main__.py ] || { echo "The benchmark is not in this version yet." >&2; exit 1; }
	MILLM_DATA_DIR=$(TEST_DATA) HF_HUB_OFFLINE=1 $(PY) -m bench $(ARGS)

screenshots: qt-offscreen demo-test
	@[ -f tests/ui/screenshots.py ] || { echo "The screenshot tool is not in this version yet." >&2; exit 1; }
	QT_QPA_PLATFORM=offscreen MILLM_DATA_DIR=$(TEST_DATA) HF_HUB_OFFLINE=1 $(PY) -m tests.ui.screenshots $(ARGS)

package: packages
	@[ -f packaging/build.sh ] || { echo "Installers are not in this version yet; run from the checkout with make run." >&2; exit 1; }
	packaging/build.sh

clean:
	rm -rf $(VENV) .data build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache
