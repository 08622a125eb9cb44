# A thin front door: each target sets up what it needs, then calls CMake or a script. `make help`
# lists them.
# DATA=DIR and DEVICE=SPEC go to the demo. CUDA=off (on, auto) goes to CMake, which remembers it:
# the plugin takes most of the build's time.
configure := $(if $(CUDA),-DFERRY_CUDA=$(CUDA))
.DEFAULT_GOAL := help
.PHONY: help demo test test-all check bench bench-peers build install uninstall format lint docs coverage sanitize clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' Makefile

demo: ## the main job on cuda:0, or on sim:0 without a GPU (DATA=DIR, DEVICE=SPEC)
	@scripts/setup.sh
	@scripts/build.sh release $(configure)
	@scripts/demo.sh $(if $(DEVICE),--device '$(DEVICE)') $(if $(DATA),--data '$(DATA)')

test: ## the tests, without the long ones
	@scripts/setup.sh --tests
	@scripts/build.sh dev $(configure)
	@scripts/test.sh dev -LE long

test-all: ## every test: twice as long
	@scripts/setup.sh --tests
	@scripts/build.sh dev $(configure)
	@scripts/test.sh dev

check: ## before a push: lint, quick tests of the folders that were touched
	@scripts/setup.sh --ci
	@.ci/check

build: ## the release build, in build/release (CUDA=off leaves the plugin out)
	@scripts/setup.sh
	@scripts/build.sh release $(configure)

install: build ## installs the release build (PREFIX=DIR)
	cmake --install build/release $(if $(PREFIX),--prefix '$(PREFIX)')

uninstall: ## removes what the last `make install` installed
	@cmake --build build/release --target uninstall

bench: build ## Ferry's own benchmarks
	@scripts/bench.sh

bench-peers: ## against libtorch and bare libraries, interleaved
	@scripts/setup.sh --peers
	@scripts/build.sh peers
	@scripts/bench.sh --peers

sanitize: ## the suite under ASan+UBSan, then TSan
	@scripts/setup.sh --tests
	@scripts/build.sh asan
	@scripts/test.sh asan
	@scripts/build.sh tsan
	@scripts/test.sh tsan

format: ## formats the sources in place
	@scripts/format.sh

lint: ## the rules of the house, then clang-tidy
	@scripts/setup.sh --ci
	@scripts/build.sh dev
	@tests/lint/run.sh --build build/dev
	@tests/lint/tidy.sh build/dev

docs: ## the reference, in build/docs/html
	@scripts/setup.sh --ci
	@scripts/docs.sh

coverage: ## line coverage of runtime, alloc, transfer, ops, train
	@scripts/setup.sh --ci
	@scripts/coverage.sh

clean: ## removes build/
	rm -rf build
