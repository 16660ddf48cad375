# `make` alone prints the targets. Every target is a thin wrapper: the commands can be run by hand.

VENV ?= .venv
PYTHON = $(VENV)/bin/python
EXTRAS = spark,s3,delta,fast,cli,metrics,ui,otel,kafka,plot,sql,demo,test,bench,docs,dev
INSTALLED = $(VENV)/.installed
# Spark's classes as the tests' JVMs map them: made once, in half a minute, it spares minutes.
CLASSES = $(VENV)/spark-classes.jsa

# Where `make demo` keeps its log: a folder, or s3://bucket/prefix with the usual AWS_* variables.
ROOT ?= ./demo-data
# Processes for the tests: twice as many as cores, as those with Spark and S3 servers mostly wait.
WORKERS ?= $(shell echo $$((2 * $$(nproc))))
# Those of `make test-fast` wait less: one process more than there are cores.
FAST_WORKERS ?= $(shell echo $$((1 + $$(nproc))))
# The first seed of the simulated worlds, to repeat a run; by default each day has its own.
FIRST_SEED ?=
# Seeds of each scenario, or minutes, and processes for `make sim`; minutes for `make soak`.
SEEDS ?=
MINUTES ?=
SIM_WORKERS ?= 2
# Of 100 examples that a property test draws, so many in `make test`: each run draws others.
EXAMPLES ?= 30
# Modules for `make mutants`, by the names that `python -m tests.mutation --help` lists; none: all.
MODULES ?=
# Records of `make system-test`, and its store: disk, s3, proxy or far.
RECORDS ?= 100000
STORE ?= disk
# tests/schedule.py says which tests stay together, and in what order they are handed out.
SHARED = --no-loadscope-reorder \
  $(if $(FIRST_SEED),--first-seed $(FIRST_SEED))
# The first seed of this night, far from those of the day's tests.
NIGHT = $(shell echo $$(($$(date -u +%s) / 86400 % 1000 * 100000 + 50000)))
# A module of the product for `make where`.
MODULE ?=
# The Python of `make test-newest`, and where its environment is.
NEWEST ?= python3.13
NEWEST_VENV = .venv-newest
# More arguments for pytest or the demo, for example ARGS="-k fenced" or ARGS=--fresh.
ARGS ?=

export PIP_DISABLE_PIP_VERSION_CHECK = 1
# Tests start hundreds of processes: without bytecode each of them would compile the project anew.
unexport PYTHONDONTWRITEBYTECODE
# numpy starts a thread for each core otherwise, in each of them.
export OPENBLAS_NUM_THREADS ?= 1
# Spark's settings and log levels; a folder of your own takes precedence.
export SPARK_CONF_DIR ?= $(CURDIR)/conf
# Spark starts its Python workers with this one, so that they find what is installed in it.
export PYSPARK_PYTHON = $(abspath $(PYTHON))

comma = ,

.DEFAULT_GOAL = help
.PHONY: help install servers java demo delivery test test-fast cluster kafka differential sim system-test soak check format
.PHONY: style types layers tidy bench clean mutants nightly test-all test-newest where release lock docs

help:
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nROOT=%s  VENV=%s  WORKERS=%s  ARGS=%s\n' \
	  '$(ROOT)' '$(VENV)' '$(WORKERS)' '$(ARGS)'

##@ Use it

demo: install java ## Run the exactly-once stream over the flights, with kills, and prove it (ROOT=)
	$(PYTHON) -m examples.demo --root "$(ROOT)" $(ARGS)

delivery: install ## At most once, at least once and exactly once side by side, killed alike
	$(PYTHON) -m examples.income.delivery $(ARGS)

##@ Set up

install: $(INSTALLED) ## Make the virtual environment; done again only when its requirements change

# Editable, so that tests and jobs run what is in this folder. setup.cfg says why Spark still finds
# pyspark_txlog, which it would not after an editable install of setuptools' default kind.
# Versions and hashes come from requirements.lock, so that each machine has what was tested.
$(INSTALLED): setup.cfg pyproject.toml requirements.lock
	@$(require_python); test -x $(PYTHON) || $$found -m venv $(VENV) || { rm -rf $(VENV); \
	  echo "The venv module does not work: on Debian or Ubuntu, apt install python3-venv." >&2; \
	  exit 1; }
	@echo "Installing into $(VENV); the first time this downloads about 600 MB."
	@$(PYTHON) -m pip install --quiet --upgrade pip
	@$(leave_former_name)
	@$(PYTHON) -m pip install --require-hashes --requirement requirements.lock \
	  >$(VENV)/install.log 2>&1 || { cat $(VENV)/install.log >&2; exit 1; }
	@$(PYTHON) -m pip install --quiet --no-deps --no-build-isolation --editable .
	@echo "Done; what pip said is in $(VENV)/install.log."
	@rm -f $@ && touch $@ # A new file: copies of an environment may share this one.

