# `make help` lists what there is. Everything works from a fresh clone.

SHELL := /bin/bash -o pipefail
.DEFAULT_GOAL := help

# Without cgo programs are static, and tests share what the build compiled; runc's
# build (local/build) asks for cgo itself.
export CGO_ENABLED := 0
export VERSION := $(or $(VERSION),$(shell hack/version))
RELEASE := build/drydock-$(VERSION)-linux-amd64.tar.gz
BUILD := cd local && go run ./build -version '$(VERSION)'
# What takes long is left out of tests, or has a smaller bound, unless SHORT is empty.
export SHORT ?= -short
# SLOW=4 leaves tests a quarter of the CPU time.
SLOWLY := $(if $(SLOW),hack/slow '$(SLOW)')
# How long the soak goes on: half an hour. `make soak SOAK="…"` takes others.
SOAK ?= -hotplug.for 5m -hotplug.changes 2m -hotplug.cycles 100 -migration.kills 100 -migration.trios 1 -migration.atonce 10 -migration.volumekills 20 -migration.silence -maintenance.for 2m -maintenance.starts 300

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

run: images ## Start the embedded cluster with Drydock in it and boot a VM
	bin/drydock run

down: ## Stop the embedded cluster; its data stays (`bin/drydock down --purge` removes it)
	bin/drydock down

test: ## Checks, unit tests, API server, whole system with real guests; SLOW=4 with a quarter of the CPU time
	$(SLOWLY) hack/stages build/test-passed prerequisites images check apart system

test-all: ## All tests: with larger bounds and the long ones, the soak, migrations from the commit BEFORE, a release's virtctl (root; two hours)
	$(SLOWLY) env SHORT= hack/stages build/test-all-passed prerequisites images check apart system soak test-versions test-upstream-virtctl

soak: images ## What takes long: disks are hotplugged and removed, watched for gaps and leaks; migrations are interrupted; pods and guests race for a disk (root; half an hour)
	hack/test-cluster -run 'TestADiskInUseIsNeverDropped|TestTheLastSetThatWasAskedForIsThere|TestPluggingLeaksNothing|TestMigrationsAreInterruptedAtRandom|TestStorageMigrationsAreInterruptedAtRandom|TestASourceThatIsGoneForGood|TestManyGuestsMigrateAtOnce|TestPodsAndGuestsRaceForADisk' \
		$(SOAK)

# Unit tests keep the CPUs busy, and the others wait half of the time: for packages and for clusters to start. Each of
# them prints when it has ended.
apart: images release ## The unit tests, and at the same time one after the other what needs no cluster with Drydock that is there already (root)
	$(MAKE) --no-print-directory -j2 --output-sync=target unit in-turn

in-turn:
	hack/stage 'a fresh machine' env MAKEFLAGS= $(MAKE) --no-print-directory fresh
	hack/stage 'the embedded Kubernetes' env MAKEFLAGS= $(MAKE) --no-print-directory embedded
	hack/stage 'the release' env MAKEFLAGS= $(MAKE) --no-print-directory test-release

test-versions: images ## Guests migrate between this version and that of the commit BEFORE, both ways (root); by default the last one of the day before
	hack/between-versions '$(BEFORE)'

test-upstream-virtctl: images ## Each verb of the virtctl of a KubeVirt release, on a cluster of its own (root); building that takes minutes
	hack/test-cluster upstream-virtctl

test-upstream-suite: images ## Functional tests of a KubeVirt release, on a cluster of its own (root); GROUP=storage,migration,… MATCH=expression LISTED=passed choose, BOUND=1h bounds, WRITE=1 notes what is seen; the first build takes long
	hack/test-cluster upstream-suite -group '$(GROUP)' -match '$(MATCH)' -listed '$(LISTED)' -bound '$(or $(BOUND),4h)' -write='$(or $(WRITE),0)'

fresh: ## `make prerequisites` on a minimal Debian with nothing but Go, git and make (root)
	hack/fresh-root make prerequisites

check: prerequisites generate-check tidy-check lint ## What needs no running: lint, drift of generated files and of go.mod

