# make run    five real nodes on this machine: one is killed and restarted, one stopped; the order is proved
# make test   all tests but those on a cluster, and the share of branches covered in the parts that order messages
# make campaign   the hunts among the tests with all their seeds, mutants and rounds: for hours
# make compiled   the compiled build into .venv, which `make test` tests then; make pure   the editable install again
# make cluster   the tests on a Spark cluster of two workers
# make docs   the documentation as a site, in site/
# make lint   ruff and mypy
#
# Each target makes .venv and installs what it needs; nothing but Python 3.11+, pip and make is assumed.
# Another interpreter: make test PYTHON=python3.12.  More of pytest's options: make test ARGS='-k recovery'.

PYTHON ?= python3
ARGS ?=
BRANCHES ?= 95

VENV := .venv
BIN := $(VENV)/bin
TOOLS := $(VENV)/.tools
STAMP := $(VENV)/.installed
BYTECODE := $(VENV)/.bytecode
COMPILED := $(VENV)/.compiled-build
COVERED := $(addprefix src/ordercast/,core totem viewsync sequencers groups)
PROCESSES := $(shell $(PYTHON) -c 'import os; print(min(8, 5 * len(os.sched_getaffinity(0)) // 2))')
PYTEST := $(BIN)/pytest -n $(PROCESSES) --dist loadgroup --no-loadscope-reorder
COUNTED := $(if $(ARGS)$(wildcard $(COMPILED)),,yes)
NOTHING_CHOSEN := $(if $(ARGS),|| test $$? -eq 5)

# Spark is installed beside the first work of the others.
MAKEFLAGS += --jobs=2
export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Tests begin hundreds of interpreters, none of which should have to compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test campaign cluster compiled pure docs lint format clean
.DELETE_ON_ERROR:

run: $(STAMP)
	@$(BIN)/ordercast demo --engine spark

# Many tests wait for others more than they compute: there are five processes for two cores. Which tests one process has,
# and in which order, is in tests/conftest.py. Where tests are chosen, or compiled code is tested, nothing is traced.
test: $(STAMP) $(BYTECODE)
	@$(PYTEST) -m 'not cluster' $(if $(COUNTED),$(COVERED:%=--cov=%) --cov-report=) $(ARGS) $(NOTHING_CHOSEN)
ifneq ($(COUNTED),)
	@$(BIN)/coverage json --quiet -o $(VENV)/coverage.json
	@$(BIN)/python .ci/branches.py --at-least $(BRANCHES) $(VENV)/coverage.json $(COVERED)
endif

campaign: $(STAMP)
	@ORDERCAST_CAMPAIGN=1 $(PYTEST) -m campaign $(ARGS) $(NOTHING_CHOSEN)

# A standalone cluster of two workers on loopback, one of which is killed: three minutes more.
cluster: $(STAMP)
	@$(BIN)/pytest -m cluster $(ARGS)

# Built from a copy, so that no compiled module stays beside its source (docs/building.md).
compiled: $(STAMP)
	@rm -rf $(VENV)/.source && mkdir $(VENV)/.source
	@cp -R pyproject.toml README.md LICENSE src $(VENV)/.source
	@HATCH_BUILD_HOOKS_ENABLE=1 $(BIN)/pip install -qq --no-deps --force-reinstall $(VENV)/.source
	@rm -rf $(VENV)/.source
	@touch $(COMPILED)
	@$(BIN)/ordercast --version

pure: $(STAMP)
	@$(BIN)/pip install -qq --no-compile --no-deps --editable .
	@rm -f $(COMPILED)
	@$(BIN)/ordercast --version

docs: $(STAMP)
	@$(BIN)/pip install -qq --editable '.[docs]'
	@rm -f $(COMPILED)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --site-dir site
	@echo site/index.html

lint: $(STAMP)
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check --diff .
	@$(BIN)/mypy --no-error-summary

format: $(STAMP)
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

$(TOOLS): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "ordercast needs Python 3.11 or later: make PYTHON=python3.11")'
	@test -x $(BIN)/pip || $(PYTHON) -m venv --clear $(VENV)
	@$(BIN)/pip install -qq --no-compile --editable '.[lab,seal,tools]'
	@touch $@

# Spark is published as source only. Its wheel is not compressed, which would take longer than to install the rest.
$(STAMP): $(TOOLS)
	@DIST_EXTRA_CONFIG=$(CURDIR)/.ci/setuptools.cfg $(BIN)/pip install -qq --no-compile --editable '.[dev]'
	@rm -f $(COMPILED)
	@touch $@

# All modules are made bytecode once, so that not each of the processes that test does it for itself.
$(BYTECODE): $(TOOLS)
	@$(BIN)/pytest --collect-only -qq > $@ || true

clean:
	@rm -rf $(VENV) site .coverage .coverage.* .pytest_cache .mypy_cache .ruff_cache .hypothesis
