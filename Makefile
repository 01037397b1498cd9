# What a developer runs; `make` alone lists it. Needs Python 3.11 or later and nothing else.

PYTHON ?= python3
JOBS   ?= 2
ARGS   ?=
SEED   ?= 0

VENV  := .venv
PY    := $(VENV)/bin/python
READY := $(VENV)/.ready
EXTRAS := $(VENV)/.extras
CLANG_FORMAT := $(PY) -c 'from clang_format import clang_format; clang_format()'
C_FILES := $(wildcard src/vbdrop/kernels/source/*.[ch])

.DEFAULT_GOAL := help
.PHONY: help install check test test-integrations stress format demo bench docs clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  PYTHON=python3.11 chooses the interpreter, JOBS=2 the test processes,"
	@echo "  ARGS=\"tests/data -k balanced\" what pytest runs (all by default),"
	@echo "  SEED=7 the seed of the tests that train and assert on the outcome (ARGS=\"-m trained\" runs only these)."

install: $(READY) ## create the virtual environment .venv with exactly the versions of constraints.txt

$(READY): pyproject.toml constraints.txt
	@"$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "make: $(PYTHON) is older than 3.11; set PYTHON=..." >&2; exit 1; }
	@echo "==> installing into $(VENV) (once; a minute or two)"
	@"$(PYTHON)" -m venv $(VENV)
	@$(PY) -m pip install -qq --no-compile --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

check: $(READY) ## check lint, formatting and types, without the tests
	@echo "==> ruff check"
	@$(PY) -m ruff check --quiet
	@echo "==> ruff format"
	@$(PY) -m ruff format --quiet --check
	@echo "==> clang-format"
	@$(CLANG_FORMAT) --dry-run --Werror $(C_FILES)
	@echo "==> mypy"
	@$(PY) -m mypy --no-error-summary

# One thread a process: the test processes share the cores. `worksteal` keeps the tests of a file together
# (so that what a module's fixture trained is trained once) until a process runs out of work.
test: check ## run everything a change must pass: check, all tests, all examples in docstrings and docs
	@echo "==> pytest"
	@VBDROP_TEST_SEED=$(SEED) OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) --dist worksteal $(ARGS)

$(EXTRAS): $(READY)
	@echo "==> installing the trainers into $(VENV) (once; a minute or two)"
	@$(PY) -m pip install -qq --disable-pip-version-check -c constraints.txt -e '.[lightning,transformers,skorch,ray]'
	@touch $@

test-integrations: $(EXTRAS) ## install the trainers of other packages, and run the tests that need them
	@VBDROP_EXTRAS=all HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(PY) -m pytest -q -n $(JOBS) --dist worksteal \
		tests/integrations --ignore tests/integrations/test_distributed.py \
		--ignore tests/integrations/test_sharded.py src/vbdrop/integrations tests/examples/test_lightning_digits.py \
		tests/examples/test_hugging_face_text.py \
		"tests/test_readme.py::test_the_python_of_a_page_runs[docs/lightning.md]" \
		"tests/test_readme.py::test_the_python_of_a_page_runs[docs/hugging-face.md]" $(ARGS)

stress: $(EXTRAS) ## run all random cases, of which `make test` runs a seeded sample, and what takes minutes
	@VBDROP_STRESS=1 VBDROP_EXTRAS=all HF_HUB_OFFLINE=1 OMP_NUM_THREADS=1 $(PY) -m pytest -q -m stress -n $(JOBS) --dist worksteal $(ARGS)

format: $(READY) ## format the code, and fix what lint can fix
	@$(PY) -m ruff check --fix
	@$(PY) -m ruff format
	@$(CLANG_FORMAT) -i $(C_FILES)

demo: $(READY) ## see it work on the digits that come with the package: train, compress, export, measure
	@$(VENV)/bin/vbdrop demo $(ARGS)

bench: $(READY) ## measure the training step of a converted network against the plain one
	@$(PY) -m benchmarks.step $(ARGS)

docs: $(READY) ## build the documentation in site/, and the README's results from the records
	@$(PY) -m tools.results
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --quiet --strict
	@echo "open site/index.html"

clean: ## remove the environment, caches and build products
	@rm -rf $(VENV) build dist site .mypy_cache .ruff_cache .pytest_cache .hypothesis src/*.egg-info
	@find src tests benchmarks examples tools -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
