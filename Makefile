# Saker's only build file. `make help` says what there is to do.
# SPDX-License-Identifier: Apache-2.0
#
#   make                 build/libsaker.so, build/libsaker.a and the command build/saker
#   make demo            set up this machine, build, show the library at work
#   make test            set up this machine, build, run every test that needs no GPU
#
# Variables: CC, CFLAGS, CPPFLAGS and LDFLAGS (added), BUILD (directory), CUDA=auto|0|1, NVCC, PREFIX, LIBDIR and DESTDIR (install), TORCH=0 (leave PyTorch tests out), V=1 (show commands)

BUILD ?= build
CUDA ?= auto
PREFIX ?= /usr/local
LIBDIR ?= $(PREFIX)/lib
TORCH ?= 1
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
CC := $(if $(filter default,$(origin CC)),gcc,$(CC))
# objcopy and ar of this compiler: one for another architecture has its own.
program = $(or $(shell $(CC) -print-prog-name=$(1) 2>/dev/null),$(1))
Q := $(if $(V),,@)

version = $(shell awk '/define SAKER_VERSION_$(1) /{print $$3}' include/saker.h)
VERSION := $(call version,MAJOR).$(call version,MINOR).$(call version,PATCH)
SOMAJOR := $(call version,MAJOR)
# Of this directory's repository, not of one that the sources were unpacked in.
COMMIT := $(shell [ -z "$$(git rev-parse --show-prefix 2>/dev/null)" ] && git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)

# ---------------------------------------------------------------- architecture and levels

ARCH := $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
LEVELS_aarch64 := scalar neon neonmm
LEVELS_x86_64 := scalar avx2 avx512 avx512bf16 amx amxfp16
FLAGS_neonmm := -march=armv8.2-a+fp16+fp16fml+dotprod+bf16+i8mm
FLAGS_avx2 := -mavx2 -mfma -mf16c
FLAGS_avx512 := $(FLAGS_avx2) -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mprefer-vector-width=512
FLAGS_avx512bf16 := $(FLAGS_avx512) -mavx512bf16
FLAGS_amx := $(FLAGS_avx512bf16) -mamx-tile -mamx-bf16 -mamx-int8
# All of amx and one instruction more, which the source writes in bytes: compilers and assemblers that know amx may not know it.
FLAGS_amxfp16 := $(FLAGS_amx) -DSKR_LEVEL_amx
# A level whose instructions are for products alone has kernels of its own in these folders; the rest is another one's.
ROWS_amx := avx512bf16
ROWS_amxfp16 := avx512bf16
PRODUCTS := gemm attention
accepts = $(shell echo | $(CC) $(1) -x c -c -o /dev/null - 2>/dev/null && echo yes)
LEVELS := $(foreach l,$(LEVELS_$(ARCH)),$(if $(call accepts,$(FLAGS_$(l))),$(l)))
DROPPED := $(filter-out $(LEVELS),$(LEVELS_$(ARCH)))

# ---------------------------------------------------------------- CUDA

NVCC ?= $(firstword $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
ifeq ($(CUDA),1)
WITH_CUDA := $(if $(NVCC),1,$(error CUDA=1 but no nvcc: set NVCC=/path/to/nvcc or use CUDA=0))
else
WITH_CUDA := $(if $(filter auto,$(CUDA)),$(if $(NVCC),1))
endif
# Portable kernels: code for sm_80 and sm_90, and PTX of compute_80 for GPUs that came later. Hopper kernels: sm_90a.
# SMALL: portable files for GPUs with little shared memory, which Hopper is not.
SMALL := attention_small_sm80 attention_gradient_small_sm80
GENCODE_sm90 := -gencode arch=compute_90a,code=sm_90a
NVCCFLAGS := -std=c++17 -O3
PTXASFLAGS := -v -warn-lmem-usage
COMPRESS := --compress-mode=size
CU := $(if $(WITH_CUDA),$(wildcard src/ops/*/*_sm80.cu src/ops/*/*_sm90.cu))
# ONLY="words", for work on one operation: kernel files whose name contains none of them become empty images.
ONLY ?=
FATBINS := $(patsubst %.cu,$(BUILD)/cuda/%.fatbin,$(notdir $(CU)))
comma := ,
CUDA_IMAGES := $(if $(CU),80$(comma)90$(comma)90a$(comma)ptx80)

# ---------------------------------------------------------------- flags and objects

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wno-unused-function -Werror
# -g1: functions and lines, packed (-gz: a third of the library's size otherwise). Variables would take as long as all else.
BASE := -std=gnu11 -O2 -g1 -gz -fPIC -fvisibility=hidden -ffp-contract=off -fno-math-errno -ffunction-sections -pthread -Iinclude -MMD -MP $(CPPFLAGS)
SOURCES := $(wildcard src/core/*.c src/cuda/*.c) $(filter-out src/cpu/table.c,$(wildcard src/cpu/*.c)) \
           $(filter-out %_cpu.c %_test.c,$(wildcard src/ops/*/*.c))
