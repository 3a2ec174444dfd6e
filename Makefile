# The project's commands. Each sets up what it needs; nothing outside this folder's .venv is installed.
#   make demo    serve a real model on 127.0.0.1:$(PORT), with a record of token ids in $(RECALL); RECALL= keeps none
#   make check   the inner loop, under a minute
#   make test    every check
#   make prove   the long proofs; PART=name runs one
#   make parity  every family's logits against other libraries, where they are installed, and against float64
#   make bench   the benchmarks, each with its least figures; PART=name runs one
#   make mutate  how many planted faults the tests notice

PYTHON ?= python3
VENV ?= .venv
PORT ?= 8080
RECALL ?= $(VENV)/recall
BIN := $(VENV)/bin
RUN := PYTHONPATH=.pkg:. $(BIN)/python
DEMO := $(BIN)/tensorfold serve demo --port $(PORT) $(if $(RECALL),--recall-dir '$(RECALL)')

.PHONY: demo check test parity prove bench mutate clean

# At a terminal the server is the only one that Ctrl-C reaches, so that make ends with the server's own exit code.
demo: $(VENV)/.ready-demo
	@$(if $(RECALL),echo "the demo keeps a record of the token ids it reads and writes in $(RECALL) (see docs/recall.md; RECALL= keeps none)")
	@if [ -t 0 ]; then set -m; $(DEMO); else exec $(DEMO); fi

check: $(VENV)/.ready-test
	@$(RUN) -m tests.gate --quick

test: $(VENV)/.ready-test
	@$(RUN) -m tests.gate

parity: $(VENV)/.ready-test
	@$(RUN) -m tests.adapters.mlx.parity.live
	@$(RUN) -m tests.adapters.mlx.parity.families

prove: $(VENV)/.ready-test
	@$(RUN) -m tests.prove $(if $(PART),--part $(PART))

bench: $(VENV)/.ready-test
	@$(RUN) -m tests.benchmarks --require $(if $(PART),--part $(PART))

mutate: $(VENV)/.ready-test
	@$(RUN) -m tests.mutation

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.version_info < (3, 11) and sys.exit("Python 3.11 or newer is needed, $(PYTHON) is " + sys.version.split()[0] + "; name another one with PYTHON=")'
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.ready-demo: pyproject.toml | $(VENV)/bin/python
	@echo "setting up $(VENV)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[cpu]'
	@touch $@

$(VENV)/.ready-test: pyproject.toml | $(VENV)/bin/python
	@echo "setting up $(VENV) with the test tools"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[test]'
	@touch $@ $(VENV)/.ready-demo

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .coverage .coverage.* .hypothesis .import_linter_cache
