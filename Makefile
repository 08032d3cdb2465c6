# `make help` lists what can be made. `make clean` keeps the environment, which takes minutes.

PYTHON := $(shell for p in python3.11 python3.12 python3.13 python3; do \
	$$p -c 'import ensurepip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BIN := .venv/bin
INSTALLED := .venv/.installed

# Threads, and the checks of shapes, are set by tests/conftest.py: a bare `pytest` does the same, in one process.
PYTEST := $(BIN)/pytest
# Of single tests a worker that has nothing left to do takes some from the other; notebooks stay whole, and pages.
SHARED := $(PYTEST) -n 2 --dist worksteal
WHOLE := $(PYTEST) -n 2 --dist loadscope
GROUPED := $(PYTEST) -n 2 --dist loadgroup
REPORT = --junit-xml=_build/tests/$(1).xml
BEYOND_THE_CORE := benchmarks chapters colab diagnosis site sweep

.DEFAULT_GOAL := help
.PHONY: help book pdf check test library pages colab bench sweep lint notebooks numbers serve address clean

help:  ## list this
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

book: $(INSTALLED)  ## render the site to _build/html, execute what has changed since its outputs were kept
	rm -rf _build/html
	$(BIN)/python book/execute.py --cache
	$(BIN)/jupyter-book build --all -W -n --keep-going .

check: lint  ## what to run while working: style, types and the tests of the core, in two to three minutes
	$(SHARED) -m 'not slow' tests $(addprefix --ignore=tests/,$(BEYOND_THE_CORE))

# The two halves run side by side, so that one computes while the other waits, and both to their end if one fails.
test: $(INSTALLED) lint  ## everything that CI runs
	rm -rf _build/tests
	$(MAKE) --jobs=2 --keep-going library pages
	@$(BIN)/python -m tests.totals _build/tests/*.xml

library: $(INSTALLED)  ## its first half: the tests of the library, and of how this book is kept
	$(SHARED) $(call REPORT,1-library) tests --ignore=tests/site --ignore=tests/colab

# The book renders what the tests of the notebooks have executed.
pages: $(INSTALLED)  ## its second half: the notebooks, the book, and the tests of the site and of Colab
	$(WHOLE) $(call REPORT,2-notebooks) --nbval-lax notebooks
	$(MAKE) book
	$(GROUPED) $(call REPORT,3-site) tests/colab tests/site

colab: $(INSTALLED)  ## the first cells of the chapters, and a whole chapter, as Colab runs them
	$(PYTEST) tests/colab

# The sizes that take minutes, in order to be timed, on a machine that has nothing else to do.
bench: $(INSTALLED)  ## time the library beside the alternatives, at full sizes
	mkdir -p _build
	$(PYTEST) --verbose -m full_size --benchmark-enable --benchmark-only --benchmark-quiet --benchmark-json=_build/bench.json tests/benchmarks
	@$(BIN)/python tests/benchmarks/table.py _build/bench.json

# Started again, it does what is missing.
sweep: $(INSTALLED)  ## a chapter over its grid, CHAPTER=deep-linear
	OMP_WAIT_POLICY=passive $(BIN)/python -m gnbook.sweep notebooks/$(CHAPTER).ipynb --grid notebooks/sweeps/$(CHAPTER).yml --out _sweeps/$(CHAPTER)
	$(BIN)/python -m gnbook.sweep report _sweeps/$(CHAPTER)

lint: $(INSTALLED)  ## style, and the types of the core
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

notebooks: $(INSTALLED)  ## execute the chapters and keep their outputs in the .ipynb
	$(BIN)/python book/execute.py

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
