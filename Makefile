# Three commands matter: `make run`, `make check` and `make test`. `make help` lists the rest.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
DIST   := dist
# Tests wait more than they compute, so three processes share two cores; each may have a Spark beside it.
PROCESSES ?= $(shell awk '/^MemTotal/ {found = $$2 > 12000000 ? 3 : 2} END {print found ? found : 2}' /proc/meminfo 2>/dev/null || echo 2)
CORE   := setup.py pyproject.toml $(wildcard src/dray/kafka/records/*.pyx src/dray/kafka/records/*.pxi src/dray/kafka/records/*.pxd src/dray/kafka/records/*.c src/dray/kafka/records/*.h)

# Where this is set, every drayd and every process of the tests compiles a thousand modules anew: half their start.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help run demo setup setup-pipeline setup-dev lint style types format check test servers test-cluster soak throughput bench \
	docs dist lock clean

help: ## this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

run: setup ## set up everything, then a broker on 127.0.0.1:9092 with its data in ./dray-data
	$(BIN)/drayd up

demo: setup-pipeline ## everything Dray does, in two minutes, in a temporary directory (needs Java 17)
	$(BIN)/drayd demo

setup: $(VENV)/.installed-run ## .venv with what a broker needs, and drayd in .venv/bin
setup-pipeline: $(VENV)/.installed-pipeline ## the same and the data pipeline: Spark, Iceberg, DuckDB (about 1 GB)
setup-dev: $(VENV)/.installed-dev ## .venv with what developers and tests need

$(VENV)/.created:
	$(PYTHON) -c 'import sys; sys.exit("Dray needs Python 3.11 or newer") if sys.version_info < (3, 11) else 0'
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/.locked-run: requirements/run.lock | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/run.lock
	touch $@

$(VENV)/.locked-pipeline: requirements/pipeline.lock | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/pipeline.lock
	touch $@

$(VENV)/.locked-dev: requirements/dev.lock | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.lock
	touch $@

$(VENV)/.built: $(CORE) | $(VENV)/.created
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	touch $@

# The core is built by the pinned Cython, so what is locked comes first.
$(VENV)/.installed-run: $(VENV)/.locked-run $(CORE)
	$(MAKE) --no-print-directory $(VENV)/.built
	touch $@

$(VENV)/.installed-pipeline: $(VENV)/.locked-pipeline $(CORE)
	$(MAKE) --no-print-directory $(VENV)/.built
	touch $@

$(VENV)/.installed-dev: $(VENV)/.locked-dev $(CORE) simulation/pyproject.toml
	$(MAKE) --no-print-directory $(VENV)/.built
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable simulation
	touch $@

# These need what is locked, and no compiled core: that may be built meanwhile.
lint: style types ## ruff, and mypy over everything, tests too

style: $(VENV)/.locked-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.locked-dev
	$(BIN)/mypy

servers: setup-dev
	$(BIN)/python -m tests.services.prepare

format: setup-dev ## let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

check: setup-dev ## for every change: style, types, unit tests, and a simulated cluster of each kind
	$(MAKE) --no-print-directory --jobs 2 style types
	$(BIN)/python -m pytest --quiet --numprocesses 2 --dist loadfile --no-loadscope-reorder tests/unit
	$(BIN)/drayd simulate --seeds 9 --from 0 --jobs 2

# A file stays on one process, with the servers its tests share; tests/services/distribution.py says in which
# order.
test: ## every test, on three processes (two with little memory; PROCESSES=n for more or fewer)
	$(MAKE) --no-print-directory --jobs 2 style types servers
	$(BIN)/python -m pytest --numprocesses $(PROCESSES) --dist loadfile --no-loadscope-reorder --durations=30

test-cluster: setup-dev ## the integration tests on three brokers, three Oxia servers and S3, then their faults
	DRAY_TEST_TARGET=cluster DRAY_REQUIRE=all $(BIN)/python -m pytest --timeout 600 tests/integration tests/referee
	DRAY_TEST_TARGET=cluster DRAY_REQUIRE=all $(BIN)/python -m pytest -m soak --timeout 900 \
		tests/integration/test_cluster_lonely.py tests/integration/test_cluster_remote.py

soak: setup-dev ## the long runs that `make test` has no time for
	$(BIN)/python -m pytest -m soak --timeout 3600
	$(BIN)/drayd simulate --seeds 1000 --minutes 30 --jobs $$(nproc)

throughput: setup-dev ## how fast the broker of `make run` takes records and gives them back
	$(BIN)/python -m bench.throughput

bench: setup-dev ## throughput, CPU and memory, side by side with Apache Kafka
	$(BIN)/python -m bench.compare

docs: build/docs-tools/.installed ## the pages as a site with search, in build/site; a dead link is an error
	build/docs-tools/bin/properdocs build --strict

build/docs-tools/.installed: requirements/docs.lock
	$(PYTHON) -m venv build/docs-tools
	build/docs-tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/docs.lock
	touch $@

# The sdist first, and the wheel of what is in it. The core is one for every Python from 3.11 on; auditwheel says of which
# glibc on, and names the wheel so.
dist: build/dist-tools/.installed ## wheels for this machine, and sdists, in dist/: what pip installs
	rm -rf $(DIST)/dray*
	DRAY_COMMIT="$$(git rev-parse HEAD 2>/dev/null)" DRAY_STABLE_ABI=1 build/dist-tools/bin/python -m build --no-isolation --outdir $(DIST) .
	build/dist-tools/bin/python -m build --no-isolation --outdir $(DIST) simulation
	if [ "$$(uname -s)" = Linux ]; then \
		PATH="$(CURDIR)/build/dist-tools/bin:$$PATH" auditwheel repair --wheel-dir $(DIST) $(DIST)/dray-*-linux_*.whl \
		&& rm $(DIST)/dray-*-linux_*.whl; fi
	build/dist-tools/bin/abi3audit $(DIST)/dray-*.whl

build/dist-tools/.installed: requirements/dist.lock
	$(PYTHON) -m venv build/dist-tools
	build/dist-tools/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dist.lock
	touch $@

lock: ## pin the dependencies anew (needs uv)
	tools/lock.sh

clean: ## remove what was built and installed, but no data
	rm -rf $(VENV) build src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find src -name '*.so' -delete
