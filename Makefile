# `make demo` and `make test` are all a newcomer needs; both set everything up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup demo test test-broker check format bench docs lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Virtual environment with locked dependencies

$(READY): requirements/dev.txt pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with make PYTHON=…"; exit 1; }
	@echo "Installing dependencies into $(VENV) (once) …"
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

check: $(READY) ## Style, types, architecture: seconds, before every commit
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/pytest -q tests/test_architecture.py

format: $(READY) ## Rewrite sources as the style asks
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## Resolve dependencies anew, with hashes and no index address
	$(BIN)/uv pip compile pyproject.toml --upgrade --generate-hashes --universal --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" --quiet -o requirements/runtime.txt
	$(BIN)/uv pip compile pyproject.toml --upgrade --group dev --extra draw --generate-hashes --universal --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock" --quiet -o requirements/dev.txt

clean: ## Remove what the targets made
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov
