# `make book` renders the site, `make test` runs everything that CI runs, `make notebooks` renews the
# outputs kept in notebooks/*.ipynb, `make bench` measures. `make clean` removes all but the environment, which takes
# minutes.

PYTHON := $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed

PYTEST := $(BIN)/pytest
REPORT = --junit-xml=_build/tests/$(1).xml
# Threads that wait for work sleep: spinning, those of two processes on two cores slow each other down a hundredfold. A
# single process is better off where they spin.
PASSIVE := OMP_WAIT_POLICY=passive
TWO_WORKERS := OMP_NUM_THREADS=1 $(PASSIVE) $(PYTEST) -n 2 --dist loadscope

# Tests of the core run with the shapes in the annotations checked at each call, but for those of wrong arguments, of
# which the functions complain themselves.
CORE := $(patsubst %,tests/test_%.py,moment models operators gauss_newton hidden_layer module residual convolution leaky_relu_bounds batch_normalization functional_hessian training pruning image_models piecewise_linear partition singular_values random_matrices kernel tangent_models chain kernel_descent output_bounds spectrum accuracy eigen_core chain_ends narrow condition bounds)
SHAPES := --jaxtyping-packages=gnlib,beartype.beartype
APART := tests/test_pins.py tests/test_pairs.py tests/test_address.py tests/test_sweep.py tests/sweep_faults tests/site tests/colab tests/benchmarks

.PHONY: book test bench sweep lint notebooks serve address clean

book: $(INSTALLED)
	rm -rf _build/html
	$(BIN)/python book/execute.py --cache
	$(BIN)/jupyter-book build --all -W -n --keep-going .

test: $(INSTALLED) lint
	rm -rf _build/tests
	$(PYTEST) $(call REPORT,1-tree) tests/test_pins.py tests/test_pairs.py tests/test_address.py
	$(TWO_WORKERS) $(call REPORT,2-library) tests $(addprefix --ignore=,$(APART) $(CORE))
	$(TWO_WORKERS) $(call REPORT,2-core) $(SHAPES) -m 'not bad_input' $(CORE)
	$(TWO_WORKERS) $(call REPORT,2-input) -m bad_input $(CORE)
	$(TWO_WORKERS) $(call REPORT,2-sweeps) tests/test_sweep.py tests/sweep_faults
	$(TWO_WORKERS) $(call REPORT,2-benchmarks) --benchmark-disable -m 'not slow' tests/benchmarks
	$(TWO_WORKERS) $(call REPORT,3-notebooks) --nbval-lax notebooks
	$(MAKE) book
	$(TWO_WORKERS) $(call REPORT,4-site) tests/site tests/colab
	@$(BIN)/python tests/totals.py _build/tests/*.xml

# The sizes that take minutes, in order to be timed, on a machine that has nothing else to do.
bench: $(INSTALLED)
	mkdir -p _build
	$(PYTEST) --verbose -m slow --benchmark-only --benchmark-quiet --benchmark-json=_build/bench.json tests/benchmarks
	@$(BIN)/python tests/benchmarks/table.py _build/bench.json

# A chapter over its grid: `make sweep CHAPTER=deep-linear`; started again, it does what is missing.
sweep: $(INSTALLED)
	$(PASSIVE) $(BIN)/python -m gnlib.sweep notebooks/$(CHAPTER).ipynb --grid notebooks/sweeps/$(CHAPTER).yml --out _sweeps/$(CHAPTER)
	$(BIN)/python -m gnlib.sweep report _sweeps/$(CHAPTER)

lint: $(INSTALLED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

notebooks: $(INSTALLED)
	$(BIN)/python book/execute.py

serve: book
	$(BIN)/python -m http.server --bind localhost --directory _build/html

address:
	@$(or $(PYTHON),python3) book/address.py $(URL)

clean:
	rm -rf _build .hypothesis .pytest_cache .ruff_cache

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with its venv module is needed (Debian, Ubuntu: apt install python3-venv)."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --constraint constraints.txt --editable '.[data,book,sweep,test]'
	touch $@
