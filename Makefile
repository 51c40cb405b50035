# `make` alone lists the targets. CPython 3.11 or later and make are all that is needed beforehand.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DOCKER ?= docker
PYTEST := $(BIN)/python -m pytest
# Many short tests run in shares (tests/support/shares.py), few long ones in workers of xdist.
WORKERS ?= 2
SHARES := --shares $(WORKERS)
PARALLEL := --numprocesses $(WORKERS)
# The files with tests of a marker: collecting all others costs more than many a suite itself.
TESTPATHS = $(shell sed -n 's/^testpaths = \[\(.*\)\]/\1/p' pyproject.toml | tr -d '",')
marked = $(shell grep -rl --include='test_*.py' 'mark\.$(1)' $(TESTPATHS))
# SHORT=1 leaves out those marked long, which take a minute and more each.
NOT_LONG := $(if $(SHORT), and not long)

# Each of the processes that tests start would compile all of ours anew.
unexport PYTHONDONTWRITEBYTECODE
# Stores of these suites are large: they are on a disk, and not in memory as others (tests/conftest.py).
interop spark-test test-slow: export TMPDIR := $(or $(TMPDIR),/tmp)

.DEFAULT_GOAL := help
# A folder has the name of one.
.PHONY: docs monitoring pages release compatibility help run test install install-spark lint check format bench bench-table bench-compare bench-peers bench-brokers bench-recovery bench-queues \
	bench-client bench-latency bench-grpc bench-ha bench-ha-beside bench-cores bench-spark bench-stalls growth \
	spark-demo spark-test spark-kills wheel interop chaos chaos-long ha-test \
	compose-up compose-down compose-ha-up compose-ha-down compose-test browser-test test-extras test-more test-pythons test-slow test-thorough test-timers deletable mutants simulate fuzz fuzz-grpc clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# Most modules of the packages are never imported: Python compiles those that are.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile

# One stamp per set of packages: a target installs what it needs, once, and again when pyproject or C changes.
SOURCES := pyproject.toml $(shell find rockhopper -name '*.[ch]')
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Rockhopper needs CPython 3.11 or later; PYTHON=/path/to/python3.11 make ... picks one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e .
	@touch $@

$(VENV)/.installed-test: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[test]'
	@touch $@ $(VENV)/.installed

# What one suite needs beside that.
$(VENV)/.installed-test-%: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[test-$*]'
	@touch $@ $(VENV)/.installed $(VENV)/.installed-test

IN_DEV := -docs -spark -test -test-browser -test-extras -test-spark
$(VENV)/.installed-dev: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.installed $(addprefix $(VENV)/.installed,$(IN_DEV))

$(VENV)/.installed-docs: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.installed

$(VENV)/.installed-fuzz: pyproject.toml | $(VENV)/.installed-test
	$(INSTALL) -e '.[fuzz]'
	@touch $@

$(VENV)/.installed-spark: $(SOURCES) | $(BIN)/python
	$(INSTALL) -e '.[spark]'
	@touch $@ $(VENV)/.installed

run: $(VENV)/.installed  ## start a broker with embedded name server, store under ./data
	@exec $(BIN)/rockhopper-broker --store ./data

test: $(VENV)/.installed-test  ## run the tests (five minutes)
	$(PYTEST) -q $(SHARES)

test-more: $(VENV)/.installed-test  ## run the tests that cost more: killed daemons, installed packages, every step of a job
	$(PYTEST) -q $(PARALLEL) -m "costly" $(call marked,costly)

test-extras: $(VENV)/.installed-test-extras  ## run the tests that need grpcio, the OpenTelemetry SDK, coverage …
	$(PYTEST) -q $(PARALLEL) tests/extras tests/unit/client/middleware tests/integration/test_docs_examples.py

browser-test: $(VENV)/.installed-test-browser  ## click through the console (needs Chromium)
	$(PYTEST) -q -m browser tests/browser

test-pythons: ## run the tests with CPython 3.13 and 3.14, Debian's (root; some minutes to install each)
	.ci/other-python trixie
	.ci/other-python forky

test-thorough: $(VENV)/.installed-test  ## run the generated tests with ten times the examples
	$(PYTEST) -q $(PARALLEL) --hypothesis-profile=thorough tests/property

test-slow: $(VENV)/.installed-test  ## run the suites that take minutes (crash loops, fault injection)
	$(PYTEST) -q $(PARALLEL) -m "slow and not spark$(NOT_LONG)" --timeout 2400 $(call marked,slow)

chaos: $(VENV)/.installed-test  ## cut the power, kill, fill the disk, flip bits … for two minutes (root)
	$(BIN)/python -m tests.chaos

