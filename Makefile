# make run    sets everything up and starts a node in the foreground
# make test   sets everything up and runs the tests
#
# What is set up lives in .venv; files in .make say since when. A newer pyproject.toml sets it up anew.

PIP := .venv/bin/python -m pip --quiet --disable-pip-version-check
WEIGHTS := PIP_QUIET=2 .venv/bin/python -m pair.engines.weights

.PHONY: run test lint docs faults bench bench-routing spec clean
.DELETE_ON_ERROR:

# ARGS are options of `twistd pair`: make run ARGS="--set proxy.ports.ollama=0"
run: .make/run
	@$(WEIGHTS) || echo "The node starts without a model of its own. To try again: make run"
	@exec .venv/bin/twistd --nodaemon pair $(ARGS)

test: .make/test
	@$(WEIGHTS) || echo "The tests that need a real model are skipped."
	.venv/bin/python -m twisted.trial --temp-directory .make/trial pair

# The long counts: hypothesis tries twenty times as much.
faults: .make/test
	PAIR_FAULTS=1 .venv/bin/python -m twisted.trial --temp-directory .make/faults pair

lint: .make/lint
	.venv/bin/ruff check
	.venv/bin/ruff format --check
	.venv/bin/mypy
	.venv/bin/lint-imports

# NAME is one or more of them; without it, all: make bench NAME="req lat"
bench: .make/run
	@.venv/bin/python -m benchmarks $(NAME)

# How good the choice of nodes is, on simulated clusters; the simulator is one of the tests' tools.
bench-routing: .make/test
	@.venv/bin/python -m benchmarks.routing

docs: .make/docs
	.venv/bin/sphinx-build -W -q docs docs/_build/html

spec: .venv/pyvenv.cfg
	@.venv/bin/python tools/spec.py

clean:
	rm -rf .venv .make docs/_build twisted/plugins/dropin.cache

# Without a network, what an earlier run installed may still do.
.make/run: pyproject.toml .venv/pyvenv.cfg | .make
	@echo "Installing PAIR into .venv …"
	@if $(PIP) install --editable '.[embedded]' >.make/pip.log 2>&1; then \
	  touch $@; \
	elif $(PIP) install --editable . >>.make/pip.log 2>&1; then \
	  echo "The embedded engine cannot be installed (why: .make/pip.log). To try again: make run"; \
	elif .venv/bin/python -c 'import pair.tap' 2>/dev/null; then \
	  echo "What is installed cannot be brought up to date (why: .make/pip.log). To try again: make run"; \
	else \
	  echo "PAIR's dependencies cannot be installed (why: .make/pip.log). To try again: make run" >&2; \
	  exit 1; \
	fi

.make/test: pyproject.toml .venv/pyvenv.cfg | .make
	@echo "Installing what the tests need into .venv …"
	@$(PIP) install --editable '.[embedded,test]'
	@touch $@

.make/lint: pyproject.toml .venv/pyvenv.cfg | .make
	@echo "Installing what lint needs into .venv …"
	@$(PIP) install --editable '.[lint,test]'
	@touch $@

.make/docs: pyproject.toml .venv/pyvenv.cfg | .make
	@echo "Installing what the documentation needs into .venv …"
	@$(PIP) install --editable '.[docs]'
	@touch $@

.make:
	@mkdir $@

.venv/pyvenv.cfg:
	@for python in python3 python3.14 python3.13 python3.12 python3.11; do \
	  if $$python -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then \
	    $$python -m venv .venv; exit; \
	  fi; \
	done; \
	echo "Python 3.11 or newer with venv is needed. On Debian or Ubuntu: apt install python3-venv" >&2; \
	exit 1