# The linter vets (make check).
unit: ## Unit tests, without a cluster; without root, too: what needs it is then left out
	@echo 'guests of unit tests run with $(or $(DRYDOCK_ACCEL),tcg) (DRYDOCK_ACCEL)'
	hack/stage "Drydock's packages" go test $(SHORT) -vet=off -timeout 6h ./...
	@# They read the whole repository; what is beside their module does not renew what is cached of them.
	hack/stage "the packages of local" go -C local test -count=1 $(SHORT) -vet=off -timeout 6h ./...
	hack/stage "the packages of local/runtime" go -C local/runtime test $(SHORT) -vet=off -timeout 6h ./...
	hack/stage "the linter" go -C tools test -vet=off ./...

embedded: images ## Tests of the embedded Kubernetes alone (root)
	@# What these mount is seen nowhere else: a mount namespace that others make meanwhile would keep it, and its device.
	go -C local test -count=1 -timeout 6h -tags system -exec 'unshare --mount' ./internal/loop ./internal/csi/...
	go -C local test $(SHORT) -count=1 -timeout 6h -tags system ./internal/network ./system

system: images ## Tests on embedded clusters with real guests (root)
	hack/test-cluster

bench: images ## What a VM costs; WHAT=start,api,idle,memory,hotplug,migrate,snapshot,maintenance,import,scale,up chooses, BENCHFLAGS adds flags (root)
	hack/bench -what '$(WHAT)' $(BENCHFLAGS)

bench-import: build ## Imports against curl and qemu-img: time, memory, what a killed worker fetches again
	hack/bench -what import

prerequisites: ## Install the Debian or Ubuntu packages that are missing; name what else is
	@hack/prerequisites

# Running needs less than testing.
to-build-and-run:
	@hack/prerequisites build run

build: to-build-and-run ## Build all programs into bin/
	@$(BUILD) programs

images: to-build-and-run ## Build all programs, and the container images without a registry, into build/images/
	@$(BUILD) all

generate: ## Make the generated files: CRDs, docs/supported-fields.md, who writes a VMI's status, what of a guest's identity is kept, the node probe's guest
	go generate ./...

generate-check: generate ## Fail when a generated file is not up to date
	@git diff --exit-code --stat -- config/crd config/rbac/status-policy.yaml internal/controller/cdi/crd docs/supported-fields.md docs/architecture.md docs/identity.md internal/launcher/bootprobe/guest || { echo "generated files differ: commit what 'make generate' made"; exit 1; }

tidy-check:
	@hack/tidy-check

manifests: build ## Write the one manifest that installs Drydock into a cluster
	@mkdir -p build && bin/drydock kubectl kustomize config > build/drydock.yaml && echo build/drydock.yaml

release: images manifests ## Make the one file that runs without the source and without Go, build/drydock-*.tar.gz
	go run ./release -version '$(VERSION)'

test-release: release ## Unpack the release into an empty folder and run it without Go (root)
	DRYDOCK_RELEASE='$(CURDIR)/$(RELEASE)' go test $(SHORT) -count=1 -v -timeout 6h -tags release ./release

lint: bin/lint ## gofmt, golangci-lint with the project's own configuration
	hack/lint

bin/lint: tools/go.mod tools/go.sum $(wildcard tools/lint/*.go)
	@$(BUILD) linter

readability: ## Print the figures that tell how the code reads: comments, functions used once, sizes
	go run ./test/readability

mutation: bin/gremlins ## Change the rules: do the unit tests notice? WHAT="vmlifecycle placement" chooses packages (half an hour)
	go run ./test/mutation $(WHAT)

bin/gremlins: tools/go.mod tools/go.sum
	go -C tools build -o $(CURDIR)/bin/ github.com/go-gremlins/gremlins/cmd/gremlins

flaky: ## Hunt flaky unit tests: every package twenty times, in random order
	go test -count=20 -shuffle=on ./internal/...

.PHONY: help run soak test-versions test-upstream-virtctl test-upstream-suite fresh to-build-and-run down bench bench-import test check apart in-turn unit embedded system prerequisites build images generate generate-check tidy-check manifests release test-release lint readability mutation flaky