CHAOS_RESULTS ?= build/chaos-results.jsonl
chaos-long: $(VENV)/.installed-test  ## 1,000 power cuts and more of the rest; goes on where it was stopped
	@mkdir -p $(dir $(CHAOS_RESULTS))
	$(BIN)/python -m tests.chaos --long --results $(CHAOS_RESULTS)

HA_RESULTS ?= build/ha-results.jsonl
ha-test: $(VENV)/.installed-test  ## kill, freeze and cut off replicas for two minutes (ROUNDS=n: scripts, then so many, Java clients too)
	@mkdir -p $(dir $(HA_RESULTS))
	$(BIN)/python -m tests.chaos --fault replicas $(if $(ROUNDS),--fault replica-scripts --long --rounds $(ROUNDS) --results $(HA_RESULTS))

test-timers: $(VENV)/.installed-test  ## 100,000 timers of an hour within minutes (needs libfaketime)
	ROCKHOPPER_TIME_RATE=$${ROCKHOPPER_TIME_RATE:-60} $(PYTEST) -q -s -m slow tests/integration/test_timers_faketime.py

deletable: $(VENV)/.installed-test  ## run the tests without a feature (FEATURE=name, or one by turns)
	$(BIN)/python -m tests.house.deletable $(if $(FEATURE),--feature $(FEATURE)) -- $(SHARES)

mutants: $(VENV)/.installed-test-extras  ## see whether the tests notice 300 changes of the code (two hours); goes on where it was stopped
	$(BIN)/python -m tests.house.mutants

simulate: $(VENV)/.installed-test  ## live through 10,000 lives of replica sets (SEEDS=n FIRST=k PROGRESS=file)
	$(BIN)/python -m tests.simulation --seeds $(or $(SEEDS),10000) --first $(or $(FIRST),0) --budget-s $(or $(BUDGET_S),inf) \
		$(if $(PROGRESS),--progress $(PROGRESS))

fuzz: $(VENV)/.installed-test  ## fuzz the compiled functions under sanitizers for an hour (needs clang)
	$(BIN)/python -m tests.fuzz

fuzz-grpc: $(VENV)/.installed-fuzz  ## fuzz the HTTP/2 of the port of RocketMQ 5 clients for an hour; goes on where it was stopped
	$(BIN)/python -m tests.fuzz.http2

spark-demo: $(VENV)/.installed-spark  ## stream text through a broker into Spark; ends with a plot
	@$(BIN)/python -m rockhopper.pipeline demo --output build/spark-demo

spark-test: $(VENV)/.installed-test-spark  ## run the Spark tests that take minutes (kills, a cluster)
	$(PYTEST) -q $(PARALLEL) -m "spark and slow$(NOT_LONG)" --timeout 2400 $(call marked,slow)

SPARK_RESULTS ?= build/spark-kills.jsonl
spark-kills: $(VENV)/.installed-test  ## kill drivers, workers and brokers of exactly-once queries 140 times; goes on where it was stopped
	@mkdir -p $(dir $(SPARK_RESULTS))
	$(BIN)/python -m tests.chaos --fault spark-sinks $(if $(ROUNDS),--rounds $(ROUNDS),--long) --results $(SPARK_RESULTS)

wheel: $(VENV)/.installed  ## build the wheel, and the pipeline as a zip for spark-submit, in dist/
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir dist .
	@$(BIN)/python -m rockhopper.pipeline package --output dist/rockhopper-pipeline.zip

SUITES ?= bookworm trixie forky
release: $(VENV)/.installed  ## build and try what is released, in Debians (root), or SUITES= with the Python that is here
	$(BIN)/python -m tests.release --suites "$(SUITES)"

# A compiler or Python's headers may have come since: then the compiled parts are made now.
install: $(BIN)/python  ## put both commands into .venv/bin
	@$(BIN)/python rockhopper/build_backend.py 2>/dev/null || rm -f $(VENV)/.installed
	@$(MAKE) --no-print-directory $(VENV)/.installed
install-spark: $(VENV)/.installed-spark  ## add what the Spark pipeline needs

lint: $(VENV)/.installed-dev  ## check style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: $(VENV)/.installed-dev  ## rewrite the sources in house style
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

check: lint  ## lint, types, import contracts, and the figures of the house
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house

monitoring: $(VENV)/.installed-test  ## try the dashboard and the alert rules (promtool: apt-get install prometheus)
	$(PYTEST) -m "costly or not costly" tests/integration/test_monitoring.py

docs: $(VENV)/.installed-docs  ## build the site in build/site; a broken link or a page in no menu fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --clean -f docs/site/mkdocs.yml
	@echo "open build/site/index.html; its search needs a server: python3 -m http.server -d build/site"

