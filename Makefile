# Everything a developer types. Each target sets up what it needs; nothing has to be installed first but Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help setup up test test-producers chaos scale check format bench bench-full clean

help: ## what there is to type
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

setup: $(STAMP) ## make .venv and install everything that the other targets use

# Package indexes have bad minutes: pip asks again before it gives up, and then once more from the start.
$(STAMP): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Correlator needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@for try in 1 2 3; do \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check --retries 5 --timeout 60 --editable '.[all,dev]' && break; \
	  test $$try -lt 3 || exit 1; sleep 5; \
	done
	@touch $@

up: setup ## start Correlator here: database, server and pipeline
	$(BIN)/correlator up

test: setup ## the tests, on two cores; a file of tests stays in one process
	$(BIN)/python -m pytest -n 2 --dist loadfile

test-producers: setup ## dbt, Spark, Airflow, Great Expectations, Kafka: the real tools, each in an environment of its own
	$(BIN)/python -m pytest -m "producers or not producers" tests/producers

chaos: setup ## kill server and database at random moments under load, 20 rounds; the pipeline at eleven chosen points
	$(BIN)/python -m tests.chaos
	CORRELATOR_CHAOS=1 $(BIN)/python -m pytest tests/integration/pipeline/test_crashes.py

scale: setup ## a million events through a Spark cluster of two workers, and the same tables as on this machine
	$(BIN)/python -m tests.scale

check: setup ## formatting, lint, types, and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests benchmarks
	$(BIN)/lint-imports

format: setup ## rewrite the code as `make check` wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## the figures of the README, in a few minutes
	$(BIN)/python -m benchmarks.validation
	$(BIN)/python -m benchmarks.run_cycle
	$(BIN)/python -m benchmarks.fold
	$(BIN)/python -m benchmarks.validate_memory --megabytes 100
	$(BIN)/python -m benchmarks.trigger
	$(BIN)/python -m benchmarks.ingest --quick
	$(BIN)/python -m benchmarks.merge
	$(BIN)/python -m benchmarks.lineage
	$(BIN)/python -m benchmarks.catalogue
	$(BIN)/python -m benchmarks.pipeline
	$(BIN)/python -m benchmarks.freshness --seconds 20

bench-full: setup ## the same at full size
	$(BIN)/python -m benchmarks.validation --rounds 9
	$(BIN)/python -m benchmarks.run_cycle --rounds 9
	$(BIN)/python -m benchmarks.fold --rounds 9
	$(BIN)/python -m benchmarks.validate_memory --megabytes 1024
	$(BIN)/python -m benchmarks.trigger --rounds 9
	$(BIN)/python -m benchmarks.ingest
	$(BIN)/python -m benchmarks.merge
	$(BIN)/python -m benchmarks.lineage
	$(BIN)/python -m benchmarks.catalogue
	$(BIN)/python -m benchmarks.pipeline --events 1000000 2000000 4000000
	$(BIN)/python -m benchmarks.freshness --seconds 60

clean: ## forget what was set up and built
	rm -rf $(VENV) .cache dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
