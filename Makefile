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
INSTALL = $(PYTHON) .ci/install.py $(VENV) -c requirements/constraints.txt
ROOT := $(CURDIR)
# bytecode, and the rewritten assertions of the tests, are kept outside of the source tree
BYTECODE := PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=$(ROOT)/.scratch/bytecode
PYTEST := $(BYTECODE) $(BIN)/pytest -q --no-header --durations 10 --durations-min 5 -c broker/pyproject.toml --rootdir broker
RUFF := $(BIN)/ruff
SCRATCH := $(ROOT)/.scratch
# generators of documentation: .ci/documents
DOCUMENTS := PYTHONPATH=$(ROOT)/.ci $(PY) -m documents
INTEROP_PAGE := $(DOCUMENTS).interop_matrix .scratch/interop/results.json docs/use/interop.md
export PYTHONDONTWRITEBYTECODE := 1

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 22

# --- setting up --------------------------------------------------------------------------------

.PHONY: setup
setup: $(VENV)/.kernel ## Make .venv with the broker, its kernel and the tools; other targets add their own Debian packages

$(VENV)/.complete: broker/pyproject.toml requirements/ansible.txt requirements/constraints.txt
	@.ci/system-packages python
	@echo "setting up $(VENV) (a minute or two the first time)"
	$(PYTHON) -m venv $(VENV)
	$(INSTALL) -e 'broker[dev,zookeeper,ldap]' -r requirements/ansible.txt
	touch $@

# The native kernel (ADR 0034), built where cargo is found. Without it the same functions run in Python; one line says why.
KERNEL_SOURCES := $(addprefix broker/kernel/,build.py pyproject.toml Cargo.toml Cargo.lock) $(wildcard broker/kernel/src/*.rs broker/kernel/src/*/*.rs)

$(VENV)/.kernel: $(VENV)/.complete $(KERNEL_SOURCES)
	@$(PY) broker/kernel/build.py --install --target-dir $(SCRATCH)/kernel-target; outcome=$$?; \
	[ $$outcome -eq 0 ] || $(BIN)/pip uninstall --quiet --yes understudy-kernel 2>/dev/null; \
	case $$outcome in \
	  0) touch $@ ;; \
	  3) ;; \
	  *) echo "to try again: rm $@" && touch $@ ;; \
	esac

$(VENV)/.spark: $(VENV)/.complete
	@.ci/system-packages java
	@echo "adding pyspark to $(VENV) (up to a minute the first time)"
	$(INSTALL) -e 'broker[spark]'
	touch $@

# --- the demo ----------------------------------------------------------------------------------

include .ci/collection.mk

# --- tests -------------------------------------------------------------------------------------

# Parts of make test at the same time: two more than processors, as those with real processes wait for timers half of
# the time. The list has the longest first.
AT_ONCE ?= $(shell echo $$(($$(nproc) + 2)))

.PHONY: test
test: $(VENV)/.complete ## The checks of a change; .ci/run also has those of test-further
	@.ci/system-packages kernel java hosts services
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.kernel $(VENV)/.spark $(VENV)/.site $(COLLECTION) bytecode
	@$(PY) .ci/parts.py --at-once $(AT_ONCE) \
	  "integration-2=$(MAKE) --no-print-directory integration-2" \
	  "integration-1=$(MAKE) --no-print-directory integration-1" \
	  "molecule=$(MAKE) --no-print-directory molecule-default" \
	  "simulation=$(MAKE) --no-print-directory simulation" \
	  "unit=$(MAKE) --no-print-directory unit" \
	  "property=$(MAKE) --no-print-directory property" \
	  "collection=$(MAKE) --no-print-directory collection" \
	  "static=$(MAKE) --no-print-directory static"

# The parts that start at once would each compile every module of the broker.
.PHONY: bytecode
bytecode: $(VENV)/.complete
	@$(BYTECODE) $(PY) -m compileall -q -j 2 broker/src

