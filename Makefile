# tandem. `make help` lists the targets.
#
# B is the build folder; the sanitizer builds use folders of their own.

B        ?= build
PREFIX   ?= /usr/local
DESTDIR  ?=
CC       ?= gcc
AR       ?= ar
PKG      ?= pkg-config
VERSION  := 0.1.0
PKGS     := jansson libpcre2-8 libutf8proc libedit hwloc libmicrohttpd libcurl zlib libzstd

OPT      ?= -O2 -g
WARN     := -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion \
            -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wformat=2 -Wundef \
            -Wwrite-strings -Wcast-qual -Wdouble-promotion -fno-common
BUILD_ID := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
CPPFLAGS += -Isrc $(shell $(PKG) --cflags $(PKGS))
CFLAGS   ?=
ALLFLAGS  = -std=c11 $(OPT) $(WARN) -fopenmp -pthread -ffp-contract=off $(CPPFLAGS) $(CFLAGS) $(SAN)
LDLIBS   += $(shell $(PKG) --libs $(PKGS)) -lm -ldl

ARCH     := $(shell $(CC) -dumpmachine | cut -d- -f1)
SHELVES  := ref $(if $(filter x86_64,$(ARCH)),x86) $(if $(filter aarch64,$(ARCH)),arm)
SRC      := $(sort $(wildcard src/*/*.c $(foreach s,$(SHELVES),src/ops/$(s)/*.c)))
OBJ      := $(SRC:src/%.c=$(B)/%.o)
LIB      := $(B)/libtandem.a
LIBOBJ   := $(filter-out $(B)/cmd/main.o,$(OBJ))
UNIT     := $(patsubst tests/unit/%.c,$(B)/tests/%,$(sort $(wildcard tests/unit/*.c)))
TOOLS    := $(patsubst tools/%.c,$(B)/%,$(wildcard tools/*.c))

all: $(B)/tandem $(TOOLS)  ## build the program

$(B)/tandem: $(B)/cmd/main.o $(LIB)
	$(CC) $(ALLFLAGS) -o $@ $^ $(LDFLAGS) $(LDLIBS)

$(LIB): $(LIBOBJ)
	rm -f $@ && $(AR) rcs $@ $^

# Kernels of one instruction set are built with its flags; nothing else is.
$(B)/ops/x86/%_avx2.o: ISA := -O3 -mavx2 -mfma -mf16c
$(B)/ops/x86/%_avx512.o: ISA := -O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mfma -mf16c
$(B)/ops/x86/%_avx512bf16.o: ISA := -O3 -mavx512f -mavx512bw -mavx512dq -mavx512vl \
	-mavx512bf16 -mavx512vbmi -mavx512vbmi2 -mavx512vnni -mfma -mf16c
$(B)/ops/ref/%.o: ISA := -O3

$(B)/cmd/main.o: ISA := -DTD_VERSION='"$(VERSION)"' -DTD_BUILD='"$(BUILD_ID)"'

$(B)/%.o: src/%.c Makefile
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) $(ISA) -MMD -MP -c -o $@ $<

$(B)/tests/%: tests/unit/%.c $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) -Itests -MMD -MP -o $@ $< $(LIB) $(LDFLAGS) $(LDLIBS) -lcmocka

$(B)/%: tools/%.c $(LIB)
	@mkdir -p $(@D)
	$(CC) $(ALLFLAGS) -MMD -MP -o $@ $< $(LIB) $(LDFLAGS) $(LDLIBS)

unit: $(UNIT)  ## build and run the unit tests
	@set -e; for t in $(UNIT); do $$t; done

clean:  ## remove all build folders
	rm -rf build

help:  ## this list
	@awk -F '[:#]+' '/^[a-z_-]+:.*##/ {printf "  %-10s %s\n", $$1, $$NF}' Makefile

-include $(OBJ:.o=.d) $(UNIT:=.d) $(TOOLS:=.d)

.PHONY: all unit clean help
.DELETE_ON_ERROR:
