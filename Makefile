# The two commands: `make demo` and `make test` do all set-up themselves, and are fast when nothing is missing.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DEMO_ARGS ?=
TEST_ARGS ?=
WORKERS ?= 2
FUZZ_ARGS ?= --count 10000
FUZZ_INPUT_ARGS ?= --count 1000
# Two at a time; what starts nodes runs alone.
BESIDE := $(BIN)/pytest -n $(WORKERS) --dist worksteal
BENCH_ARGS ?= --rounds 1 --limit-s 0.1

.PHONY: help setup demo test test-fast fuzz fuzz-input test-slow test-nightly test-cluster lint bench engine engine-stop clean

help:            ## show this help
	@grep -hE '^[a-z-]+: *## |^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup:           ## install what is missing (system packages as root only), build the node image and the server
	@scripts/setup

demo: setup      ## the main job on real servers; DEMO_ARGS="--nemesis hammer-time" passes on
	@# A verdict is what the demo is for, whatever it says; only a harness that broke fails it.
	@$(BIN)/harness run $(DEMO_ARGS); code=$$?; [ $$code -le 2 ] || exit $$code

test: setup lint   ## all tests but the nightly ones: lint, those that start no nodes, then real servers
	$(BESIDE) -m "not cluster and not nightly" $(TEST_ARGS)
	$(BIN)/pytest -m "cluster and not nightly" --durations=25 --durations-min=15 $(TEST_ARGS)

test-fast:       ## tests that start no nodes and take little time
	$(BESIDE) -m "not cluster and not slow" $(TEST_ARGS)

test-slow:       ## the slow ones, and those that start real servers on docker and local nodes
	$(BESIDE) -m "slow and not cluster and not nightly" $(TEST_ARGS)
	$(BIN)/pytest -m "cluster and not nightly" $(TEST_ARGS)

fuzz:            ## the linearizability engine, every model, against brute force; FUZZ_ARGS="--count 1000000"
	$(BIN)/python -m tests.fuzz.linearizability $(FUZZ_ARGS)

fuzz-input:      ## bad input for the command line; FUZZ_INPUT_ARGS="--count 5000 --seed 2" passes on
	$(BIN)/python -m tests.fuzz.bad_input $(FUZZ_INPUT_ARGS)

test-nightly:    ## the tutorial typed out, and Spark from a clean environment; not part of `make test`
	$(BIN)/pytest -m nightly $(TEST_ARGS)

test-cluster:    ## tests that start real servers on docker and local nodes
	$(BIN)/pytest -m cluster $(TEST_ARGS)

lint:            ## ruff, mypy, and the layers of docs/design.md
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

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
