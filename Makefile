# What to run. Every target sets up the virtual environment it needs, once, and says what it does.

PYTHON ?= python3
VENV ?= .venv
OLDEST ?= .venv-oldest
SPARK ?= .venv-spark
OLDEST_DUCKDB ?= 1.4.0
OUT ?= demo-output

# Test processes: each file is run by one of them.
WORKERS ?= 2
PYTEST = pytest -q -n $(WORKERS) --dist loadfile

# Each test process has a core, and linear algebra no threads beside it: those of two processes would wait for one another.
test test-slow test-spark: export OPENBLAS_NUM_THREADS ?= 1

# -qq: pip's harmless warnings stay out of the way, its errors do not.
INSTALL = -m pip install -qq --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help demo test test-slow test-spark lint docs notebooks bench clean
.DELETE_ON_ERROR:

help:
	@echo "make demo    differentially private marginals of the UCI Adult data, in SQL"
	@echo "make test    a few cases of each test that is fast"
	@echo "make test-slow  all other cases, and many of the SQL surface with the oldest DuckDB"
	@echo "make test-spark  tests of tables in Spark, on a local one; needs Java 17"
	@echo "make lint    ruff (rules and format) and mypy (strict)"
	@echo "make docs    the documentation as a site, in site/"
	@echo "make notebooks  run the notebooks and keep their outputs"
	@echo "make bench   benchmarks, as ratios measured in one run"
	@echo "make clean   remove what these made"
	@echo
	@echo "Another interpreter: make PYTHON=python3.12 demo"

demo: $(if $(wildcard $(VENV)/.dev),$(VENV)/.dev,$(VENV)/.demo)
	@$(VENV)/bin/duckdb-dp demo --out $(OUT)

# Rewritten assertions are kept for the next run.
test: $(VENV)/.dev
	@echo "Testing with $$($(VENV)/bin/python -c 'import duckdb; print("DuckDB", duckdb.__version__)')"
	@PYTHONDONTWRITEBYTECODE= $(VENV)/bin/$(PYTEST) -m "not slow"

test-slow: $(VENV)/.dev $(OLDEST)/.dev
	@echo "Testing with $$($(VENV)/bin/python -c 'import duckdb; print("DuckDB", duckdb.__version__)')"
	@PYTHONDONTWRITEBYTECODE= $(VENV)/bin/$(PYTEST) -m slow
	@echo "Testing the SQL surface with $$($(OLDEST)/bin/python -c 'import duckdb; print("DuckDB", duckdb.__version__)')"
	@PYTHONDONTWRITEBYTECODE= $(OLDEST)/bin/$(PYTEST) tests/sql -m "not slow" --more 4

# Whatever is missing is an error here, where other runs leave these tests out.
test-spark: $(SPARK)/.spark
	@echo "Testing with $$($(SPARK)/bin/python -c 'import pyspark; print("Spark", pyspark.__version__)')"
	@DUCKDB_DP_SPARK=required $(SPARK)/bin/pytest -q -m spark tests/engines

lint: $(VENV)/.dev
	@echo "Checking rules, format and types"
	@$(VENV)/bin/ruff check --quiet
	@$(VENV)/bin/ruff format --check --quiet
	@$(VENV)/bin/mypy --no-error-summary
	@echo "No complaints"

docs: $(VENV)/.dev
	@NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --quiet
	@echo "Open site/index.html"

notebooks: $(VENV)/.dev
	@$(VENV)/bin/python notebooks/run.py

bench: $(VENV)/.dev
	@echo "Running the benchmarks"
	@PYTHONPATH=benchmarks:benchmarks/accuracy $(VENV)/bin/pytest -q -s benchmarks --benchmark-only
	@$(VENV)/bin/python benchmarks/accuracy/query_smasher.py
	@$(VENV)/bin/python benchmarks/accuracy/relational.py --data movielens --methods auto --seeds 5
	@$(VENV)/bin/python benchmarks/accuracy/relational_scale.py --rows 1000000

clean:
	rm -rf $(VENV) $(OLDEST) $(SPARK) $(OUT) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks

# Virtual environments, made again when the requirements change

$(VENV)/.demo: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing duckdb_dp into $(VENV), which takes a minute"
	@$(VENV)/bin/python $(INSTALL) -c constraints.txt -e '.[plot]'
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "Installing duckdb_dp and what its tests need into $(VENV), which takes a minute"
	@$(VENV)/bin/python $(INSTALL) -c constraints.txt -e '.[dev]'
	@touch $@

# An environment of its own: what else finds Spark installed wants more of it.
$(SPARK)/.spark: pyproject.toml constraints.txt | $(SPARK)/bin/python
	@echo "Installing duckdb_dp and Spark into $(SPARK), which takes a minute"
	@$(SPARK)/bin/python $(INSTALL) -c constraints.txt -e '.[test,spark]'
	@touch $@

$(OLDEST)/.dev: pyproject.toml constraints.txt | $(OLDEST)/bin/python
	@echo "Installing duckdb_dp with DuckDB $(OLDEST_DUCKDB) into $(OLDEST), which takes a minute"
	@grep -v '^duckdb==' constraints.txt > $(OLDEST)/constraints.txt
	@$(OLDEST)/bin/python $(INSTALL) -c $(OLDEST)/constraints.txt -e '.[test]' 'duckdb==$(OLDEST_DUCKDB)'
	@touch $@

%/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
		echo "duckdb_dp needs Python 3.11 or newer; '$(PYTHON)' is: $$($(PYTHON) --version 2>&1)"; \
		echo "Name another one: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "Making the virtual environment $* with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $*
	@echo '*' > $*/.gitignore
