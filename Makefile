# Plumbline. `make help` lists the targets; every variable can be given on the command line.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

# Storage classes of the lab, by the names of the files in manifests/lab/classes.
LAB_CLASSES ?= local longhorn-r1 longhorn-r3
# How long the demo shows where the time goes; with BREAK (replica, disk, cpu, lock, network, stall), how long the lab is broken.
DURATION ?= 60s
# The kernels of make kernels: series such as 6.1, newest, all; their architecture (ARCH) is the machine's own if empty.
KERNELS ?= all
ARCH ?=
export LAB_CLASSES DURATION BREAK WIDE
# The images' platforms.
ARCHS ?= amd64 arm64
# The version of chart and images.
VERSION = $(shell awk '$$1 == "appVersion:" { print $$2 }' manifests/chart/Chart.yaml)

# The machine's own Go if it is new enough, else one from the cache.
GO_DIR = $(eval GO_DIR := $$(shell tools/go path))$(GO_DIR)
# No version stamp: git refuses a checkout of another user, as under sudo.
GO = PATH="$(GO_DIR):$$PATH" CGO_ENABLED=0 GOFLAGS="-buildvcs=false $${GOFLAGS:-}" go

PROGRAMS := prometheus alertmanager node_exporter postgres_exporter ebpf_exporter longhorn-engine process-compose
TEST_PROGRAMS := gotestsum promtool mysqld_exporter k6 kube-apiserver kubectl helm krew
POSTGRESQL := 16 17 18
# With TOOLS=1 images, push and release make loadgen-tools as well, of these packages of the machine's Debian; base-files says which Debian it is.
TOOLS ?=
TOOLS_PACKAGES := base-files postgresql sysbench fio
IMAGES := agent blockio longhorn-exporter openebs-exporter loadgen kubectl-plumbline $(if $(TOOLS),loadgen-tools)
IMAGE_FILES := image-binaries $(if $(TOOLS),image-tools)
BIN := build/bin
# The plugin has the version whose images it starts (kubectl plumbline try).
BUILD_PLUGIN = $(GO) build -ldflags '-s -w -X main.release=$(VERSION)'

.PHONY: help
help: ## List the targets.
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: build ## A real database on real Longhorn volumes, and where its time goes, in words (DURATION, LAB_CLASSES, BREAK, WIDE).
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
	@tools/install-packages build lab $(if $(findstring ceph-,$(LAB_CLASSES)),ceph) $(if $(findstring gluster-,$(LAB_CLASSES)),gluster)

.PHONY: programs
programs: packages ## Build the pinned third-party programs into the cache.
	@tools/build $(PROGRAMS)

.PHONY: build
build: programs ## Build Plumbline's own programs.
	@$(GO) build -o $(BIN)/plumbline-agent ./exporters/agent
	@$(GO) build -o $(BIN)/longhorn_exporter ./exporters/longhorn
	@$(GO) build -o $(BIN)/openebs_exporter ./exporters/openebs
	@$(GO) build -o $(BIN)/gluster_exporter ./exporters/gluster
	@$(GO) build -o $(BIN)/loadgen ./loadgen
	@$(GO) build -o $(BIN)/longhorn-bridge ./manifests/lab/longhorn-bridge
	@$(GO) build -o $(BIN)/plumbline-lab ./manifests/lab/plumbline-lab
	@$(BUILD_PLUGIN) -o $(BIN)/kubectl-plumbline ./manifests/kubectl-plumbline

.PHONY: kubectl-plumbline
kubectl-plumbline: ## Build kubectl's plugin alone: kubectl plumbline check, verify, status, why, predict, try, mcp.
	@$(BUILD_PLUGIN) -o $(BIN)/kubectl-plumbline ./manifests/kubectl-plumbline
	@echo "$(BIN)/kubectl-plumbline: put it into a folder of your PATH, then kubectl plumbline --help"

.PHONY: generate
generate: ## Write all that is generated and committed: BPF objects (clang 14, if their sources changed), dashboards, pages.
	@tools/build promtool
	@$(GO) run ./exporters/bpf/generate
	@$(GO) run ./rules/why/queries/generate
	@$(GO) run ./dashboards/generate
	@$(GO) test -count=1 -timeout 1h -run 'TestMetricsFile|TestSummariesAreSentences' ./tests/metricsdoc ./tests/alerting -update
	@$(GO) test -count=1 -run TestPage ./rules/usual -update
	@$(GO) run ./tests/results

