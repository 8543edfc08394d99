# Everything happens from here: `make demo` in a fresh clone installs what it needs, then runs.
# Options: PYTHON=<interpreter>, JAVA_HOME=<folder>, ARGS="<arguments of the demo or the benchmarks>".

include localstack/versions

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
# Made before the installation and removed after it: a venv that still has it was interrupted.
UNFINISHED := $(VENV)/.unfinished
INSTALLED := $(VENV)/.installed
COMPILED := $(VENV)/.compiled
# The optional native module: installed again, its module is built again.
NATIVE := $(wildcard kinesis_spout/kinesis/_*.[ch])
CLASSES := $(VENV)/.classes
ENGINE := localstack/.run/node_modules/.kinesis-local-$(KINESIS_LOCAL_VERSION)
# What draws the diagrams of the documentation, so that a reader's browser need not fetch it from elsewhere.
MERMAID_VERSION := 11.17.2
MERMAID := docs/.mermaid/$(MERMAID_VERSION)
# Of 145 MB of Python little is ever imported; that is compiled when it is, and kept.
PIP_INSTALL := -m pip install -qq --disable-pip-version-check --prefer-binary --no-compile
unexport PYTHONDONTWRITEBYTECODE
# The corners of what is supported, each in a virtual environment of its own. PYTHON names another Python for each.
OLDEST := .venv-oldest
NEWEST := .venv-newest
LOWEST := .venv-lowest
RELEASE := .venv-release
OLDEST_PYTHON := $(or $(PYTHON),python3.11)
NEWEST_PYTHON := $(or $(PYTHON),python3.14)
# The libraries that the guides lead away from. amazon_kclpy is not installed: that would download Java's half from Maven.
MIGRATIONS := .venv-migrations
MIGRATED := boto3 bytewax==0.21.1 faust-streaming==0.15.3
KCLPY := amazon_kclpy==3.2.0
UV_VERSION := 0.13.9
# Needs newer versions of what the package needs, or other packages than the tests.
NOT_IN_LOWEST := kinesis-spout pyspark mkdocs playwright
SPARK_TESTS := tests/unit/spark tests/unit/structured tests/integration/test_micro_batches.py tests/integration/test_topologies.py \
  $(wildcard tests/integration/test_structured_*.py tests/integration/test_each_record*.py)
# The tests of Spark's parts and Connect's are test-oldest's.
LOWEST_TESTS := tests/unit tests/model tests/contract \
  tests/integration/test_micro_batches.py::test_the_record_door_acks_fails_rejects_and_dead_letters
NEWEST_TESTS := tests/unit tests/contract $(SPARK_TESTS)
# Four workers for two cores: half of the time they wait for servers, sessions and Spark.
WORKERS := 4
PYTEST_SHARED := pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
ARGS ?=
, := ,

# $(call corner,FOLDER,PYTHON,WHAT,COMMANDS): make the virtual environment FOLDER with PYTHON and run COMMANDS, which install
# WHAT into it, unless that was done since pyproject.toml changed.
define corner
if [ ! -e $(1)/.installed ] || [ pyproject.toml -nt $(1)/.installed ]; then \
  command -v $(2) >/dev/null || { echo 'Expected $(2) on PATH; install it, or name one: make PYTHON=/path/to/python3' >&2; exit 1; }; \
  echo 'Installing $(3) into $(1): about a minute and a half.'; \
  rm -rf $(1); $(2) -m venv $(1); \
  $(4); \
  $(1)/bin/python tests/compiled_pyspark.py $(1); \
  touch $(1)/.installed; \
fi
endef
CANDIDATES := $(or $(PYTHON),python3.14 python3.13 python3.12 python3.11 python3)

.PHONY: help demo demo-topology test test-oldest test-newest test-lowest test-unpinned test-aws test-wheel release-check fault fault-spool fault-upgrade fuzz bench docs docs-version test-docs test-migrations lint clean set-up java engine mermaid

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: set-up  ## the whole pipeline on this machine, from a Kinesis endpoint to acked records
	@$(BIN)/python -m examples.demo $(ARGS)

demo-topology: set-up  ## Storm's word count on Spark, over Kinesis, with failures and kills, and its counts checked
	@$(BIN)/python -m examples.demo_topology $(ARGS)

# KINESIS_SPOUT_PURE_PYTHON=1 make test: the same without the native module.
test:  ## formatting, lint, types, import contract, documentation and all tests, as in CI
	@$(MAKE) --no-print-directory --jobs=3 SIDE_BY_SIDE=yes set-up mermaid
	@$(MAKE) --no-print-directory --jobs=3 --output-sync SIDE_BY_SIDE=yes lint docs $(CLASSES)
	@echo '== tests (pytest)'
	@$(BIN)/$(PYTEST_SHARED) || { [ $$? = 1 ] && $(BIN)/python -m tests.once_more; }

