# make run    five real nodes on this machine: one is killed and restarted, one stopped; the order is proved
# make test   all tests but those on a cluster, and the share of branches covered in the parts that order messages
# make cluster   the tests on a Spark cluster of two workers
# make lint   ruff and mypy
#
# Each target makes .venv and installs what it needs; nothing but Python 3.11+, pip and make is assumed.
# Another interpreter: make test PYTHON=python3.12.  More of pytest's options: make test ARGS='-k recovery'.

PYTHON ?= python3
ARGS ?=
BRANCHES ?= 95

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
COVERED := src/ordercast/core src/ordercast/totem
TRACED := tests/core tests/totem
PYTEST := $(BIN)/pytest -n auto --maxprocesses 4 --dist worksteal
NOTHING_CHOSEN := $(if $(ARGS),|| test $$? -eq 5)

export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: run test cluster lint format clean
.DELETE_ON_ERROR:

run: $(STAMP)
	@$(BIN)/ordercast demo --engine spark

# The parts that order messages are traced while their own tests run, and those alone: the tracer is slow.
# Tests on Spark use all cores and share one session: one process has them to itself.
test: $(STAMP)
	@$(PYTEST) $(COVERED:%=--cov=%) --cov-report= $(TRACED) $(ARGS) $(NOTHING_CHOSEN)
	@$(PYTEST) $(TRACED:%=--ignore=%) -m 'not spark' $(ARGS) $(NOTHING_CHOSEN)
	@$(BIN)/pytest -m 'spark and not cluster' $(ARGS) $(NOTHING_CHOSEN)
ifeq ($(ARGS),)
	@$(BIN)/coverage json --quiet -o $(VENV)/coverage.json
	@$(BIN)/python .ci/branches.py --at-least $(BRANCHES) $(VENV)/coverage.json $(COVERED)
endif

# A standalone cluster of two workers on loopback, one of which is killed: three minutes more.
cluster: $(STAMP)
	@$(BIN)/pytest -m cluster $(ARGS)

lint: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check --diff .
	@$(BIN)/mypy --no-error-summary

format: $(STAMP)
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ordercast needs Python 3.11 or later: make PYTHON=python3.11")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install -qq --editable '.[dev]'
	@touch $@

clean:
	@rm -rf $(VENV) .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
