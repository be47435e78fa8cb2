# SPDX-License-Identifier: Apache-2.0
# The two commands: `make demo` and `make test` do all set-up themselves, and are fast when nothing is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO_ARGS ?=
TEST_ARGS ?=
WORKERS ?= 2
FUZZ_ARGS ?= --count 10000
FUZZ_INPUT_ARGS ?= --count 1000
# Two at a time.
BESIDE := $(BIN)/pytest -n $(WORKERS) --dist worksteal
# Many of them wait for a child process.
UNITS  := $(BIN)/pytest -n $(shell expr $(WORKERS) + 1) --dist worksteal
# A module's nodes stay in one process. Servers need the processors for themselves: those tests run one by one.
SERVERS := tests/cluster tests/infra tests/nemesis tests/docs
NODES  := $(BIN)/pytest -n $(WORKERS) --dist loadgroup $(SERVERS)
BENCH_ARGS ?= --rounds 1 --limit-s 0.1

# Without compiled modules every process of a test parses some 400 files again.
export PYTHONDONTWRITEBYTECODE :=
# By content, so a second clone need not read every module again.
export HYPOTHESIS_STORAGE_DIRECTORY ?= $(or $(HARNESS_CACHE),$(HOME)/.cache/rocketmq-harness)/hypothesis

.PHONY: help setup demo test test-fast fuzz fuzz-input test-slow test-nightly test-cluster lint site bench engine \
  engine-stop clean

help:            ## show this help
	@grep -hE '^[a-z-]+: *## |^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup:           ## install what is missing (system packages as root only), build the node image and the server
	@scripts/setup

demo:            ## the main job on real servers; DEMO_ARGS="--nemesis hammer-time" passes on
	@scripts/setup --for-demo
	@# A verdict is what the demo is for, whatever it says; only a harness that broke fails it.
	@$(BIN)/harness run $(DEMO_ARGS); code=$$?; [ $$code -le 2 ] || exit $$code

test: setup lint   ## all tests but the nightly ones: lint, those that start no nodes, then real servers
	$(UNITS) -m "not cluster and not nightly and not docs" $(TEST_ARGS)
	$(NODES) -m "cluster and nodes and not nightly" $(TEST_ARGS)
	$(BIN)/pytest -m "cluster and not nodes and not nightly" --durations=25 --durations-min=15 $(SERVERS) $(TEST_ARGS)

test-fast:       ## tests that start no nodes and take little time
	HARNESS_EFFORT=fast $(UNITS) -m "not cluster and not slow and not docs" $(TEST_ARGS)

test-slow:       ## the slow ones, and those that start real servers on docker and local nodes
	$(BESIDE) -m "slow and not cluster and not nightly" $(TEST_ARGS)
	$(NODES) -m "cluster and nodes and not nightly" $(TEST_ARGS)
	$(BIN)/pytest -m "cluster and not nodes and not nightly" $(SERVERS) $(TEST_ARGS)

fuzz:            ## the linearizability engine, every model, against brute force; FUZZ_ARGS="--count 1000000"
	$(BIN)/python -m tests.fuzz.linearizability $(FUZZ_ARGS)

fuzz-input:      ## bad input for the command line; FUZZ_INPUT_ARGS="--count 5000 --seed 2" passes on
	$(BIN)/python -m tests.fuzz.bad_input $(FUZZ_INPUT_ARGS)

test-nightly:    ## what is long or rare (tests/README.md), and the searching tests at full effort; not part of `make test`
	@# The second part runs although the first one failed.
	HARNESS_EFFORT=night $(BESIDE) -m "not cluster and not docs" $(TEST_ARGS); code=$$?; \
	$(BIN)/pytest -m "cluster and nightly" $(SERVERS) $(TEST_ARGS) && exit $$code

test-cluster:    ## tests that start real servers on docker and local nodes
	$(BIN)/pytest -m cluster $(TEST_ARGS)

lint:            ## ruff, mypy, the layers of docs/design.md, plain English, and the pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python scripts/plain_english.py
	$(BIN)/python scripts/spdx.py --check
	$(BESIDE) -m docs tests/docs

SITE := .venv-site/.installed-$(shell sha256sum requirements-site.lock | cut -c1-16)

$(SITE):
	$(PYTHON) -m venv .venv-site
	.venv-site/bin/pip install -q --disable-pip-version-check --require-hashes -r requirements-site.lock
	touch $@

site: $(SITE)    ## the documents as a site in site/, with all links checked; it needs no network
	NO_MKDOCS_2_WARNING=1 .venv-site/bin/mkdocs build --strict -q
	@echo "site/index.html"

bench:           ## benchmarks, as ratios to a baseline of the same run
	@for b in benchmarks/*.py; do echo "== $$b"; $(BIN)/python $$b || exit 1; done
	@# Beside Porcupine, which needs Go; BENCH_ARGS="--whole --histories FOLDER" says more, and takes far longer.
	@if command -v go > /dev/null; then echo "== benchmarks/checker"; $(BIN)/python -m benchmarks.checker $(BENCH_ARGS); \
	else echo "== benchmarks/checker: skipped, it needs Go"; fi

engine:          ## start a Docker engine of our own (root on Debian)
	@$(BIN)/python -m infra.machines.engine start

engine-stop:     ## end the engine that `make engine` started
	@$(BIN)/python -m infra.machines.engine stop

clean:           ## remove what earlier runs left on this machine (not the results)
	@$(BIN)/harness clean
