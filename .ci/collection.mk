# The collection, and the demo that runs on it. Part of the Makefile, which defines VENV, BIN, ROOT and SCRATCH.

COLLECTION := $(SCRATCH)/collections/ansible_collections/understudy/broker
SANITY := $(SCRATCH)/sanity/ansible_collections/understudy/broker
COLLECTION_PYTEST := PYTHONPATH=$(SCRATCH)/collections $(BIN)/pytest -q --no-header -p no:cacheprovider
ANSIBLE := env PATH="$(ROOT)/$(BIN):$$PATH" ANSIBLE_COLLECTIONS_PATH="$(SCRATCH)/collections" \
	ANSIBLE_INJECT_FACT_VARS=false ANSIBLE_LOCALHOST_WARNING=false ANSIBLE_CALLBACK_RESULT_FORMAT=yaml \
	ANSIBLE_DISPLAY_SKIPPED_HOSTS=false
PLAY := $(ANSIBLE) ansible-playbook --inventory inventories/localhost

# Ansible finds a collection by its path only; a link is enough for everything but ansible-test.
$(COLLECTION):
	@mkdir -p $(@D)
	@ln -sfn "$(ROOT)" $@

# --- the demo ----------------------------------------------------------------------------------

# Two short rounds, so that the first verdict comes early; `make demo ROUNDS=5 MESSAGES=20000` runs longer ones.
ROUNDS ?= 2
MESSAGES ?= 8000
DEMO_DRILL := --extra-vars '{"drill_rounds": $(ROUNDS), "drill_messages": $(MESSAGES)}'

.PHONY: demo
demo: $(VENV)/.complete $(COLLECTION) ## A pair on this machine, killed and failed back under load: ROUNDS=2 MESSAGES=8000
	@mkdir -p $(SCRATCH); \
	$(MAKE) --no-print-directory $(VENV)/.spark >$(SCRATCH)/spark-setup.log 2>&1 & spark=$$!; \
	$(MAKE) --no-print-directory demo-deploy || exit; \
	echo "waiting until pyspark is installed beside the broker ($(SCRATCH)/spark-setup.log)"; \
	wait $$spark || { cat $(SCRATCH)/spark-setup.log; exit 1; }
	@$(MAKE) --no-print-directory demo-drill DRILL="$(subst ",\",$(DEMO_DRILL)) $(DRILL)"
	@demo="$${UNDERSTUDY_SCRATCH:-$(SCRATCH)/demo}"; printf '%s\n' "" "The ledgers of all rounds, audited with Spark:"; \
	  $(BIN)/understudy pipeline audit "$$demo"/backup/drill/round-*.jsonl
	@demo="$${UNDERSTUDY_SCRATCH:-$(SCRATCH)/demo}"; printf '%s\n' "" "The pair goes on running. Look at it:" \
	  "  $$demo/primary/current/bin/understudy status --instance $$demo/primary    http://127.0.0.11:8161/health/ready" \
	  "  $$demo/backup/current/bin/understudy status --instance $$demo/backup    http://127.0.0.12:8161/health/ready" \
	  "Remove it with: make demo-clean"

.PHONY: demo-pipeline
demo-pipeline: $(VENV)/.spark ## audit, verdict and flow with Spark on what make demo left
	@.ci/demo-pipeline $(BIN)/understudy "$${UNDERSTUDY_SCRATCH:-$(SCRATCH)/demo}" $(SCRATCH)/pipeline

.PHONY: demo-deploy
demo-deploy: $(VENV)/.complete $(COLLECTION) ## Deploy the pair; a second time changes nothing
	@$(PLAY) playbooks/site.yml

.PHONY: demo-health
demo-health: $(VENV)/.complete $(COLLECTION) ## Ask both nodes and judge the pair
	@$(PLAY) playbooks/health.yml

.PHONY: demo-drill
demo-drill: $(VENV)/.complete $(COLLECTION) ## The drill alone; DRILL="-e drill_rounds=1" passes inputs
	@$(PLAY) playbooks/drill.yml --extra-vars drill_report_file=$(SCRATCH)/drill-report.json $(DRILL)

