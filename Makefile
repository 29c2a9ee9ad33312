# The two commands of the README are `make demo` and `make test`; `make help` lists the rest.
# Each target sets up what it needs from a bare checkout: .venv, Python packages, Debian packages when root.

SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
# Debian's own interpreter where there is one: it is what hosts run the broker and the modules with (3.11.2 on Debian 12),
# and it is optimised. `make PYTHON=...` chooses another.
PYTHON ?= $(firstword $(wildcard /usr/bin/python3) python3)
BIN := $(VENV)/bin
PY := $(BIN)/python
ROOT := $(CURDIR)
PYTEST := $(BIN)/pytest -q --no-header -c broker/pyproject.toml --rootdir broker
RUFF := $(BIN)/ruff
SCRATCH := $(ROOT)/.scratch
INTEROP_PAGE := $(PY) -m understudy.testing.interop_matrix .scratch/interop/results.json docs/interop.md
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

# --- setting up --------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.complete ## Make .venv with everything the targets need

$(VENV)/.complete: broker/pyproject.toml requirements/ansible.txt requirements/constraints.txt .ci/system-packages
	@.ci/system-packages
	@echo "setting up $(VENV) (a few minutes the first time)"
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e 'broker[dev,zookeeper]' -r requirements/ansible.txt
	touch $@

$(VENV)/.spark: $(VENV)/.complete
	@echo "adding pyspark to $(VENV) (a minute or two the first time)"
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e 'broker[spark]'
	touch $@

# --- the demo ----------------------------------------------------------------------------------

include .ci/collection.mk

# --- tests -------------------------------------------------------------------------------------

.PHONY: test
test: $(VENV)/.complete $(VENV)/.spark ## All checks of a change, at most 20 minutes
	@$(PY) .ci/parts.py \
	  "static=$(MAKE) --no-print-directory static" \
	  "unit=$(MAKE) --no-print-directory unit" \
	  "property=$(MAKE) --no-print-directory property" \
	  "fuzz-smoke=$(MAKE) --no-print-directory fuzz-smoke" \
	  "simulation=$(MAKE) --no-print-directory simulation" \
	  --beside \
	  "collection=$(MAKE) --no-print-directory collection" \
	  "spark=$(MAKE) --no-print-directory spark" \
	  --then \
	  "integration=$(MAKE) --no-print-directory integration" \
	  --beside \
	  "interop-short=$(MAKE) --no-print-directory interop-short" \
	  "molecule=$(MAKE) --no-print-directory molecule-default" \
	  "ssh=$(PY) .ci/ssh_hosts.py --check && $(MAKE) --no-print-directory ssh"

.PHONY: test-all
test-all: $(VENV)/.complete $(VENV)/.spark ## make test, new examples, every interop scenario and 2,000 seeds
	@$(PY) .ci/parts.py \
	  "test=$(MAKE) --no-print-directory test" \
	  "examples=EXAMPLES=random $(MAKE) --no-print-directory property" \
	  "long=EXAMPLES=random $(PYTEST) -m long broker/tests/property broker/tests/integration" \
	  "fuzz=$(MAKE) --no-print-directory fuzz" \
	  "interop=$(MAKE) --no-print-directory interop" \
	  "ssh-drill=$(PY) .ci/ssh_hosts.py --check && $(MAKE) --no-print-directory ssh-drill" \
	  "seeds=$(MAKE) --no-print-directory simulation-long"

.PHONY: static
static: $(VENV)/.complete $(COLLECTION) ## ruff, mypy --strict, architecture rules
	cd broker && ../$(RUFF) check --no-cache . && ../$(RUFF) format --check --no-cache .
	$(RUFF) check --no-cache plugins .ci tests roles && $(RUFF) format --check --no-cache plugins .ci tests roles
	cd broker && ../$(BIN)/mypy
	$(BIN)/mypy
	$(PYTEST) broker/tests/unit/architecture

.PHONY: architecture
architecture: $(VENV)/.complete ## Lower the exceptions of the architecture rules and rewrite the public surface
	-ARCHITECTURE=rewrite $(PYTEST) broker/tests/unit/architecture

