# `make help` lists what there is.
GO            ?= go
GOLANGCI      := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0
PROMTOOL_MODULE := github.com/prometheus/prometheus/cmd/promtool@v0.315.0
GOVULNCHECK   := golang.org/x/vuln/cmd/govulncheck@v1.8.0
FUZZTIME      ?= 20s
HELM          := helm.sh/helm/v3/cmd/helm@v3.22.0
KUBECONFORM   := github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0
TOOLS         := $(CURDIR)/bin/tools
VERSION       ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo dev)
LDFLAGS       := -s -w -X main.version=$(VERSION)
# PGO=cmd/auditrelay/load.pgo compiles for the load in that profile, which takes about 5 % less CPU and several
# minutes more to compile, since nothing that was compiled without it serves again. The Dockerfile does so.
# The profile is of bin/bench with '^json x100$$' and '^json x1$$' together, as admin.pprof gives them.
PGO           ?= off
# Everything is linked without debug information (-s -w, and so does `go test`). Without making it, the compiler
# takes up to a sixth less CPU.
GOFLAGS       += -gcflags=all=-dwarf=false
export GOFLAGS

.PHONY: help build demo test test-long test-race torture cluster story chaos-health alerts browser proof integration lint vuln fmt fuzz manifests reference release deploy-check bench benchmarks cover clean

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' Makefile

build: ## build the binaries into bin/
	CGO_ENABLED=0 $(GO) build -trimpath -pgo=$(PGO) -ldflags '$(LDFLAGS)' -o bin/ ./cmd/...

demo: ## run a simulated workspace, the relay and destinations on loopback, to be explored in a browser (Ctrl-C ends it)
	CGO_ENABLED=0 $(GO) run -trimpath -pgo=off ./cmd/demo $(DEMO)

# The rooms that have tests: `go test` would compile the others too, such as cmd/browser with a browser's whole protocol.
TESTED = $(shell $(GO) list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...)

# `make lint` vets. Compiled as `make build` compiles, so that both share the cache.
# Tests that wait for processes leave a core to the compiler of the others.
# GOGC is for the compiler and the linker, which take a seventh less CPU for some more memory; tests run without it.
test: ## run all tests, the longest with fewer cases
	CGO_ENABLED=0 GOGC=400 $(GO) test -exec 'env -u GOGC' -trimpath -short -vet=off -p 3 -parallel 4 -timeout 10m $(TESTED)

# The tests that ask for testing.Short, and their rooms.
LONG_FILES = $(shell grep -rl --include='*_test.go' 'testing.Short()' cmd config internal relay sinks)
LONG_TESTS = $(shell awk '/^func /{name=$$2; sub(/[^A-Za-z0-9_].*/,"",name)} /testing\.Short\(\)/{printf "%s%s", bar, name; bar="|"}' $(LONG_FILES))

test-long: ## run the longest tests with all their cases
	CGO_ENABLED=0 $(GO) test -trimpath -vet=off -parallel 4 -timeout 10m -run '^($(LONG_TESTS))$$' $(addprefix ./,$(sort $(dir $(LONG_FILES))))

# The rooms in which goroutines meet. Each process with the race detector waits a second at its end,
# unless told otherwise.
RACED := ./relay/... ./sinks/... ./internal/app ./internal/control/... ./internal/health ./internal/ingest/... ./internal/journal/... ./internal/store/... \
  $(addprefix ./internal/trail/,audit tiles witness) ./internal/workspace $(addprefix ./internal/workspace/,management streaming)

test-race: ## run the tests of the rooms in which goroutines meet with the race detector, the longest in a short form
	CGO_ENABLED=1 GORACE=atexit_sleep_ms=10 $(GO) test -trimpath -race -short -vet=off -parallel 4 -timeout 7m $(RACED)

torture: build ## kill, starve and cut off the real binary, and count what is lost
	bin/torture $(TORTURE)

cluster: build ## kill, freeze and cut off relays that share a journal (CLUSTER='--rounds 200' plays for hours)
	bin/cluster $(CLUSTER)

story: build ## compare the audit trail with 40 known changes, actions, outages (about 30 s)
	bin/story $(STORY)

chaos-health: build ## play incidents, and compare the reported health with the truth (PROMTOOL=FILE evaluates the alerts)
	PROMTOOL=$(PROMTOOL) bin/chaoshealth $(CHAOS)
	$(GO) test -count=1 -v -run 'CalmWeek' ./internal/health

alerts: ## test the alert rules and dashboards with promtool, as PROMTOOL=FILE or in PATH
	$(GO) test ./internal/app -count=1 -v -run 'Promtool|MetricsOfARunningRelay|EachAlert'