# An environment from before the distribution was renamed: two would claim the package `txlog`.
define leave_former_name
$(PYTHON) -m pip uninstall -qq --yes txlog; rm -rf txlog.egg-info
endef

# Sets $found to the first Python that is new enough.
define require_python
for found in $(PYTHON) python3.11 python3 ""; do \
  test -n "$$found" || { echo "txlog needs Python 3.11 or newer; install it and try again." >&2; \
    exit 1; }; \
  $$found -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && break; \
done
endef

# For tests marked `extra`: Azure's emulator, the newest that Node 20 runs, whose packages run no
# scripts of theirs when they are installed; an S3 server that checks signatures and dates; one that
# answers as Google's; HDFS and Google's connector, by Spark's own client of Maven; and a browser.
servers: .servers/.installed .servers/.browser .servers/bin/versitygw .servers/bin/fake-gcs-server .servers/jars/.installed

.servers/bin/versitygw: MODULE_OF_GO = github.com/versity/versitygw/cmd/versitygw@v1.8.0
.servers/bin/fake-gcs-server: MODULE_OF_GO = github.com/fsouza/fake-gcs-server@v1.56.1
.servers/bin/versitygw .servers/bin/fake-gcs-server:
	@go version >/dev/null || { echo "The extra tests need Go; install it and try again." >&2; exit 1; }
	GOBIN="$(CURDIR)/.servers/bin" go install -trimpath -ldflags="-s -w" $(MODULE_OF_GO)

.servers/.installed: Makefile
	@node -e 'process.exit(Number(parseInt(process.versions.node) < 20))' || { \
	  echo "The extra tests need Node.js 20 or newer; install it and try again." >&2; exit 1; }
	npm install --silent --prefix .servers --ignore-scripts --no-audit --no-fund azurite@3.35.0
	@touch $@

.servers/.browser: $(INSTALLED)
	$(PYTHON) -m pip install --quiet playwright==1.65.2
	@command -v chromium >/dev/null || { apt-get update -qq && \
	  apt-get install -qq --no-install-recommends chromium fonts-dejavu-core >/dev/null; } || { \
	  echo "The extra tests need Chromium; install it and try again." >&2; exit 1; }
	@mkdir -p .servers && touch $@

.servers/jars/.installed: tests/spark/servers.ivy.xml $(INSTALLED)
	@jars=$$($(PYTHON) -c 'import pyspark; print(pyspark.__path__[0])')/jars; \
	"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -cp "$$jars/*" org.apache.ivy.Main -warn -types jar \
	  -ivy $< -retrieve "$(CURDIR)/.servers/jars/[artifact].[ext]"
	@touch $@

.servers/kafka/.installed: tests/kafka/kafka.ivy.xml $(INSTALLED)
	@jars=$$($(PYTHON) -c 'import pyspark; print(pyspark.__path__[0])')/jars; \
	"$${JAVA_HOME:+$$JAVA_HOME/bin/}java" -cp "$$jars/*" org.apache.ivy.Main -warn -types jar bundle \
	  -ivy $< -retrieve "$(CURDIR)/.servers/kafka/[conf]/[artifact].[ext]"
	@touch $@

java:
	@java=$${JAVA_HOME:+$$JAVA_HOME/bin/}java; \
	version=$$("$$java" -version 2>&1 | sed -n 's/.* version "\([0-9]*\).*/\1/p'); \
	test "$${version:-0}" -ge 17 || { \
	  echo "Spark 4 needs Java 17 or newer; '$$java' is $${version:-not there}." \
	    "Install a JDK, or set JAVA_HOME to one." >&2; exit 1; }

##@ Test

# Layers, sizes and types are among the tests.
test: install java $(CLASSES) style ## All checks and all tests but the extra ones: what CI runs
	EXAMPLES_PERCENT=$(EXAMPLES) $(PYTHON) -m pytest -m "not extra" -n $(WORKERS) $(SHARED) $(ARGS)

test-all: install java servers .servers/kafka/.installed $(CLASSES) style ## The extra ones, too: longer, on more servers, each planted bug
	$(PYTHON) -m pytest -n $(WORKERS) $(SHARED) $(ARGS)

kafka: install java .servers/kafka/.installed ## Kafka's own programs and Spark's connector on `txlog kafka`
	$(PYTHON) -m pytest -n0 -m kafka $(ARGS) tests/kafka

