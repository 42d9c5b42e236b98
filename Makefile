# Needs Python 3.11 or newer with venv, and make. Everything else comes from the pinned requirements.
PYTHON ?= python3
# One more than cores: tests of processes and pages wait a third of their time.
TEST_PROCESSES ?= 3
ARGS ?=

VENV := .venv
PY := $(VENV)/bin/python
RUN_STAMP := $(VENV)/.installed-run
DEV_STAMP := $(VENV)/.installed-dev
PIP_INSTALL := PIP_ROOT_USER_ACTION=ignore $(PY) -m pip install --disable-pip-version-check --no-input --quiet --quiet --require-hashes
# Universal: with what other Pythons from 3.11 on need. No index address and no folder of this machine gets in.
LOCK_OPTIONS := --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-emit-find-links

export PYTHONPATH := $(CURDIR):$(CURDIR)/platform$(if $(PYTHONPATH),:$(PYTHONPATH))

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-long check lint bench screenshots reference lock clean containers

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: $(RUN_STAMP) ## Start everything with two demo tenants; PORT sets the web port, Ctrl-C stops it
	@exec $(PY) -m demo $(ARGS)

test: $(DEV_STAMP) containers ## Run the test suite, except what takes long; ARGS="-k word" narrows it
	$(PY) -m pytest -n $(TEST_PROCESSES) $(ARGS)

test-long: $(DEV_STAMP) containers ## Run the whole suite, with millions of rows, floods and soaks
	$(PY) -m pytest -m "long or not long" $(ARGS)

# As root on Debian and where INSTALL_PACKAGES is not 0; elsewhere the tests that need runc or a browser say why they
# are skipped. With BROWSER_TESTS=required, as in CI, a missing browser is a failure.
containers:
	@.ci/containers
	@.ci/browser

check: lint test ## All that CI runs: formatting, types, import layers, lint rules, tests

lint: $(DEV_STAMP) ## The static part of check
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	$(VENV)/bin/lint-imports
	$(PY) -m tests.lint.rules

bench: $(DEV_STAMP) ## Measure firing, executions and lateness beside plain Celery
	$(PY) -m tests.bench $(ARGS)

screenshots: $(DEV_STAMP) ## Take the pictures of the docs, while `make run` runs
	@$(PY) -m tests.pictures

reference: $(DEV_STAMP) ## Write the generated parts of docs/reference from the API's own description
	DEBUG=1 $(PY) manage.py api_reference

lock: $(PY) ## Pin the newest allowed versions, with hashes, in requirements*.txt
	$(PY) -m pip install --disable-pip-version-check --quiet --upgrade uv
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(VENV)/bin/uv pip compile $(LOCK_OPTIONS) -o requirements.txt requirements.in
	UV_CUSTOM_COMPILE_COMMAND="make lock" $(VENV)/bin/uv pip compile $(LOCK_OPTIONS) -c requirements.txt -o requirements-dev.txt requirements-dev.in

clean: ## Remove the environment, the demo's and the tests' data, and caches
	rm -rf $(VENV) var .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis staticfiles
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(PY):
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; say which one with: make PYTHON=python3.12 ..." >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "This Python has no venv with pip; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@echo "Building $(VENV) ..."
	@$(PYTHON) -m venv --clear $(VENV)

$(RUN_STAMP): requirements.txt | $(PY)
	@echo "Installing the pinned requirements ..."
	@$(PIP_INSTALL) -r requirements.txt
	@touch $@

# The development pins contain the others, so one install serves both.
$(DEV_STAMP): requirements-dev.txt requirements.txt | $(PY)
	@echo "Installing the pinned requirements for development ..."
	@$(PIP_INSTALL) -r requirements-dev.txt
	@touch $(RUN_STAMP) $@
