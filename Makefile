# SPDX-License-Identifier: Apache-2.0
#
# tandem. `make help` lists the targets.
#
# B is the build folder; every other flavour (sanitizers, fuzzers, compilers) builds in
# a folder of its own below build/, so that switching between them rebuilds nothing.
#
#   make unit T=base_json        one unit test (a pattern with %: T=base_%)
#   make OPT='-O0 -g3'           other flags; a changed flag rebuilds what it touches
#   make WERROR=1                warnings are errors, as in CI
#   make V=1                     show the commands

B            ?= build
PREFIX       ?= /usr/local
DESTDIR      ?=
AR           ?= ar
PKG          ?= pkg-config
FUZZ_SECONDS ?= 5
VERSION      := 0.1.0
PKGS         := jansson libpcre2-8 libutf8proc libedit hwloc libmicrohttpd libcurl zlib \
                libzstd
ifeq ($(origin CC),default)
CC := gcc
endif
CLANG        ?= $(shell command -v clang-14 || echo clang)

# Q silences commands and `say` names the file instead; V=1 shows the commands.
Q        := $(if $(V),,@)
say       = $(if $(V)$(findstring s,$(firstword -$(MAKEFLAGS))),:,printf '  %-5s %s\n')

OPT      ?= -O2 -g
KOPT     ?= -O3
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion \
            -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wundef \
            -Wwrite-strings -Wcast-qual -Wdouble-promotion -fno-common \
            $(if $(WERROR),-Werror)
BUILD_ID := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
CPPFLAGS += -Isrc $(shell $(PKG) --cflags $(PKGS))
CFLAGS   ?=
ALLFLAGS  = -std=c11 $(OPT) $(WARN) -pthread -ffp-contract=off $(CPPFLAGS) \
            $(CFLAGS) $(SAN)
LDLIBS   += $(shell $(PKG) --libs $(PKGS)) -lm -ldl