.PHONY: image-binaries
image-binaries: build ## Static binaries for the images, into build/linux (ARCHS).
	@own=$$($(GO) env GOHOSTARCH); for arch in $(ARCHS); do \
		[ $$arch = $$own ] || tools/install-packages cross-$$arch; \
		tools/build --arch=$$arch ebpf_exporter; \
		mkdir -p build/linux/$$arch; \
		cp -Lf $(BIN)/$$arch/ebpf_exporter build/linux/$$arch/; \
		for program in plumbline-agent:exporters/agent longhorn_exporter:exporters/longhorn openebs_exporter:exporters/openebs loadgen:loadgen kubectl-plumbline:manifests/kubectl-plumbline; do \
			GOARCH=$$arch $(GO) build -trimpath -ldflags '-s -w' -o build/linux/$$arch/$${program%%:*} ./$${program#*:}; \
		done; \
	done

.PHONY: image-tools
# The packages are unpacked where Go does not look for its own.
image-tools: ## What the image loadgen-tools holds beside loadgen, of Debian's packages, into build/linux (ARCHS).
	@for arch in $(ARCHS); do \
		tools/build --arch=$$arch k6; \
		mkdir -p build/linux/$$arch; \
		cp -Lf $(BIN)/$$arch/k6 build/linux/$$arch/; \
		rm -rf build/_debian; \
		mkdir -p build/_debian; \
		echo "Debian's packages for $$arch: $(TOOLS_PACKAGES)"; \
		tools/sysroot --with-dependencies $$arch build/_debian/$$arch $(TOOLS_PACKAGES); \
		$(GO) run ./manifests/images/tools --root=build/_debian/$$arch --arch=$$arch --out=build/linux/$$arch/loadgen-tools; \
		rm -rf build/_debian; \
	done

.PHONY: images
images: $(IMAGE_FILES) ## Container images as tar files, without Docker; with TOOLS=1 loadgen-tools too, and so for push and release.
	@$(GO) run ./manifests/images/build tar --tag=$(or $(TAG),$(VERSION)) $(addprefix --arch=,$(ARCHS)) $(IMAGES)

.PHONY: push
push: $(IMAGE_FILES) ## Push the images to REGISTRY.
	@$(GO) run ./manifests/images/build push --tag=$(or $(TAG),$(VERSION)) $(addprefix --arch=,$(ARCHS)) --registry=$(REGISTRY) $(IMAGES)

.PHONY: deploy undeploy status
deploy undeploy status:
	@echo 'make $@ is gone: use helm install plumbline manifests/chart (helm uninstall, helm status), as README.md has it; databases: manifests/bench' >&2; exit 2

.PHONY: e2e-kubernetes e2e-nodes e2e-programs
# The nodes are this machine.
e2e-programs: ARCHS = $$($(GO) env GOHOSTARCH)
e2e-programs: image-binaries image-tools
	@tools/install-packages kubernetes lab
	@tools/build kubernetes prometheus-operator prometheus-config-reloader local-path-provisioner prometheus-kubernetes cloudnative-pg mysqld_exporter helm \
		longhorn-engine longhorn-engine-rebuilt longhorn-manager longhorn-instance-manager csi-provisioner csi-attacher csi-resizer csi-snapshotter csi-sidecar grpc-health-probe
	@tools/unstable mysql

e2e-kubernetes: e2e-programs ## Everything on a real Kubernetes node on this machine; of its scenarios ONLY those that match, such as ONLY='helm|CPU_hogged'.
	@$(GO) test -tags e2e -count=1 -v -timeout 120m -run '^TestOnNode$$$(if $(ONLY),/($(ONLY)))' ./tests/kubernetes/e2e

e2e-nodes: e2e-programs ## PostgreSQL with a standby on Longhorn on three real nodes on this machine, whose network is slowed and cut; about 20 minutes.
	@$(GO) test -tags e2e -count=1 -v -timeout 60m -run '^TestThreeNodes$$' ./tests/kubernetes/e2e

.PHONY: e2e-distributed
e2e-distributed: ## The rules on Thanos (two clusters, pairs of everything, some of it killed) and on VictoriaMetrics; about ten minutes and the build.
	@tools/build prometheus alertmanager thanos victoria-metrics vmalert
	@$(GO) run ./tests/distributed

.PHONY: e2e-traces
e2e-traces: build ## Traces of commits, across nodes, in a real Jaeger; three minutes and the build.
	@tools/build longhorn-engine jaeger
	@$(GO) test -tags e2e -count=1 -v -timeout 20m -run TracesInJaeger ./exporters/agent/replica

.PHONY: e2e-storage
e2e-storage: build ## The lab on real Ceph RBD and GlusterFS, their figures beside the systems' own; about 25 minutes.
	@tools/install-packages ceph gluster
	@$(GO) test -tags e2e -count=1 -v -timeout 60m ./tests/storage

.PHONY: chart
chart: ## The Helm charts with rules and dashboards for every kind of histograms, as folders and archives, into build/chart.
	@tools/build helm
	@$(GO) run ./manifests/release chart

# The plugin runs where its user's kubectl does.
PLUGIN_PLATFORMS := linux-amd64 linux-arm64 darwin-amd64 darwin-arm64
.PHONY: plugins
plugins: ## kubectl's plugin for every platform, into build/plugin.
	@for platform in $(PLUGIN_PLATFORMS); do \
		GOOS=$${platform%-*} GOARCH=$${platform#*-} $(BUILD_PLUGIN) -trimpath \
			-o build/plugin/$$platform/kubectl-plumbline ./manifests/kubectl-plumbline; \
	done

.PHONY: release
release: $(IMAGE_FILES) plugins ## Everything that is uploaded for VERSION, into build/release: images, charts, plugin, rules, dashboards, checksums.
	@tools/build helm
	@$(GO) run ./manifests/release all --release=$(VERSION) --commit=$$(git rev-parse HEAD) $(addprefix --arch=,$(ARCHS)) $(IMAGES)

.PHONY: docs
docs: ## The pages as a site, into build/site.
	@tools/install-packages docs
	@tools/docs

.PHONY: pictures
pictures: ## The dashboards opened in a real Grafana (GRAFANA_HOME) over four scenarios: what is wrong, and a picture of each, into build/pictures.
	@if [ -z "$${GRAFANA_HOME:-}" ]; then echo "make pictures: GRAFANA_HOME is not set: give the folder of a Grafana, that with bin, conf and public" >&2; exit 2; fi
	@tools/install-packages build pictures
	@tools/build prometheus
	@$(GO) run ./tests/pictures $(if $(SCENARIO),--scenario='$(SCENARIO)') $(if $(DASHBOARD),--dashboard='$(DASHBOARD)')
	@picture=build/pictures/slow-replica-overview-dark-first.png; if [ -f $$picture ]; then cp $$picture dashboards/pictures/overview.png; fi

# Three sizes: check before each commit, test before a push (CI runs it), test-all before a release.
.PHONY: check
check: lint ## Before each commit, in minutes: lint, the rules' tests, and the tests that need neither root nor other programs.
	@$(GO) test -short ./...

.PHONY: test
test: build ## All that a change can break, as CI runs it; what cannot run here is skipped with a reason, in CI it fails.
	@tools/install-packages bpf test kernels cross-arm64 pictures
	@tools/build $(TEST_PROGRAMS)
	@tools/build --arch=arm64 ebpf_exporter
	@tools/postgresql $(POSTGRESQL)
	@tools/unstable mariadb mysql valkey $(UNRELEASED)
	@$(MAKE) --no-print-directory lint
	@tools/test

.PHONY: test-all
test-all: UNRELEASED := postgresql-19
test-all: test e2e-kubernetes e2e-nodes e2e-distributed e2e-storage e2e-traces ## Before a release, hours: make test, a real node, three nodes, other engines, Ceph and GlusterFS, every kernel, pictures (GRAFANA_HOME), proofs.
	@$(MAKE) --no-print-directory kernels KERNELS=all
	@$(MAKE) --no-print-directory pictures
	@$(MAKE) --no-print-directory docs
	@for proof in accuracy predict faults security agentsize; do $(GO) run ./tests/$$proof; done

.PHONY: bench
bench: build ## What measuring costs, as ratios in one run: per block I/O, per replica write, per transaction; minutes, on a quiet machine.
	@tools/install-packages bpf test bench
	@$(GO) test -run '^$$' -bench Overhead -benchtime 1x -v ./exporters/blockio
	@$(GO) test -run '^$$' -bench ReplicaEngine -benchtime 1x -v ./exporters/agent/replica
	@$(GO) test -run '^$$' -bench StatementCost -benchtime 1x -timeout 1h -v ./exporters/agent/query
	@$(GO) test -run '^$$' -bench 'Trace$$' -benchtime 1x -v ./exporters/agent/tracer
	@$(GO) run ./tests/overhead --agent=$(BIN)/plumbline-agent

.PHONY: bench-objects
bench-objects: ## Memory of the programs that follow Kubernetes' objects, with 100,000 of each kind; of other ones, too: OTHER=FOLDER; 10 minutes.
	@tools/install-packages test
	@tools/build kube-apiserver
	@$(GO) test -run '^$$' -bench Memory -benchtime 1x -timeout 1h ./tests/objects $(if $(OTHER),-programs=$(abspath $(OTHER)))

.PHONY: bench-wires
bench-wires: ## What following NVMe/TCP and iSCSI costs, in a guest whose kernel has both ends; about 8 minutes.
	@tools/install-packages kernels
	@mkdir -p build/kernels-wires build/results
	@CGO_ENABLED=0 $(GO) test -c -o build/kernels-wires/fabric.test ./exporters/agent/fabric
	@$(GO) run ./tests/kernels --timeout=30m boot --share=build/kernels-wires 6.12 -- \
		build/kernels-wires/fabric.test -test.run '^$$' -test.bench Fabric -test.benchtime 1x -test.v -bench.results=/run/host
	@cp build/kernels-wires/*.jsonl build/results/

# Where an emulator's figures are ratios of what is emulated; the machine's own are make bench's.
KERNEL ?= 6.12
.PHONY: bench-kernel
bench-kernel: ## What following a statement costs on another kernel (KERNEL), in a guest; about 20 minutes.
	@tools/install-packages kernels test bench
	@mkdir -p build/kernels-bench build/results
	@CGO_ENABLED=0 $(GO) test -c -o build/kernels-bench/query.test ./exporters/agent/query
	@$(GO) run ./tests/kernels --timeout=60m boot --share=build/kernels-bench $(KERNEL) -- \
		build/kernels-bench/query.test -test.run '^$$' -test.bench StatementCost -test.benchtime 1x -test.timeout 1h -test.v \
		-bench.results=/run/host -bench.command='make bench-kernel KERNEL=$(KERNEL)'
	@for file in build/kernels-bench/*.jsonl; do cp $$file build/results/$(KERNEL)-$${file##*/}; done

.PHONY: accuracy
accuracy: build ## Known delays at each layer against what is read of it; about 10 minutes.
	@tools/install-packages bpf test bench
	@$(GO) run ./tests/accuracy

.PHONY: faults
faults: build ## Every process of a lab killed and stopped, disks filled, peers hostile: what is seen and what is lost; about 15 minutes.
	@$(GO) run ./tests/faults

.PHONY: stalls
stalls: build ## Stalls of engine, replica and disks: what reports them, how soon, and which place it names; about 15 minutes.
	@$(GO) run ./tests/faults --stalls

.PHONY: regressions
regressions: lab-up ## The lab slowed in known ways: which alerts fire, whom they suspect; two hours, on a quiet machine.
	@$(GO) run ./tests/regressions

.PHONY: scale
scale: lab-up ## A Prometheus with the rules over 10,000 volumes in a lab's shape, and the agent by servers; 45 minutes, 16 GB.
	@tools/build promtool
	@$(GO) run ./tests/scale --save-shape
	@$(MAKE) --no-print-directory lab-down
	@$(GO) run ./tests/scale
	@$(GO) run ./tests/agentsize

.PHONY: kernels
kernels: build ## Agent and blockio on Debian's kernels, emulated (KERNELS; ARCH=arm64): kernel by feature; five minutes each.
	@tools/install-packages kernels $(if $(filter arm64,$(ARCH)),kernels-arm64 cross-arm64)
	@$(GO) run ./tests/kernels matrix $(if $(ARCH),--arch=$(ARCH)) $(KERNELS)

.PHONY: fuzz
fuzz: ## Every fuzz target for FUZZTIME.
	@PATH="$(GO_DIR):$$PATH" tests/fuzz

.PHONY: lint
lint: ## Formatting, go vet, staticcheck, and the rules' syntax.
	@unformatted=$$(PATH="$(GO_DIR):$$PATH" gofmt -l dashboards exporters loadgen manifests rules tests tools); \
		if [ -n "$$unformatted" ]; then echo "not gofmt'ed: $$unformatted" >&2; exit 1; fi
	@if command -v clang-format-14 >/dev/null; then find exporters -name '*.bpf.c' -o -name '*.h' | xargs clang-format-14 --dry-run --Werror; \
		else echo "the BPF sources' layout is not checked: no clang-format-14"; fi
	@$(GO) vet ./...
	@$(GO) vet -tags e2e ./...
	@tools/build staticcheck promtool
	@PATH="$(GO_DIR):$$PATH" CGO_ENABLED=0 $(BIN)/staticcheck ./...
	@$(BIN)/promtool check rules --lint=all --lint-fatal rules/*.rules.yaml rules/optional/*.rules.yaml >/dev/null

.PHONY: clean
clean: lab-down ## Remove what was built here; the cache of third-party programs stays.
	@rm -rf build
