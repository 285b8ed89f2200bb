# One entry point for everything. Each target installs what it needs: Debian packages as root, Python packages in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
PACKAGES := iptables nftables iproute2 util-linux conntrack ipset kmod procps curl gcc libc6-dev python3-venv python3-dev
TEST_PACKAGES := prometheus openssl shellcheck tmux
# Where there is no such package (Ubuntu) the tests of the status page are skipped.
BROWSER_PACKAGES := chromium chromium-driver
IMAGE_PACKAGES := podman runc debootstrap netavark
PYTEST_FLAGS ?= -q -n 2 --dist loadfile

.PHONY: demo test image-test lab lint bench faults install packages test-packages clean help

help: ## Say what there is
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 15

demo: install ## Run the daemon in throw-away namespaces and show what its rules do to real packets
	$(BIN)/python -m e2e.demo

test: test-packages install lint ## Lint, type-check and run all tests
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

image-test: test-packages install ## Build the image with podman, without a registry, and run the demo with the daemon in it
	@$(call apt,$(IMAGE_PACKAGES))
	$(BIN)/python -m pytest -m image $(PYTEST_FLAGS)

lab: install ## The same checks on a real control plane (KUBEBUILDER_ASSETS=folder, KUBE_PROXY=path)
	$(BIN)/python -m e2e.lab

lint: install ## Style, types, layers
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache | tail -n 4

bench: install ## Measure against kube-proxy (KUBE_PROXY=path), print the table
	$(BIN)/python -m e2e.bench

faults: install ## Do every fault to the daemon under traffic, print the table (minutes; needs root)
	$(BIN)/python -m e2e.faults

install: packages $(STAMP)

$(STAMP): requirements.lock pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-virtualenv -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

packages: ## Install the Debian packages that are missing (as root)
	@$(call apt,$(PACKAGES))

test-packages: ## Install the Debian packages that only tests need (as root)
	@$(call apt,$(TEST_PACKAGES))
	@($(call apt,$(BROWSER_PACKAGES))) || echo 'No chromium package here: the tests of the status page will be skipped.'

# Services that a package brings (Prometheus) are not started: a policy-rc.d forbids it while apt runs.
define apt
missing=$$(for p in $(1); do dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || echo $$p; done); \
if [ -n "$$missing" ]; then \
  echo "Installing Debian packages:" $$missing; \
  if [ "$$(id -u)" != 0 ]; then echo "run this as root, or install them yourself" >&2; exit 1; fi; \
  policy=/usr/sbin/policy-rc.d; \
  if [ ! -e $$policy ]; then printf '#!/bin/sh\nexit 101\n' > $$policy; chmod +x $$policy; trap "rm -f $$policy" EXIT; fi; \
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; \
fi
endef

clean: ## Remove what was built
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
