# One entry point for everything. Each target installs what it needs: Debian packages as root, Python packages in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := iptables nftables iproute2 conntrack ipset kmod procps curl gcc libc6-dev libnetfilter-conntrack3 python3-venv python3-dev \
            prometheus chromium chromium-driver openssl shellcheck tmux
PYTEST_FLAGS ?= -q

.PHONY: demo test lint types bench faults install packages clean help

help: ## Say what there is
	@grep -hE '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 10

demo: install ## Run the daemon in throw-away namespaces and show what its rules do to real packets
	$(BIN)/python -m e2e.demo

test: install lint ## Lint, type-check and run all tests
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

lint: install ## Style, types, layers
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache | tail -n 4

bench: install ## Measure against kube-proxy (KUBE_PROXY=path), print the table
	$(BIN)/python -m e2e.bench

install: packages $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-virtualenv -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

packages: ## Install the Debian packages that are missing (as root)
	@missing=$$(for p in $(PACKAGES); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
	  echo "Installing Debian packages:" $$missing; \
	  if [ "$$(id -u)" != 0 ]; then echo "run as root, or install them yourself" >&2; exit 1; fi; \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
	fi

clean: ## Remove what was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
