# `make demo` and `make test` are all a newcomer needs; both set everything up by themselves.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
WORKERS ?= 2
# Tests of services wait more than they compute: twice as many at a time, and the folder of Spark beside them from the first moment.
SERVICES ?= $(shell expr 2 \* $(WORKERS) + 1)
# Unit tests end last, alone on the cores: one process more, because two that wait would leave a core without work.
UNITS ?= $(shell expr $(WORKERS) + 1)
PULSAR ?= 4.2
# Modules marked as pure on their first line, or in their package's: every branch of them is tested.
PURE := $$($(BIN)/python -m tests.architecture.pure_modules)

SEEDS ?= 20000
KILLS ?= 1000
MINUTES ?= 240
FAULTS ?= 300
ROUNDS ?= 5
RUNS ?= 300
MESSAGES ?= 10000000
# Tests start hundreds of processes of this project: each would compile its modules anew.
unexport PYTHONDONTWRITEBYTECODE
# Behind any target that runs tests: KODO_CONSUMER_NATIVE=false runs them without the native border, true never without it.

# The parts of make test-full, which the nightly workflow runs side by side: each has its folders, and a job of its own.
PARTS := unit broker spark clusters outages deaths faults docs
FULL_unit := tests/unit tests/simulation tests/mutants
FULL_broker := tests/broker tests/contract tests/scenarios
FULL_spark := tests/spark
FULL_clusters := tests/clusters
FULL_outages := tests/clusters/test_publisher_cluster.py
FULL_deaths := tests/clusters/test_unknown.py
FULL_faults := tests/faults
FULL_docs := tests/docs tests/browser
# Twenty minutes each, which are mostly waiting for a cluster: they are parts of their own.
WITHOUT_clusters := $(addprefix --ignore=,$(FULL_outages) $(FULL_deaths))
# Unit tests of packages with pure modules, whose branches the gate looks at; the other unit tests run beside the services.
MEASURED := $(filter-out $(addprefix tests/unit/,pipeline forge dev testing_tools),$(wildcard tests/unit/[a-z]*))
BESIDE = $(filter-out tests/unit %.py,$(foreach part,$(PARTS),$(FULL_$(part)))) $(filter-out $(MEASURED),$(wildcard tests/unit/[a-z]*))
OPTIONS := -q --tb=short --dist loadfile --max-worker-restart=0 --no-loadscope-reorder
PYTEST := $(BIN)/pytest $(OPTIONS)
# SlipCover looks at the pure modules alone, and costs next to nothing. It does not know this pytest, and need not: no test is measured.
BRANCHES = $(BIN)/python -m slipcover --branch --json --out $(COSTS)/branches.json --source kodoctl,consumer/kodo_consumer \
	--omit "$$($(BIN)/python -m tests.architecture.pure_modules --others)" -m pytest $(OPTIONS) \
	-W 'ignore:Module already imported:pytest.PytestAssertRewriteWarning' -W 'ignore:Unable to activate pytest:RuntimeWarning'
COSTS := .costs
TESTS := tests/spark
# Long runs of the engine are played compiled, in a tenth of the time, where there is a compiled core of these sources (test-compiled).
INTERPRETED = $(BIN)/python -c 'from kodo_consumer.core import COMPILED; print("not full" + " and not simulated" * COMPILED.compiled)'

# Of make lock: every extra but `fast`, which is built of this clone; and what pyproject.toml says about one library.
EXTRAS := avro database otel postgres recall spark sql ui
UPGRADE := --upgrade
COMPILE = $(BIN)/uv pip compile --quiet --generate-hashes --universal --python-version 3.11 --no-emit-index-url --custom-compile-command "make lock"
NEEDS = sed -n 's/.*"\($(1)[<>=][^"]*\)".*/\1/p' pyproject.toml

.PHONY: help setup native demo demo-pipeline test test-full $(PARTS:%=test-full-%) coverage test-compiled test-spark programs mutants site test-broker test-cluster soak-pipeline simulate faults chaos hostile release-check native-sanitize native-leaks check style house format bench bench-consumer docs lock clean

