# Everything a newcomer needs. `make run` wants Python 3.11+, make and PyPI; `make test` fetches the rest.
PYTHON ?= python3
KAFKA  ?= 127.0.0.1:9092
HTTP   ?= 127.0.0.1:8090
DATA   ?= ./data
BIN    := .venv/bin
STAMPS := .venv/stamps
# What is compiled has a .pxd beside it.
COMPILED := $(wildcard src/waystation/records/*.pxd src/waystation/filters/*.pxd)
COMPILED += $(COMPILED:.pxd=.py)
# pytest workers for the tests that share the machine: first the many quick ones, which mostly wait,
# then files marked `heavy`; tests marked `alone` follow, one by one.
QUICK_WORKERS ?= 3
WORKERS ?= 2
# How many worlds `make simulate` lets live.
SEEDS ?= 100
# What is started hundreds of times should not compile itself each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help run test check format bench soak simulate compat demo pipeline clean

help: ## list the targets
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-8s %s\n", $$1, $$2}'

run: $(STAMPS)/run ## start a broker: Kafka on 127.0.0.1:9092, HTTP on 127.0.0.1:8090, data in ./data
	@exec $(BIN)/waystation serve --listen $(KAFKA) --http $(HTTP) --data-dir $(DATA)

test: $(STAMPS)/dev $(STAMPS)/tools $(STAMPS)/classes ## run every test, skipping none
	$(BIN)/pytest -n $(QUICK_WORKERS) --dist worksteal -m "not heavy and not alone"
	$(BIN)/pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder -m heavy --timeout 400 --durations 10
	$(BIN)/pytest -m alone --durations 10

check: $(STAMPS)/dev ## format, lint, types, imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(STAMPS)/dev ## rewrite the sources in the project's format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(STAMPS)/dev $(STAMPS)/tools ## the same loads against Waystation and its peers, side by side
	$(BIN)/python -m benchmarks $(ARGS)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.spark)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.spark_write)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.queues)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.gateway)
	$(if $(ARGS),,$(BIN)/python -m benchmarks.push)

soak: $(STAMPS)/dev $(STAMPS)/tools ## the tests with full counts and durations; reports in docs/reports
	$(BIN)/python tools/soak.py $(ARGS)

simulate: $(STAMPS)/dev ## whole clusters in simulated worlds, SEEDS of them; what fails is remembered
	$(BIN)/python -m tests.simulation.cluster_run 0-$$(($(SEEDS) - 1)) --workers $(WORKERS) --remember

compat: $(STAMPS)/dev ## clients from npm, Maven Central and Go against a real broker
	$(BIN)/python -m tests.compat $(ARGS)

demo: $(STAMPS)/cluster ## a guided tour of every face
	$(BIN)/python tools/demo.py

pipeline: $(STAMPS)/pipeline ## the Spark pipeline end to end: load, archive, metrics, transform, replay, audit
	$(BIN)/python tools/pipeline.py $(ARGS)

clean: ## remove everything that make made, but no data
	rm -rf .venv .cache build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find src tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
	find src -name '*.so' -delete

$(STAMPS)/venv:
	@$(PYTHON) -c 'import sys; sys.exit("Python %d.%d is too old: Waystation needs 3.11 or newer. Remedy: make PYTHON=python3.12 ..." % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv .venv
	@mkdir -p $(STAMPS) && touch $@

# An editable install, so that edits count at once; made anew when dependencies or compiled sources change.
$(STAMPS)/run: $(STAMPS)/venv pyproject.toml setup.py $(COMPILED)
	$(BIN)/pip install --disable-pip-version-check -q -e .
	@touch $@

$(STAMPS)/dev: $(STAMPS)/venv pyproject.toml setup.py $(COMPILED)
	$(BIN)/pip install --disable-pip-version-check -q -e '.[dev]'
	@touch $@ $(STAMPS)/run

$(STAMPS)/cluster: $(STAMPS)/run pyproject.toml
	$(BIN)/pip install --disable-pip-version-check -q -e '.[cluster]'
	@touch $@

$(STAMPS)/pipeline: $(STAMPS)/run pyproject.toml tools/test_tools.py
	$(BIN)/pip install --disable-pip-version-check -q -e '.[pipelines]'
	$(BIN)/python tools/test_tools.py java
	@touch $@

$(STAMPS)/tools: $(STAMPS)/venv tools/test_tools.py
	$(BIN)/python tools/test_tools.py
	@touch $@

$(STAMPS)/classes: $(STAMPS)/dev $(STAMPS)/tools tools/spark_classes.py
	$(BIN)/python tools/spark_classes.py
	@touch $@