.PHONY: demo-stop
demo-stop: $(VENV)/.complete $(COLLECTION) ## Stop the pair
	@$(PLAY) playbooks/stop.yml

.PHONY: demo-clean
demo-clean: ## Stop the pair and remove it with all its messages
	@demo="$${UNDERSTUDY_SCRATCH:-$(SCRATCH)/demo}"; [ ! -e "$$demo" ] || { \
	  $(MAKE) --no-print-directory $(COLLECTION) && \
	  $(PLAY) playbooks/uninstall.yml --extra-vars '{"broker_uninstall_purge_data": true}' && \
	  rm -rf "$$demo"/secrets "$$demo"/primary/drill "$$demo"/backup/drill && \
	  find "$$demo" -depth -type d -empty -delete; }

# --- its tests ---------------------------------------------------------------------------------

.PHONY: collection
collection: collection-lint collection-unit collection-sanity docs-check ## Everything about the collection but molecule, and the site

.PHONY: collection-lint
collection-lint: $(VENV)/.complete $(COLLECTION)
	$(BIN)/yamllint --strict .
	$(ANSIBLE) $(PY) .ci/forked_playbooks.py ansible-lint --profile production --nocolor
	$(ANSIBLE) antsibull-docs lint-collection-docs --plugin-docs .

.PHONY: collection-unit
collection-unit: $(VENV)/.complete $(COLLECTION)
	$(COLLECTION_PYTEST) tests/unit

# Modules on a real broker on loopback, with Debian's own Python as on a host.
.PHONY: collection-integration
collection-integration: $(VENV)/.complete $(COLLECTION)
	$(COLLECTION_PYTEST) tests/integration $(addprefix --ignore ,$(COLLECTION_LONG))

# Deployments of several nodes, which take too long for each change.
COLLECTION_LONG := $(addprefix tests/integration/,test_cli_overrides.py test_growing_cluster.py test_rolling_waves.py)

.PHONY: collection-long
collection-long: $(VENV)/.complete $(COLLECTION) ## New nodes and certificates in a running cluster, waves of a roll with lost hosts, changes by lines
	$(COLLECTION_PYTEST) $(COLLECTION_LONG)

# The archive of the collection, installed with ansible-core alone.
.PHONY: collection-package
collection-package: $(VENV)/.site $(VENV)/.kernel $(COLLECTION) ## Build the collection and a release, install them into empty environments, and run them from there
	$(COLLECTION_PYTEST) tests/package

# ansible-test wants a real path and a git index, so it works on a copy with an index of its own. shellcheck is left
# out: there is no shell script in the collection, and without its binary the test passes anything. The test `changelog`
# is `antsibull-changelog lint`.
define SANITY_COPY
	@rm -rf $(SANITY)
	@mkdir -p $(SANITY) ~/.ansible/test/cache
	@cp tests/sanity/get_pip.py ~/.ansible/test/cache/get_pip_24_2.py
	@git ls-files -z --cached --others --exclude-standard | grep -z -v -E '^(broker|docs|\.ci)/' | \
	  while IFS= read -r -d '' path; do [ ! -e "$$path" ] || printf '%s\0' "$$path"; done | \
	  xargs -0 cp -P --parents -t $(SANITY)
	@git -C $(SANITY) init --quiet && git -C $(SANITY) add --all
endef
SANITY_TEST := cd $(SANITY) && env PATH="$(ROOT)/$(BIN):/usr/bin:/bin" ansible-test sanity --color no --python 3.11
# ruff and yamllint of a change see the same files (static, collection-lint) with stricter rules; pylint takes the longest.
SANITY_FURTHER := pep8 pylint yamllint

.PHONY: collection-sanity
collection-sanity: $(VENV)/.complete
	$(SANITY_COPY)
	$(SANITY_TEST) $(addprefix --skip-test ,shellcheck $(SANITY_FURTHER))

.PHONY: collection-sanity-further
collection-sanity-further: $(VENV)/.complete ## The tests of ansible-test that repeat what other linters see
	$(SANITY_COPY)
	$(SANITY_TEST) $(addprefix --test ,$(SANITY_FURTHER))