test-oldest: java engine  ## what touches Spark, under the oldest Python and the oldest PySpark that are supported
	@$(call corner,$(OLDEST),$(OLDEST_PYTHON),PySpark 4.0,\
	  $(OLDEST)/bin/python $(PIP_INSTALL) -c <(grep -vE '^(pyspark|pandas)==' constraints.txt) \
	    --config-settings editable_mode=compat -e '.[demo$(,)dev]' 'pyspark==4.0.*')
	@# That PySpark leaves sockets to the garbage collector, which is no fault of ours.
	@$(OLDEST)/bin/$(PYTEST_SHARED) -W ignore::ResourceWarning -W ignore::pytest.PytestUnraisableExceptionWarning $(SPARK_TESTS)

test-newest: java engine  ## unit and contract tests and what touches Spark, under the newest Python and the newest of all packages
	@$(call corner,$(NEWEST),$(NEWEST_PYTHON),the newest packages,\
	  $(NEWEST)/bin/python $(PIP_INSTALL) --config-settings editable_mode=compat -e '.[demo$(,)dev]')
	@$(NEWEST)/bin/$(PYTEST_SHARED) $(NEWEST_TESTS)

test-lowest: java engine  ## unit, model and contract tests and one micro-batch, under the lowest versions that are allowed
	@$(call corner,$(LOWEST),$(OLDEST_PYTHON),the lowest versions of pyproject.toml,\
	  $(LOWEST)/bin/python $(PIP_INSTALL) uv==$(UV_VERSION); \
	  $(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct \
	    --config-setting editable_mode=compat -e '.[arrow$(,)metrics$(,)otel$(,)sasl$(,)spark$(,)web]'; \
	  $(LOWEST)/bin/python $(PIP_INSTALL) -c <($(LOWEST)/bin/python -m pip freeze --exclude-editable) \
	    -r <($(LOWEST)/bin/python tests/needed_by_tests.py --without $(NOT_IN_LOWEST)))
	@# Old packages call what new ones deprecate, which is no fault of ours.
	@$(LOWEST)/bin/$(PYTEST_SHARED) -W ignore::DeprecationWarning -W ignore::ResourceWarning \
	  -W ignore::pytest.PytestUnraisableExceptionWarning $(LOWEST_TESTS)

test-migrations: set-up  ## the programs that the guides show, before and after, on the true libraries
	@if [ ! -e $(MIGRATIONS)/.installed ] || [ Makefile -nt $(MIGRATIONS)/.installed ]; then \
	  echo 'Installing the libraries of the programs before into $(MIGRATIONS): half a minute.'; \
	  rm -rf $(MIGRATIONS); $(BIN)/python -m venv $(MIGRATIONS); \
	  $(MIGRATIONS)/bin/python $(PIP_INSTALL) $(MIGRATED); \
	  $(MIGRATIONS)/bin/python -m pip download -qq --disable-pip-version-check --no-deps --no-binary :all: \
	    --dest $(MIGRATIONS)/sources $(KCLPY); \
	  tar -xzf $(MIGRATIONS)/sources/*.tar.gz --strip-components 1 --wildcards \
	    -C "$$($(MIGRATIONS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" '*/amazon_kclpy/*'; \
	  touch $(MIGRATIONS)/.installed; \
	fi
	@$(BIN)/pytest tests/integration/test_migrations.py tests/integration/test_kcl_positions.py

test-unpinned: set-up  ## the wheel, installed with the newest of all it needs: every module, and every example of the documents
	@UNPINNED=1 $(BIN)/pytest --numprocesses 2 tests/wheel

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
	@WHEEL=$(WHEEL) $(BIN)/pytest tests/wheel

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

lint: set-up  ## formatting, lint, types, import contract
	@echo '== formatting (ruff format --check)'
	@$(BIN)/ruff format --check .
	@echo '== lint (ruff check)'
	@$(BIN)/ruff check .
	@echo '== types (mypy)'
	@$(BIN)/mypy
	@echo '== import contract (lint-imports)'
	@$(BIN)/lint-imports

clean:  ## stop the local endpoint; remove the virtual environment and everything that was made
	@localstack/down
	rm -rf $(VENV) $(OLDEST) $(NEWEST) $(LOWEST) $(MIGRATIONS) $(RELEASE) localstack/.run docs/.mermaid .kinesis-spout spark-warehouse build dist site *.egg-info
	rm -f kinesis_spout/kinesis/_native*.so
	rm -rf .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

set-up: java $(COMPILED) engine  ## only install what the other targets need

# Editable in setuptools' compat mode: Spark finds pyspark_kinesis by listing the folders of sys.path.
# A whole venv is brought up to date in place. An interrupted one is made anew: pip takes a package of
# which it wrote only a part for an installed one.
$(INSTALLED): pyproject.toml constraints.txt setup.py $(NATIVE) | java
	@supported() { "$$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }; \
	if [ -e $(UNFINISHED) ] || ! supported $(BIN)/python; then \
	  python=; \
	  for candidate in $(CANDIDATES); do \
	    if supported "$$candidate"; then python=$$candidate; break; fi; \
	  done; \
	  if [ -z "$$python" ]; then \
	    { echo 'Expected Python 3.11 or newer, found none; looked for: $(CANDIDATES)'; \
	      echo '  Debian 12, Ubuntu 24.04 and newer: sudo apt-get install python3 python3-venv'; \
	      echo '  Fedora: sudo dnf install python3.13      macOS: brew install python@3.13'; \
	      echo '  or name one: make PYTHON=/path/to/python3'; } >&2; \
	    exit 1; \
	  fi; \
	  if ! "$$python" -c 'import ensurepip, venv' 2>/dev/null; then \
	    package=$$("$$python" -c 'import sys; print("python%d.%d-venv" % sys.version_info[:2])'); \
	    if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	      echo "Installing $$package: this Python has no venv module."; \
	      apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$$package" >/dev/null; \
	    else \
	      echo "$$python has no venv module. On Debian or Ubuntu: sudo apt-get install $$package" >&2; \
	      exit 1; \
	    fi; \
	  fi; \
	  echo "Making $(VENV) with $$("$$python" --version)."; \
	  rm -rf $(VENV); mkdir $(VENV); touch $(UNFINISHED); \
	  "$$python" -m venv $(VENV); \
	fi
	@touch $(UNFINISHED)
	@echo 'Installing PySpark and the other packages into $(VENV): 1.3 GB, about a minute the first time.'
	@$(BIN)/python $(PIP_INSTALL) -c constraints.txt --config-settings editable_mode=compat -e '.[demo,dev]' \
	  || { echo 'The installation failed (see above); run make again once the cause is gone.' >&2; exit 1; }
	@ls kinesis_spout/kinesis/_native*.so >/dev/null 2>&1 \
	  || echo 'Notice: without a C compiler the native module was not built, so Python decodes replies and packs records.'
	@rm -f $(UNFINISHED)
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

# Spark starts JAVA_HOME's Java when that is set and the one on PATH otherwise: look where it will.
java:
	@works() { \
	  major=$$({ "$$1" -version 2>&1 || true; } | sed -n 's/.*version "\([0-9][0-9]*\).*/\1/p' | head -n 1); \
	  [ "$${major:-0}" -ge 17 ]; \
	}; \
	if works "$${JAVA_HOME:+$$JAVA_HOME/bin/}java"; then exit 0; fi; \
	if [ -n "$${JAVA_HOME:-}" ]; then \
	  echo "Expected Java 17 or newer in JAVA_HOME, which is $$JAVA_HOME; correct it, or unset it to use PATH's." >&2; \
	  exit 1; \
	fi; \
	if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  echo 'Installing Java for Spark (openjdk-17-jre-headless, else default-jre-headless): about a minute.'; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  apt-get update -qq && { apt-get install -y -qq openjdk-17-jre-headless >/dev/null 2>&1 \
	    || apt-get install -y -qq default-jre-headless >/dev/null; } || echo 'apt-get failed.' >&2; \
	  if works java; then exit 0; fi; \
	fi; \
	{ echo 'Expected Java 17 or newer, as JAVA_HOME or as java on PATH; Spark runs on it.'; \
	  echo '  Debian, Ubuntu: sudo apt-get install openjdk-17-jre-headless   (or default-jre-headless)'; \
	  echo '  Fedora: sudo dnf install java-21-openjdk-headless'; \
	  echo '  macOS: brew install openjdk@17 && export JAVA_HOME="$$(brew --prefix openjdk@17)"'; } >&2; \
	exit 1

# The better local Kinesis endpoint. Optional: without npm the tests and the demo use moto's server.
engine:
	@if [ -e $(ENGINE) ]; then exit 0; fi; \
	if ! command -v npm >/dev/null; then \
	  echo 'Notice: no npm on PATH, so the local Kinesis endpoint is moto'"'"'s server (see localstack/README.md).'; \
	  exit 0; \
	fi; \
	. localstack/state.sh; \
	install_kinesis_local localstack/.run \
	  || echo 'Notice: npm could not install kinesis-local, so the local Kinesis endpoint is moto'"'"'s server.'

# Optional: without npm the site shows the diagrams as text.
mermaid:
	@if [ -e $(MERMAID)/.installed ]; then exit 0; fi; \
	if ! command -v npm >/dev/null; then \
	  echo 'Notice: no npm on PATH, so the documentation shows its diagrams as text.'; \
	  exit 0; \
	fi; \
	npm install --silent --no-audit --no-fund --no-save --fetch-retries=1 --fetch-timeout=30000 \
	  --prefix $(MERMAID) @mermaid-js/tiny@$(MERMAID_VERSION) >&2 && touch $(MERMAID)/.installed \
	  || echo 'Notice: npm could not install mermaid, so the documentation shows its diagrams as text.'
