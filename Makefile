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
VERSION  := 0.1.0
O        ?= $(if $(SAN),-O1,-O2)
# Variants build side by side: build/ for the usual one, build/san, build/clang …
VARIANT  := $(CROSS:%=%-)$(if $(SAN),san-)$(if $(findstring clang,$(CC)),clang-)
OUT      := build$(if $(VARIANT),/$(VARIANT:%-=%))
Q        := $(if $(V),,@)
comma    := ,
say       = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2);)

PACKAGES := libbpf libelf libdw capstone libprotobuf-c zlib liblzma jansson libcap ncursesw
# With clang they count the branches taken, so that fuzz targets can be linked with the same objects.
SANITIZE := -fsanitize=address,undefined \
	$(if $(findstring clang,$(CC)),-fsanitize-coverage=inline-8bit-counters$(comma)pc-table)
CFLAGS   ?= $(O) -g
# The packages that are missing. The build reports them; a target that installs them does not.
PKG_CONFIG := $(if $(CROSS),PKG_CONFIG_SYSROOT_DIR=$(abspath $(SYSROOT)) \
	PKG_CONFIG_LIBDIR=$(abspath $(SYSROOT))/usr/lib/$(CROSS_PREFIX:%-=%)/pkgconfig) pkg-config
MISSING  := $(if $(shell command -v pkg-config),$(shell for p in $(PACKAGES); do \
	$(PKG_CONFIG) --exists $$p || echo $$p; done),pkg-config)
packages  = $(if $(MISSING),,$(shell $(PKG_CONFIG) $(1) $(PACKAGES)))
# Other compilers warn about code that ours accepts: warnings are errors for developers only.
WARNINGS := -Wall -Wextra $(if $(WERROR),-Werror)
CFLAGS_ALL := $(SYSROOT:%=--sysroot=$(abspath %)) -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -DTRACER_VERSION='"$(VERSION)"' \
	-Iuser -Iinclude -I$(OUT)/gen $(call packages,--cflags) \
	$(if $(SAN),$(SANITIZE) -fno-sanitize-recover=undefined -fno-omit-frame-pointer) $(CFLAGS)
LDFLAGS_ALL := $(SYSROOT:%=--sysroot=$(abspath %)) $(if $(SAN),$(SANITIZE)) $(LDFLAGS)
LIBS     := $(call packages,--libs) -liberty -lm

# A session that probes the libc of every process would probe the tracer's, too, so the tracer has
# another allocator. Sanitizers have an allocator of their own.
ALLOCATOR := $(if $(SAN),,-l:libjemalloc_pic.a)

SOURCES  := $(wildcard user/*/*.c user/*/*/*.c)
GENERATED := $(OUT)/gen/report/pprof/profile.pb-c.c
OBJECTS  := $(SOURCES:%.c=$(OUT)/obj/%.o) $(GENERATED:$(OUT)/gen/%.c=$(OUT)/obj/gen/%.o)
BPF      := $(patsubst bpf/%.bpf.c,%,$(wildcard bpf/*.bpf.c))
SKELETONS := $(BPF:%=$(OUT)/gen/attach/%.skel.h)
UNIT     := $(patsubst %.c,$(OUT)/tests/%,$(notdir $(wildcard tests/unit/*/test_*.c tests/unit/*/*/test_*.c)))
PYTEST   := TRACER=$(abspath $(OUT)/tracer) $(PYTHON) -m pytest -q -rs -p no:cacheprovider
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
	unit-programs pythons cases services soak unruly bench windows coverage stacks heaps distros roots fuzz format lint tools \
	man install clean test-one compdb

all: $(OUT)/tracer

help:
	@echo 'Build:'
	@echo '  make            build/tracer; SAN=1, CC=clang, O=-O0, ARCH=arm64, V=1'
	@echo '  make demo       install what the build needs, build, trace a small leaking program (root)'
	@echo '  make man        man pages from docs/man/, into build/man/'
	@echo '  make install    PREFIX=/usr/local'
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
	@echo '  make e2e        real targets under the real kernel; a part of make test'
	@echo 'After a change of what they are about (root):'
	@echo '  make e2e-all    e2e with every version of CPython'
	@echo '  make e2e-long   e2e that takes minutes a test'
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
	@echo '  make kills      SIGKILL of the tracer at 500 moments, or KILLS=N: nothing stays'
	@echo '  make soak       an hour of sessions over honest and hostile programs; MINUTES=10'
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

# --- the program -----------------------------------------------------------------------------------

$(OUT)/tracer: $(OUT)/obj/user/main.o $(OUT)/libtracer.a
	$(call say,LINK,$@)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS) $(ALLOCATOR)

$(OUT)/libtracer.a: $(OBJECTS)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

