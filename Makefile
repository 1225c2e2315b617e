# SPDX-License-Identifier: Apache-2.0
# `make help` lists the targets. Switches: SAN=1 (ASan + UBSan), V=1 (show commands), CC=clang, O=-O0, WERROR=1.

ifeq ($(origin CC),default)
CC       := gcc
endif
CLANG    ?= clang
# Where the machine's own programs find headers; for BPF clang leaves out those that a distribution keeps apart for an architecture.
HEADERS  := $(shell $(CLANG) -v -E -x c /dev/null 2>&1 | sed -n '/^\#include <\.\.\.>/,/^End/s|^ \(/[^ ]*\)$$|-idirafter \1|p')
# Newer protobuf-c's protoc-c warns that protoc is to be used.
PROTOC   ?= $(if $(shell command -v protoc),protoc,protoc-c)
BPFTOOL  ?= $(shell command -v bpftool || echo /usr/sbin/bpftool)
# pytest comes with the distribution's Python; another python3 may stand before it on PATH.
PYTHON   ?= $(firstword $(wildcard /usr/bin/python3) python3)
PREFIX   ?= /usr/local
VERSION  := 0.1.0
O        ?= -O2
# Variants build side by side: build/ for the usual one, build/san, build/clang …
VARIANT  := $(if $(SAN),san-)$(if $(findstring clang,$(CC)),clang-)
OUT      := build$(if $(VARIANT),/$(VARIANT:%-=%))
Q        := $(if $(V),,@)
say       = $(if $(V),,@printf '  %-7s %s\n' $(1) $(2);)

PACKAGES := libbpf libelf libdw capstone libprotobuf-c zlib jansson libcap
SANITIZE := -fsanitize=address,undefined
CFLAGS   ?= $(O) -g
# What of them is not here; the build says so, not a target that installs them first.
MISSING  := $(if $(shell command -v pkg-config),$(shell for p in $(PACKAGES); do pkg-config --exists $$p || echo $$p; done),pkg-config)
packages  = $(if $(MISSING),,$(shell pkg-config $(1) $(PACKAGES)))
# Somebody else's compiler warns of what ours does not: an error for developers alone.
WARNINGS := -Wall -Wextra $(if $(WERROR),-Werror)
CFLAGS_ALL := -std=gnu11 $(WARNINGS) -D_GNU_SOURCE -DTRACER_VERSION='"$(VERSION)"' -Iuser -Iinclude -I$(OUT)/gen \
	$(call packages,--cflags) $(if $(SAN),$(SANITIZE) -fno-sanitize-recover=undefined -fno-omit-frame-pointer) $(CFLAGS)
LDFLAGS_ALL := $(if $(SAN),$(SANITIZE)) $(LDFLAGS)
LIBS     := $(call packages,--libs) -liberty -lm

# Where every process's libc is probed, ours would be, too. A sanitizer has an allocator of its own.
ALLOCATOR := $(if $(SAN),,-l:libjemalloc_pic.a)

