# Two commands: `make demo` runs the main job, `make test` proves the tree. `make help` lists the rest.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules
PYTHON ?= python3
export PYTHON

# Debian's own first: a Python tool manager's shim of the same name may stand before it in PATH. Expanded when a
# recipe runs, because bootstrap may have just installed it.
MESON = $(firstword $(wildcard /usr/bin/meson) meson)
export NINJA = $(firstword $(wildcard /usr/bin/ninja) ninja)
PY := .venv/bin/python
STAMPS := .venv/.stamps

.PHONY: help build all demo demo-torch test test-all test-gpu test-vm lint format wheel release test-release bench bench-peers record-metaflow record-zenml site crash fuzz sim tsan clean \
	deps-test compiled installed deps-test-all

help:
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

build: build/.debian $(STAMPS)/venv build/build.ninja ## .venv/bin/stoker and `import stoker` in .venv
	@$(NINJA) -C build product
	@mkdir -p .venv/share/man/man1 && ln -sf $(CURDIR)/build/src/cli/*.1 .venv/share/man/man1/

build/.debian: tools/debian.txt tools/bootstrap.sh
	@mkdir -p build
	@tools/bootstrap.sh debian tools/debian.txt
	@touch $@

build/build.ninja: | build/.debian
	@$(MESON) setup build

# Lines without variables (-g1): a third less to store, a quarter less to compile, and all that a report shows.
build-asan/build.ninja: | build/.debian
	@$(MESON) setup build-asan -Db_sanitize=address,undefined -Db_lundef=false -Doptimization=1 -Dc_args=-g1

build-tsan/build.ninja: | build/.debian
	@$(MESON) setup build-tsan -Db_sanitize=thread -Db_lundef=false -Doptimization=1 -Dc_args=-g1

$(STAMPS)/venv: tools/bootstrap.sh | build/.debian
	@tools/bootstrap.sh venv .venv
	@mkdir -p $(STAMPS) && touch $@

$(STAMPS)/demo $(STAMPS)/test $(STAMPS)/torch $(STAMPS)/tensorflow $(STAMPS)/site: $(STAMPS)/%: tools/requirements-%.txt | $(STAMPS)/venv
	@echo "installing into .venv from PyPI: $$(sed 's/#.*//' $< | xargs)"
	@if [ $* = torch ] || [ $* = tensorflow ]; then $(PY) tools/download_size.py $<; fi
	@tools/bootstrap.sh python .venv $<
	@touch $@

demo: build $(STAMPS)/demo ## the main job: train on handwritten digits, then look at what it did
	@if [ -e /dev/nvidia0 ] && ! $(PY) -c 'import torch' 2>/dev/null; then \
	    $(MAKE) --no-print-directory $(STAMPS)/torch || echo "PyTorch could not be installed: going on with scikit-learn"; fi
	@$(PY) examples/digits/train.py
	@printf '\nNext:  make demo   (again: every step comes from the cache)\n       .venv/bin/stoker show latest\n'

demo-torch: build $(STAMPS)/demo $(STAMPS)/torch ## the main job with PyTorch (names the size of the download first)
	@$(PY) examples/digits/train.py

all: build # that, and the programs of tests and bench
	@$(NINJA) -C build

deps-test: all build-asan/build.ninja $(STAMPS)/test
	@$(NINJA) -C build-asan

build/.debian-test-all: tools/debian-test-all.txt tools/bootstrap.sh | build/.debian
	@tools/bootstrap.sh debian tools/debian-test-all.txt
	@touch $@

build/.debian-lint: tools/debian-lint.txt tools/bootstrap.sh | build/.debian
	@tools/bootstrap.sh debian tools/debian-lint.txt
	@touch $@

build/docker/usr/sbin/dockerd: | build/.debian-test-all
	@tools/bootstrap.sh unpack build/docker docker.io containerd || echo "going on without Docker: its tests are skipped"

# The first Docker of Debian's that takes CDI names; it does with the other one's containerd.
build/docker-cdi/usr/sbin/dockerd: | build/docker/usr/sbin/dockerd
	@tools/bootstrap.sh unpack_of trixie build/docker-cdi docker.io || echo "going on without a Docker that knows CDI: its tests are skipped"

# Real Metaflow, for the tests that compare with it. Where it can't be had, they are skipped.
build/metaflow/pyvenv.cfg: tools/requirements-metaflow.txt | build/.debian
	@$(PYTHON) -m venv build/metaflow
	@tools/bootstrap.sh python build/metaflow $< || { rm -rf build/metaflow; echo "going on without Metaflow: tests that run it are skipped"; }

build/metaflow-extensions/.installed: tools/requirements-metaflow-extensions.txt $(STAMPS)/venv
	@.venv/bin/pip install -q --no-deps --target build/metaflow-extensions -r $< && touch $@ || echo "going on without extensions of Metaflow: tests that use them are skipped"

build/ray/.installed: tools/requirements-ray.txt $(STAMPS)/venv
	@.venv/bin/pip install -q --target build/ray -r $< && touch $@ || echo "going on without Ray: its test is skipped"

record-metaflow: deps-test build/metaflow/pyvenv.cfg ## what real Metaflow does with tests/compat/flows, into tests/data/metaflow
	@$(PY) tools/record_metaflow.py build/metaflow/bin/python

