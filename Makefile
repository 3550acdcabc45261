# `make help` lists the targets. Everything installs into .venv; only Python 3.11+ and make are needed.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ROWS ?= 2000000
S3A_JARS := .cache/s3a-jars

.DEFAULT_GOAL := help
.PHONY: help install demo test test-all test-faults fuzz test-s3a lint format bench-quick bench-peers bench-plot bench-joins bench-counts bench-nodes bench-stores bench-tpch bench-choices bench-service soak bench-text bench-spark bench-write \
  bench-backfill bench-scale-simulation console screenshots s3a-jars lock clean

help:  ## Show this list
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*##/\t/' | expand -t 24

install: $(VENV)/.installed  ## Install Needlepoint and its tools into .venv, versions pinned with hashes

$(VENV)/.installed: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Needlepoint needs Python 3.11 or later; this is " + sys.version.split()[0] + ". Set PYTHON=python3.x") if sys.version_info < (3, 11) else None'
	@echo "installing into $(VENV) (once; a few minutes on a slow network)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --editable .
	@touch $@

demo: install  ## Spark writes a lake, it is indexed, and questions are asked with and without the index (ROWS=2000000)
	@$(BIN)/needle demo --rows $(ROWS)

test: install lint  ## Run all checks and tests (what CI runs), in three processes
	$(BIN)/python -m pytest -n 3 --dist loadgroup --no-loadscope-reorder

test-all: install lint  ## The same with the long tests: all combinations, thousands of property cases
	NEEDLE_TEST_PROFILE=thorough $(BIN)/python -m pytest -n 2 --dist loadgroup --no-loadscope-reorder -m "" --timeout 3600

test-faults: install  ## A kill at every point of every change over every store; faults at POINTS=5 pieces of each, or at `all` (SEED= repeats)
	NEEDLE_TEST_PROFILE=thorough NEEDLE_TEST_POINTS=all $(BIN)/python -m pytest -n 2 -m "" -l --timeout 7200 \
	  tests/integration/test_faults.py -k "killed_between"
	NEEDLE_TEST_PROFILE=thorough NEEDLE_TEST_POINTS=$(or $(POINTS),5) NEEDLE_TEST_SEED=$(SEED) \
	  $(BIN)/python -m pytest -n 2 -m "" -l --timeout 36000 tests/integration/test_faults.py -k "not killed_between"

fuzz: install  ## Random whole queries, mutated files and killed writers with new seeds (MINUTES=10; SEED= repeats)
	$(BIN)/python -m tests.fuzz --minutes $(or $(MINUTES),10) $(if $(SEED),--seed $(SEED))

s3a-jars: $(S3A_JARS)/.fetched  ## hadoop-aws for the test of s3a, from a source archive on PyPI (180 MB)

$(S3A_JARS)/.fetched: | $(VENV)/.installed
	@mkdir -p $(S3A_JARS)
	@$(BIN)/python -m pip download --quiet --disable-pip-version-check --no-deps --no-binary :all: \
	  --dest $(S3A_JARS) "sagemaker-pyspark==1.4.5"
	@tar xzf $(S3A_JARS)/sagemaker_pyspark-1.4.5.tar.gz --strip-components=3 -C $(S3A_JARS) \
	  sagemaker_pyspark-1.4.5/deps/jars/hadoop-aws-3.3.1.jar sagemaker_pyspark-1.4.5/deps/jars/aws-java-sdk-bundle-1.11.901.jar
	@rm $(S3A_JARS)/sagemaker_pyspark-1.4.5.tar.gz
	@touch $@

test-s3a: s3a-jars  ## The test of s3a, which `make test` passes over
	NEEDLE_TEST_S3A_JARS=$(abspath $(S3A_JARS)) $(BIN)/python -m pytest tests/integration/test_s3a.py

lint: install  ## ruff, mypy and the import contract
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: install  ## Format the code
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench-quick: install  ## Lookups on 10M rows against DataFusion's scan, as ratios (BENCH_ROWS=10000000)
	$(BIN)/python benchmarks/quick.py

