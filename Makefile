# `make help` lists what can be made. `make clean` keeps the environment, which takes minutes.

PYTHON := $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed

# Threads, and the checks of shapes, are set by tests/conftest.py: a bare `pytest` does the same, in one process.
PYTEST := $(BIN)/pytest
NIGHTLY := $(if $(ALL),-m 'not full_size')
# Of single tests a worker that has nothing left to do takes some from the other; notebooks stay whole, and pages.
SHARED := $(PYTEST) -n 2 --dist worksteal $(NIGHTLY)
WHOLE := $(PYTEST) -n 2 --dist loadscope
GROUPED := $(PYTEST) -n 2 --dist loadgroup $(NIGHTLY)
REPORT = --junit-xml=_build/tests/$(1).xml
# All that is started here runs the code of this tree, whatever is installed in the environment.
export PYTHONPATH := $(CURDIR):$(CURDIR)/book$(addprefix :,$(PYTHONPATH))

.DEFAULT_GOAL := help
.PHONY: help book pdf check test library pages colab architectures bench sweep lint notebooks numbers serve address clean

help:  ## list this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

book: $(INSTALLED)  ## render the site to _build/html from kept outputs; pages that changed are executed
	rm -rf _build/html
	$(BIN)/python book/execute.py --cache
	$(BIN)/jupyter-book build --all -W -n --keep-going .

check: lint  ## what to run while working: style, types, the quick tests of gnlib; two minutes on two cores
	$(SHARED) -m 'not slow and not nightly' tests/gnlib

# The two halves run side by side, so that one computes while the other waits, and both to their end if one fails.
test: $(INSTALLED) lint  ## all tests, and the notebooks that changed since they were kept; ALL=1 the nightly tests and all notebooks
	rm -rf _build/tests
	$(MAKE) --jobs=2 --keep-going library pages
	@$(BIN)/python -m tests.totals _build/tests/*.xml

library: $(INSTALLED)  ## the first half of `make test`: the tests of gnlib, gnbook, the pages and the machinery
	$(SHARED) $(call REPORT,1-library) tests --ignore=tests/site --ignore=tests/colab

# The book renders kept outputs, and of notebooks that changed what their tests have executed.
pages: $(INSTALLED)  ## the second half: notebooks (ALL=1 all), the book, the tests of the site, and with ALL=1 of Colab
	$(WHOLE) $(call REPORT,2-notebooks) --nbval-lax --nbval-kernel-startup-timeout=600 $(if $(ALL),--unchanged) notebooks
	$(MAKE) book
	$(GROUPED) $(call REPORT,3-site) tests/colab tests/site

colab: $(INSTALLED)  ## the first cells of the notebooks, and a whole notebook, as Colab runs them
	$(PYTEST) -m 'not full_size' tests/colab

architectures: $(INSTALLED)  ## networks of other libraries, which it installs, against automatic differentiation
	$(BIN)/pip install --constraint constraints.txt transformers accelerate lightning torchdiffeq torch_geometric nflows vit-pytorch
	$(PYTEST) -m nightly tests/gnlib/test_architectures.py tests/gnlib/test_watch.py

# The sizes that take minutes, in order to be timed, on a machine that has nothing else to do.
bench: $(INSTALLED)  ## time the library beside the alternatives, at full sizes
	mkdir -p _build
	$(PYTEST) --verbose -m full_size --benchmark-enable --benchmark-only --benchmark-quiet --benchmark-json=_build/bench.json tests/benchmarks
	@$(BIN)/python tests/benchmarks/table.py _build/bench.json
	@$(BIN)/python -m tests.benchmarks.peers --full --installed

# Started again, it does what is missing.
sweep: $(INSTALLED)  ## a notebook over its grid, CHAPTER=deep-linear
	OMP_WAIT_POLICY=passive $(BIN)/python -m gnbook.sweep notebooks/laboratory/$(CHAPTER).ipynb --grid notebooks/sweeps/$(CHAPTER).yml --out _sweeps/$(CHAPTER)
	$(BIN)/python -m gnbook.sweep report _sweeps/$(CHAPTER)

lint: $(INSTALLED)  ## style, and the types of gnlib
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

notebooks: $(INSTALLED)  ## execute the notebooks that changed and keep their outputs in the .ipynb; ALL=1 all
	$(BIN)/python book/execute.py $(if $(ALL),--all)

numbers: $(INSTALLED)  ## write the numbers in sentences anew, where an anchor names what they are computed from
	$(BIN)/python -m tests.pages.anchors

pdf: book  ## the book as one document to print, _build/book.pdf, by Chromium
	$(BIN)/python book/pdf.py

serve: book  ## the site at http://localhost:8000
	$(BIN)/python -m http.server --bind localhost --directory _build/html

address:  ## write the public address of the repository wherever it appears, URL=https://...
	@$(or $(PYTHON),python3) book/address.py $(URL)

clean:  ## remove what was built, but for the environment
	rm -rf _build .hypothesis .mypy_cache .pytest_cache .ruff_cache

$(INSTALLED): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer with its venv module is needed (Debian, Ubuntu: apt install python3-venv)."; exit 1; }
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --constraint constraints.txt --editable '.[data,book,sweep,test]'
	touch $@