SHARE     = $(DESTDIR)$(PREFIX)/share/tandem
DOC       = $(DESTDIR)$(PREFIX)/share/doc/tandem
ARCH     := $(shell $(CC) -dumpmachine | cut -d- -f1)
SHELVES  := ref $(if $(filter x86_64,$(ARCH)),x86) $(if $(filter aarch64,$(ARCH)),arm)
SRC      := $(sort $(wildcard src/*/*.c $(foreach s,$(SHELVES),src/ops/$(s)/*.c)))
OBJ      := $(SRC:src/%.c=$(B)/%.o)
LIB      := $(B)/libtandem.a
LIBOBJ   := $(filter-out $(B)/cmd/main.o,$(OBJ))
TOOLS    := $(patsubst tools/%.c,$(B)/%,$(wildcard tools/*.c)) $(B)/make_model
MAKER    := $(patsubst %.c,$(B)/%.o,$(sort $(wildcard tools/make_model/*.c)))
T        ?= %
UNIT     := $(patsubst tests/unit/%.c,$(B)/tests/%,$(wildcard tests/unit/*.c))
UNIT     := $(sort $(filter $(B)/tests/$(T),$(UNIT)))
E2E      := $(sort $(wildcard tests/e2e/*.sh))
FUZZ     := $(patsubst tests/fuzz/%.c,$(B)/%,$(sort $(wildcard tests/fuzz/fuzz_*.c)))
TIDY     ?= clang-tidy
TSAN     := $(filter $(foreach r,base ops load comm sched text fabric,$(B)/tests/$(r)_%),$(UNIT))

# The CUDA shelf: a shared object of its own, with a copy of what it needs of base.
# 90a is Hopper (H100, H200), 121a is GB10 (DGX Spark).
CUDA_ARCHS ?= 90a 121a
NVCC       ?= $(shell command -v nvcc || echo /usr/local/cuda/bin/nvcc)
CUDA_HOME  ?= $(patsubst %/bin/,%,$(dir $(realpath $(NVCC))))
CUDA_GEN    = $(foreach a,$(CUDA_ARCHS),-gencode=arch=compute_$(a),code=sm_$(a))
NVFLAGS     = -std=c++17 -O3 $(CUDA_GEN) -Isrc $(if $(WERROR),-Werror all-warnings) \
              -Xcompiler -fPIC,-fvisibility=hidden,-Wall,-Wextra \
              -Xcompiler -fno-threadsafe-statics,-fno-exceptions
CUDA_LIB   := $(B)/libtandem-cuda.so
CUDA_SRC   := $(wildcard src/ops/cuda/*.cu)
CUDA_HOST  := $(patsubst src/%.c,$(B)/%.o,$(wildcard src/ops/cuda/*.c))
CUDA_OBJ   := $(CUDA_SRC:src/%.cu=$(B)/%.cu.o) $(CUDA_HOST)
CUDA_BASE  := $(patsubst src/base/%.c,$(B)/cuda/%.o,$(filter-out %/cores.c,$(wildcard src/base/*.c)))

# Messages between ranks: a shared object that alone needs Open MPI, built where that is.
MPI_PKG    ?= ompi-c
MPI_LIB    := $(B)/libtandem-mpi.so
HAVE_MPI   := $(shell $(PKG) --exists $(MPI_PKG) 2>/dev/null && echo yes)

all: $(B)/tandem $(if $(HAVE_MPI),$(MPI_LIB)) $(TOOLS)  ## build the program and the tools

$(B)/tandem: $(B)/cmd/main.o $(LIB)
	@$(say) LINK $@
	$(Q)$(CC) $(ALLFLAGS) -o $@ $^ $(LDFLAGS) $(LDLIBS)

$(LIB): $(LIBOBJ) $(B)/objects
	@$(say) AR $@
	@rm -f $@
	$(Q)$(AR) rcs $@ $(LIBOBJ)

# Kernels of one instruction set are built with its flags; nothing else is.
AVX512 := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
BF16   := $(AVX512) -mavx512bf16 -mavx512vbmi -mavx512vbmi2 -mavx512vnni
$(B)/ops/x86/%_avx2.o $(B)/ops/x86/%_avx2.tidy: ISA := $(KOPT) -mavx2 -mfma -mf16c
$(B)/ops/x86/%_avx512.o $(B)/ops/x86/%_avx512.tidy: ISA := $(KOPT) $(AVX512)
$(B)/ops/x86/%_avx512bf16.o $(B)/ops/x86/%_avx512bf16.tidy: ISA := $(KOPT) $(BF16)
$(B)/ops/ref/%.o: ISA := $(KOPT)
$(B)/sample/row.o: ISA := $(KOPT)

$(B)/cmd/version.o $(B)/cmd/version.tidy: \
	ISA := -DTD_VERSION='"$(VERSION)"' -DTD_BUILD='"$(BUILD_ID)"'
$(B)/cmd/version.o: $(B)/build_id

# The page is a file for browsers and editors, and numbers for the compiler.
$(B)/api/page.inc: src/api/page.html Makefile
	@mkdir -p $(@D)
	$(Q)od -An -v -tu1 $< | sed 's/  */,/g; s/^,//; s/$$/,/' >$@
$(B)/api/page.o $(B)/api/page.tidy: ISA := -I$(B)
$(B)/api/page.o: $(B)/api/page.inc

$(B)/%.o: src/%.c $(B)/flags Makefile
	@mkdir -p $(@D)
	@$(say) CC $<
	$(Q)$(CC) $(ALLFLAGS) $(ISA) -MMD -MP -c -o $@ $<

# Tests of models make their checkpoints with make_model.
$(B)/tests/%: tests/unit/%.c $(LIB) $(B)/flags | $(B)/make_model
	@mkdir -p $(@D)
	@$(say) CC $<
	$(Q)$(CC) $(ALLFLAGS) -I. -Itests -DTD_MAKE_MODEL='"$(B)/make_model"' -MMD -MP \
		-o $@ $< $(MORE) $(LIB) $(LDFLAGS) $(LDLIBS) -lcmocka

$(B)/tests/tools_make_model: MORE := $(filter-out %/main.o,$(MAKER))
$(B)/tests/tools_make_model: $(MAKER)
$(B)/tests/ops_cuda_fault: MORE := -Itests/fake/cuda

$(B)/tools/make_model/values.o: ISA := $(KOPT)
$(B)/tools/%.o: tools/%.c $(B)/flags Makefile
	@mkdir -p $(@D)
	@$(say) CC $<
	$(Q)$(CC) $(ALLFLAGS) $(ISA) -I. -MMD -MP -c -o $@ $<

$(B)/make_model: $(MAKER) $(LIB)
	@$(say) LINK $@
	$(Q)$(CC) $(ALLFLAGS) -o $@ $^ $(LDFLAGS) $(LDLIBS)

$(B)/%: tools/%.c $(LIB) $(B)/flags
	@mkdir -p $(@D)
	@$(say) CC $<
	$(Q)$(CC) $(ALLFLAGS) -I. -MMD -MP -o $@ $< $(LIB) $(LDFLAGS) $(LDLIBS)

# The entry point's prototype is libFuzzer's, which ships no header.
$(B)/fuzz_%: tests/fuzz/fuzz_%.c $(LIB) $(B)/flags
	@mkdir -p $(@D)
	@$(say) CC $<
	$(Q)$(CC) $(ALLFLAGS) -Wno-missing-prototypes -fsanitize=fuzzer -Itests -MMD -MP \
		-o $@ $< $(LIB) $(LDFLAGS) $(LDLIBS)

$(MPI_LIB): $(B)/comm/mpi/transport.o
	@$(say) LINK $@
	$(Q)$(CC) $(OPT) $(SAN) -shared -Wl,--no-undefined -o $@ $^ $(shell $(PKG) --libs $(MPI_PKG))

$(B)/comm/mpi/transport.o $(B)/comm/mpi/transport.tidy: ISA := -fPIC -fvisibility=hidden \
	$(subst -I,-isystem ,$(shell $(PKG) --cflags $(MPI_PKG) 2>/dev/null))

cuda: $(CUDA_LIB)  ## the shelf for NVIDIA GPUs (CUDA_ARCHS="90a 121a"), needs nvcc

$(CUDA_LIB): $(CUDA_OBJ) $(B)/cuda/base.a
	@$(say) LINK $@
	$(Q)$(CC) $(OPT) -shared -Wl,--no-undefined,--exclude-libs,ALL -o $@ $^ \
		$(firstword $(wildcard $(CUDA_HOME)/lib64/libcudart_static.a \
		$(CUDA_HOME)/lib/libcudart_static.a) -lcudart_static) -lm -ldl -lrt -pthread

cuda-host: $(CUDA_HOST) $(CUDA_BASE)  # all of it that a C compiler builds

$(B)/%.cu.o: src/%.cu $(B)/cuda_flags Makefile
	@mkdir -p $(@D)
	@$(say) NVCC $<
	$(Q)$(NVCC) $(NVFLAGS) -MMD -MP -MF $(@:.o=.d) -c -o $@ $<

$(CUDA_HOST): ISA := -fPIC -fvisibility=hidden -isystem $(CUDA_HOME)/include

$(B)/cuda/base.a: $(CUDA_BASE)
	@rm -f $@
	$(Q)$(AR) rcs $@ $^

$(B)/cuda/%.o: src/base/%.c $(B)/flags Makefile
	@mkdir -p $(@D)
	@$(say) CC $<
	$(Q)$(CC) $(ALLFLAGS) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

# Texts that a build depends on besides files; rewritten only when they change.
$(B)/flags: TEXT = $(CC) $(ALLFLAGS) $(KOPT) $(LDLIBS)
$(B)/objects: TEXT = $(LIBOBJ)
$(B)/build_id: TEXT = $(BUILD_ID)
$(B)/cuda_flags: TEXT = $(NVCC) $(NVFLAGS)
$(B)/flags $(B)/objects $(B)/build_id $(B)/cuda_flags: FORCE
	@mkdir -p $(@D)
	@echo '$(TEXT)' | cmp -s - $@ || echo '$(TEXT)' >$@

# Where tests find the tools of their own build.
unit test tsan-run: export BUILD = $(B)

unit: $(UNIT)  ## build and run the unit tests (T=NAME for one)
	@tests/run.sh $(UNIT)

test: all $(UNIT)  ## all tests that need no network: unit tests, cases, end to end
	@TANDEM=$(B)/tandem tests/run.sh $(UNIT) $(E2E)

hosts: all  ## tests of several machines, on pretended ones (HOSTS="-k NAME" for some)
	@TEST_TIMEOUT=1800 TANDEM=$(B)/tandem HOSTS='$(HOSTS)' tests/run.sh tests/hosts/run.sh

# EVAL: sixteen questions of each evaluation set are enough here.
asan:  ## the unit tests under address and undefined sanitizers
	@EVAL=$(or $(EVAL),16) $(MAKE) --no-print-directory B=build/asan OPT='-O1 -g' KOPT=-O2 \
		SAN='-fsanitize=address,undefined -fno-sanitize-recover=all \
		-fno-omit-frame-pointer -Wno-format-truncation' unit

# Rooms with threads; models on top of them take too long.
tsan:  ## the unit tests of the rooms with threads under the thread sanitizer
	@$(MAKE) --no-print-directory B=build/tsan OPT='-O1 -g' KOPT=-O2 \
		SAN='-fsanitize=thread -Wno-format-truncation' tsan-run
tsan-run: $(TSAN)
	@tests/run.sh $(TSAN)

bench: all  ## speed on the processor and the bars that it must reach (BENCH=options)
	@BUILD=$(B) bench/bars.py $(BENCH)

fuzz:  ## each fuzz target for FUZZ_SECONDS (5) on its corpus
	@$(MAKE) --no-print-directory B=build/fuzz CC=$(CLANG) OPT='-O1 -g' KOPT=-O2 \
		SAN='-fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all' \
		fuzz-run
fuzz-run: $(FUZZ)
	@tests/fuzz/run.sh $(FUZZ_SECONDS) $(FUZZ)

lint: all  ## the checks of tools/lint: layers, sizes, errors, format, tidy, ...
	@LINT_FLAGS='$(ALLFLAGS)' B=$(B) CC='$(CC)' tools/lint/run.sh $(CHECK)

format:  ## clang-format all files
	@tools/lint/check_format.sh --fix

compile: $(OBJ) $(UNIT) $(TOOLS)  # what the lint checks gcc and clang build

tidy: $(OBJ:.o=.tidy) $(MAKER:.o=.tidy)
$(B)/%.tidy: src/%.c $(B)/%.o .clang-tidy
	@$(TIDY) --quiet $< -- $(ALLFLAGS) $(ISA) && touch $@
$(B)/tools/%.tidy: tools/%.c $(B)/tools/%.o .clang-tidy
	@$(TIDY) --quiet $< -- $(ALLFLAGS) -I. && touch $@

docs: all  ## write docs/OPTIONS.md and docs/ERRORS.md
	@for d in options errors; do \
		B=$(B) tools/gen_docs.sh $$d >docs/$$(echo $$d | tr a-z A-Z).md || exit 1; done

size:  ## lines by file, room and function
	@tools/lint/check_size.sh --report

install: $(B)/tandem  ## into PREFIX (/usr/local), below DESTDIR
	install -d $(DOC) $(SHARE)/models/lexicon $(DESTDIR)$(PREFIX)/bin
	install -m 755 $(B)/tandem $(DESTDIR)$(PREFIX)/bin/tandem
	for lib in $(CUDA_LIB) $(MPI_LIB); do if [ -f $$lib ]; then \
		install -d $(DESTDIR)$(PREFIX)/lib/tandem; \
		install -m 755 $$lib $(DESTDIR)$(PREFIX)/lib/tandem; fi; done
	install -m 644 models/lexicon/* $(SHARE)/models/lexicon
	install -m 644 README.md LICENSE NOTICE docs/*.md $(DOC)

uninstall:  ## undo install
	rm -f $(DESTDIR)$(PREFIX)/bin/tandem
	rm -rf $(DESTDIR)$(PREFIX)/lib/tandem
	rm -rf $(SHARE) $(DOC)

bundle: all  ## a relocatable folder dist/tandem-VERSION-ARCH with all that it needs
	@$(CC) $(ALLFLAGS) -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../lib' \
		-o $(B)/tandem-bundle $(B)/cmd/main.o $(LIB) $(LDFLAGS) $(LDLIBS)
	@tools/bundle.sh $(B)/tandem-bundle dist/tandem-$(VERSION)-$(ARCH) \
		$(if $(HAVE_MPI),$(MPI_LIB)) $$(ls $(CUDA_LIB) 2>/dev/null)

cross:  ## the aarch64 program, its unit tests under qemu
	@tools/cross.sh || [ $$? -eq 77 ]

clean:  ## remove all that was built
	rm -rf build dist

help:  ## this list
	@awk -F ':.*## *' '/^[a-z-]+:.*##/ {printf "  %-10s %s\n", $$1, $$2}' Makefile

ifeq ($(filter help clean format size cross uninstall,$(MAKECMDGOALS)),)
ifneq ($(shell $(PKG) --exists $(PKGS) && echo yes),yes)
$(error libraries are missing; script/test installs them. pkg-config: \
$(shell $(PKG) --print-errors --exists $(PKGS) 2>&1 | grep '^No package'))
endif
endif

-include $(CUDA_OBJ:.o=.d) $(CUDA_BASE:.o=.d) $(B)/comm/mpi/transport.d
-include $(OBJ:.o=.d) $(MAKER:.o=.d) $(UNIT:=.d) $(TOOLS:=.d) $(FUZZ:=.d)

FORCE:
.PHONY: all bench cuda unit test hosts asan tsan tsan-run fuzz fuzz-run lint format compile tidy docs \
	size install uninstall bundle cross clean help FORCE
.DELETE_ON_ERROR:
