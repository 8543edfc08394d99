# Everything happens from here: `make demo` in a fresh clone installs what it needs, then runs.
# Options: PYTHON=<interpreter>, JAVA_HOME=<folder>, ARGS="<arguments of the demo or the benchmarks>".

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
# The recipes share one virtual environment and print their steps in order. `make test` sets SIDE_BY_SIDE for steps that may
# run at the same time.
ifndef SIDE_BY_SIDE
.NOTPARALLEL:
endif

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
CLASSES := $(VENV)/.classes
RELEASE := .venv-release
MERMAID := docs/.mermaid/11.17.2
AXE := localstack/.run/axe-core/4.14.1
CORNERS := oldest newest lowest unpinned migrations
# Of 145 MB of Python little is ever imported; that is compiled when it is, and kept.
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --prefer-binary --no-compile
unexport PYTHONDONTWRITEBYTECODE
# Four workers for two cores: half of the time they wait for servers, sessions and Spark.
PYTEST := $(BIN)/pytest --numprocesses 4 --dist loadfile --no-loadscope-reorder
AGAIN := { [ $$? = 1 ] && $(BIN)/python -m tests.once_more; }

ARGS ?=

.PHONY: help demo demo-topology test test-all tests all-tests $(CORNERS:%=test-%) test-aws test-wheel release-check fault fault-spool fault-upgrade fuzz bench docs docs-version test-docs lint clean set-up java engine mermaid axe

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo 'make $(CORNERS:%=test-%): the tests with other versions; tests/corners.py has what each installs and runs'

demo: set-up  ## the whole pipeline on this machine, from a Kinesis endpoint to acked records
	@$(BIN)/python -m examples.demo $(ARGS)

demo-topology: set-up  ## Storm's word count on Spark, over Kinesis, with failures and kills, and its counts checked
	@$(BIN)/python -m examples.demo_topology $(ARGS)

# KINESIS_SPOUT_PURE_PYTHON=1 make test: the same without the native module.
test:  ## formatting, lint, types, import contract, documentation and the tests of every promise
	@$(MAKE) --no-print-directory --jobs=3 SIDE_BY_SIDE=yes set-up mermaid
	@$(MAKE) --no-print-directory --jobs=3 SIDE_BY_SIDE=yes lint docs tests
	@echo 'Left to make test-all: the wheel, a browser, Prometheus, clusters, other ways into ZooKeeper, other versions, the whole fuzz.'

test-all:  ## make test, and the same promises in every other environment: before a release, and each night
	@failed=; \
	for each in lint all-tests $(CORNERS:%=test-%) test-docs fuzz fault fault-spool; do \
	  echo "== make $$each"; \
	  $(MAKE) --no-print-directory $$each || failed+=" $$each"; \
	done; \
	[ -z "$$failed" ] || { echo "Failed:$$failed" >&2; exit 1; }

tests: set-up $(CLASSES)
	@$(PYTEST) || $(AGAIN)

all-tests: set-up axe $(CLASSES)
	@$(PYTEST) -m '' || $(AGAIN)

# oldest: what touches Spark, with Python 3.11 and PySpark 4.0. newest: with Python 3.14, unit and contract tests too.
# lowest: the lowest version of each package. unpinned: the wheel, with the newest. migrations: the guides' programs before.
$(CORNERS:%=test-%): test-%: set-up
	@$(BIN)/python -m tests.corners $*

fault: set-up  ## consumers under kills, and every door at random rates of failure, judged; ARGS="--events 100 --failures 5%"
	@$(BIN)/python -m tests.fault.suite $(ARGS)

fault-spool: set-up  ## producers with a spool under kill -9: no record is lost; ARGS="--kills 1000 --seed 7"
	@$(BIN)/python -m tests.fault.spool_kills $(ARGS)
	@$(BIN)/python -m tests.fault.producer_kills $(ARGS)

fault-upgrade: set-up  ## from the last release to this commit and back, member by member, under load; ARGS="--old v0.1.0"
	@$(BIN)/python -m tests.fault.upgrade $(ARGS)

fuzz: set-up  ## a million damaged replies for the native module, under sanitizers, and for each call of Kinesis; ARGS="--replies 10000 --seed 7"
	@$(BIN)/python -m tests.fuzz_native --sanitize $(ARGS)
	@$(BIN)/python -m tests.fuzz_replies $(ARGS)

test-aws: set-up  ## whether all holds in your account of AWS: makes a stream, asks first, removes it; ARGS="--yes --profile me"
	@$(BIN)/python -m tests.aws $(ARGS)

