# `make help` lists the targets. All of them work from a fresh clone.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

export CGO_ENABLED := $(shell . hack/goenv && echo "$$CGO_ENABLED")
export GOFLAGS := $(shell . hack/goenv && echo "$$GOFLAGS")
export VERSION := $(or $(VERSION),$(shell hack/version))
RELEASE := build/drydock-$(VERSION)-linux-amd64.tar.gz
BUILD := cd local && go run ./build -version '$(VERSION)'
# Unless SHORT is empty, long tests are skipped or have smaller bounds.
export SHORT ?= -short
# Tests of make test-all need more programs.
PURPOSES := build run test $(if $(SHORT),,long)
# SLOW=4 limits tests to a quarter of the CPU time.
SLOWLY := $(if $(SLOW),hack/slow '$(SLOW)')
# The bounds of the soak, about half an hour. `make soak SOAK="…"` overrides them.
SOAK ?= -hotplug.for 5m -hotplug.changes 2m -hotplug.cycles 100 -migration.kills 100 -migration.trios 1 -migration.atonce 10 -migration.volumekills 20 -migration.silence -maintenance.for 2m -maintenance.starts 300

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: images ## Start the embedded cluster with Drydock in it and boot a VM
	bin/drydock run

down: ## Stop the embedded cluster; its data stays (`bin/drydock down --purge` removes it)
	bin/drydock down

test: ## Checks, unit tests, API server tests, whole-system tests with real guests; SLOW=4 limits them to a quarter of the CPU time
	$(SLOWLY) hack/stages build/test-passed prerequisites images check apart system

test-all: ## All tests: also long ones, with larger bounds, the soak, migrations from the commit BEFORE, a release's virtctl (root; two hours)
	$(SLOWLY) env SHORT= hack/stages build/test-all-passed prerequisites web images check web-check web-test apart system soak test-versions test-upstream-virtctl

soak: images ## Long tests: hotplug and remove disks and watch for gaps and leaks; interrupt migrations; let pods and guests race for a disk (root; half an hour)
	hack/test-cluster -run 'TestADiskInUseIsNeverDropped|TestTheLastSetThatWasAskedForIsThere|TestPluggingLeaksNothing|TestMigrationsAreInterruptedAtRandom|TestStorageMigrationsAreInterruptedAtRandom|TestASourceThatIsGoneForGood|TestManyGuestsMigrateAtOnce|TestPodsAndGuestsRaceForADisk' \
		$(SOAK)

# Unit tests keep the CPUs busy, while the others wait half of the time for packages and for clusters to start. Each of
# the two prints its output at its end.
apart: images archive ## The unit tests and, at the same time, the tests that need no running cluster with Drydock (root)
	$(MAKE) --no-print-directory -j2 --output-sync=target unit in-turn

in-turn:
	hack/stage 'a fresh machine' env MAKEFLAGS= $(MAKE) --no-print-directory fresh
	hack/stage 'the embedded Kubernetes' env MAKEFLAGS= $(MAKE) --no-print-directory embedded
	hack/stage 'the release' env MAKEFLAGS= $(MAKE) --no-print-directory test-release

test-versions: images ## Migrate guests between this version and that of the commit BEFORE, both ways (root); by default the last one of the day before
	hack/between-versions '$(BEFORE)'

test-upstream-virtctl: images ## Test each command of a KubeVirt release's virtctl on a separate cluster (root); its build takes minutes
	hack/test-cluster upstream-virtctl

test-upstream-suite: images ## Run the functional tests of a KubeVirt release on a separate cluster (root); GROUP=storage,migration,… MATCH=expression LISTED=passed choose specs, BOUND=1h limits the time, WRITE=1 writes the outcomes into the list; the first build takes long
	hack/test-cluster upstream-suite -group '$(GROUP)' -match '$(MATCH)' -listed '$(LISTED)' -bound '$(or $(BOUND),4h)' -write='$(or $(WRITE),0)'

fresh: ## Run `make prerequisites` on a minimal Debian with only Go, git and make (root)
	hack/fresh-root make prerequisites

check: prerequisites generate-check tidy-check pages-check lint ## Static checks: lint, drift of generated files, of go.mod and of the web console's bundle

# The linter vets (make check).
unit: qemu ## Unit tests, without a cluster; without root, tests that need it are skipped
	@echo 'guests of unit tests run with $(or $(DRYDOCK_ACCEL),tcg) (DRYDOCK_ACCEL)'
	hack/stage "Drydock's packages" go test $(SHORT) -vet=off -timeout 6h ./...
	@# They read the whole repository; what is beside their module does not renew what is cached of them.
	hack/stage "the packages of local" go -C local test -count=1 $(SHORT) -vet=off -timeout 6h ./...
	hack/stage "the packages of local/runtime" go -C local/runtime test $(SHORT) -vet=off -timeout 6h ./...
	hack/stage "the linter" go -C tools test -vet=off ./...
	@# It reads files beside its module.
	hack/stage "rules and dashboards" go -C test/monitoring test -count=1 -vet=off -timeout 6h ./...

