# The project's commands. Each sets up what it needs; nothing outside this folder's .venv and .venv-cuda is installed.
#   make demo    serve a real model on 127.0.0.1:$(PORT), with a record of token ids in $(RECALL); RECALL= keeps none
#   make check   the inner loop, under a minute
#   make test    every check; on Linux in a second environment, .venv-cuda, those of the CUDA kernels, without a card
#   make prove   the long proofs; PART=name runs one
#   make parity  every family's logits against other libraries, where they are installed, and against float64
#   make bench   the benchmarks, each with its least figures; PART=name runs one
#   make triton  every Triton kernel compiled by each of the Tritons named in VERSIONS
#   make mutate  how many planted faults the tests notice

PYTHON ?= python3
VENV ?= .venv
VENV_CUDA ?= .venv-cuda
VERSIONS ?= 3.6.0 3.7.1 3.9.0
PORT ?= 8080
RECALL ?= $(VENV)/recall
BIN := $(VENV)/bin
RUN := PYTHONPATH=.pkg:. $(BIN)/python
# Triton has no wheel for macOS.
CUDA_READY := $(if $(filter Linux,$(shell uname -s)),$(VENV_CUDA)/.ready)
DEMO := $(BIN)/tensorfold serve demo --port $(PORT) $(if $(RECALL),--recall-dir '$(RECALL)')

.PHONY: demo check test parity prove bench triton mutate clean

# At a terminal the server is the only one that Ctrl-C reaches, so that make ends with the server's own exit code.
demo: $(VENV)/.ready-demo
	@$(if $(RECALL),echo "the demo keeps a record of the token ids it reads and writes in $(RECALL) (see docs/recall.md; RECALL= keeps none)")
	@if [ -t 0 ]; then set -m; $(DEMO); else exec $(DEMO); fi

check: $(VENV)/.ready-test
	@$(RUN) -m tests.gate --quick

test: $(VENV)/.ready-test $(CUDA_READY)
	@$(RUN) -m tests.gate --cuda-python $(VENV_CUDA)/bin/python

parity: $(VENV)/.ready-test
	@$(RUN) -m tests.adapters.mlx.parity.live
	@$(RUN) -m tests.adapters.mlx.parity.families

prove: $(VENV)/.ready-test
	@$(RUN) -m tests.prove $(if $(PART),--part $(PART))

bench: $(VENV)/.ready-test
	@$(RUN) -m tests.benchmarks --require $(if $(PART),--part $(PART))

triton: $(VENV_CUDA)/.ready
	@PYTHONPATH=.pkg:. $(VENV_CUDA)/bin/python -m tests.kernels.triton.versions $(VERSIONS)

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

$(VENV_CUDA)/.ready: pyproject.toml | $(VENV)/bin/python
	@echo "setting up $(VENV_CUDA) with torch, Triton and NVRTC"
	@$(BIN)/python -m venv $(VENV_CUDA)
	@$(VENV_CUDA)/bin/python -m pip install --quiet --no-compile --disable-pip-version-check --editable '.[test-cuda]'
	@touch $@

clean:
	rm -rf $(VENV) $(VENV_CUDA) .mypy_cache .ruff_cache .coverage .coverage.* .hypothesis .import_linter_cache