KERNELS := $(wildcard src/ops/*/*_cpu.c) src/cpu/table.c
rest_of = $(filter $(ROWS_$(1)),$(LEVELS))
kernels_of = $(if $(call rest_of,$(1)),$(wildcard $(PRODUCTS:%=src/ops/%/*_cpu.c)) src/cpu/table.c,$(KERNELS))
OBJECTS := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(SOURCES)) \
           $(foreach l,$(LEVELS),$(patsubst src/%.c,$(BUILD)/obj/%.$(l).o,$(call kernels_of,$(l)))) \
           $(patsubst $(BUILD)/cuda/%.fatbin,$(BUILD)/obj/cuda/%.embed.o,$(FATBINS))
SUITES := $(patsubst src/%.c,$(BUILD)/obj/%.o,$(wildcard src/ops/*/*_test.c))
BUILD_INFO := $(ARCH): $(LEVELS), CUDA kernels: $(if $(CU),$(CUDA_IMAGES),none), commit $(COMMIT)
DEFINES_ops := -DSKR_BUILD_INFO='"$(BUILD_INFO)"'
DEFINES_cpu := -DSKR_LEVELS='$(foreach l,$(LEVELS),SKR_LEVEL_ROW($(l)))'
DEFINES_features := $(DEFINES_cpu)
DEFINES_cuda := -DSKR_CUDA_IMAGES='"$(CUDA_IMAGES)"'
DEFINES_module := $(DEFINES_cuda)
DEFINES_driver := $(DEFINES_cuda)

.DEFAULT_GOAL := all
.PHONY: all demo test test-cuda install uninstall python clean help setup-build setup-test summary
.SUFFIXES:
.DELETE_ON_ERROR:
.SECONDARY:

# The archive of the Python package has neither the command nor the tests.
COMMAND := $(if $(wildcard cli/main.c),$(BUILD)/saker)
all: summary $(BUILD)/libsaker.so $(BUILD)/libsaker.a $(COMMAND)

summary:
	@echo "saker $(VERSION): $(ARCH) levels $(LEVELS)$(if $(DROPPED), (not built: $(DROPPED): $(CC) does not know their flags)) | CUDA $(if $(CU),$(shell $(NVCC) --version | awk -F'release ' '/release/{sub(/,.*/,"",$$2);print "nvcc "$$2}') images $(CUDA_IMAGES),off)"

# A change of flags rebuilds everything.
STAMP := $(BUILD)/flags
STATE := $(CC) $(CFLAGS) $(KERNEL_CFLAGS) $(LDFLAGS) $(BASE) $(LEVELS) $(WITH_CUDA) $(NVCCFLAGS) $(PTXASFLAGS) $(COMPRESS) $(ONLY)
$(shell mkdir -p $(BUILD); [ "$$(cat $(STAMP) 2>/dev/null)" = '$(STATE)' ] || echo '$(STATE)' > $(STAMP))

$(shell [ "$$(cat $(BUILD)/commit 2>/dev/null)" = '$(COMMIT)' ] || echo '$(COMMIT)' > $(BUILD)/commit)
$(BUILD)/obj/core/ops.o $(BUILD)/obj/cli/machine.o: $(BUILD)/commit

$(BUILD)/obj/%.o: src/%.c $(STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARN) $(CFLAGS) $(DEFINES_$(notdir $*)) -c $< -o $@

# Kernel files and the table: once per level, with that level's flags. The table is data, so it gets none.
define level_rules
$(BUILD)/obj/%_cpu.$(1).o: src/%_cpu.c $(STAMP)
	@mkdir -p $$(@D)
	$(Q)$(CC) $(BASE) $(WARN) -O3 $(CFLAGS) $(KERNEL_CFLAGS) $(FLAGS_$(1)) -DSKR_LEVEL=$(1) -DSKR_LEVEL_$(1) -c $$< -o $$@
