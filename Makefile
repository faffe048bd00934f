SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

# How long `make fuzz` gives each fuzz target.
FUZZTIME ?= 30s
# What `make bench` hands to the benchmark.
BENCHFLAGS ?=

# Before the command of a longer target: writes the run into docs/runs.md, unless variables are set on the command line.
record = $(if $(MAKEOVERRIDES),,tools/runs record $@)

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: run
run: ## build locket and serve, with its data in ./locket-data
	go build -v -o locket ./cmd/locket
	./locket server

# The race detector leaves out SQLite, which is C in Go's syntax: it makes it five times as slow, and shows nothing about
# this module. `make check` vets, so that the tests need not vet all that they import. Tests do without the compiler's
# profile, with which Go compiles all packages, its own too, once more. Without symbols (-s) a test links in about 60 percent
# of the time; stacks still have their lines. Below clear_shadow_mmap_threshold (bytes) the race detector overwrites its memory
# about a block that is used again; above it maps new pages, and each costs a page fault.
gotest := go test -pgo=off -vet=off -ldflags=-s
gotest-race := GORACE='atexit_sleep_ms=50 clear_shadow_mmap_threshold=4194304' $(gotest) -race -gcflags=modernc.org/...=-race=false

.PHONY: test test-race test-simulation test-bench
# The program that the tests start is built before them, and kept in Go's cache: on a new machine each of the packages
# that start it would compile all of it.
test: deps ## run all tests with the race detector, installing what they need
	go run -pgo=off -exec true ./cmd/locket
	@$(MAKE) --no-print-directory -j test-race test-simulation test-bench

# Most of the time the tests wait, so there are six packages at a time for two cores. The packages that take longest
# come first. The timeout is for what hangs on a machine of any speed.
test-race:
	$(gotest-race) -p 6 -timeout 30m ./tests/robustness ./db/mysql ./db/replica ./lock ./tests/... ./db/... \
		./handlers ./keychain ./internal/service/... ./internal/program/... ./...

# The simulation has fewer seeds with the race detector, so it runs once more without.
test-simulation:
	$(gotest) ./tests/simulation

# One package at a time (-p 1): it finds in Go's cache what test-race has compiled meanwhile.
test-bench:
	cd bench && $(gotest-race) -p 1 .

.PHONY: test-fresh
test-fresh: ## run `make run` and `make test` in a new Debian, as root
	$(record) tools/test-fresh

# How many rounds `make test-fresh-busy` has.
ROUNDS ?= 10

.PHONY: test-fresh-busy
test-fresh-busy: ## the same ROUNDS (10) times, beside processes that keep all cores busy
	tools/test-fresh --busy $(ROUNDS)

# What the tests need besides Go; says nothing when all of it is there.
.PHONY: deps
deps:
	@tools/deps

.PHONY: check
check: .tools/golangci-lint ## vet and lint (".tools/golangci-lint fmt" puts formatting right)
	go vet ./...
	.tools/golangci-lint run
	go vet -C bench ./...
	cd bench && ../.tools/golangci-lint run

generators := .tools/protoc-gen-go .tools/protoc-gen-go-grpc

.PHONY: generate
generate: deps $(generators) ## generate the Go code of models/locket.proto, and its mapping to REST
	tools/generate
	go test ./gateway -run '^TestRESTConfiguration$$' -update

.PHONY: verify
verify: deps $(generators) ## fail if generated code, go.mod or formatting are not up to date
	tools/verify-generated
	go mod tidy -diff
	@unformatted=$$(gofmt -l .); [ -z "$$unformatted" ] || \
		{ printf 'gofmt would change:\n%s\n' "$$unformatted"; exit 1; }

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (30s)
	$(record) tools/fuzz $(FUZZTIME)

.PHONY: bench
bench: ## run the benchmark and write docs/benchmarks.md; with BENCHFLAGS it only prints, unless -docs docs is among them
	go run -C bench . $(or $(BENCHFLAGS),-docs ../docs)

.PHONY: bench-peers
bench-peers: ## the same beside Redis, ZooKeeper and etcd, those that tools/deps tools/packages-peers has installed
	go run -C bench . -peers $(or $(BENCHFLAGS),-docs ../docs)

.PHONY: bench-cluster
bench-cluster: ## three servers beside three nodes of etcd and ZooKeeper; -faults 20 ends servers more often
	go run -C bench . -cluster $(or $(BENCHFLAGS),-docs ../docs)

# What Go's compiler is to optimise: what servers do under the loads of the benchmark. Go finds it by its name beside main.go.
.PHONY: profile
profile: ## record cmd/locket/default.pgo, by which the compiler optimises the server, after larger changes of what a request passes
	go run -C bench . -rounds 1 -seconds 6 -rows '^(unary-.*-echo|session-256-echo|hand-off|mix|mariadb)' -profile ../cmd/locket/alone.pgo
	go run -C bench . -rounds 1 -seconds 6 -cluster -rows '^(spread|embedded)-(256|64)-etcd' -profile ../cmd/locket/cluster.pgo
	go tool pprof -proto -output cmd/locket/default.pgo cmd/locket/alone.pgo cmd/locket/cluster.pgo
	rm cmd/locket/alone.pgo cmd/locket/cluster.pgo