$(OUT)/flags:
	@[ -z '$(MISSING)' ] || { \
		echo 'make: missing: $(MISSING); on Debian run: sudo tools/install-deps \
$(if $(CROSS),$(ARCH) && sudo tools/make-sysroot $(ARCH) $(SYSROOT),build)' >&2; exit 1; }
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@

$(OUT)/obj/user/%.o: user/%.c $(OUT)/flags | $(OUT)/gen/report/pprof/profile.pb-c.h $(SKELETONS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(OUT)/obj/gen/%.o: $(OUT)/gen/%.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(OUT)/gen/report/pprof/profile.pb-c.c: user/report/pprof/profile.proto
	@mkdir -p $(@D)
	$(call say,PROTOC,$<)$(PROTOC) --proto_path=user --c_out=$(OUT)/gen $<

$(OUT)/gen/report/pprof/profile.pb-c.h: $(OUT)/gen/report/pprof/profile.pb-c.c

# The page of export --format html.
$(OUT)/gen/page/page.h: $(wildcard user/report/export/page/*) tools/make-page
	@mkdir -p $(@D)
	$(call say,PAGE,$@)tools/make-page user/report/export/page $@

$(OUT)/obj/user/report/export/html.o: $(OUT)/gen/page/page.h

$(OUT)/gen/bpf/%.o: bpf/%.bpf.c $(wildcard bpf/*.h bpf/*/*.h) \
		$(wildcard include/abi/*.h) $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,BPF,$<)$(CLANG) -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(ARCH_BPF) \
		$(WARNINGS) -Ibpf -Iinclude $(HEADERS) -c -o $@ $<

$(OUT)/gen/attach/%.skel.h: $(OUT)/gen/bpf/%.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name $*_bpf > $@

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
	$(Q)$(MAKE) --no-print-directory all
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
e2e: $(OUT)/tracer
	$(Q)$(PYTEST) -n $(E2E_WORKERS) --dist loadfile --durations 30 tests/e2e

# What takes minutes in a test of its own: crowds and storms of processes, all builds of CPython.
e2e-long: $(OUT)/tracer
	$(Q)$(PYTEST) -n $(E2E_WORKERS) --dist loadfile tests/e2e --long

e2e-all: $(OUT)/tracer
	$(Q)$(PYTEST) -n $(E2E_WORKERS) --dist loadfile tests/e2e --all-versions

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
# registers it; a library with DWARF; libraries with CFI, and their .eh_frame alone; tracemalloc's pickles. tests/fuzz/corpus/ has inputs of
# sessions, each with a path that no other takes, and images of processes.
CORPUS := build/corpus/fuzz
fuzz: $(FUZZERS)
	$(Q)mkdir -p $(addprefix $(CORPUS)_,capture jit_elf native worker tracemalloc session image \
		unwind recording)
	$(Q)for c in tests/golden/*.cap; do tail -c +17 $$c > $(CORPUS)_capture/$${c##*/}; done
	$(Q)cp $(FUZZ_LIB)/obj/user/util/text.o $(CORPUS)_jit_elf
	$(Q)$(CC) -shared -nostdlib -fPIC -O2 -x c -o $(CORPUS)_native/allocator.so \
		tests/fuzz/corpus/corpus_native.c
	$(Q)$(CC) -O2 -g -shared -fPIC -nostdlib -Iuser -o $(CORPUS)_worker/spans.so user/util/spans.c
	$(Q)$(PYTHON) tests/fuzz/corpus/corpus_unwind.py $(CC) $(CORPUS)_unwind
	$(Q)printf _ZN4shop6BasketIiE3addEv >$(CORPUS)_worker/name
	$(Q)$(PYTHON) tests/fuzz/corpus/corpus_tracemalloc.py $(CORPUS)_tracemalloc
	$(Q)$(PYTHON) tests/fuzz/corpus/corpus_core.py $(CORPUS)_core
	$(Q)tar -xzOf tests/fuzz/corpus/corpus_recording.tar.gz >$(CORPUS)_recording.rec
	$(Q)$(PYTHON) tests/fuzz/corpus/corpus_recording.py $(CORPUS)_recording.rec $(CORPUS)_recording
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

install: all
	install -D -m 755 $(OUT)/tracer $(DESTDIR)$(PREFIX)/sbin/tracer
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/tracer README.md
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/tracer/docs $(wildcard docs/*.md)
	install -D -m 644 completions/tracer.bash \
		$(DESTDIR)$(PREFIX)/share/bash-completion/completions/tracer
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/zsh/site-functions completions/_tracer
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d completions/tracer.fish
	for page in $(MAN); do [ ! -e $$page ] || \
		install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $$page || exit 1; done

clean:
	rm -rf build

-include $(shell find $(OUT)/obj $(OUT)/tests -name '*.d' 2>/dev/null)