# collection-integration has ports of the kernel's choice, so it comes after the many connections of interop-short.
.PHONY: test-further
test-further: $(VENV)/.complete ## Further checks of a change: Spark, clients of other brokers, ssh, modules on a broker, kernel twin, fuzzing
	@.ci/system-packages kernel java maven rabbitmq hosts services
	@$(MAKE) --no-print-directory --jobs 2 $(VENV)/.kernel $(VENV)/.spark $(COLLECTION)
	@$(PY) .ci/parts.py --at-once 2 \
	  "interop-short=$(MAKE) --no-print-directory interop-short" \
	  "collection-sanity-further=$(MAKE) --no-print-directory collection-sanity-further" \
	  "twin=$(PY) .ci/has_native_kernel.py && $(MAKE) --no-print-directory twin" \
	  "spark=$(MAKE) --no-print-directory spark" \
	  "fuzz-smoke=$(MAKE) --no-print-directory fuzz-smoke" \
	  "rust=$(MAKE) --no-print-directory rust" \
	  "ssh=$(PY) .ci/ssh_hosts.py --check && $(MAKE) --no-print-directory ssh" \
	  "collection-integration=$(MAKE) --no-print-directory collection-integration"

.PHONY: test-all
test-all: $(VENV)/.kernel $(VENV)/.spark $(VENV)/.site ## make test and test-further, new examples, every interop scenario and 4,000 seeds
	@.ci/system-packages kernel java maven hosts lab services
	@$(PY) .ci/parts.py \
	  "test=$(MAKE) --no-print-directory test" \
	  "test-further=$(MAKE) --no-print-directory test-further" \
	  "twin-all=$(PY) .ci/has_native_kernel.py && $(MAKE) --no-print-directory twin-all" \
	  "examples=EXAMPLES=random $(MAKE) --no-print-directory property" \
	  "long=$(MAKE) --no-print-directory long" \
	  "fuzz=$(MAKE) --no-print-directory fuzz" \
	  "kernel-sanitizer=.ci/kernel-sanitizer $(PY) $(SCRATCH)/kernel-sanitizer" \
	  "interop=$(MAKE) --no-print-directory interop" \
	  "collection-long=$(MAKE) --no-print-directory collection-long" \
	  "package=$(MAKE) --no-print-directory collection-package" \
	  "roles-alone=$(MAKE) --no-print-directory roles-alone" \
	  "molecule-cluster=$(MAKE) --no-print-directory molecule-cluster" \
	  "molecule-replicated=$(MAKE) --no-print-directory molecule-replicated" \
	  "molecule-quorum=$(MAKE) --no-print-directory molecule-quorum" \
	  "molecule-scale_down=$(MAKE) --no-print-directory molecule-scale_down" \
	  "molecule-colocated=$(MAKE) --no-print-directory molecule-colocated" \
	  "molecule-colocated_http=$(MAKE) --no-print-directory molecule-colocated_http" \
	  "molecule-colocated_replication=$(MAKE) --no-print-directory molecule-colocated_replication" \
	  "molecule-colocated_scale_down=$(MAKE) --no-print-directory molecule-colocated_scale_down" \
	  "lab=tests/lab/lab check && $(MAKE) --no-print-directory lab" \
	  "molecule-booted=tests/lab/lab check && $(MAKE) --no-print-directory molecule-booted" \
	  "molecule-upgrade=$(MAKE) --no-print-directory molecule-upgrade" \
	  "molecule-faults=$(MAKE) --no-print-directory molecule-faults" \
	  "molecule-pipeline=$(MAKE) --no-print-directory molecule-pipeline" \
	  "ssh-drill=$(PY) .ci/ssh_hosts.py --check && $(MAKE) --no-print-directory ssh-drill" \
	  "seeds=$(MAKE) --no-print-directory simulation-long"

.PHONY: long
long: $(VENV)/.kernel $(VENV)/.spark ## Tests that are too long for a change: processes, cut networks, simulation, conformance
	@.ci/system-packages java hosts services
	EXAMPLES=random $(PYTEST) -m long --ignore broker/tests/interop broker/tests

