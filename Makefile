# Every target works as the first command on a fresh clone: it makes .venv itself.

PYTHON ?= python3
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet
PLUGINS := $(patsubst %/pyproject.toml,%,$(wildcard plugins/*/pyproject.toml))
DEMO_ARGUMENTS ?=
TEST_ARGUMENTS ?= -n 2

.PHONY: demo test coverage check bench docs wheels test-wheels proto reference clean

demo: .venv/runtime
	$(BIN)/accelscale demo $(DEMO_ARGUMENTS)

test: .venv/development
	$(BIN)/python -m pytest $(TEST_ARGUMENTS)

# What decides about replicas is covered branch by branch.
DECIDING := engine trigger doubts aggregation attribution values selectors
coverage: .venv/development
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -q tests/test_engine.py tests/test_engine_laws.py \
	    tests/test_trigger.py tests/test_aggregation.py tests/test_attribution.py \
	    tests/test_selectors.py
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report --show-missing --fail-under=100 \
	    --include='$(shell echo $(DECIDING:%=*/accelscale/%.py) | tr ' ' ',')'

check: .venv/development
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python proto/generate.py --check
	$(BIN)/python docs/reference.py --check

bench: .venv/development
	$(BIN)/python -m benchmarks $(BENCH_ARGUMENTS)

docs: .venv/development
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

proto: .venv/development
	$(BIN)/python proto/generate.py

reference: .venv/development
	$(BIN)/python docs/reference.py

wheels: .venv/development
	rm -rf dist
	$(PIP) wheel --no-deps --wheel-dir dist . $(PLUGINS:%=./%)

# The built wheels, in environments with the oldest and the newest libraries they admit.
test-wheels: wheels
	$(BIN)/python tests/wheels.py dist

.venv/pip:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "accelscale needs Python 3.11 or later; name one with make PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	@touch $@

.venv/runtime: .venv/pip pyproject.toml plugins/accelscale-host/pyproject.toml
	$(PIP) install --editable '.[server]' --editable plugins/accelscale-host
	@touch $@

.venv/development: .venv/runtime $(PLUGINS:%=%/pyproject.toml)
	$(PIP) install --editable '.[dev]' $(PLUGINS:%=--editable './%[test]')
	@touch $@

clean:
	rm -rf .venv dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis
