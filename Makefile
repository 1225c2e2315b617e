# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Switches: SAN=1 (ASan + UBSan), V=1 (show commands), CC=clang,
# O=-O0, WERROR=1, ARCH=arm64 (cross compiles, with the libraries of tools/make-sysroot).

ARCH_OWN := $(patsubst aarch64,arm64,$(shell uname -m))
ARCH     ?= $(ARCH_OWN)
CROSS    := $(filter-out $(ARCH_OWN),$(ARCH))
ARCH_BPF := $(if $(filter arm64,$(ARCH)),arm64,x86)
SYSROOT  := $(if $(CROSS),build/sysroot/$(ARCH))
CROSS_PREFIX := $(if $(CROSS),$(patsubst arm64,aarch64,$(ARCH))-linux-gnu-)
ifeq ($(origin CC),default)
CC       := $(CROSS_PREFIX)gcc
endif
CLANG    ?= clang
# The machine's own include folders. For BPF, clang leaves out those of the machine's architecture.
HEADERS  := $(if $(CROSS),-idirafter $(SYSROOT)/usr/include/$(CROSS_PREFIX:%-=%) \
	-idirafter $(SYSROOT)/usr/include,$(shell $(CLANG) -v -E -x c /dev/null 2>&1 | \
	sed -n '/^\#include <\.\.\.>/,/^End/s|^ \(/[^ ]*\)$$|-idirafter \1|p'))
# Newer protobuf-c's protoc-c warns that protoc should be used.
PROTOC   ?= $(if $(shell command -v protoc),protoc,protoc-c)
BPFTOOL  ?= $(shell command -v bpftool || echo /usr/sbin/bpftool)
# pytest comes with the distribution's Python; another python3 may be first on PATH.
PYTHON   ?= $(firstword $(wildcard /usr/bin/python3) python3)
PREFIX   ?= /usr/local
# Where zsh looks for functions; a distribution's packages have a folder of their own.
ZSH_DIR  ?= $(PREFIX)/share/zsh/site-functions
SYSTEMD_DIR ?= $(PREFIX)/lib/systemd/system
VERSION  := 0.2.0
# Of tracer --version; none in a tarball. Git is not to write its index, which may be another user's.
COMMIT   := $(if $(wildcard .git),$(shell GIT_OPTIONAL_LOCKS=0 git describe --always --dirty \
	--exclude='*' 2>/dev/null))
O        ?= $(if $(SAN),-O1,-O2)
# Variants build side by side: build/ for the usual one, build/san, build/clang …
VARIANT  := $(CROSS:%=%-)$(if $(SAN),san-)$(if $(findstring clang,$(CC)),clang-)
OUT      := build$(if $(VARIANT),/$(VARIANT:%-=%))
STATIC   := $(OUT)/static/tracer
Q        := $(if $(V),,@)
comma    := ,
say       = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2);)

PACKAGES := libbpf libelf libdw capstone libprotobuf-c zlib liblzma libzstd jansson libcap ncursesw libmicrohttpd gnutls
# With clang they count the branches taken, so that fuzz targets can be linked with the same objects.
SANITIZE := -fsanitize=address,undefined \
	$(if $(findstring clang,$(CC)),-fsanitize-coverage=inline-8bit-counters$(comma)pc-table)
CFLAGS   ?= $(O) -g
# libcurl is loaded by those who use it (util/http_client.c): only its headers are needed.
# The packages that are missing. The build reports them; a target that installs them does not.
PKG_CONFIG := $(if $(CROSS),PKG_CONFIG_SYSROOT_DIR=$(abspath $(SYSROOT)) \
	PKG_CONFIG_LIBDIR=$(abspath $(SYSROOT))/usr/lib/$(CROSS_PREFIX:%-=%)/pkgconfig) pkg-config
MISSING  := $(if $(shell command -v pkg-config),$(shell for p in $(PACKAGES) libcurl; do \
	$(PKG_CONFIG) --exists $$p || echo $$p; done),pkg-config)
packages  = $(if $(MISSING),,$(shell $(PKG_CONFIG) $(1) $(PACKAGES)))
# Other compilers warn about code that ours accepts: warnings are errors for developers only.
WARNINGS := -Wall -Wextra $(if $(WERROR),-Werror)
CFLAGS_ALL := $(SYSROOT:%=--sysroot=$(abspath %)) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -DTRACER_VERSION='"$(VERSION)"' \
	-Iuser -Iinclude -I$(OUT)/gen $(call packages,--cflags) \
	$(if $(SAN),$(SANITIZE) -fno-sanitize-recover=undefined -fno-omit-frame-pointer) $(CPPFLAGS) $(CFLAGS)
LDFLAGS_ALL := $(SYSROOT:%=--sysroot=$(abspath %)) $(if $(SAN),$(SANITIZE)) $(LDFLAGS)
LIBS     := $(call packages,--libs) -liberty -lm

# A session that probes the libc of every process would probe the tracer's, too, so the tracer has
# another allocator. Sanitizers have an allocator of their own.
ALLOCATOR := $(if $(SAN),,-l:libjemalloc_pic.a)

SOURCES  := $(sort $(wildcard user/*/*.c user/*/*/*.c))
GENERATED := $(patsubst user/%.proto,$(OUT)/gen/%.pb-c.c,$(wildcard user/*/*.proto user/*/*/*.proto))
OBJECTS  := $(SOURCES:%.c=$(OUT)/obj/%.o) $(GENERATED:$(OUT)/gen/%.c=$(OUT)/obj/gen/%.o)
BPF      := $(patsubst bpf/%.bpf.c,%,$(wildcard bpf/*.bpf.c))
SKELETONS := $(BPF:%=$(OUT)/gen/attach/%.skel.h)
UNIT     := $(patsubst %.c,$(OUT)/tests/%,$(notdir $(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c)))
pytest_of = TRACER=$(abspath $(1)) $(PYTHON) -m pytest -q -rs -p no:cacheprovider
PYTEST   := $(call pytest_of,$(OUT)/tracer)
TOOLS    := $(patsubst %.c,$(OUT)/tools/%,$(notdir $(wildcard tools/*.c tools/bench/*.c)))
MAN      := $(patsubst docs/man/%.md,$(OUT)/man/%,$(wildcard docs/man/*.1.md))
FUZZ_LIB := build/$(if $(FUZZ_QUICK),san-clang,fuzz/lib)
FUZZ_OUT := $(OUT)/fuzz$(FUZZ_QUICK:%=/quick)
FUZZERS  := $(addprefix $(FUZZ_OUT)/,$(or $(FUZZ:%=fuzz_%),\
	$(basename $(notdir $(wildcard tests/fuzz/fuzz_*.c tests/fuzz/*/fuzz_*.c)))))

vpath %.c tools tools/bench $(wildcard tests/unit/* tests/unit/*/*) tests/fuzz tests/fuzz/heaps

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all help demo test check unit golden oracle documents machines e2e e2e-all e2e-long parity kills kernels \
	unit-programs pythons cases services soak soak-agent kill-agent idle-agent unruly bench windows coverage stacks heaps screenshots distros roots fuzz fuzz-programs format lint tools \
	static image portable portable-all man install uninstall deb deb-reproducible packages clean test-one compdb

all: $(OUT)/tracer

help:
	@echo 'Build:'
	@echo '  make            build/tracer; SAN=1, CC=clang, O=-O0, ARCH=arm64, V=1'
	@echo '  make static     build/static/tracer: one file that runs on any Linux system'
	@echo '  make image      a container image of that, for Docker; IMAGE=tracer, DOCKER=podman'
	@echo '  make demo       install what the build needs, build, trace a small leaking program (root)'
	@echo '  make man        man pages from docs/man/, into build/man/'
	@echo '  make install    PREFIX=/usr/local, DESTDIR=; make uninstall removes it'
	@echo '  make deb        Debian packages, into build/deb/'
	@echo 'While you change something:'
	@echo '  make test-one   one unit test (T=windows), or some of pytest (T=e2e/watch/test_watch.py)'
	@echo '  make unit       all unit tests; no root, as golden, oracle and documents'
	@echo '  make check      unit, golden, oracle, documents, machines; no root (also with SAN=1)'
	@echo '  make format     lay out the sources'
	@echo '  make lint       widths, sizes, names and includes of the sources, cppcheck'
	@echo '  make compdb     compile_commands.json'
	@echo 'Before a change is proposed (root):'
	@echo '  make test       install what the tests need, then run all of them, in half an hour;'
	@echo '                  last line: N passed, N failed'
	@echo '  make portable   the static tracer and the image in bare systems; a part of make test'
	@echo '  make e2e        real targets under the real kernel; a part of make test'
	@echo 'After a change of what they are about (root):'
	@echo '  make e2e-all    e2e with every version of CPython'
	@echo '  make e2e-long   e2e that takes minutes a test'
	@echo '  make packages   the Debian package, installed in a fresh Debian'
	@echo '  make parity     the long comparison with tracemalloc over all versions'
	@echo '  make pythons    builds of CPython against their own tracemalloc, into docs/pythons.md;'
	@echo '                  BUILDS=REGEX picks, PYTHONS=DIR holds the archives of builds'
	@echo '  make cases      situations from public bug reports, each with the answer that is'
	@echo '                  expected; CASES_ONLY="04|16" picks, CASES=DIR holds them'
	@echo '  make services   tracer leaks beside services of Debian'"'"'s packages under load'
	@echo '  make windows    estimates from windows, of programs made to fool them'
	@echo '  make coverage   the share of new blocks with a traceback, for every CPython found'
	@echo '  make stacks     native stacks beside those of perf, of the same requests'
	@echo '  make heaps      the heaps of real programs, into docs/heap.md; HEAPS="--only flask"'
	@echo '  make bench      cost as ratios to untraced, beside tracemalloc and other tools'
	@echo 'Before a release (root):'
	@echo '  make kernels    the features in virtual machines with other kernels, into'
	@echo '                  docs/kernels.md; KERNELS="6.1 newest" picks'
	@echo '  make distros    make demo and the unit tests in fresh Debians; DISTROS="trixie"'
	@echo '  make deb-reproducible  two builds of the Debian packages have the same bytes'
	@echo '  make portable-all   make portable in fresh Debians; SUITES="bullseye testing"'
	@echo '  make kills      SIGKILL of the tracer at 500 moments, or KILLS=N: nothing stays'
	@echo '  make soak       an hour of sessions over honest and hostile programs; MINUTES=10'
	@echo '  make soak-agent  an agent amid churn, containers and a receiver that fails, for an hour;'
	@echo '                  MINUTES=2, SEED=1; SOAK_CLOCK=1 sets the clock an hour off for moments'
	@echo '  make kill-agent  SIGKILL of an agent at 100 moments, or TIMES=N: nothing stays or is lost'
	@echo '  make idle-agent  what an agent costs beside 300 processes that do nothing; PROCESSES=100,'
	@echo '                  WORKING=30: so many of them do a little each second'
	@echo '  make unruly     sessions over trees of processes that end at bad moments; ROUNDS=25'
	@echo '  make fuzz       every fuzz target, or FUZZ="lines plan"; FUZZ_SECONDS=30 each'
	@echo 'Parts of others: roots (root file systems with CPython 3.13 to 3.15, below build/),'
	@echo 'tools, unit-programs, clean'

# A change of flags rebuilds everything, except for -Werror, which does not change the output.
FLAGS    := $(strip $(CC) $(filter-out -Werror,$(CFLAGS_ALL)) $(LDFLAGS_ALL) $(LIBS) $(CLANG) \
	$(HEADERS))
ifneq ($(MISSING)$(file <$(OUT)/flags),$(FLAGS))
.PHONY: $(OUT)/flags
endif

# A change of the commit rebuilds what --version prints.
COMMIT_H := \#define TRACER_COMMIT "$(COMMIT)"
ifneq ($(file <$(OUT)/gen/commit.h),$(COMMIT_H))
.PHONY: $(OUT)/gen/commit.h
endif

# --- the program -----------------------------------------------------------------------------------

$(OUT)/tracer: $(OUT)/obj/user/main.o $(OUT)/libtracer.a
	$(call say,LINK,$@)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(ALLOCATOR) $(LIBS)

$(OUT)/libtracer.a: $(OBJECTS)
	$(call say,AR,$@)rm -f $@ && ar rcsD $@ $^

$(OUT)/flags:
	@[ -z '$(MISSING)' ] || { \
		echo 'make: missing: $(MISSING); on Debian run: sudo tools/install-deps \
$(if $(CROSS),$(ARCH) && sudo tools/make-sysroot $(ARCH) $(SYSROOT),build)' >&2; exit 1; }
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@

$(OUT)/obj/user/%.o: user/%.c $(OUT)/flags | $(GENERATED:.c=.h) $(SKELETONS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(OUT)/obj/user/cmd/version.o: $(OUT)/gen/commit.h

$(OUT)/gen/commit.h:
	@mkdir -p $(@D)
	@printf '%s\n' '$(COMMIT_H)' >$@

$(OUT)/obj/gen/%.o: $(OUT)/gen/%.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(GENERATED): $(OUT)/gen/%.pb-c.c: user/%.proto
	@mkdir -p $(@D)
	$(call say,PROTOC,$<)$(PROTOC) --proto_path=user --c_out=$(OUT)/gen $<

$(GENERATED:.c=.h): %.h: %.c

# The pages of export --format html, of snapshots and of heaps, and of serve.
PAGE     := user/report/export/page
PAGE_PARTS := $(addprefix $(PAGE)/,page.html base.css page.css text.js stacks.js model.js graph.js page.js)
SERVE    := user/cmd/serve/page
SERVE_PARTS := $(SERVE)/serve.html $(PAGE)/base.css $(SERVE)/serve.css $(PAGE)/text.js \
	$(addprefix $(PAGE)/,stacks.js graph.js) \
	$(addprefix $(SERVE)/,parts.js tree.js query.js views.js time.js compare.js serve.js)
$(OUT)/gen/page/page.h: $(PAGE_PARTS)
$(OUT)/gen/page/serve.h $(OUT)/gen/page/heap.h: $(SERVE_PARTS)
# The same page asks a server, or is exported with its answers.
$(OUT)/gen/page/serve.h: PAGE_VALUES := "CONNECT= connect-src 'self'; frame-src 'self';" DATA=
$(OUT)/gen/page/heap.h: PAGE_VALUES := CONNECT=
$(OUT)/gen/page/%.h: tools/make-page
	@mkdir -p $(@D)
	$(call say,PAGE,$@)tools/make-page $@ $(PAGE_VALUES) $(filter-out tools/make-page,$^)

$(OUT)/obj/user/report/export/html.o: $(OUT)/gen/page/page.h
$(OUT)/obj/user/cmd/serve/serve_web.o: $(OUT)/gen/page/serve.h
$(OUT)/obj/user/cmd/serve/serve_file.o: $(OUT)/gen/page/heap.h

# For machines that have no database of terminals.
$(OUT)/gen/tui/terminals.h: tools/make-terminals
	@mkdir -p $(@D)
	$(call say,TERMS,$@)tools/make-terminals $@ linux screen screen-256color tmux tmux-256color \
		vt100 xterm xterm-256color

$(OUT)/obj/user/cmd/tui/screen.o: $(OUT)/gen/tui/terminals.h

$(OUT)/gen/bpf/%.o: bpf/%.bpf.c $(wildcard bpf/*.h bpf/*/*.h) \
		$(wildcard include/abi/*.h) $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,BPF,$<)$(CLANG) -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(ARCH_BPF) \
		-ffile-prefix-map=$(CURDIR)=. $(WARNINGS) -Ibpf -Iinclude $(HEADERS) -c -o $@ $<

$(OUT)/gen/attach/%.skel.h: $(OUT)/gen/bpf/%.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name $*_bpf > $@

# --- for other machines ---------------------------------------------------------------------------

static:
	$(Q)tools/install-deps static
	$(Q)$(MAKE) --no-print-directory $(STATIC)

# What is called of these is in tools/static/no_tls.c.
TLS_LIBS := $(addprefix -l,gnutls gmp unistring atomic nettle hogweed tasn1 idn2 p11-kit)

# A warning says that a function would need glibc's shared libraries after all. zlib is first, since
# a newer libelf.a has a crc32(), too.
$(STATIC): $(OUT)/obj/user/main.o $(OUT)/libtracer.a $(wildcard tools/static/*.c)
	@mkdir -p $(@D)
	$(call say,LINK,$@)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -static-pie -s -Wl,--fatal-warnings \
		-Wl,-z,pack-relative-relocs -o $@ $^ \
		$(ALLOCATOR) -lz $(filter-out $(TLS_LIBS),$(call packages,--static --libs)) -liberty -lm

# Podman builds it, too: DOCKER=podman. Nothing is downloaded.
DOCKER   ?= docker
IMAGE    ?= tracer
SOURCE   ?= $(shell git remote get-url origin 2>/dev/null)
image: static
	$(Q)tar -c --owner=0 --group=0 -C $(dir $(STATIC)) tracer -C $(abspath tools/image) Dockerfile | \
		$(DOCKER) build --quiet --network none --tag $(IMAGE) --tag $(IMAGE):$(VERSION) \
		$(foreach label,title=tracer version=$(VERSION) licenses=Apache-2.0 $(SOURCE:%=source=%),\
		--label org.opencontainers.image.$(label)) -

# --- man pages ------------------------------------------------------------------------------------

man: $(MAN)

$(OUT)/man/%: docs/man/%.md $(wildcard docs/man/*.md) tools/man-page
	@mkdir -p $(@D)
	$(call say,MAN,$@)tools/man-page $< $(VERSION) > $@

# --- tools and tests ------------------------------------------------------------------------------

tools: $(TOOLS)

$(OUT)/tools/offsets: tools/offsets_specs.h
$(OUT)/tools/%: %.c $(OUT)/libtracer.a
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $(filter-out %.h,$^) $(LIBS)

# A test's record has its variable part behind it, which is an extension.
$(OUT)/tests/%: %.c $(OUT)/libtracer.a
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CFLAGS_ALL) -Wno-gnu-variable-sized-type-not-at-end -Itests/unit/support -Itests/unit/support/trace -MMD -MP $(LDFLAGS_ALL) -o $@ $< \
		$(OUT)/libtracer.a $(LIBS) -lcmocka

# A separate library, built with clang, the sanitizers and all feedback for the fuzzer. A quick run has
# that of `make CC=clang SAN=1`, which does not follow comparisons, and takes an input in half the time.
$(FUZZ_LIB)/made: $(SOURCES)
	$(Q)$(MAKE) --no-print-directory CC=clang SAN=1 OUT=$(FUZZ_LIB) \
		$(if $(FUZZ_QUICK),,CFLAGS='-O1 -g -fsanitize=fuzzer-no-link') $(FUZZ_LIB)/libtracer.a >/dev/null
	$(Q)touch $@

# If a function has two definitions, that of the fuzz target is linked: fuzz_session replaces the
# kernel by a simulated world.
WORLDS := tests/fuzz/worlds
$(FUZZ_OUT)/fuzz_session: $(wildcard $(WORLDS)/session_world*.c)
$(FUZZ_OUT)/%: %.c $(FUZZ_LIB)/made
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)clang $(CFLAGS_ALL) -Itests/fuzz -I$(WORLDS) -I$(FUZZ_LIB)/gen \
		-fsanitize=fuzzer $(SANITIZE) -Wl,-z,muldefs -o $@ $(filter tests/fuzz/%,$^) \
		$(FUZZ_LIB)/libtracer.a $(LIBS)

# The process of fuzz_image: it has no libc, and is not at the addresses of other programs' images.
$(FUZZ_OUT)/image_process: $(WORLDS)/image_process.c $(WORLDS)/image_process.h
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) -O1 -static -nostdlib -fno-pie -no-pie -fno-stack-protector -I$(WORLDS) \
		-Wl,-Ttext-segment=0x70000000 -o $@ $<

$(FUZZ_OUT)/fuzz_image: $(FUZZ_OUT)/image_process $(WORLDS)/image_honest.c

unit-programs: $(UNIT)

unit: $(UNIT)
	$(Q)tests/run-unit $(UNIT)

golden: $(OUT)/tracer
	$(Q)$(PYTEST) tests/golden

oracle: $(OUT)/tracer
	$(Q)$(PYTEST) -n 2 --dist loadfile tests/oracle

machines:
	$(Q)tools/install-deps kernels
	$(Q)$(PYTEST) tests/machines

documents: $(OUT)/tracer
	$(Q)$(PYTEST) tests/documents

check: unit golden oracle documents machines

demo:
	$(Q)tools/install-deps build
	$(Q)$(MAKE) --no-print-directory $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc)) all
	$(Q)tools/demo

test:
	$(Q)tools/install-deps test
	$(Q)$(PYTHON) tests/run-all

# T=windows: test_windows.c; T=e2e/watch/test_watch.py::test_keys: what pytest takes, below tests/.
test-one: $(if $(findstring .py,$(T)),$(OUT)/tracer,$(T:%=$(OUT)/tests/test_%))
	$(Q)$(if $(T),,echo 'make test-one T=windows, or T=e2e/watch/test_watch.py' >&2; exit 2)
	$(Q)$(if $(findstring .py,$(T)),$(PYTEST) tests/$(T),$(OUT)/tests/test_$(T))

# Two files at a time: with three, the guests beside them do not get on.
E2E_WORKERS := 2
AXE := build/axe/node_modules/axe-core/axe.min.js
e2e: $(OUT)/tracer $(if $(shell command -v npm),$(AXE))
	$(Q)$(PYTEST) -n $(E2E_WORKERS) --dist loadfile --durations 30 tests/e2e

# What takes minutes in a test of its own: crowds and storms of processes, all builds of CPython.
e2e-long: $(OUT)/tracer
	$(Q)$(PYTEST) -n $(E2E_WORKERS) --dist loadfile tests/e2e --long

e2e-all: $(OUT)/tracer
	$(Q)$(PYTEST) -n $(E2E_WORKERS) --dist loadfile tests/e2e --all-versions

portable: static
	$(Q)$(call pytest_of,$(STATIC)) tests/portable

portable-all: deb
	$(Q)SUITES='$(or $(SUITES),bullseye bookworm trixie testing)' \
		$(MAKE) --no-print-directory portable

parity: $(OUT)/tracer
	$(Q)$(PYTEST) tests/e2e/python/test_parity.py --all-versions

kills: $(OUT)/tracer
	$(Q)$(PYTEST) tests/e2e/harm/test_kill.py --kills $(or $(KILLS),500)

# The table of all kernels is part of the documents; a table of some kernels, or of a quick run,
# stays in build/machines/, as does one of another architecture (ARCH=arm64).
kernels:
	$(Q)tools/install-deps kernels
	$(if $(CROSS),$(Q)tools/install-deps $(ARCH) && tools/make-sysroot $(ARCH) $(SYSROOT))
	$(Q)$(MAKE) --no-print-directory all $(filter %/verifier,$(TOOLS))
	$(Q)$(PYTHON) tests/machines/kernels.py $(CROSS:%=--arch %) $(if $(KERNELS_QUICK),--quick) \
		$(if $(KERNELS_RESUME),--resume) $(KERNELS) \
		$(if $(CROSS)$(KERNELS)$(KERNELS_QUICK),,--report docs/kernels.md)

bench: $(OUT)/tracer $(OUT)/tools/bare $(OUT)/tools/bench_perfmap
	$(Q)$(OUT)/tools/bench_perfmap
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/bench/bench.py $(BENCH)
	$(if $(BENCH),,$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/bench/bench_session.py)
	$(if $(BENCH),,$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/bench/bench_latency.py)

windows: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tests/windows/runs.py $(WINDOWS)
	$(if $(WINDOWS),,$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tests/windows/native.py)

coverage: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/bench/coverage_table.py $(COVERAGE)

# docs/images/, by a small program and Chromium.
screenshots: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/screenshots.py

$(AXE):
	@mkdir -p build/axe
	$(Q)cd build/axe && npm install --silent --no-audit --no-fund --ignore-scripts axe-core@4.14.1

# STACKS='--only "redis|cc1"'; the table of all programs is written into the documents.
# MemLab is in no Debian package. Its download of a browser is not needed.
build/memlab/node_modules/@memlab/heap-analysis:
	@mkdir -p build/memlab
	$(Q)cd build/memlab && npm install --silent --no-audit --no-fund --ignore-scripts \
		@memlab/heap-analysis@2

heaps: $(OUT)/tracer build/memlab/node_modules/@memlab/heap-analysis
	$(Q)$(PYTEST) tests/e2e/commands/test_heap_readers.py
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/heaps/heaps_table.py \
		$(if $(HEAPS),$(HEAPS),--docs)

stacks: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/stacks/stacks_table.py \
		$(if $(STACKS),$(STACKS),--docs)

# The table of all builds is part of the documents; a table of some is left in build/pythons.md.
pythons: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/pythons_table.py \
		$(if $(PYTHONS_RESUME),--resume) \
		$(if $(BUILDS),--only '$(BUILDS)',--report docs/pythons.md)

# CASES_ONLY='04|16'; CASES_QUICK=1 leaves out those that take the better part of a minute and more.
# Most of them wait: for a program's work, or for the next look at it.
cases: $(OUT)/tracer
	$(Q)tools/install-deps cases
	$(Q)$(PYTEST) -n $(if $(CASES_QUICK),4,2) $(if $(CASES_QUICK),-m 'not long') tests/cases

services: $(OUT)/tracer
	$(Q)tools/install-deps services
	$(Q)$(PYTEST) tests/services

# MINUTES=60, SEED=1
soak: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tests/soak/soak.py $(MINUTES:%=--minutes %) \
		$(SEED:%=--seed %)

# MINUTES=60, SEED=1, SOAK_CLOCK=1
soak-agent: $(OUT)/tracer
	$(Q)tools/install-deps services
	$(Q)TRACER=$(abspath $(OUT)/tracer) SOAK_CLOCK=$(SOAK_CLOCK) $(PYTHON) \
		tests/soak/soak_agent.py $(MINUTES:%=--minutes %) $(SEED:%=--seed %)

# TIMES=100, SEED=1
kill-agent: $(OUT)/tracer
	$(Q)tools/install-deps services
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tests/soak/soak_agent.py \
		--kills $(or $(TIMES),100) $(SEED:%=--seed %)

# PROCESSES=300, WORKING=0
idle-agent: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tests/soak/idle_agent.py \
		$(PROCESSES:%=--processes %) $(WORKING:%=--working %)

# ROUNDS=25, SEED=1: eight sessions per round, of the tracer with sanitizers
unruly:
	$(Q)$(MAKE) --no-print-directory SAN=1 all
	$(Q)TRACER=$(abspath build/san/tracer) $(PYTHON) tests/soak/unruly.py $(ROUNDS:%=--rounds %) \
		$(SEED:%=--seed %)

# STEPS="demo,deps" runs only these steps.
distros:
	$(Q)$(PYTHON) tests/machines/distros.py $(STEPS:%=--steps %) $(DISTROS)

roots:
	$(Q)$(PYTHON) tests/machines/roots.py

# Seeds: captures without their file header, which are streams of records; an object file, as a JIT
# registers it; a library with DWARF; libraries with CFI, and their .eh_frame alone; tracemalloc's pickles; requests. tests/fuzz/corpus/ has inputs of
# sessions, each with a path that no other takes, and images of processes.
CORPUS := build/corpus/fuzz
fuzz-programs: $(FUZZERS)
fuzz: fuzz-programs
	$(Q)mkdir -p $(addprefix $(CORPUS)_,capture jit_elf native worker tracemalloc session image \
		unwind recording archive web serve)
	$(Q)for c in tests/golden/*.cap; do tail -c +17 $$c > $(CORPUS)_capture/$${c##*/}; done
	$(Q)cp $(FUZZ_LIB)/obj/user/util/text.o $(CORPUS)_jit_elf
	$(Q)$(CC) -shared -nostdlib -fPIC -O2 -x c -o $(CORPUS)_native/allocator.so \
		tests/fuzz/corpus/corpus_native.c
	$(Q)$(CC) -D_GNU_SOURCE -O2 -g -shared -fPIC -nostdlib -Iuser -o $(CORPUS)_worker/spans.so user/util/spans.c
	$(Q)$(PYTHON) tests/fuzz/corpus/corpus_unwind.py $(CC) $(CORPUS)_unwind
	$(Q)printf _ZN4shop6BasketIiE3addEv >$(CORPUS)_worker/name
	$(Q)$(PYTHON) tests/fuzz/corpus/corpus_tracemalloc.py $(CORPUS)_tracemalloc
	$(Q)$(PYTHON) tests/fuzz/corpus/corpus_core.py $(CORPUS)_core
	$(Q)tar -xzOf tests/fuzz/corpus/corpus_recording.tar.gz >$(CORPUS)_recording.rec
	$(Q)$(PYTHON) tests/fuzz/corpus/corpus_recording.py $(CORPUS)_recording.rec $(CORPUS)_recording
	$(Q)echo '{}' >$(CORPUS)_archive/evidence.json && tar -cf $(CORPUS)_archive/bundle --format=ustar \
		-C $(CORPUS)_archive evidence.json -C $(CURDIR) Makefile
	$(Q)for path in / /metrics /targets /readyz '/debug/pprof/heap?pid=7&seconds=1' '/report?pid=7'; do \
		printf '\0GET %s HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n\r\n' "$$path" \
			>$(CORPUS)_web/$$(printf %s "$$path" | tr -c a-z _); done
	$(Q)for path in / /report?source=1 /api/sources /api/query-fields '/api/heap/by?key=type&top=9' \
		'/api/time/series?source=1' '/api/time/range?source=1&first=2&last=5' \
		'/api/heap/tree?of=root' '/api/heap/lines?what=a' '/api/parts?source=1' \
		'/api/compare?a=1&b=1/thread/7&by=function' '/api/compare?a=1/process/9&b=1/task/0' \
		'/compare?a=1/value/0&b=1' '/api/heap/diff?a=0&b=0&c=0&by=path' \
		'/api/heap/query?q=type+%3D+%22a%22+and+(size+%3E+1K+or+not+path+~+b)'; do \
		printf '\200GET %s HTTP/1.1\r\nHost: localhost\r\nCookie: tracer-1=cccccccccccccccccccccccccccccccc\r\n\r\n' \
			"$$path" >$(CORPUS)_serve/$$(printf %s "$$path" | tr -c a-z _); done
	$(Q)tar -xzf tests/fuzz/corpus/corpus_session.tar.gz -C $(CORPUS)_session
	$(Q)tar -xzf tests/fuzz/corpus/corpus_image.tar.gz -C $(CORPUS)_image
	$(Q)for f in $(FUZZERS); do echo "$$f"; mkdir -p build/corpus/$${f##*/}; \
		FUZZ_IMAGE_PROCESS=$(FUZZ_OUT)/image_process FUZZ_IMAGE_PYTHON=$(PYTHON) $$f -max_total_time=$(or $(FUZZ_SECONDS),30) \
		-max_len=200000 -timeout=$$([ $${f##*/} = fuzz_image ] && echo 60 || echo 10) \
		-verbosity=0 -artifact_prefix=build/ build/corpus/$${f##*/} || exit 1; done

C_FILES := $(shell git ls-files '*.c' '*.h' 2>/dev/null)
format:
	$(Q)clang-format -i $(C_FILES)
	$(Q)if command -v black >/dev/null; then black --quiet tests tools; fi

# For editors: what each file is compiled with.
compdb:
	$(Q)$(MAKE) --no-print-directory --dry-run --always-make V=1 all unit-programs | \
		tools/compdb > compile_commands.json

lint:
	$(Q)tools/check-includes
	$(Q)tools/check-names
	$(Q)tools/check-words
	$(Q)tools/check-width $(C_FILES)
	$(Q)tools/check-sizes
	$(Q)clang-format --dry-run --Werror $(C_FILES)
	$(Q)cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr \
		--suppress=missingIncludeSystem -Iuser -Iinclude user

# --- installation ---------------------------------------------------------------------------------

# FILE=PLACE, of all but the program.
DOCS     := README.md GLOSSARY.md CHANGELOG.md $(wildcard docs/*.md docs/schema/*.json)
INSTALLED := $(foreach doc,$(DOCS),$(doc)=$(PREFIX)/share/doc/tracer/$(doc)) \
	completions/tracer.bash=$(PREFIX)/share/bash-completion/completions/tracer \
	completions/tracer.fish=$(PREFIX)/share/fish/vendor_completions.d/tracer.fish \
	completions/_tracer=$(ZSH_DIR)/_tracer \
	$(foreach page,$(MAN),$(page)=$(PREFIX)/share/man/man1/$(notdir $(page))) \
	$(if $(SYSTEMD_DIR),deploy/systemd/tracer-agent.service=$(SYSTEMD_DIR)/tracer-agent.service)
CONFIG   := deploy/systemd/agent.conf
ETC      := $(DESTDIR)/etc/tracer

# A configuration that is there stays as it is.
install: all man
	install -D -m 755 $(OUT)/tracer $(DESTDIR)$(PREFIX)/bin/tracer
	for file in $(INSTALLED); do \
		install -D -m 644 "$${file%%=*}" "$(DESTDIR)$${file#*=}" || exit 1; done
	[ -e $(ETC)/agent.conf ] || install -D -m 644 $(CONFIG) $(ETC)/agent.conf

# The folders that others use, too, stay, and a configuration that was changed.
uninstall:
	rm -f $(DESTDIR)$(PREFIX)/bin/tracer
	! cmp -s $(CONFIG) $(ETC)/agent.conf || rm $(ETC)/agent.conf
	[ ! -d $(ETC) ] || rmdir --ignore-fail-on-non-empty $(ETC)
	for file in $(INSTALLED); do rm -f "$(DESTDIR)$${file#*=}" || exit 1; done
	for folder in tracer/docs/schema tracer/docs tracer; do [ ! -d $(DESTDIR)$(PREFIX)/share/doc/$$folder ] || \
		rmdir --ignore-fail-on-non-empty $(DESTDIR)$(PREFIX)/share/doc/$$folder || exit 1; done

deb:
	$(Q)tools/install-deps package
	$(Q)tools/make-deb build/deb

# The same bytes, whatever the folder, the time, the language and the rights of new files.
deb-reproducible: deb
	$(Q)umask 077 && CCACHE_DISABLE=1 TZ=Pacific/Apia LC_ALL=C.UTF-8 \
		tools/make-deb build/deb-again/in/another/folder
	$(Q)for deb in build/deb/*.deb; do \
		cmp "$$deb" "build/deb-again/in/another/folder/$${deb##*/}" || exit 1; done
	@echo 'deb-reproducible: both builds have the same bytes'

packages: all deb
	$(Q)$(PYTEST) tests/packages

clean:
	rm -rf build

-include $(shell find $(OUT)/obj $(OUT)/tests -name '*.d' 2>/dev/null)