# Which deliberate faults `make test-faults` tries: a regular expression on the names in tests/faults; all without it.
FAULT ?= .

.PHONY: test-faults
test-faults: deps ## break the code by each patch in tests/faults that FAULT matches; fail unless the test that the patch names finds it
	$(record) go test -tags faults -count=1 -timeout 60m -parallel 2 -run 'TestFaultsAreFound/each/$(FAULT)' -v ./tests/faults

.PHONY: test-mysql
test-mysql: deps ## run the tests that use a database on MySQL 9.7, alone and as a group
	$(record) env LOCKET_TEST_REAL_MYSQL=1 go test -tags mysql -count=1 -timeout 30m ./fixtures ./db/mysql ./tests/robustness ./tests/rest

.PHONY: test-browser
test-browser: deps ## run the tests of pages in a browser, which install Chromium
	tools/deps tools/packages-browser
	go test -tags browser -count=1 -timeout 10m -run Browser -v ./tests/rest ./tests/console

.PHONY: console-vendor
console-vendor: ## fetch the modules of others that the console serves, in the versions of console/vendor.list
	tools/console-vendor

.PHONY: test-auth
test-auth: deps ## run the tests with real OIDC and SAML providers, Apache and nginx, which it installs
	tools/deps tools/packages-auth
	$(record) go test -tags auth -count=1 -timeout 10m -run Real -v ./tests/auth

.PHONY: test-openapi
test-openapi: deps ## check the OpenAPI document with a linter and a generated client, from npm
	tools/deps tools/packages-openapi
	go test -tags openapi -count=1 -timeout 10m ./tests/openapi

.PHONY: test-alerts
test-alerts: deps ## test the alerts of deploy/ with Prometheus' own tool, which it installs
	tools/deps tools/packages-alerts
	$(record) sh -c 'promtool check rules deploy/alerts.yaml && promtool test rules deploy/alerts_test.yaml'

# The commit that `make release` releases, and what it hands to the program that makes releases: --platforms linux/amd64.
COMMIT ?= HEAD
RELEASEFLAGS ?=

.PHONY: release
release: .tools/release ## make dist/ of COMMIT (HEAD), on whose code all longer targets have passed: programs, packages, the image, checksums
	tools/runs check $(COMMIT)
	.tools/release --out dist $(RELEASEFLAGS) --commit $(COMMIT)

.PHONY: test-release
test-release: .tools/release ## make a release twice, with RELEASEFLAGS, and fail if the two differ in a byte
	$(record) tools/test-release $(RELEASEFLAGS)

.PHONY: test-packages
test-packages: deps .tools/release ## test the packages and the image of a release of the last commit, as root
	tools/deps tools/packages-packages
	$(record) tools/test-packages

.PHONY: test-chart
test-chart: ## test the chart deploy/helm/locket with Helm, and the manifests in deploy/kubernetes that are made from it
	$(record) go test -C tools/helm -count=1 .

.PHONY: test-timing
test-timing: deps ## run the tests of how long something may take; on a machine that does nothing else
	$(record) go test -tags timing -count=1 -timeout 30m ./tests/robustness

.PHONY: attack
attack: deps ## disturb the folder and the servers, and send wrong credentials, for a few minutes
	$(record) go test -tags soak -count=1 -timeout 30m -run 'Folder|Together|WrongCredentials' -v ./db/replica/... ./tests/...

# ./tests/robustness starts its own clusters, ./tests/simulation has its own servers, and ./tests/openapi reads one document.
.PHONY: soak
soak: deps ## run the tests that take their time, 5,000 simulated clusters among them, and those of the whole program on three servers
	$(record) go test -tags soak -count=1 -timeout 60m -run Soak -v ./...
	tools/deps tools/packages-browser
	LOCKET_TEST_CLUSTER=1 go test -tags browser -count=1 -timeout 30m ./internal/program/cli $(addprefix ./tests/,auth backup console program rest run)
	go test -C bench -tags soak -count=1 -run Soak -v .

.PHONY: chaos
chaos: deps ## run the tests that kill servers and databases
	$(record) go test -tags chaos -count=1 -timeout 120m -run Chaos -v ./...

# The pinned tools, built once. A tool is built again when its pin changes.

.tools/protoc-gen-go: tools/go.mod
	go build -C tools -o ../.tools/ google.golang.org/protobuf/cmd/protoc-gen-go

.tools/protoc-gen-go-grpc: tools/go.mod
	go build -C tools -o ../.tools/ google.golang.org/grpc/cmd/protoc-gen-go-grpc

.tools/golangci-lint: tools/lint/go.mod
	go build -C tools/lint -o ../../.tools/ github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.tools/release: tools/release/go.mod $(wildcard tools/release/*.go)
	go build -C tools/release -o ../../.tools/release .