build/zenml/pyvenv.cfg: tools/requirements-zenml.txt | build/.debian
	@$(PYTHON) -m venv build/zenml
	@tools/bootstrap.sh python build/zenml $< || { rm -rf build/zenml; echo "ZenML can't be installed"; exit 1; }

record-zenml: deps-test build/zenml/pyvenv.cfg ## what real ZenML tells of tests/compat/zenml, into tests/data/zenml
	@$(PY) tools/record_zenml.py build/zenml/bin/python

# The two halves of deps-test-all beside Debian's packages: .ci/run has them made at once.
compiled: all build-asan/build.ninja build-tsan/build.ninja
	@$(NINJA) -C build-asan
	@$(NINJA) -C build-tsan

installed: $(STAMPS)/test build/metaflow/pyvenv.cfg build/metaflow-extensions/.installed build/ray/.installed $(STAMPS)/torch $(STAMPS)/site build/docker/usr/sbin/dockerd build/docker-cdi/usr/sbin/dockerd

deps-test-all: compiled installed build/.debian-lint build/.debian-test-all

test: deps-test ## everything that takes minutes; ends in `N passed, N failed`
	@$(PY) tools/run_tests.py fast

test-all: deps-test-all $(STAMPS)/tensorflow ## that, and crashes, simulation, fuzz corpus, threads, containers, PyTorch, TensorFlow, Jupyter, the wheel
	@$(PY) tools/run_tests.py all

test-gpu: deps-test-all ## on a machine with an NVIDIA GPU
	@STOKER_GPU_PROOF=docs/gpu-proof.md $(PY) tools/run_tests.py gpu

test-vm: build ## limits by control groups v2, in a Debian of its own under QEMU (KVM: 2 minutes; without: 12)
	@STOKER_VM_SLOW=1 $(PY) tools/run_tests.py vm

lint: $(STAMPS)/test build build/.debian-lint ## rooms, figures, clang-format, clang-tidy, ruff, mypy, import-linter
	@$(PY) tools/run_tests.py lint

format: $(STAMPS)/test ## rewrites C and Python files in the project's style
	@.venv/bin/clang-format -i $$(git ls-files -co --exclude-standard -- '*.c' '*.h')
	@.venv/bin/ruff format -q . && .venv/bin/ruff check -q --fix .

wheel: build $(STAMPS)/test ## dist/: a self-contained wheel, the tag decided by auditwheel
	@$(PY) tools/make_wheel.py dist

build/zig/pyvenv.cfg: tools/requirements-release.txt | build/.debian
	@$(PYTHON) -m venv build/zig
	@tools/bootstrap.sh python build/zig $<
	@touch $@

build/.debian-release: tools/debian-release.txt tools/bootstrap.sh | build/.debian
	@tools/bootstrap.sh debian tools/debian-release.txt
	@touch $@

build/qemu/usr/bin/qemu-aarch64-static: | build/.debian
	@tools/bootstrap.sh unpack build/qemu qemu-user-static libc6-arm64-cross

release: build build/zig/pyvenv.cfg build/.debian-release ## dist/release: wheels for x86-64 and aarch64, sdist, SBOM, sums (10 minutes)
	@build/zig/bin/python tools/make_release.py dist/release

test-release: release $(STAMPS)/test build/qemu/usr/bin/qemu-aarch64-static ## that, built twice, and run: aarch64 under QEMU
	@$(PY) tools/run_tests.py release

site: build $(STAMPS)/site ## build/site/html: the documentation, from docs/, docstrings, schemas and the tables of the command line
	@$(PY) tools/make_site.py build/site

bench: all $(STAMPS)/test ## figures against the other side, into docs/benchmarks.md
	@$(PY) bench/bench.py $(if $(wildcard build/peers/bin/python),--peers build/peers/bin/python)

bench-peers: build tools/requirements-peers.txt ## ZenML, Metaflow and AWS's command line from PyPI, for `make bench` to measure too
	@$(PYTHON) -m venv build/peers
	@tools/bootstrap.sh python build/peers tools/requirements-peers.txt

N ?= 200
crash: deps-test ## N kills at instants and failpoints, and their resumes (make crash N=2000; WRITE=1: figures into docs/benchmarks.md)
	@STOKER_CRASH_N=$(N) STOKER_CRASH_PAGE=$(if $(WRITE),docs/benchmarks.md) $(PY) tools/run_tests.py crash

tsan: all build-tsan/build.ninja $(STAMPS)/test ## ThreadSanitizer over all that has threads
	@$(NINJA) -C build-tsan
	@$(PY) tools/run_tests.py tsan

sim: all ## the scheduler over SEEDS random graphs (make sim SEEDS=20000)
	@STOKER_SIM_SEEDS=$(or $(SEEDS),5000) $(PY) tools/run_tests.py sim

fuzz: deps-test ## SECONDS of new inputs after the corpus (make fuzz SECONDS=600)
	@STOKER_FUZZ_SECONDS=$(or $(SECONDS),300) $(PY) tools/run_tests.py fuzz

clean:
	rm -rf build build-asan build-tsan dist .venv