release-check: $(RELEASE)/.installed  ## build what PyPI gets, twice, and check it: digests, contents, SBOM, links, installations
	@$(RELEASE)/bin/python -m release.check $(ARGS)

# The wheel is given as WHEEL=<file>; without it one is built.
test-wheel: set-up $(CLASSES)  ## README and the documentation's examples, run from a wheel
	@WHEEL=$(WHEEL) $(BIN)/pytest -m '' tests/wheel

bench: set-up  ## every benchmark, with its figures; benchmarks/README.md tells how to choose
	@$(BIN)/python benchmarks/run.py $(ARGS)

docs: set-up mermaid  ## the documentation site, in site/; warnings are errors
	@echo '== documentation (mkdocs build)'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

docs-version: set-up mermaid  ## the site as one of several versions, on the branch gh-pages; VERSION=0.1 ALIAS=latest ARGS=--push
	@[ -n "$(VERSION)" ] || { echo 'Expected VERSION, such as `make docs-version VERSION=0.1 ALIAS=latest` or VERSION=dev.' >&2; exit 2; }
	@export NO_MKDOCS_2_WARNING=1 PATH="$(abspath $(BIN)):$$PATH"; \
	mike --quiet deploy --update-aliases $(ARGS) $(VERSION) $(ALIAS); \
	[ -z "$(ALIAS)" ] || mike --quiet set-default $(ARGS) $(ALIAS); \
	mike list

test-docs: docs  ## every page of the site in a browser: wide and narrow, light and dark, no request to another host
	@$(BIN)/python -m tests.site_in_a_browser

lint: set-up  ## formatting, lint, types, import contract, and how large it all is
	@echo '== formatting (ruff format --check)'
	@$(BIN)/ruff format --check .
	@echo '== lint (ruff check)'
	@$(BIN)/ruff check .
	@echo '== types (mypy)'
	@$(BIN)/mypy
	@echo '== import contract (lint-imports)'
	@said=$$($(BIN)/lint-imports) || { echo "$$said"; exit 1; }
	@echo '== sizes and names'
	@$(BIN)/python -m tests.sizes

clean:  ## stop the local endpoint; remove the virtual environments and everything that was made
	@localstack/down
	rm -rf $(VENV) .venv-* localstack/.run docs/.mermaid .kinesis-spout spark-warehouse build dist site *.egg-info
	rm -f kinesis_spout/kinesis/_native*.so
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

set-up: java $(COMPILED) engine  ## only install what the other targets need

java engine:
	@.ci/set-up $@

mermaid:
	@.ci/set-up mermaid $(MERMAID)

axe:
	@.ci/set-up axe $(AXE)

# Editable in setuptools' compat mode: Spark finds pyspark_kinesis by listing the folders of sys.path.
# Installed again, the optional native module is built again.
$(INSTALLED): pyproject.toml constraints.txt setup.py $(wildcard kinesis_spout/kinesis/_*.c) | java
	@.ci/set-up python $(VENV)
	@echo 'Installing PySpark and the other packages into $(VENV): 1.3 GB, about a minute the first time.'
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt --config-settings editable_mode=compat -e '.[demo,dev]' \
	  || { echo 'The installation failed (see above); run make again once the cause is gone.' >&2; exit 1; }
	@ls kinesis_spout/kinesis/_native*.so >/dev/null 2>&1 \
	  || echo 'Notice: without a C compiler the native module was not built, so Python decodes replies.'
	@rm -f $(VENV)/.unfinished
	@touch $@

# With the tools' digests: what makes a release is what was tried.
$(RELEASE)/.installed: release/requirements.txt
	@rm -rf $(RELEASE); $(or $(PYTHON),$(wildcard $(BIN)/python),python3) -m venv $(RELEASE)
	@$(RELEASE)/bin/python $(PIP_INSTALL) --require-hashes -r release/requirements.txt
	@touch $@

# Each JVM that starts Spark costs 7 s of CPU less.
$(CLASSES): $(COMPILED) tests/spark_classes.py tests/spark_classes_queries.py
	@echo "Keeping Spark's classes for the tests: half a minute."
	@$(BIN)/python tests/spark_classes.py $(VENV)
	@touch $@

# Each Python that Spark starts is ready 1.6 s of CPU earlier.
$(COMPILED): $(INSTALLED) tests/compiled_pyspark.py
	@$(BIN)/python tests/compiled_pyspark.py $(VENV)
	@touch $@