.PHONY: static
static: $(VENV)/.spark $(COLLECTION) ## ruff, mypy --strict, architecture rules
	cd broker && ../$(RUFF) check --no-cache . && ../$(RUFF) format --check --no-cache .
	$(RUFF) check --no-cache plugins .ci tests roles && $(RUFF) format --check --no-cache plugins .ci tests roles
	cd broker && ../$(BIN)/mypy
	$(BIN)/mypy
	$(PYTEST) broker/tests/unit/architecture

.PHONY: rust
rust: ## cargo fmt and clippy of the native kernel
	.ci/rust-checks $(SCRATCH)/kernel-checks

.PHONY: kernel-sanitizer
kernel-sanitizer: $(VENV)/.complete ## The native kernel built with AddressSanitizer: comparisons with its twin, damaged input
	.ci/kernel-sanitizer $(PY) $(SCRATCH)/kernel-sanitizer

.PHONY: structure
structure: ## Figures of the source tree: lines, modules, protocols, folders; BASELINE=COMMIT puts those of a commit beside them
	@.ci/structure.py $(if $(BASELINE),--baseline $(BASELINE))

.PHONY: architecture
architecture: $(VENV)/.complete ## Lower the exceptions of the architecture rules and rewrite the public surface
	-ARCHITECTURE=rewrite $(PYTEST) broker/tests/unit/architecture

.PHONY: unit
unit: $(VENV)/.kernel ## Unit tests and transcripts: no sleep, no network; the architecture rules are in static
	$(PYTEST) -m "not spark and not long" --ignore broker/tests/unit/architecture broker/tests/unit broker/tests/transcripts

.PHONY: transcripts
transcripts: $(VENV)/.kernel ## Write the output of today into the transcripts; review the difference
	$(PYTEST) --rewrite-transcripts broker/tests/transcripts/test_transcripts.py
	git diff --stat broker/tests/transcripts

.PHONY: property
property: $(VENV)/.kernel ## Property tests (Hypothesis), the same examples each time unless EXAMPLES=random
	$(PYTEST) -m "not long and not spark" broker/tests/property

# The suites above run with the native kernel where it is built; these run with its Python twin.
TWIN := UNDERSTUDY_KERNEL=python

.PHONY: twin
twin: $(VENV)/.kernel ## The tests of what the native kernel replaces, with its Python twin
	$(TWIN) $(PYTEST) -m "not spark and not long" $(addprefix broker/tests/,unit/kernel unit/store unit/tools unit/wire unit/routing)

.PHONY: twin-all
twin-all: $(VENV)/.kernel ## Unit and property tests, simulation and fuzzing with the Python twin
	$(TWIN) $(MAKE) --no-print-directory unit property simulation fuzz-smoke

$(VENV)/.fuzz: $(VENV)/.complete
	$(INSTALL) -e 'broker[fuzz]'
	touch $@

FUZZ := cd broker/tests && ../../$(PY) -m fuzz
SECONDS_OF_FUZZ := $(or $(FUZZ_SECONDS),600)

.PHONY: fuzz
fuzz: $(VENV)/.fuzz $(VENV)/.kernel ## Every decoder, guided by coverage: FUZZ_SECONDS=600 SEED=n
	$(FUZZ) --seconds $(SECONDS_OF_FUZZ) $(if $(SEED),--seed $(SEED))

.PHONY: fuzz-smoke
fuzz-smoke: $(VENV)/.kernel ## The same for 20 s by plain mutation, from the same seed each time
	$(FUZZ) --seconds 20 --engine mutation --seed $(or $(SEED),1)

.PHONY: fuzz-replay
fuzz-replay: $(VENV)/.kernel ## One kept input again: INPUT=.scratch/fuzz/TARGET@HASH.bin
	$(FUZZ) --replay $(abspath $(INPUT))

.PHONY: simulation
simulation: $(VENV)/.kernel ## 100 seeds of all scenarios on a virtual clock; ports of the simulation like the real ones
	$(PYTEST) -m "not long" broker/tests/simulation broker/tests/conformance

