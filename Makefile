# `make demo` and `make test` need python3 and make, nothing else: each prepares .venv the first time.
# The *-gpu targets install nothing: they run in the Python that a GPU machine already has ($(PYTHON)).

PYTHON ?= python3
VENV   ?= .venv
ARGS   ?=
PYTEST_WORKERS ?= 2
FRAMES ?= 10000000
SECONDS ?= 3600
PROCESSES ?= 2
BOUNDS ?= .venv-bounds
MKL    ?= .venv-mkl
SUPPLY ?= .venv-supply
IMAGE  ?= telegrad-server

PY          := $(VENV)/bin/python
TREE        := $(CURDIR)/client:$(CURDIR)
INHERITED   := $(if $(PYTHONPATH),:$(PYTHONPATH))
IN_TREE     := PYTHONPATH=$(TREE)$(INHERITED)
# NumPy's and PyTorch's thread pools fight over the cores with the test processes.
ONE_THREAD  := OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1
# Each process takes half of the tests, in order, so that few servers are started twice; who is done takes from the rest.
SPREAD       = -n $(PYTEST_WORKERS) --dist worksteal
# Tests start hundreds of processes: they read bytecode, also where the shell forbids to write it.
FOR_TESTS   := $(ONE_THREAD) PYTHONDONTWRITEBYTECODE=

.DEFAULT_GOAL := help
.PHONY: help demo test test-full test-bounds test-mkl test-gpu check check-types check-layers check-pages check-kernels fuzz soak opinfo opinfo-shapes opinfo-vmap surface lint format serve bench bench-gpu docs check-manifests lock audit sbom image scan base clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

demo: $(VENV)/.demo ## train on handwritten digits through a local server
	$(PY) examples/digits.py $(ARGS)

test: $(VENV)/.dev ## run the tests that need no GPU
	$(IN_TREE) $(PY) -m server.engine.compiled 2  # once, so that no test has to
	$(FOR_TESTS) $(PY) -m pytest -q $(SPREAD) -m "not slow and not gpu" $(ARGS)

test-full: $(VENV)/.dev ## also run fuzzing, soak, full operator sweeps and the cases that test draws from
	$(FOR_TESTS) $(PY) -m pytest -q $(SPREAD) -m "not gpu" $(ARGS)

test-bounds: ## run the tests of processes and wire with the lowest versions that pyproject.toml admits
	$(PYTHON) -m venv --clear $(BOUNDS)
	PYTHONPATH= $(PYTHON) tests/structure/lowest_versions.py > $(BOUNDS)/requirements.txt
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(BOUNDS)/bin/pip install -qq -r $(BOUNDS)/requirements.txt
	$(IN_TREE) $(FOR_TESTS) $(BOUNDS)/bin/python -m pytest -q $(SPREAD) -p no:cacheprovider \
		-m "not slow and not gpu" tests/gateway tests/transport tests/observability/test_traces.py tests/end_to_end/test_clients.py $(ARGS)

test-mkl: ## run the tests of linear algebra and Fourier transforms with Intel MKL
	$(PYTHON) -m venv --clear $(MKL)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(MKL)/bin/pip install -qq -e client -e '.[dev,mkl]'
	$(FOR_TESTS) $(MKL)/bin/python -m pytest -q -p no:cacheprovider tests/ops/test_host_libraries.py \
		tests/ops/test_fft.py tests/ops/test_stft.py tests/ops/test_lapack.py tests/ops/test_linalg_edges.py \
		tests/ops/test_matrices.py -m "not gpu" $(ARGS)

test-gpu: ## run the tests that need a GPU, in this machine's own Python
	$(IN_TREE) $(FOR_TESTS) $(PYTHON) -m pytest -q -m gpu -p no:benchmark $(ARGS)

check: lint check-types check-layers check-pages check-kernels ## lint, types, import layers, generated docs and CUDA texts

check-types: $(VENV)/.dev ## types, by mypy
	$(VENV)/bin/mypy

check-layers: $(VENV)/.dev ## layers of imports
	$(VENV)/bin/lint-imports

check-pages: $(VENV)/.dev ## whether generated pages are as the code has them
	$(PY) docs/generate.py --check

check-kernels: $(VENV)/.dev ## compile every CUDA text with NVRTC, without a GPU (ARGS="--only reduce.ptp")
	$(PY) -m server.engine.cuda.check $(ARGS)

fuzz: $(VENV)/.dev ## send 10,000,000 mutated frames, continuing in build/fuzz (FRAMES=, SECONDS=, PROCESSES=)
	$(ONE_THREAD) $(PY) -m tests.fuzz --frames $(FRAMES) --seconds $(SECONDS) --processes $(PROCESSES) $(ARGS)