.PHONY: molecule-default
molecule-default: $(VENV)/.complete $(COLLECTION) ## Deploy, kill, fail back and remove a pair, as an operator would
	$(ANSIBLE) molecule test --scenario-name default

# One scenario for each inventory of a cluster, and one for the data pipeline: deploy, drill, and remove.
MOLECULE_CLUSTERS := cluster replicated quorum scale_down colocated colocated_http colocated_replication colocated_scale_down upgrade faults pipeline

.PHONY: molecule-clusters
molecule-clusters: $(addprefix molecule-,$(MOLECULE_CLUSTERS)) ## Every drill of a cluster, on local addresses

.PHONY: $(addprefix molecule-,$(MOLECULE_CLUSTERS))
$(addprefix molecule-,$(MOLECULE_CLUSTERS)): molecule-%: $(VENV)/.complete $(COLLECTION)
	$(ANSIBLE) molecule test --scenario-name $*

# The same playbooks for each inventory on hosts with their own kernels: systemd, ssh with sudo, users, TLS.
MOLECULE_BOOTED := booted_shared_store booted_witness booted_quorum booted_colocated
MOLECULE_BASES := --base-config .config/molecule/config.yml --base-config molecule/booted/config.yml

.PHONY: molecule-booted
molecule-booted: $(addprefix molecule-,$(MOLECULE_BOOTED)) ## Every pair on booted hosts: deploy, measure, drill

.PHONY: $(addprefix molecule-,$(MOLECULE_BOOTED))
$(addprefix molecule-,$(MOLECULE_BOOTED)): molecule-%: $(VENV)/.complete $(COLLECTION)
	@.ci/system-packages hosts lab services
	@tests/lab/lab check
	$(ANSIBLE) molecule $(MOLECULE_BASES) test --scenario-name $*

# Hosts reached by ssh as an unprivileged user, with sudo, without a package index, and with Debian's own Python.
SSH_HOSTS := $(ANSIBLE) .ci/ssh_hosts.py 2 $(SCRATCH)/ssh

.PHONY: ssh
ssh: $(VENV)/.complete $(COLLECTION) ## Deploy with security on over real ssh with become
	@.ci/system-packages hosts
	@$(SSH_HOSTS) tests/ssh/deploy.sh

.PHONY: ssh-drill
ssh-drill: $(VENV)/.complete $(COLLECTION) ## Deploy a pair over ssh twice, and drill it
	@.ci/system-packages hosts
	@$(SSH_HOSTS) tests/ssh/deploy.sh drill

# Hosts with their own kernels, in a network namespace (tests/lab/README.md).
.PHONY: lab
lab: $(VENV)/.complete $(COLLECTION) ## Deployments and faults on hosts with their own kernels: LAB="-k power" passes pytest options
	@.ci/system-packages hosts lab services
	@tests/lab/lab check
	$(COLLECTION_PYTEST) --rootdir tests/lab -s $(LAB) tests/lab

.PHONY: lab-faults
lab-faults: $(VENV)/.complete $(COLLECTION) ## The table of faults and rolls on hosts with their own kernels: ROWS="power-cut roll-update", FAULTS="--help"
	@.ci/system-packages hosts lab services
	@tests/lab/lab check
	@tests/lab/lab --name faults faults $(FAULTS) $(ROWS)

# Each role without the others, as an operator may use it.
ALONE := $(SCRATCH)/alone
ALONE_PLAY := $(ANSIBLE) ansible-playbook --inventory localhost, --connection local \
	--extra-vars alone_directory=$(ALONE) --extra-vars ansible_python_interpreter=$(ROOT)/$(PY)

.PHONY: roles-alone
roles-alone: $(VENV)/.complete $(COLLECTION) ## Each role of the collection by itself, without the role broker
	@mkdir -p $(ALONE)
	@$(ALONE_PLAY) tests/alone/site.yml; outcome=$$?; \
	$(ALONE_PLAY) tests/alone/uninstall.yml && rm -rf $(ALONE) && exit $$outcome