differential: install java .servers/kafka/.installed ## Random histories on a broker of Kafka and on `txlog kafka` (SEEDS=, MINUTES=)
	$(PYTHON) -m tests.kafka.differential $(if $(SEEDS),--histories $(SEEDS)) \
	  $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

cluster: install java $(CLASSES) ## The tests on a standalone Spark cluster; prints what each kill cost
	$(PYTHON) -m pytest -n0 -s -m cluster $(ARGS) tests/cluster

$(CLASSES): $(INSTALLED)
	@echo "Making an archive of Spark's classes, from which the tests start Spark."
	@$(PYTHON) -m tests.spark.class_archive >$@.log 2>&1 || touch $@

test-fast: install ## The tests that take seconds and start neither a JVM nor an S3 server
	EXAMPLES_PERCENT=20 $(PYTHON) -m pytest -n $(FAST_WORKERS) \
	  -m "not spark and not s3 and not slow and not extra" $(SHARED) $(ARGS)

test-newest: ## The same on another Python, in an environment of its own (NEWEST=python3.13)
	@test -x $(NEWEST_VENV)/bin/python || $(NEWEST) -m venv $(NEWEST_VENV)
	$(MAKE) install VENV=$(NEWEST_VENV)
	EXAMPLES_PERCENT=20 $(NEWEST_VENV)/bin/python -m pytest -n auto \
	  -m "not spark and not s3 and not slow and not extra and not bytecode" $(SHARED) $(ARGS)

nightly: install ## 10,000 simulated worlds that no other night has, an hour at most (MINUTES=)
	$(PYTHON) -m tests.simulation --workers $(SIM_WORKERS) --seeds 371 \
	  --minutes $(or $(MINUTES),60) --first $(NIGHT) $(ARGS)

sim: install ## Simulated worlds with faults, seed after seed (SEEDS=, MINUTES=)
	$(PYTHON) -m tests.simulation --workers $(SIM_WORKERS) \
	  $(if $(SEEDS),--seeds $(SEEDS)) $(if $(MINUTES),--minutes $(MINUTES)) $(ARGS)

where: ## The tests of a module (MODULE=txlog/topic/read/cut.py)
	@$(PYTHON) -m tests.where $(MODULE)

mutants: install ## Change the code line by line and count what the fast tests notice (MODULES=)
	$(PYTHON) -m tests.mutation $(ARGS) $(MODULES)

system-test: install ## Kafka's system test: copiers killed, stopped, replaced (RECORDS=, STORE=)
	$(PYTHON) -m tests.system_test --records $(RECORDS) --store $(STORE) $(ARGS)

soak: install ## 16 producers, 4 copiers, 4 readers on one log for MINUTES (10)
	$(PYTHON) -m tests.soak --minutes $(or $(MINUTES),10) $(ARGS)

bench: install java ## Measure, beside Spark's own floor and Delta (ARGS=far: on a far store)
	$(PYTHON) -m benchmarks $(ARGS)

##@ Quality

check: style types layers tidy ## Every check that runs no test of behaviour

format: install ## Format the sources and mend what can be mended by rule
	$(PYTHON) -m ruff format .
	$(PYTHON) -m ruff check --fix .

style: install ## Format and lint rules (ruff)
	$(PYTHON) -m ruff format --check .
	$(PYTHON) -m ruff check .

types: install ## Type check (mypy --strict)
	$(PYTHON) -m mypy

layers: install ## Imports go one way (import-linter)
	$(VENV)/bin/lint-imports

tidy: install ## Sizes, docstrings, dead modules; prints the figures
	$(PYTHON) -m pytest -q -s tests/test_tidy.py

##@ Release

docs: install ## Build the documentation site with its search, in build/docs
	$(PYTHON) docs/site/build.py

release: install ## Build the source distribution and the wheel, and try each in an empty environment
	rm -rf dist
	$(PYTHON) -m build --outdir dist .
	$(PYTHON) -m tests.packaging.try_release dist

lock: ## Write requirements.lock anew: the newest versions that setup.cfg allows, with their hashes
	$(PYTHON) -m uv pip compile --quiet --upgrade --universal --python-version 3.11 \
	  --generate-hashes --no-emit-index-url --no-annotate --no-header --output-file requirements.lock \
	  $(foreach extra,$(subst $(comma), ,$(EXTRAS)),--extra $(extra)) setup.cfg

clean: ## Remove the environment, caches and demo data; logs of yours are not touched
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache demo-data income-data income-checkpoint spark-warehouse metastore_db derby.log
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