.PHONY: simulation-long
simulation-long: $(VENV)/.kernel ## 4,000 seeds: 500 of each scenario
	$(PY) -m understudy.testing.simulate --seeds 0-499 --jobs 2

.PHONY: plant
plant: $(VENV)/.kernel ## Seeds of the simulation with a planted bug, which they must find: BUG=name SEEDS=0-9
	cd broker/tests && ../../$(PY) -m planted $(BUG) $(if $(SEEDS),--seeds $(SEEDS))

INTEGRATION := broker/tests/integration
# Two halves that run at the same time: many of these tests wait for timers of nodes and leave the processor to others.
# Ports are taken from blocks of each process (support/ports.py), and network namespaces have its number in their names.
INTEGRATION_1 := $(wildcard $(INTEGRATION)/test_[a-l]*.py)
INTEGRATION_2 := $(filter-out $(INTEGRATION_1),$(wildcard $(INTEGRATION)/test_*.py))

.PHONY: integration
integration: integration-1 integration-2 ## Real processes on loopback, kill -9; those with Spark or RabbitMQ are in spark and interop-short

.PHONY: integration-1 integration-2
integration-1 integration-2: integration-%: $(VENV)/.kernel $(VENV)/.spark
	@.ci/system-packages hosts services
	$(PYTEST) -m "not long and not spark and not maven" $(INTEGRATION_$*)

.PHONY: spark
spark: $(VENV)/.spark ## The journal source and the Spark jobs against plain Python
	$(PYTEST) -m "spark and not long" broker/tests

.PHONY: interop-short
interop-short: $(VENV)/.kernel ## Clients of others against us, in short: command line and JMS client of Artemis, clients of RabbitMQ
	@.ci/system-packages java maven rabbitmq
	$(PYTEST) -m "not long" broker/tests/interop
	$(PYTEST) -m "maven and not long" $(INTEGRATION)

.PHONY: interop
interop: $(VENV)/.kernel ## Every scenario with the clients of Artemis and RabbitMQ, and docs/use/interop.md from it
	@.ci/system-packages java maven rabbitmq
	$(PYTEST) broker/tests/interop; outcome=$$?; $(INTEROP_PAGE); exit $$outcome

.PHONY: differential
differential: $(VENV)/.kernel ## The same random programs at our broker and at Artemis: SEEDS=0-999 RESTARTS=1
	@.ci/system-packages java maven
	cd broker/tests && ../../$(PY) -m interop.differential --seeds $(or $(SEEDS),0-199) $(if $(RESTARTS),--restarts)

.PHONY: differential-amqp
differential-amqp: $(VENV)/.kernel ## The same random programs of AMQP 0-9-1 at our broker and at RabbitMQ: SEEDS=0-99
	@.ci/system-packages rabbitmq
	cd broker/tests && ../../$(PY) -m interop.differential091 --seeds $(or $(SEEDS),0-99)

.PHONY: suites
suites: $(VENV)/.kernel ## Outside suites of AMQP 0-9-1 against a node: SOURCES=DIRECTORY SUITES="pika kombu" BROKER=rabbitmq (needs root)
	@.ci/system-packages kernel maven suites
	cd broker/tests && ../../$(PY) -m interop.suites091 --sources $(SOURCES) $(if $(BROKER),--broker $(BROKER)) $(SUITES)

STRANGERS := docs/build/strangers-and-failures.md

.PHONY: points
points: $(VENV)/.kernel ## Every test of docs/build/strangers-and-failures.md: strangers in a cluster, failures of a pair, wrong bytes
	@.ci/system-packages java maven hosts services
	$(PYTEST) -m "long or not long" $$($(PY) .ci/tests_of_page.py $(STRANGERS))

.PHONY: rounds
rounds: $(VENV)/.kernel ## Rounds of faults on real pairs (docs/build/reliability.md): ROUNDS=10 FAULTS=1 KIND=kill|power|disk|pause PAIR=shared|replicated SEED=1
	cd broker/tests && ../../$(PY) -m rounds --rounds $(or $(ROUNDS),10) --faults $(or $(FAULTS),1) --seed $(or $(SEED),1) $(if $(KIND),--kind $(KIND)) $(if $(PAIR),--pair $(PAIR))