embedded: images ## Tests of the embedded Kubernetes only (root)
	@# What these mount is seen nowhere else: a mount namespace that others make meanwhile would keep it, and its device.
	go -C local test -count=1 -timeout 6h -tags system -exec 'unshare --mount' ./internal/loop ./internal/csi/...
	go -C local test $(SHORT) -count=1 -timeout 6h -tags system ./internal/network ./system

system: images ## Tests on embedded clusters with real guests (root)
	hack/test-cluster

bench: images ## Measure the costs of a VM; WHAT=start,api,idle,memory,hotplug,migrate,snapshot,maintenance,import,scale,up chooses, BENCHFLAGS adds flags (root)
	hack/bench -what '$(WHAT)' $(BENCHFLAGS)

bench-import: build qemu ## Compare imports with curl and qemu-img: time, memory, repeated downloads after a killed worker
	hack/bench -what import

prerequisites: ## Install missing Debian or Ubuntu packages; report other missing requirements
	@hack/prerequisites $(PURPOSES)

# Running needs less than testing.
to-build-and-run:
	@hack/prerequisites build run

build: to-build-and-run ## Build all programs into bin/
	@hack/web-pages tell
	@$(BUILD) programs

images: to-build-and-run ## Build all programs, and the container images, without a registry, into build/images/
	@hack/web-pages tell
	@$(BUILD) all

web: web/node_modules/.package-lock.json ## Bundle the pages of the web console into virtctl, with the next build (npm)
	go -C tools run ./webbuild
	hack/web-pages mark

web-check: web/node_modules/.package-lock.json ## Types and lint of the web console's pages (npm)
	npm --prefix web run check

web-test: web/node_modules/.package-lock.json ## Unit tests of the web console's pages (npm)
	npm --prefix web test

web-browser: ## Walk through the web console in Chromium, with real guests, on a separate cluster (root, npm, Chromium)
	@$(MAKE) --no-print-directory web
	@$(MAKE) --no-print-directory images
	hack/test-cluster web

# Packages of npm run no scripts of their own.
web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	@hack/prerequisites build web
	npm --prefix web ci --ignore-scripts --no-audit --no-fund
	@touch $@

qemu: ## Unpack the images' QEMU, which tests run on this machine, into build/qemu
	@go run ./images/build -qemu

updated-images: ## Fetch the Debian packages of the images again, with their security updates, and make the images
	rm -rf build/cache/debian-*
	@$(MAKE) --no-print-directory images

generate: ## Make the generated files: CRDs, docs/supported-fields.md, the tables of metrics, rules, the index of runbooks, dashboards, the writers of a VMI's status, the kept parts of a guest's identity, the node probe's guest
	go generate ./...

generate-check: generate ## Fail if a generated file is not up to date
	@git diff --exit-code --stat -- config/crd config/rbac/status-policy.yaml internal/controller/cdi/crd docs/supported-fields.md docs/metrics.md docs/runbooks/README.md config/monitoring docs/architecture.md docs/identity.md internal/launcher/bootprobe/guest || { echo "generated files differ: commit what 'make generate' made"; exit 1; }

pages-check:
	@hack/web-pages check

tidy-check:
	@hack/tidy-check

manifests: build ## Write the single manifest that installs Drydock into a cluster, and one with Grafana's dashboards
	@mkdir -p build && bin/drydock kubectl kustomize config > build/drydock.yaml && echo build/drydock.yaml
	@bin/drydock kubectl kustomize config/monitoring > build/drydock-dashboards.yaml && echo build/drydock-dashboards.yaml

release: ## Make the release archive, which runs without the source and Go, with the web console: build/drydock-*.tar.gz
	@$(MAKE) --no-print-directory web
	@$(MAKE) --no-print-directory archive

archive: images manifests ## Make the release archive with the web console that `make web` has made, if any
	go run ./release -version '$(VERSION)'

test-release: archive ## Unpack the release into an empty folder and run it without Go (root)
	DRYDOCK_RELEASE='$(CURDIR)/$(RELEASE)' go test $(SHORT) -count=1 -v -timeout 6h -tags release ./release

lint: bin/lint ## gofmt, golangci-lint with the project's own configuration
	hack/lint

bin/lint: tools/go.mod tools/go.sum $(wildcard tools/lint/*.go)
	@$(BUILD) linter

readability: ## Print figures about the code's readability: comments, functions used once, sizes
	go run ./test/readability

mutation: bin/gremlins qemu ## Change the rules: do the unit tests notice? WHAT="vmcontroller placement" chooses packages (half an hour)
	go run ./test/mutation $(WHAT)

bin/gremlins: tools/go.mod tools/go.sum
	go -C tools build -o $(CURDIR)/bin/ github.com/go-gremlins/gremlins/cmd/gremlins

flaky: qemu ## Hunt flaky unit tests: every package twenty times, in random order
	go test -count=20 -shuffle=on ./internal/...

.PHONY: help web web-browser web-check web-test archive run soak test-versions test-upstream-virtctl test-upstream-suite fresh to-build-and-run down bench bench-import test check apart in-turn unit embedded system prerequisites build images qemu updated-images generate generate-check pages-check tidy-check manifests release test-release lint readability mutation flaky
