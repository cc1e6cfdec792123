# Plumbline. `make help` lists the targets; every variable can be given on the command line.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Storage classes of the lab, by the names of the files in manifests/lab/classes.
LAB_CLASSES ?= local longhorn-r1 longhorn-r3
# How long the demo shows its table.
DURATION ?= 60s
export LAB_CLASSES DURATION

# The machine's own Go if it is new enough, else one from the cache.
GO_DIR = $(eval GO_DIR := $$(shell tools/go path))$(GO_DIR)
GO = PATH="$(GO_DIR):$$PATH" CGO_ENABLED=0 go

PROGRAMS := prometheus alertmanager node_exporter postgres_exporter ebpf_exporter longhorn-engine process-compose
TEST_PROGRAMS := promtool mysqld_exporter k6 kubernetes
BIN := build/bin

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## A real database on real Longhorn volumes: the live table of where the time goes (DURATION, LAB_CLASSES).
	@$(BIN)/plumbline-lab demo

.PHONY: lab-up
lab-up: build ## Start the same lab and leave it running.
	@$(BIN)/plumbline-lab up

.PHONY: lab-status
lab-status: ## Show the running lab: processes, addresses, the table.
	@$(BIN)/plumbline-lab status

.PHONY: lab-down
lab-down: ## End the lab and restore the machine.
	@if [ -x $(BIN)/plumbline-lab ]; then $(BIN)/plumbline-lab down; else echo "nothing built yet, so no lab"; fi

.PHONY: packages
packages: ## Install the Debian packages that are missing.
	@tools/install-packages build lab

.PHONY: programs
programs: packages ## Build the pinned third-party programs into the cache.
	@tools/build $(PROGRAMS)

.PHONY: build
build: programs ## Build Plumbline's own programs.
	@$(GO) build -o $(BIN)/plumbline-agent ./exporters/agent
	@$(GO) build -o $(BIN)/longhorn_exporter ./exporters/longhorn
	@$(GO) build -o $(BIN)/openebs_exporter ./exporters/openebs
	@$(GO) build -o $(BIN)/loadgen ./loadgen
	@$(GO) build -o $(BIN)/longhorn-bridge ./manifests/lab/longhorn-bridge
	@$(GO) build -o $(BIN)/plumbline-lab ./manifests/lab/plumbline-lab

.PHONY: generate
generate: ## Compile the BPF programs again (clang 14); their objects are committed.
	@tools/install-packages bpf
	@$(GO) generate ./...

.PHONY: dashboards
dashboards: ## Write the dashboards' JSON anew from their Go sources.
	@$(GO) run ./dashboards/generate

.PHONY: metrics
metrics: ## Write METRICS.md anew from the collectors.
	@$(GO) test -count=1 ./tests/metricsdoc -update

.PHONY: test
test: build ## All tests; what cannot run here is skipped with a reason, in CI it fails.
	@tools/install-packages bpf test
	@tools/build $(TEST_PROGRAMS)
	@$(MAKE) --no-print-directory lint
	@$(GO) test -p 1 -count=1 -timeout 60m ./...

.PHONY: lint
lint: ## Formatting, go vet, and the rules' syntax.
	@unformatted=$$(PATH="$(GO_DIR):$$PATH" gofmt -l dashboards exporters loadgen manifests tests tools); \
		if [ -n "$$unformatted" ]; then echo "not gofmt'ed: $$unformatted" >&2; exit 1; fi
	@$(GO) vet ./...
	@$(BIN)/promtool check rules --lint=all --lint-fatal rules/*.rules.yaml >/dev/null

.PHONY: clean
clean: lab-down ## Remove what was built here; the cache of third-party programs stays.
	@rm -rf build