.PHONY: bench
bench: $(VENV)/.kernel ## Ratio tables of docs/build/benchmarks.md
	cd broker/tests && ../../$(PY) -m benchmarks

# --- a release ---------------------------------------------------------------------------------

.PHONY: release
release: $(VENV)/.site $(VENV)/.kernel $(COLLECTION) ## Wheels, sources, collection, release notes, bill of materials and checksums in dist/
	$(PY) .ci/release.py dist

# --- documentation -----------------------------------------------------------------------------

# The scripts of the site: mermaid draws the diagrams, iframe-worker lets a browser search a site that is opened as a file.
SITE := $(SCRATCH)/site
SITE_SCRIPTS := $(SCRATCH)/site-scripts
MERMAID := mermaid@11.17.2
IFRAME_WORKER := iframe-worker@1.0.4
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file $(SITE)/mkdocs.yml

$(VENV)/.site: $(VENV)/.complete requirements/site.txt
	$(INSTALL) -r requirements/site.txt
	touch $@

$(SITE_SCRIPTS)/.complete: Makefile
	@.ci/system-packages site
	@rm -rf $(@D) && mkdir -p $(@D)
	cd $(@D) && npm pack --silent $(MERMAID) $(IFRAME_WORKER) && for each in *.tgz; do tar xzf $$each; cp package/dist/mermaid.min.js . 2>/dev/null || cp package/shim/index.js iframe-worker.js; rm -r package; done
	touch $@

.PHONY: docs-site
docs-site: $(VENV)/.site $(SITE_SCRIPTS)/.complete ## The documentation as a site that needs no server and no other host: .scratch/site/html
	$(DOCUMENTS).site $(SITE) $(SITE_SCRIPTS)
	$(MKDOCS)
	@echo "open $(SITE)/html/index.html"

.PHONY: pictures
pictures: $(VENV)/.complete ## Pictures of commands in docs/images, from a pair that is started for them
	PATH="$(ROOT)/$(BIN):$$PATH" $(DOCUMENTS).pictures docs/images

.PHONY: docs-check
docs-check: $(VENV)/.site ## The same without its scripts: no broken link, no warning
	$(DOCUMENTS).site $(SITE)
	$(MKDOCS)


.PHONY: docs
docs: $(VENV)/.complete $(COLLECTION) ## Regenerate what is generated: machines, references, variables, the blocking client, the interop page
	PYTHONPATH=$(SCRATCH)/collections $(PY) .ci/collection_variables.py
	PYTHONPATH=$(SCRATCH)/collections $(PY) .ci/variables_to_files.py
	PYTHONPATH=$(SCRATCH)/collections $(PY) .ci/platforms_page.py > docs/operate/platforms.md
	$(DOCUMENTS).diagrams docs/build/machines
	$(PY) -m understudy.config.reference > docs/operate/configuration.md
	$(DOCUMENTS).migration_page > docs/operate/from-artemis.md
	$(DOCUMENTS).client_reference > docs/use/client-url.md
	$(DOCUMENTS).cluster_parameters > docs/operate/clusters.md
	$(DOCUMENTS).log_events_page docs/operate/log-events.md
	$(DOCUMENTS).dashboards monitoring/grafana
	$(DOCUMENTS).monitoring_page docs/operate/monitoring.md
	$(DOCUMENTS).blocking_client
	$(INTEROP_PAGE)

.PHONY: format
format: $(VENV)/.complete ## Format the Python code, and wrap the prose of Markdown pages
	$(PY) .ci/wrap.py
	cd broker && ../$(RUFF) check --fix --no-cache . && ../$(RUFF) format --no-cache .
	$(RUFF) check --fix --no-cache plugins .ci tests roles && $(RUFF) format --no-cache plugins .ci tests roles

.PHONY: clean
clean: demo-clean ## Remove everything that was made here
	rm -rf $(VENV) dist .scratch .hypothesis .pytest_cache .mypy_cache .ruff_cache