ROOMS    := base elf process container select x86 pymalloc plan attach perfmap symbols python trace snapshot stats report export control session cli
SOURCES  := $(foreach room,$(ROOMS),$(wildcard user/$(room)/*.c))
GENERATED := $(OUT)/gen/export/profile.pb-c.c
OBJECTS  := $(SOURCES:%.c=$(OUT)/obj/%.o) $(GENERATED:$(OUT)/gen/%.c=$(OUT)/obj/gen/%.o)
BPF      := $(patsubst bpf/%.bpf.c,%,$(wildcard bpf/*.bpf.c))
SKELETONS := $(BPF:%=$(OUT)/gen/attach/%.skel.h)
UNIT     := $(patsubst tests/unit/%.c,$(OUT)/tests/%,$(wildcard tests/unit/test_*.c))
PYTEST   := TRACER=$(abspath $(OUT)/tracer) $(PYTHON) -m pytest -q -rs -p no:cacheprovider
TOOLS    := $(patsubst tools/%.c,$(OUT)/tools/%,$(wildcard tools/*.c))
MAN      := $(patsubst docs/man/%.md,$(OUT)/man/%,$(wildcard docs/man/*.1.md))
FUZZERS  := $(patsubst tests/fuzz/%.c,$(OUT)/fuzz/%,$(or $(FUZZ:%=tests/fuzz/fuzz_%.c),$(wildcard tests/fuzz/fuzz_*.c)))

.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all help demo test check unit golden oracle documents machines e2e parity kills kernels pythons soak bench coverage distros roots \
	fuzz format lint tools man install clean

all: $(OUT)/tracer

help:
	@echo 'make            build/tracer'
	@echo 'make demo       install what the build needs, build, trace a small leaking program (root)'
	@echo 'make test       install what the tests need, then every test (root); last line: N passed, N failed'
	@echo 'make check      unit and golden tests, and those against tracemalloc'"'"'s own files; no root (also with SAN=1)'
	@echo 'make parity     the long comparison with tracemalloc over all versions (root)'
	@echo 'make kills      SIGKILL to the tracer at 500 moments, or at KILLS="100": nothing of it stays in its target (root)'
	@echo 'make kernels    Debian'"'"'s kernels in virtual machines, into docs/kernels.md (root); KERNELS="6.1 newest" picks'
	@echo 'make pythons    builds of CPython held against their own tracemalloc, into docs/pythons.md (root); BUILDS=REGEX picks, PYTHONS=DIR'
	@echo '                has archives of builds (default: ../shared/pythons)'
	@echo 'make bench      ratios to untraced, next to tracemalloc and other tools (root)'
	@echo 'make coverage   the share of new blocks that has a traceback, for every CPython found (root)'
	@echo 'make distros    make demo and the unit tests in fresh Debians 12, 13 and testing, or DISTROS="trixie" (root)'
	@echo 'make roots      root file systems with CPython 3.13, 3.14 and 3.15 for the tests, below build/roots (root); make test does it, too'
	@echo 'make soak       an hour of sessions over honest and hostile programs, killed at random (root); MINUTES=10 is less'
	@echo 'make fuzz       every fuzz target, or those of FUZZ="lines plan", for FUZZ_SECONDS each (default 30)'
	@echo 'make man        man pages from docs/man/, into build/man/; make install installs those that are there'
	@echo 'make lint format tools install PREFIX=… clean'

# What was built with other flags is built again; -Werror changes nothing that is built.
FLAGS    := $(strip $(CC) $(filter-out -Werror,$(CFLAGS_ALL)) $(LDFLAGS_ALL) $(LIBS) $(CLANG) $(HEADERS))
ifneq ($(MISSING)$(file <$(OUT)/flags),$(FLAGS))
.PHONY: $(OUT)/flags
endif

# --- the program ---------------------------------------------------------------------------------------------

$(OUT)/tracer: $(OUT)/obj/user/main.o $(OUT)/libtracer.a
	$(call say,LINK,$@)$(CC) $(LDFLAGS_ALL) -o $@ $^ $(LIBS) $(ALLOCATOR)

$(OUT)/libtracer.a: $(OBJECTS)
	$(call say,AR,$@)rm -f $@ && ar rcs $@ $^

$(OUT)/flags:
	@[ -z '$(MISSING)' ] || { echo 'make: missing: $(MISSING); on Debian run: sudo tools/install-deps build' >&2; exit 1; }
	@mkdir -p $(@D)
	@printf '%s\n' '$(subst ','\'',$(FLAGS))' >$@

$(OUT)/obj/user/%.o: user/%.c $(OUT)/flags | $(OUT)/gen/export/profile.pb-c.h $(SKELETONS)
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(OUT)/obj/gen/%.o: $(OUT)/gen/%.c $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CFLAGS_ALL) -MMD -MP -c -o $@ $<

$(OUT)/gen/export/profile.pb-c.c: user/export/profile.proto
	@mkdir -p $(@D)
	$(call say,PROTOC,$<)$(PROTOC) --proto_path=user --c_out=$(OUT)/gen $<

$(OUT)/gen/export/profile.pb-c.h: $(OUT)/gen/export/profile.pb-c.c

$(OUT)/gen/bpf/%.o: bpf/%.bpf.c $(wildcard bpf/*.h) $(wildcard include/abi/*.h) $(OUT)/flags
	@mkdir -p $(@D)
	$(call say,BPF,$<)$(CLANG) -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_x86 $(WARNINGS) -Iinclude \
		$(HEADERS) -c -o $@ $<

$(OUT)/gen/attach/%.skel.h: $(OUT)/gen/bpf/%.o
	@mkdir -p $(@D)
	$(call say,SKEL,$@)$(BPFTOOL) gen skeleton $< name $*_bpf > $@

# --- man pages -------------------------------------------------------------------------------------------------

man: $(MAN)

$(OUT)/man/%: docs/man/%.md $(wildcard docs/man/*.md) tools/man-page
	@mkdir -p $(@D)
	$(call say,MAN,$@)tools/man-page $< $(VERSION) > $@

# --- tools and tests -------------------------------------------------------------------------------------------

tools: $(TOOLS)

$(OUT)/tools/%: tools/%.c $(OUT)/libtracer.a
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $^ $(LIBS)

$(OUT)/tests/%: tests/unit/%.c $(OUT)/libtracer.a
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) $(CFLAGS_ALL) -Itests/unit -MMD -MP $(LDFLAGS_ALL) -o $@ $< $(OUT)/libtracer.a $(LIBS) -lcmocka

# A library of its own: with clang, the sanitizers and the coverage feedback that steers the fuzzer.
FUZZ_LIB := build/fuzz/lib
$(FUZZ_LIB)/made: $(SOURCES)
	$(Q)$(MAKE) --no-print-directory CC=clang SAN=1 OUT=$(FUZZ_LIB) CFLAGS='-O1 -g -fsanitize=fuzzer-no-link' \
		$(FUZZ_LIB)/libtracer.a >/dev/null
	$(Q)touch $@

# Of functions that are there twice a fuzz target's own is taken: fuzz_session puts a world in the place of the kernel.
$(OUT)/fuzz/fuzz_session: tests/fuzz/session_world.c
$(OUT)/fuzz/%: tests/fuzz/%.c $(FUZZ_LIB)/made
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)clang $(CFLAGS_ALL) -Itests/fuzz -I$(FUZZ_LIB)/gen -fsanitize=fuzzer $(SANITIZE) -Wl,-z,muldefs \
		-o $@ $(filter tests/fuzz/%,$^) $(FUZZ_LIB)/libtracer.a $(LIBS)

# The process of fuzz_image: no libc, and nothing of it where another program's image would lie.
$(OUT)/fuzz/image_process: tests/fuzz/image_process.c tests/fuzz/image_process.h
	@mkdir -p $(@D)
	$(call say,CC,$@)$(CC) -O1 -static -nostdlib -fno-pie -no-pie -fno-stack-protector -Itests/fuzz \
		-Wl,-Ttext-segment=0x70000000 -o $@ $<

$(OUT)/fuzz/fuzz_image: $(OUT)/fuzz/image_process

unit: $(UNIT)
	$(Q)tests/run-unit $(UNIT)

golden: $(OUT)/tracer
	$(Q)$(PYTEST) tests/golden

oracle: $(OUT)/tracer
	$(Q)$(PYTEST) tests/oracle

machines:
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

e2e: $(OUT)/tracer
	$(Q)$(PYTEST) tests/e2e

parity: $(OUT)/tracer
	$(Q)$(PYTEST) tests/e2e/test_parity.py --all-versions

kills: $(OUT)/tracer
	$(Q)$(PYTEST) tests/e2e/test_kill.py --kills $(or $(KILLS),500)

# The table of all kernels is part of the documents; that of some, or of a quick run, is left in build/machines/.
kernels:
	$(Q)tools/install-deps kernels
	$(Q)$(MAKE) --no-print-directory all $(filter %/verifier,$(TOOLS))
	$(Q)$(PYTHON) tests/machines/kernels.py $(if $(KERNELS_QUICK),--quick) $(if $(KERNELS_RESUME),--resume) $(KERNELS) \
		$(if $(KERNELS)$(KERNELS_QUICK),,--report docs/kernels.md)

bench: $(OUT)/tracer $(OUT)/tools/bare $(OUT)/tools/bench_perfmap
	$(Q)$(OUT)/tools/bench_perfmap
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/bench.py $(BENCH)
	$(if $(BENCH),,$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/bench_session.py)
	$(if $(BENCH),,$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/bench_latency.py)

coverage: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/coverage_table.py $(COVERAGE)

# The table of all builds is part of the documents; that of some is left in build/pythons.md.
pythons: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tools/pythons_table.py $(if $(BUILDS),--only '$(BUILDS)',--report docs/pythons.md)

# MINUTES=60, SEED=1
soak: $(OUT)/tracer
	$(Q)TRACER=$(abspath $(OUT)/tracer) $(PYTHON) tests/soak/soak.py $(MINUTES:%=--minutes %) $(SEED:%=--seed %)

# STEPS="demo,deps" are less than all of them.
distros:
	$(Q)$(PYTHON) tests/machines/distros.py $(STEPS:%=--steps %) $(DISTROS)

roots:
	$(Q)$(PYTHON) tests/machines/roots.py

# The captures of the golden tests, less their file header, are what a stream of records looks like; an object file is
# what a JIT registers. A library with DWARF is one of them. Of a session there are stories: each takes a way that no other does.
fuzz: $(FUZZERS)
	$(Q)mkdir -p build/corpus/fuzz_capture && for c in tests/golden/*.cap; do \
		tail -c +17 $$c > build/corpus/fuzz_capture/$${c##*/}; done
	$(Q)mkdir -p build/corpus/fuzz_jit_elf && cp $(FUZZ_LIB)/obj/user/base/text.o build/corpus/fuzz_jit_elf
	$(Q)mkdir -p build/corpus/fuzz_native && $(CC) -shared -nostdlib -fPIC -O2 -x c -o build/corpus/fuzz_native/allocator.so \
		tests/fuzz/corpus_native.c
	$(Q)mkdir -p build/corpus/fuzz_worker && $(CC) -O2 -g -shared -fPIC -nostdlib -Iuser \
		-o build/corpus/fuzz_worker/spans.so user/base/spans.c && printf _ZN4shop6BasketIiE3addEv \
		>build/corpus/fuzz_worker/name
	$(Q)mkdir -p build/corpus/fuzz_tracemalloc && $(PYTHON) tests/fuzz/corpus_tracemalloc.py build/corpus/fuzz_tracemalloc
	$(Q)mkdir -p build/corpus/fuzz_session && tar -xzf tests/fuzz/corpus_session.tar.gz -C build/corpus/fuzz_session
	$(Q)mkdir -p build/corpus/fuzz_image && tar -xzf tests/fuzz/corpus_image.tar.gz -C build/corpus/fuzz_image
	$(Q)for f in $(FUZZERS); do echo "$$f"; mkdir -p build/corpus/$${f##*/}; \
		FUZZ_IMAGE_PYTHON=$(PYTHON) $$f -max_total_time=$(or $(FUZZ_SECONDS),30) -max_len=200000 \
		-timeout=$$([ $${f##*/} = fuzz_image ] && echo 60 || echo 10) -verbosity=0 \
		-artifact_prefix=build/ build/corpus/$${f##*/} || exit 1; done

C_FILES := $(shell git ls-files '*.c' '*.h' 2>/dev/null)
format:
	$(Q)clang-format -i $(C_FILES)
	$(Q)if command -v black >/dev/null; then black --quiet tests tools; fi

lint:
	$(Q)tools/check-includes
	$(Q)tools/check-width $(C_FILES)
	$(Q)clang-format --dry-run --Werror $(C_FILES)
	$(Q)cppcheck --quiet --error-exitcode=1 --std=c11 --enable=warning,portability --inline-suppr \
		--suppress=missingIncludeSystem -Iuser -Iinclude user

install: all
	install -D -m 755 $(OUT)/tracer $(DESTDIR)$(PREFIX)/sbin/tracer
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/tracer README.md
	install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/doc/tracer/docs $(wildcard docs/*.md)
	for page in $(MAN); do [ ! -e $$page ] || install -D -m 644 -t $(DESTDIR)$(PREFIX)/share/man/man1 $$page || exit 1; done

clean:
	rm -rf build

-include $(shell find $(OUT)/obj $(OUT)/tests -name '*.d' 2>/dev/null)