soak: $(VENV)/.dev ## an hour of clients that come, fail and are killed; nothing may grow (SECONDS=)
	$(ONE_THREAD) $(PY) -m tests.soak --seconds $(SECONDS) $(ARGS)

opinfo: $(VENV)/.dev ## PyTorch's operator database through a client and a server (ARGS="--only linalg -v")
	$(IN_TREE) $(ONE_THREAD) $(PY) -m conformance.opinfo $(ARGS)

opinfo-shapes: $(VENV)/.dev ## PyTorch's operator database on the meta device, without a server (ARGS="--only linalg -v")
	$(IN_TREE) $(ONE_THREAD) $(PY) -m conformance.shapes $(ARGS)

opinfo-vmap: $(VENV)/.dev ## PyTorch's operator database under vmap, against one element after another (ARGS="--only conv -v")
	$(IN_TREE) $(ONE_THREAD) $(PY) -m conformance.batches $(ARGS)

surface: $(VENV)/.dev ## PyTorch's documented names and their signatures (ARGS="-v --only nn")
	$(IN_TREE) $(PY) -m conformance.surface $(ARGS)

lint: $(VENV)/.dev ## style, changing nothing
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

format: $(VENV)/.dev ## rewrite what ruff can
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

serve: $(VENV)/.demo ## start a server here (TELEGRAD_* variables configure it)
	$(PY) -m server $(ARGS)

bench: $(VENV)/.dev ## benchmarks on the CPU beside their baselines
	$(PY) -m benchmarks $(ARGS)

bench-gpu: ## benchmarks on the GPU, in this machine's own Python
	$(IN_TREE) $(PYTHON) -m benchmarks --device cuda $(ARGS)

docs: $(VENV)/.demo ## write the generated tables of docs/ anew
	$(PY) docs/generate.py

check-manifests: $(SUPPLY)/.done ## the Kubernetes manifests against Kubernetes' own schemas
	$(SUPPLY)/bin/kubernetes-validate --strict deploy/kubernetes/*.yaml

lock: $(SUPPLY)/.done ## write the lock files of the image anew (ARGS=--upgrade takes newer versions)
	$(SUPPLY)/bin/python deploy/lock.py --uv $(SUPPLY)/bin/uv $(ARGS)

audit: $(SUPPLY)/.done ## ask PyPI for known vulnerabilities of what the lock files name
	for lock in deploy/*.lock; do $(SUPPLY)/bin/pip-audit --disable-pip --require-hashes -r $$lock $(ARGS) || exit 1; done

sbom: $(SUPPLY)/.done ## write what the images consist of, as CycloneDX, beside the lock files (needs no network)
	for lock in deploy/requirements-c*.lock; do $(SUPPLY)/bin/cyclonedx-py requirements --pyproject pyproject.toml \
		--output-reproducible -o $${lock%.lock}.cdx.json $$lock || exit 1; done

image: ## build the image (needs docker)
	docker build -f deploy/Dockerfile -t $(IMAGE) $(ARGS) .

scan: ## search the image for known vulnerabilities with trivy, or grype (needs docker and one of them)
	@if command -v trivy >/dev/null; then trivy image --exit-code 1 --ignore-unfixed --severity HIGH,CRITICAL $(ARGS) $(IMAGE); \
	elif command -v grype >/dev/null; then grype --only-fixed --fail-on high $(ARGS) $(IMAGE); \
	else echo "make scan: install trivy (https://trivy.dev) or grype (https://github.com/anchore/grype)" >&2; exit 1; fi

base: ## print the digest that the tag of the base image has now (needs docker)
	docker buildx imagetools inspect --format '{{.Manifest.Digest}}' $$(sed -n 's/^ARG BASE=\(.*\)@.*/\1/p' deploy/Dockerfile)

clean: ## remove .venv and caches
	rm -rf $(VENV) $(BOUNDS) $(MKL) $(SUPPLY) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache

# $(call install,EXTRA): .venv if it is missing or half made, then both distributions in place
define install
@$(PY) -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	{ echo "make: '$(PYTHON) -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 1; }
@echo "installing telegrad[$(1)] into $(VENV) (once)"
@PIP_DISABLE_PIP_VERSION_CHECK=1 $(PY) -m pip install -qq -e client -e '.[$(1)]'
endef

$(VENV)/.demo: pyproject.toml client/pyproject.toml
	$(call install,demo)
	@touch $@

$(VENV)/.dev: pyproject.toml client/pyproject.toml
	$(call install,dev)
	@touch $(VENV)/.demo $@

# Tools that look at what is supplied: none of them is needed to run, test or change telegrad.
$(SUPPLY)/.done: deploy/requirements-supply.txt
	$(PYTHON) -m venv --clear $(SUPPLY)
	PIP_DISABLE_PIP_VERSION_CHECK=1 $(SUPPLY)/bin/pip install -qq --no-compile -r $<
	@touch $@