help: ## Show the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## Virtual environment with locked dependencies

$(READY): requirements/dev.txt requirements/spark.txt pyproject.toml $(wildcard fast/*.toml fast/*.py fast/src/kodo_fast/*.?pp fast/src/kodo_fast/*.py)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed; name one with make PYTHON=…"; exit 1; }
	@echo "Installing dependencies into $(VENV) (once) …"
	@$(PYTHON) -m venv $(VENV)
	@$(INSTALL) --require-hashes --no-deps -r requirements/spark.txt & spark=$$!; \
	$(INSTALL) --require-hashes --no-deps -r requirements/dev.txt && $(INSTALL) --no-deps --no-build-isolation -e . && \
	$(MAKE) --no-print-directory native && wait $$spark  # Spark is built from its source: beside the others. Locks are complete: pip, looking for an extra's newest release, would refuse it
	@touch $@

native: ## The native border and the compiled core (fast/), where there is a C++ compiler; without one everything works, slower
	@if ! command -v $${CXX:-c++} >/dev/null; then echo "No C++ compiler: the consumer goes on without its native border and compiled core"; \
	elif $(INSTALL) --no-deps --no-build-isolation --force-reinstall ./fast; then $(BIN)/python -m kodo_fast || true; \
	else echo "The native border was not built: the consumer goes on without it"; fi

test: $(READY) programs style ## The gate, on a real broker: style, types, architecture, unit, contract, scenarios, Spark, pages: a quarter of an hour on two cores
	@mkdir -p $(COSTS); rm -f $(COSTS)/*.xml
	@echo "Unit tests run beside those that wait for a broker; what they print comes at the end"
	@interpreted="$$($(INTERPRETED))"; export KODO_FAST_CORE=false; \
	{ { env -u KODO_FAST_CORE nice $(MAKE) --no-print-directory house test-compiled || { echo "make house or make test-compiled failed: its output comes at the end" >&3; false; }; } && \
	nice $(BRANCHES) --timeout 1200 -n $(UNITS) -m "$$interpreted" --junitxml=$(COSTS)/unit.xml $(MEASURED); } 3>&1 >$(COSTS)/unit.log 2>&1 & unit=$$!; \
	$(PYTEST) -n $(SERVICES) -m "not full" --junitxml=$(COSTS)/services.xml $(BESIDE); services=$$?; \
	wait $$unit; unit=$$?; cat $(COSTS)/unit.log; exit $$((services | unit))
	$(BIN)/python -m tests.architecture.missing_branches $(COSTS)/branches.json

test-full: $(READY) programs check test-compiled $(PARTS:%=test-full-%) coverage ## Every test there is but those of hours (faults, chaos, simulate), with the coverage of all: run it where you touched what is long

$(PARTS:%=test-full-%): test-full-%: $(READY) ## One part of it: unit, broker, spark, clusters, outages, deaths, faults, docs
	@mkdir -p $(COSTS); rm -f .coverage.$*.*
	@if [ -f requirements/full-$*.txt ]; then $(INSTALL) --require-hashes --no-deps -r requirements/full-$*.txt; fi
	KODO_FAST_CORE=false KODOCTL_TEST_PROFILE=full KODOCTL_TEST_SPARK=full COVERAGE_FILE=.coverage.$* $(PYTEST) --durations=20 -m "full or not full" -n $(WORKERS) --cov --cov-report= --junitxml=$(COSTS)/full-$*.xml $(FULL_$*) $(WITHOUT_$*)

coverage: $(READY) ## Combine what the parts of test-full covered: nine tenths of the whole, every branch of pure code
	$(BIN)/coverage combine -q --keep .coverage.*
	$(BIN)/coverage report --fail-under=90 --skip-covered --sort=cover
	$(BIN)/coverage report --fail-under=100 --skip-covered --include="$(PURE)"

test-spark: $(READY) ## The pipeline on the newest libraries that pyproject.toml allows, or the oldest: RESOLUTION=lowest-direct; TESTS=tests/spark
	@$(BIN)/python -m venv --without-pip $(VENV)-spark
	@$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > "$$(echo $(VENV)-spark/lib/python3.*/site-packages)/beside.pth"
	@$(BIN)/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["spark"], sep="\n")' | \
	$(BIN)/uv pip install --quiet --python $(VENV)-spark/bin/python --upgrade --resolution $(or $(RESOLUTION),highest) -r -
	@$(BIN)/uv pip list --quiet --python $(VENV)-spark/bin/python | grep -E '^(pyspark|pyarrow|pandas|deltalake|matplotlib) '
	PATH="$(CURDIR)/$(VENV)-spark/bin:$$PATH" $(VENV)-spark/bin/python -m pytest $(OPTIONS) -n $(WORKERS) $(TESTS)