$(TOOLS)/promtool: # fourteen minutes on two busy cores
	mkdir -p $(TOOLS)/promtool.build
	cd $(TOOLS)/promtool.build && printf 'module promtoolbuild\ngo 1.26\n' > go.mod && \
	  $(GO) get $(PROMTOOL_MODULE) && CGO_ENABLED=0 $(GO) build -o $@ $(firstword $(subst @, ,$(PROMTOOL_MODULE)))
	rm -r $(TOOLS)/promtool.build

browser: build ## play tasks in the console with a real browser, and have it prove and look at all pages (BROWSER='--screenshots DIR')
	bin/browser $(BROWSER)

proof: ## have a long trail verified by our command and by foreign ones, and tamper with it
	$(GO) run ./cmd/proof $(PROOF)
	$(GO) test -count=1 -v -run 'Phishing|EmptiedSender|RBAC|Brute|Sentences|Directions|Specified|Cosign|SplitView|OnlySignatures|KeyHolder' ./internal/workspace/meaning ./internal/trail/witness

integration: build ## run the binary against real servers (Kafka, NATS, Loki), kill nodes, and count what is lost
	bin/integration $(INTEGRATION)

lint: $(TOOLS)/golangci-lint ## vet, staticcheck, formatting, known vulnerabilities
	$(TOOLS)/golangci-lint run ./...
	@$(MAKE) --no-print-directory vuln

# The vulnerability database is on the network. Where it cannot be reached,
# that is said aloud and is no failure of this code.
vuln: $(TOOLS)/govulncheck ## look for known vulnerabilities in what is linked
	@out=$$($(TOOLS)/govulncheck ./... 2>&1); code=$$?; \
	if [ $$code -ne 0 ] && echo "$$out" | grep -q -e 'vuln.go.dev' -e 'fetching vulnerabilities'; then \
	  echo "SKIPPED govulncheck: the vulnerability database cannot be reached from here"; \
	else echo "$$out" | tail -n 20; exit $$code; fi

fmt: $(TOOLS)/golangci-lint ## format the code
	$(TOOLS)/golangci-lint fmt ./...

fuzz: ## run each fuzz target for FUZZTIME (20s)
	@for pkg in $$($(GO) list ./...); do \
	  for target in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$target"; \
	    $(GO) test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) $$pkg || exit 1; \
	  done; \
	done

manifests: $(TOOLS)/helm ## render deploy/manifests from the Helm chart
	UPDATE_MANIFESTS=1 $(GO) test -count=1 -run TestManifests ./cmd/auditrelay

reference: ## write the pages of deploy/docs/reference, which are made from the code
	UPDATE_REFERENCE=1 CGO_ENABLED=0 $(GO) test -trimpath -count=1 -vet=off -run 'Reference' ./config ./cmd/auditrelay/... ./internal/app

release: $(TOOLS)/release ## build archives, packages, the image, the chart, SBOMs and checksums of VERSION into dist/, without a daemon
	$(TOOLS)/release -root . -out dist -version $(VERSION) -pgo $(PGO)

deploy-check: ## check documents, unit, compose file, chart, manifests and packages; names all it skips (DEPLOY=--short: two minutes)
	deploy/check $(DEPLOY)

bench: build ## measure the real binary over HTTP: throughput, latency, cost
	bin/bench $(BENCH)

benchmarks: ## run the Go benchmarks of the data path
	$(GO) test -run '^$$' -bench . -benchmem ./internal/json/... ./internal/wire ./internal/ingest ./internal/journal ./internal/journal/record ./sinks/...

cover: ## print the test coverage by package, and write cover.html
	$(GO) test -timeout 15m -coverprofile=cover.out ./...
	$(GO) tool cover -html=cover.out -o cover.html
	$(GO) tool cover -func=cover.out | tail -n 1

clean: ## remove what was built
	rm -rf bin cover.out cover.html

$(TOOLS)/golangci-lint:
	GOBIN=$(TOOLS) $(GO) install $(GOLANGCI)

$(TOOLS)/govulncheck:
	GOBIN=$(TOOLS) $(GO) install $(GOVULNCHECK)

# A module of its own, so that the product depends on nothing that a release needs.
.PHONY: $(TOOLS)/release
$(TOOLS)/release:
	cd deploy/release && CGO_ENABLED=0 $(GO) build -trimpath -o $@ .

$(TOOLS)/helm: # five minutes of CPU
	GOBIN=$(TOOLS) CGO_ENABLED=0 $(GO) install $(HELM)

$(TOOLS)/kubeconform:
	GOBIN=$(TOOLS) CGO_ENABLED=0 $(GO) install $(KUBECONFORM)