bench-peers: install  ## Lookups, ranges and an aggregate beside DataFusion, DuckDB, Polars and Lance (BENCH_ROWS=10000000)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pylance==14.0.2"
	$(BIN)/python benchmarks/peers.py --runs $(or $(RUNS),2) --json bench-lake/peers.json

bench-plot: install  ## The figures of the last bench-peers as a picture, docs/images/peers.svg
	$(BIN)/python benchmarks/plot.py bench-lake/peers.json docs/images/peers.svg

bench-joins: install  ## Joins with few keys and first rows of an order beside DataFusion and DuckDB (BENCH_ROWS=5000000)
	$(BIN)/python benchmarks/joins.py

bench-counts: install  ## Counts, extremes and groups from indexes beside DataFusion and DuckDB (BENCH_ROWS=1000000)
	$(BIN)/python benchmarks/counts.py

bench-tpch: install  ## The 22 queries of TPC-H beside DataFusion and DuckDB, answers compared (BENCH_SCALE=1)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "tpchgen-cli==4.0.0"
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python benchmarks/tpch

bench-choices: install  ## How far the cost model is from the best choice: 100 queries on five layouts (ours, pyarrow, Spark, DuckDB, snappy)
	$(BIN)/python benchmarks/choices.py

bench-service: install  ## Lookups over HTTP by 1 to 64 clients, beside ROAPI and calls in one process (BENCH_ROWS=1000000)
	$(BIN)/python -m pip install --quiet roapi
	$(BIN)/python benchmarks/service.py

soak: install  ## Ten minutes of mixed requests, writes and cancelled queries: memory stays flat, answers are right (MINUTES=10)
	$(BIN)/python benchmarks/soak.py --minutes $(or $(MINUTES),10)

bench-text: install  ## LIKE on 10M titles beside DataFusion, DuckDB and Lance, index size and build rate (BENCH_ROWS=10000000)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check "pylance==14.0.2" "tpchgen-cli==4.0.0"
	PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python benchmarks/text.py

bench-spark: install  ## Spark through the index beside plain Spark over the same lake (BENCH_ROWS=10000000)
	$(BIN)/python benchmarks/spark_read.py

bench-write: install  ## Spark write with publish and index beside the plain one, and the lag of a stream (BENCH_ROWS=5000000)
	$(BIN)/python benchmarks/spark_write.py

bench-backfill: install  ## Indexes of 20M rows built in processes and in Spark's tasks, rows a second and core (BENCH_ROWS=20000000)
	$(BIN)/python benchmarks/backfill.py

bench-scale-simulation: install  ## A query node over 100,000 files and KEYS=1e8 keys without their data (1e9: 10 GB, 15 minutes)
	$(BIN)/python benchmarks/scale_simulation.py --keys $(or $(KEYS),1e8)

bench-nodes: install  ## A node with an empty disk over 100,000 files in a bucket: ready time, requests, memory (3 minutes)
	$(BIN)/python benchmarks/nodes.py

bench-stores: install  ## Key stores compared: size, build rate, one key and 1,000, cold and warm (KEYS="1e6 2e7" STORES="'leaf files'" DATA="'sparse ids'"; 1e9 ids: 6 GB of leaf files)
	$(BIN)/python benchmarks/stores.py --keys $(or $(KEYS),1e6) $(if $(STORES),--stores $(STORES)) $(if $(DATA),--data $(DATA)) \
	  --json bench-lake/stores.json

console:  ## Bundle the console's editor (CodeMirror) again; needs Node, only after a change of console/package.json
	cd console && npm install --no-package-lock --no-audit --no-fund && npm run build

screenshots: install  ## The pictures of the console in docs/images, of a demo lake in Debian's chromium
	$(BIN)/python console/screenshots.py

lock: install  ## Resolve the versions again into requirements.lock (needs uv)
	uv pip compile --extra dev --generate-hashes --no-emit-index-url --no-annotate --no-header \
	  --python-version 3.11 --universal --quiet --upgrade pyproject.toml -o requirements.lock

clean:  ## Remove what make made
	rm -rf $(VENV) demo-lake .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