test-compiled: $(READY) ## The core's unit tests with the compiled core, where it is built of these sources (make native)
	@if $(BIN)/python -c 'import sys; from kodo_consumer.core import COMPILED; print(COMPILED); sys.exit(not COMPILED.compiled)'; then \
	KODOCTL_TEST_COMPILED=1 $(BIN)/pytest -q --tb=short -n $(WORKERS) --dist loadfile --max-worker-restart=0 tests/unit/consumer/core tests/unit/consumer/simulation; \
	else echo "Only the interpreted core is tested"; fi

programs: ## Chromium and Graphviz for the tests that run them, where they are missing and can be had
	@.ci/programs

test-broker: $(READY) ## Only what needs a broker; PULSAR=4.0 for the older line
	KODOCTL_TEST_PULSAR=$(PULSAR) $(BIN)/pytest -q -n $(WORKERS) --dist loadfile --max-worker-restart=0 tests/broker tests/contract tests/scenarios

test-cluster: $(READY) ## What needs a broker, on three of them and three bookies; then the tests that end nodes, all of them
	KODOCTL_TEST_CLUSTER=1 $(BIN)/pytest -q --durations=20 -n $(WORKERS) --dist loadfile --max-worker-restart=0 tests/broker tests/contract tests/scenarios
	$(BIN)/pytest -q --durations=20 -m "full or not full" tests/clusters

soak-pipeline: $(READY) ## Memory, threads and files of `pipeline run --every` over RUNS=300 runs; fails over a bound (kodoctl dev up --use)
	$(BIN)/python benchmarks/pipeline/run.py --rounds $(RUNS)

simulate: $(READY) ## The consumer under simulated faults, SEEDS=20000 of them; a failing seed is printed
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) --processes $(WORKERS)

mutants: $(READY) ## Whether a test fails for each of the kept small changes of the product; report in benchmarks/mutants
	$(BIN)/python -m tests.mutants --processes $(WORKERS)

faults: $(READY) ## Applies killed at every step; consumers under real faults, for hours; KILLS=100 for a part; report in benchmarks/faults
	$(BIN)/pytest -q -s -m full tests/faults
	$(BIN)/python -m tests.faults --kills $(KILLS) --brokers $$(( ($(KILLS) + 49) / 50 ))

chaos: $(READY) ## Faults on a cluster under load, for MINUTES=240 or FAULTS=300; report in benchmarks/faults/cluster.md
	$(BIN)/python -m tests.chaos --minutes $(MINUTES) --faults $(FAULTS)

hostile: $(READY) ## Ten thousand hostile messages among honest ones, of a new seed each time
	$(BIN)/pytest -q -s -m full tests/faults/test_hostile.py

release-check: $(READY) ## Build wheels and sdists of both projects, judge their contents, install and use them, list their components; RESOLUTION=lowest-direct for the oldest releases allowed, TAG=v0.1.0 for a release of that tag
	@$(INSTALL) --require-hashes --no-deps -r requirements/release.txt
	$(BIN)/python -m tests.release --resolution $(or $(RESOLUTION),highest) --tag "$(TAG)"