.PHONY: unit
unit: $(VENV)/.complete ## Unit tests: no sleep, no network
	$(PYTEST) -m "not spark and not long" broker/tests/unit

.PHONY: property
property: $(VENV)/.complete ## Property tests (Hypothesis), the same examples each time unless EXAMPLES=random
	$(PYTEST) -m "not long and not spark" broker/tests/property

$(VENV)/.fuzz: $(VENV)/.complete
	$(BIN)/pip install --quiet --disable-pip-version-check -c requirements/constraints.txt -e 'broker[fuzz]'
	touch $@

FUZZ := cd broker/tests && ../../$(PY) -m fuzz
SECONDS_OF_FUZZ := $(or $(FUZZ_SECONDS),600)

.PHONY: fuzz
fuzz: $(VENV)/.fuzz ## Every decoder, guided by coverage: FUZZ_SECONDS=600 SEED=n
	$(FUZZ) --seconds $(SECONDS_OF_FUZZ) $(if $(SEED),--seed $(SEED))

.PHONY: fuzz-smoke
fuzz-smoke: $(VENV)/.complete ## The same for 20 s by plain mutation, from the same seed each time
	$(FUZZ) --seconds 20 --engine mutation --seed $(or $(SEED),1)

.PHONY: fuzz-replay
fuzz-replay: $(VENV)/.complete ## One kept input again: INPUT=.scratch/fuzz/TARGET@HASH.bin
	$(FUZZ) --replay $(abspath $(INPUT))

.PHONY: simulation
simulation: $(VENV)/.complete ## 100 seeds of the broker pair on a virtual clock
	$(PYTEST) -m "not long" broker/tests/simulation

.PHONY: simulation-long
simulation-long: $(VENV)/.complete ## 2,000 seeds
	$(PY) -m understudy.testing.simulate --seeds 0-1999 --jobs 2

.PHONY: integration
integration: $(VENV)/.complete ## Real processes on loopback, kill -9
	$(PYTEST) -m "not long" broker/tests/integration

.PHONY: spark
spark: $(VENV)/.spark ## The Spark audit against the ledger's own checker
	$(PYTEST) -m spark broker/tests

.PHONY: interop-short
interop-short: $(VENV)/.complete ## The Artemis command line and JMS client against us, in short
	$(PYTEST) -m "maven and not long" broker/tests/interop

.PHONY: interop
interop: $(VENV)/.complete ## Every scenario with the clients of Artemis, and docs/interop.md from it
	$(PYTEST) -m maven broker/tests/interop; outcome=$$?; $(INTEROP_PAGE); exit $$outcome

.PHONY: differential
differential: $(VENV)/.complete ## The same random programs at our broker and at Artemis: SEEDS=0-999 RESTARTS=1
	cd broker/tests && ../../$(PY) -m interop.differential --seeds $(or $(SEEDS),0-199) $(if $(RESTARTS),--restarts)

.PHONY: bench
bench: $(VENV)/.complete ## Ratio tables of docs/benchmarks.md
	cd broker/tests && ../../$(PY) -m benchmarks

# --- documentation -----------------------------------------------------------------------------

.PHONY: docs
docs: $(VENV)/.complete ## Regenerate what is generated: machines, references, the interop page
	$(PY) -m understudy.testing.diagrams docs/machines
	$(PY) -m understudy.config.reference > docs/configuration.md
	$(PY) -m understudy.testing.client_reference > docs/client-url.md
	$(INTEROP_PAGE)

.PHONY: format
format: $(VENV)/.complete ## Format the Python code
	cd broker && ../$(RUFF) check --fix --no-cache . && ../$(RUFF) format --no-cache .
	$(RUFF) check --fix --no-cache plugins .ci tests roles && $(RUFF) format --no-cache plugins .ci tests roles

.PHONY: clean
clean: demo-clean ## Remove everything that was made here
	rm -rf $(VENV) .scratch .hypothesis .pytest_cache .mypy_cache .ruff_cache
