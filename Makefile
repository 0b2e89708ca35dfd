# SPDX-License-Identifier: GPL-2.0-or-later
# One entry to everything. `make help` lists the targets.

KERNEL ?= 6.12
NODES ?= 2
FUZZ_SECONDS ?= 20
ROUNDS ?= 20
# of test-debug: a filter of GoogleTest; suite by suite all that docs/testing.md says, if there is none
SCENARIOS ?=
# hexadecimal; of the first round
SEED ?= $(shell od -An -N6 -tx1 /dev/urandom | tr -d " ")

.DEFAULT_GOAL := help
.PHONY: help deps deb-deps build deb image modules demo lab lab-update test test-all test-unit test-lab test-packages test-debug soak devices-table fuzz sim bench bench-lab check format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo "Variables: KERNEL=6.12|6.12-debug|backports, NODES=N (lab), FUZZ_SECONDS=N, ROUNDS=N, SEED=HEX, SCENARIOS=FILTER (test-debug); PCILEND_CACHE is the cache (/var/cache/pcilend)."

deps: ## the Debian packages that building needs (as root)
	@tools/setup/install-packages

build/build.ninja: CMakeLists.txt CMakePresets.json | deps
	@cmake --preset development >/dev/null

build: build/build.ninja ## programs in build/bin
	@cmake --build --preset development

deb-deps: deps
	@tools/setup/install-packages tools/package/packages.txt

deb: deb-deps ## Debian packages in build/deb
	@tools/package/build

image: deps ## the lab's QEMU, kernels and file systems
	@qemu-tests/image/build --kernel $(KERNEL)

modules: image ## kernel modules in build/modules/KERNEL
	@qemu-tests/image/build-modules --kernel $(KERNEL)

demo: build/build.ninja ## the main job, step by step: a lent NVMe drive in a guest of another host
	@tools/test/side-by-side "nice cmake --build build --target demo" \
		"qemu-tests/image/build --kernel $(KERNEL)" "qemu-tests/image/build-modules --kernel $(KERNEL)"
	@build/bin/pcilend-demo

lab: build modules ## two hosts, and a shell on one of them
	@build/bin/pcilend-lab up --hosts $(NODES) --kernel $(KERNEL) --device host1:nvme,serial=lab,drive-size=256M
	@echo "host1 (node 4) has an NVMe drive to lend. Other shells: build/bin/pcilend-lab shell host2"
	@echo "When done: build/bin/pcilend-lab down"
	@build/bin/pcilend-lab shell host1

lab-update: build modules ## puts freshly built programs and modules into the running lab
	@build/bin/pcilend-lab update

test: build/build.ninja ## tests; ends with "N passed, N failed" (docs/testing.md)
	@tools/test/run test

test-all: deb-deps build/build.ninja ## everything, on both kernels, with packages and fuzzers; goes on where it was cut off
	@PCILEND_KEEP=1 tools/test/run all

test-unit: build/build.ninja ## unit tests, under sanitizers
	@tools/test/run unit

test-lab: build/build.ninja ## the scenarios of make test
	@tools/test/run lab

test-packages: deb-deps build/build.ninja ## Debian packages: contents, installation, upgrade in use, removal
	@tools/test/run packages

test-debug: build/build.ninja ## scenarios on a kernel with KASAN, lockdep, kmemleak and failing allocations; goes on, too
	@if [ -n '$(SCENARIOS)' ]; then \
		qemu-tests/image/build --kernel 6.12-debug && qemu-tests/image/build-modules --kernel 6.12-debug && \
		cmake --build build --target scenarios && \
		PCILEND_KERNEL=6.12-debug build/bin/pcilend-scenarios --gtest_filter='$(SCENARIOS)'; \
	else PCILEND_KEEP=1 tools/test/run debug; fi

soak: build modules ## ROUNDS random faults on two hosts; stops at the first that is not survived
	@build/bin/pcilend-soak --rounds $(ROUNDS) --seed $(SEED)

devices-table: build ## every function of the matrix on each kernel; the table in docs/devices.md
	@tools/test/devices-table

fuzz: build/build.ninja ## every fuzzer for FUZZ_SECONDS, from another seed each time
	@cmake --preset fuzz >/dev/null && cmake --build build/fuzz --target fuzzers
	@FUZZ_SEED=0 tools/test/fuzz $(FUZZ_SECONDS)

sim: build/build.ninja ## the portable core on 60 and on 1000 simulated hosts, lending and sharing, 10 million events each
	@cmake --build build --target pcilend-sim
	@build/bin/pcilend-sim --nodes 60 --degree 59 --events 10000000
	@build/bin/pcilend-sim --nodes 1000 --degree 16 --events 10000000
	@build/bin/pcilend-sim --shared --nodes 60 --events 10000000
	@build/bin/pcilend-sim --shared --nodes 1000 --events 10000000

bench: build/build.ninja ## what the portable core's operations cost
	@cmake --build build --target pcilend-bench
	@build/bin/pcilend-bench

bench-lab: build modules ## what a borrowed drive costs, beside one of the host's own, and a shared one, beside NVMe over TCP; what leases and segments do; how long a guest is away that moves
	@build/bin/pcilend-lab-bench
	@build/bin/pcilend-nvme-of-bench
	@build/bin/pcilend-lease-bench
	@build/bin/pcilend-migration-bench

check: deps ## formatting, checkpatch, clang-tidy
	@tools/test/check

format: ## clang-format on all C++
	@git ls-files '*.cpp' '*.h' | xargs grep -LE 'GPL-2.0-only|BSD-2-Clause' | xargs clang-format -i

clean: ## removes build/ (the cache stays)
	@rm -rf build