native-sanitize: $(READY) ## The native border under AddressSanitizer and UndefinedBehaviorSanitizer: contract tests, hostile metadata
	$(BIN)/python -m tests.native.sanitized

native-leaks: $(READY) ## Memory by million over MESSAGES=10000000 messages through the native border, as deliveries and as batches; a long fuzz of metadata
	KODOCTL_TEST_MESSAGES=$(MESSAGES) $(BIN)/pytest -q -s tests/broker/test_native_messages_real.py tests/broker/test_source_batches.py -k memory
	KODOCTL_TEST_EXAMPLES=100000 $(BIN)/pytest -q --timeout 3600 tests/unit/consumer/adapters/pulsar/test_native_messages.py
	KODOCTL_TEST_EXAMPLES=20000 $(BIN)/pytest -q --timeout 3600 tests/unit/pipeline/source/test_native_batches.py

check: style house ## Style, types, architecture, generated files: seconds, before every commit

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python docs/generate.py --check

house: $(READY)
	$(BIN)/mypy & types=$$!; $(BIN)/pytest -q tests/architecture; house=$$?; wait $$types && exit $$house

docs: $(READY) ## Write docs/reference and schemas anew from the code
	$(BIN)/python docs/generate.py
	$(BIN)/kodoctl schema --out schemas/topology.v1.json
	$(BIN)/kodoctl schema rules --out schemas/kodoctl-rules.v1.json

site: ## The documentation as a site with search, in site/; SOURCE_URL=https://github.com/OWNER/NAME/blob/main for links to code
	@$(PYTHON) -m venv .venv-site && .venv-site/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps -r requirements/site.txt
	NO_MKDOCS_2_WARNING=1 SOURCE_URL="$(SOURCE_URL)" .venv-site/bin/mkdocs build --strict --quiet --site-dir site

demo: $(READY) ## The main job on a real broker, in one to two minutes; KEEP=1 audits it and keeps it until Ctrl-C, for `kodoctl ui`
	$(BIN)/python examples/demo/run.py $(if $(KEEP),--keep)

demo-pipeline: $(READY) ## Traffic with a noisy tenant, failures and a loss; every pipeline command; the report
	$(BIN)/python examples/demo/pipeline.py

bench: $(READY) ## Measure against what a user would pick instead (needs a broker: kodoctl dev up --use)
	$(BIN)/python -m benchmarks

bench-consumer: $(READY) ## Every bar of the consumer in ROUNDS=5 rounds, BESIDE=CHECKOUT, GO=BINARY; then the tables of benchmarks/consumer
	$(BIN)/python benchmarks/consumer/bars.py --rounds $(ROUNDS) $(if $(BESIDE),--beside $(BESIDE)) $(if $(GO),--go $(GO))
	$(BIN)/python benchmarks/consumer/bars.py --write

format: $(READY) ## Rewrite sources as the style asks
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lock: ## Resolve dependencies anew, with hashes and no index address; UPGRADE= keeps the versions that are locked
	$(call NEEDS,pyspark) | $(COMPILE) - --no-deps $(UPGRADE) -o requirements/spark.txt
	$(COMPILE) pyproject.toml $(UPGRADE) -o requirements/runtime.txt
	$(COMPILE) pyproject.toml $(UPGRADE) -c requirements/spark.txt --group dev $(EXTRAS:%=--extra %) --no-emit-package pyspark -o requirements/dev.txt
	$(call NEEDS,fastavro) | $(COMPILE) - --no-deps -c requirements/dev.txt $(UPGRADE) -o requirements/avro.txt
	set -e; for group in build audit release site full-unit; do $(COMPILE) --group $$group -c requirements/dev.txt -o requirements/$$group.txt; done

clean: ## Remove what the targets made
	rm -rf $(VENV) $(VENV)-spark .venv-site site build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage .coverage.* htmlcov