pages: compatibility $(VENV)/.installed-docs  ## make anew what comes from the code: settings, metrics, compatibility, --help, a stub
	@$(BIN)/python -m docs.site.help_files
	@$(BIN)/python -m docs.site.settings_page
	@$(BIN)/python -m docs.site.metrics_page
	@$(BIN)/python -m docs.site.sync_stub

compatibility: $(VENV)/.installed  ## make docs/compatibility.md anew from the processor tables
	@$(BIN)/python -m docs.site.compatibility_page

bench: $(VENV)/.installed  ## measure this broker beside a bare uvloop echo (needs a C compiler)
	$(BIN)/python -m benchmarks.bench

bench-table: $(VENV)/.installed  ## single sends by size, connections and topics (PEERS=--peers: Apache too)
	$(BIN)/python -m benchmarks.bench --table $(PEERS)

bench-compare: $(VENV)/.installed  ## what changed between two kept runs: A=name B=name
	@$(BIN)/python -m benchmarks.compare "$(A)" "$(B)"

bench-peers: $(VENV)/.installed  ## the same beside the official Apache broker (needs a JDK and Maven)
	$(BIN)/python -m benchmarks.bench --peers

# A client that cannot be installed is left out of the report, like a broker.
bench-brokers: $(VENV)/.installed-test  ## beside Kafka, NATS, RabbitMQ, Redis and Apache RocketMQ, with native load and Python clients
	-$(INSTALL) -e '.[test-brokers]'
	$(BIN)/python -m benchmarks.brokers $(BROKERS)

bench-client: $(VENV)/.installed  ## measure the bundled client beside a bare asyncio echo
	$(BIN)/python -m benchmarks.client

bench-latency: $(VENV)/.installed  ## latency from end to end, of one broker and a set, and beside a catch-up (needs etcd)
	$(BIN)/python -m benchmarks.latency --save build/latency.json

bench-cores: $(VENV)/.installed  ## measure two brokers under one parent beside one
	$(BIN)/python -m benchmarks.all_cores

bench-recovery: $(VENV)/.installed-test  ## measure a start that derives everything, beside a CRC pass
	$(BIN)/python -m benchmarks.recovery

bench-queues: $(VENV)/.installed-test  ## measure first sends, stops and starts with 40,000 queues
	$(BIN)/python -m benchmarks.many_queues

bench-ha: $(VENV)/.installed  ## what a replica set costs, and how long a failover takes (needs etcd)
	$(BIN)/python -m benchmarks.ha --save build/ha.json

bench-ha-beside: $(VENV)/.installed-test  ## the same faults on a set of ours and on Apache's controller mode (JDK, Maven, etcd)
	$(BIN)/python -m benchmarks.ha_beside_apache --save build/ha-beside.json

bench-stalls: $(VENV)/.installed  ## measure what keeps the event loop: large requests, many topics and clients
	$(BIN)/python -m benchmarks.stalls

growth: $(VENV)/.installed  ## see whether costs grow with what should not matter (six minutes, a quiet machine)
	$(BIN)/python -m benchmarks.growth $(if $(ONLY),--only $(ONLY))

bench-grpc: $(VENV)/.installed-test-extras  ## measure the port of RocketMQ 5 clients beside Apache's proxy (needs Go, a JDK, Maven)
	$(BIN)/python -m benchmarks.grpc

bench-spark: $(VENV)/.installed-test  ## measure the Spark pipeline beside native Parquet, and beside Kafka (JDK, Maven)
	$(BIN)/python -m benchmarks.spark_bench
	$(BIN)/python -m benchmarks.spark_beside_kafka --save build/spark-beside-kafka.json

interop: $(VENV)/.installed-test-extras  ## against official Apache releases and ali-ons (needs a JDK, Maven, npm)
	$(PYTEST) -q $(PARALLEL) -rs -m "interop$(NOT_LONG)" tests/interop

compose-up: ## start one broker in a container, reachable from here and from other containers
	DOCKER="$(DOCKER)" docker/compose.sh up

compose-down: ## stop it; the volume stays
	DOCKER="$(DOCKER)" docker/compose.sh down

compose-ha-up: ## start a set of three brokers and three etcd nodes in containers
	DOCKER="$(DOCKER)" docker/compose.sh ha up

compose-ha-down: ## stop it; the volumes stay
	DOCKER="$(DOCKER)" docker/compose.sh ha down

compose-test: $(VENV)/.installed-test-extras  ## try the compose file for real
	DOCKER="$(DOCKER)" $(PYTEST) -q -m docker --timeout 900 tests/docker

clean:  ## remove everything that the targets made, but not ./data
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