$(BUILD)/obj/%/vmath_probe.$(1).o: src/%/vmath_probe.c $(STAMP)
	@mkdir -p $$(@D)
	$(Q)$(CC) $(BASE) $(WARN) -O3 $(CFLAGS) $(FLAGS_$(1)) -DSKR_LEVEL=$(1) -DSKR_LEVEL_$(1) -c $$< -o $$@
$(BUILD)/obj/cpu/table.$(1).o: src/cpu/table.c $(STAMP)
	@mkdir -p $$(@D)
	$(Q)$(CC) $(BASE) $(WARN) $(CFLAGS) -DSKR_LEVEL=$(1) $(patsubst %,-DSKR_REST=%,$(call rest_of,$(1))) -c $$< -o $$@
endef
$(foreach l,$(LEVELS),$(eval $(call level_rules,$(l))))

define empty_rule
$(BUILD)/cuda/$(notdir $(1:.cu=.fatbin)): $(STAMP)
	@mkdir -p $$(@D) && printf 'left out by ONLY' > $$@
endef

# A fatbin that spills registers fails, unless tools/spills.txt lists the kernel with its reason.
define fatbin_rule
$(BUILD)/cuda/$(notdir $(1:.cu=.fatbin)): $(1) $(STAMP) tools/portable_fatbin.sh
	@mkdir -p $$(@D)
	$(Q)$(if $(filter %_sm80.cu,$(1)),$(portable_image),$(hopper_image)) > $$@.log 2>&1 || { cat $$@.log; rm -f $$@; exit 1; }
	$(Q)sh tools/check_spills.sh $$@.log || { rm -f $$@; exit 1; }
endef
portable_image = NVCC='$(NVCC)' NVCCFLAGS='$(NVCCFLAGS)' PTXASFLAGS='$(PTXASFLAGS)' COMPRESS='$(COMPRESS)' sh tools/portable_fatbin.sh $$< $$@ 80 $(if $(filter $(SMALL),$(basename $(notdir $(1)))),,90)
hopper_image = $(NVCC) $(NVCCFLAGS) $(PTXASFLAGS:%=-Xptxas %) $(COMPRESS) -fatbin -MMD -MP -MF $$@.d -MT $$@ $(GENCODE_sm90) $$< -o $$@
left_out = $(if $(ONLY),$(if $(strip $(foreach o,$(ONLY),$(findstring $(o),$(notdir $(1))))),,yes))
$(foreach f,$(CU),$(eval $(call $(if $(call left_out,$(f)),empty_rule,fatbin_rule),$(f))))

$(BUILD)/obj/cuda/%.embed.o: $(BUILD)/cuda/%.fatbin src/cuda/embed.S
	@mkdir -p $(@D)
	$(Q)$(CC) -c src/cuda/embed.S -DSKR_FATBIN_NAME=skr_fatbin_$* -DSKR_FATBIN_FILE='"$<"' -o $@

# ---------------------------------------------------------------- libraries and the command

$(BUILD)/libsaker.so.$(VERSION): $(OBJECTS) src/saker.map
	$(Q)$(CC) -shared -gz $(CFLAGS) $(LDFLAGS) -Wl,-soname,libsaker.so.$(SOMAJOR) -Wl,--version-script=src/saker.map -Wl,--gc-sections -Wl,-z,defs -Wl,-z,noexecstack -pthread -o $@ $(OBJECTS) -ldl -lm
$(BUILD)/libsaker.so: $(BUILD)/libsaker.so.$(VERSION)
	$(Q)ln -sf libsaker.so.$(VERSION) $(BUILD)/libsaker.so.$(SOMAJOR) && ln -sf libsaker.so.$(SOMAJOR) $@

# One relocatable object whose internal symbols are local, so that nothing but saker_* can clash in a static link.
# With -flto it must be machine code, for objcopy knows nothing else: gcc is told so, clang needs LDFLAGS=-fuse-ld=lld.
LTO := $(filter -flto%,$(CFLAGS))
MERGE := $(LTO) $(filter -fuse-ld=%,$(CFLAGS) $(LDFLAGS)) $(if $(LTO),$(if $(call accepts,-flinker-output=nolto-rel),-flinker-output=nolto-rel))
$(BUILD)/libsaker.a: $(OBJECTS)
	$(Q)$(CC) -r -nostdlib -gz $(MERGE) -o $(BUILD)/libsaker.o $(OBJECTS)
	$(Q)$(call program,objcopy) --localize-hidden $(BUILD)/libsaker.o
	$(Q)rm -f $@ && $(call program,ar) rcs $@ $(BUILD)/libsaker.o

CLI_OBJECTS := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard cli/*.c))
SUITE_OBJECTS := $(SUITES) $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tests/suite_*.c))
$(BUILD)/obj/cli/%.o: cli/%.c $(STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARN) $(CFLAGS) -Itests -DSAKER_COMMIT='"$(COMMIT)"' -DSAKER_COMPILER='"$(notdir $(CC)) $(shell $(CC) -dumpfullversion -dumpversion 2>/dev/null)"' -c $< -o $@
$(BUILD)/obj/tests/%.o: tests/%.c $(STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARN) $(CFLAGS) -Itests -c $< -o $@
$(SUITES): BASE += -Itests
$(BUILD)/saker: $(CLI_OBJECTS) $(SUITE_OBJECTS) $(BUILD)/libsaker.a
	$(Q)$(CC) -gz $(CFLAGS) $(LDFLAGS) -pthread -o $@ $^ -ldl -lm

# ---------------------------------------------------------------- set-up, demo, tests

ifneq ($(COMMAND),)
setup-build:
	@sh tools/setup.sh build
setup-test: setup-build
	@sh tools/setup.sh test

demo: setup-build
	@$(MAKE) --no-print-directory -j$(JOBS) all
	@$(BUILD)/saker demo --report $(BUILD)/demo

-include tests/tests.mk

# Python's packages arrive while the libraries are built; test_abi looks for a header among them.
test: setup-test
	@TORCH=$(TORCH) sh tools/setup.sh python & setup=$$!; $(MAKE) --no-print-directory -j$(JOBS) all; built=$$?; \
	wait $$setup && [ $$built = 0 ]
	@$(MAKE) --no-print-directory -j$(JOBS) test-build
	@TORCH=$(TORCH) BUILD=$(BUILD) MAKE="$(MAKE)" sh tools/run_tests.sh
else
demo test test-cuda:
	@echo "This archive holds the library and the Python package only: make $@ needs a checkout of the repository."; exit 1
endif

PY := $(firstword $(wildcard .venv/bin/python) python3)
python: $(BUILD)/libsaker.so
	$(Q)$(PY) python/build.py $(BUILD)

# ---------------------------------------------------------------- install

TO := $(DESTDIR)$(PREFIX)
LIB := $(DESTDIR)$(LIBDIR)
# Written here and installed with a mode of their own, whatever the umask is. @UP@: from LIBDIR to PREFIX, so that an
# installation can be moved.
configured = up=$$(realpath -ms --relative-to="$(LIBDIR)" "$(PREFIX)") && rm -f $(BUILD)/$(1) && \
             sed "s|@VERSION@|$(VERSION)|; s|@UP@|$$up|" tools/$(1).in > $(BUILD)/$(1) && install -m 644 $(BUILD)/$(1) "$(LIB)/$(2)"
install: all
	install -d "$(TO)/include" "$(LIB)/pkgconfig" "$(LIB)/cmake/saker" $(if $(COMMAND),"$(TO)/bin")
	install -m 644 include/saker.h "$(TO)/include"
	install -m 644 $(BUILD)/libsaker.a "$(LIB)"
	install -m 755 $(BUILD)/libsaker.so.$(VERSION) "$(LIB)"
	ln -sf libsaker.so.$(VERSION) "$(LIB)/libsaker.so.$(SOMAJOR)"
	ln -sf libsaker.so.$(SOMAJOR) "$(LIB)/libsaker.so"
	$(if $(COMMAND),install -m 755 $(COMMAND) "$(TO)/bin")
	$(call configured,saker.pc,pkgconfig)
	$(call configured,saker-config.cmake,cmake/saker)
	$(call configured,saker-config-version.cmake,cmake/saker)

uninstall:
	rm -f "$(TO)/include/saker.h" "$(TO)/bin/saker" "$(LIB)/libsaker.a" "$(LIB)/libsaker.so" "$(LIB)/libsaker.so.$(SOMAJOR)" \
	  "$(LIB)/libsaker.so.$(VERSION)" "$(LIB)/pkgconfig/saker.pc"
	rm -rf "$(LIB)/cmake/saker"

clean:
	rm -rf $(BUILD)

help:
	@sed -n 's/^# \{0,1\}//; 2,9p' Makefile
	@echo "Other targets: python (extension in place), install, uninstall, clean, test-cuda (on a GPU machine, no network), and what tests/tests.mk names"

-include $(shell find $(BUILD)/obj $(BUILD)/cuda -name '*.d' 2>/dev/null)
