# emulator.mk - the CUDA kernels on this machine's CPU: C++ made of their sources, threads as fibers (tests/emulator/). Included by cuda.mk.
# SPDX-License-Identifier: Apache-2.0
#
#   test-cuda-emulated   sixty cases of every operation against the oracle, counted by operation; EMULATE_ALL=--all: every case, EMULATE_OPS="rope": only these
#                        of gemm also what cuts k over the blocks of a cluster, or in parts that a second kernel adds
#                        attention with wide heads once more on a GPU with 99 KiB of shared memory a block, which has kernels of its own for them
#
# It shows wrong results, deadlocks, missing waits, misaligned and foreign addresses; nothing about speed or the order of memory operations.

EMU := $(BUILD)/emulator
CXX ?= g++
emu_kernels := $(wildcard src/ops/*/*_sm80.cu src/ops/*/*_sm90.cu)
emu_words := $(addprefix tests/emulator/,words.h machine.h wgmma.h)
$(EMU)/src.done: tests/emulator/rewrite.py $(emu_kernels) $(wildcard src/*/*.h src/cuda/*.cuh src/ops/*/*.h src/ops/*/*.cuh src/ops/*/*.def)
	@mkdir -p $(@D)
	$(Q)python3 tests/emulator/rewrite.py src $(EMU)/src && touch $@
# Files that convert fp8 are compiled as for sm_80, where there is no instruction for it: a Hopper GPU never runs that code.
emu_fp8 := activation attention_decode gemm gemm_fma gemm_mma norm norm_full norm_lean quantize
emu_arch = $(if $(filter $(emu_fp8:%=%_sm80.cu),$(notdir $(1))),-D__CUDA_ARCH__=800)
define emu_rule
$(EMU)/$(basename $(notdir $(1))).o: $(EMU)/src.done $(emu_words)
	$(Q)$(CXX) -std=c++17 -O1 -fPIC -ffp-contract=off -w $(call emu_arch,$(1)) -Itests/emulator -include words.h -x c++ -c $(EMU)/$(1) -o $$@
endef
$(foreach k,$(emu_kernels),$(eval $(call emu_rule,$(k))))
$(EMU)/machine.o: tests/emulator/machine.cpp $(emu_words)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=c++17 -O2 -Wall -Wextra -Werror -fPIC -ffp-contract=off -Itests/emulator -c $< -o $@
emu_fakes := $(fake_sources:tests/%.c=$(EMU)/%.o)
$(emu_fakes): $(EMU)/%.o: tests/%.c tests/fake_cuda.h tests/fake_cuda_state.h src/cuda/driver.h src/cuda/driver.def
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -MMD -MP,$(BASE)) $(WARN) $(CFLAGS) -fPIC -DFAKE_EMULATE -c $< -o $@
$(EMU)/libcuda.so.1: $(foreach k,$(emu_kernels),$(EMU)/$(basename $(notdir $(k))).o) $(EMU)/machine.o $(emu_fakes)
	$(Q)$(CXX) -shared -Wl,-soname,libcuda.so.1 -o $@ $^ -ldl -pthread

# The command, with an image for every kernel file: the fake driver only wants to see that there is one.
$(EMU)/images.c: $(emu_kernels)
	@mkdir -p $(@D)
	$(Q)for k in $(basename $(notdir $^)); do echo "__attribute__((visibility(\"hidden\"))) const unsigned char skr_fatbin_$$k[16] = {1};"; done > $@
	$(Q)echo 'const char skr_cuda_images[] = "80,90,90a,ptx80";' >> $@
$(EMU)/saker: $(EMU)/images.c $(CLI_OBJECTS) $(SUITE_OBJECTS) $(filter-out %.embed.o,$(OBJECTS))
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $^ -ldl -lm

EMULATE_OPS ?= $$($(EMU)/saker list --names | grep -v gemm_pack)
.PHONY: test-cuda-emulated
test-cuda-emulated: $(EMU)/saker $(EMU)/libcuda.so.1
	@passed=0 failed=0; one() { if LD_LIBRARY_PATH=$(EMU) $(EMU)/saker check --device cuda "$$@"; then passed=$$((passed + 1)); else failed=$$((failed + 1)); fi; }; \
	for op in $(EMULATE_OPS); do \
	  one --op $$op $(EMULATE_ALL); \
	  [ $$op != attention_backward ] || one --op $$op --nondeterministic $(if $(EMULATE_ALL),$(EMULATE_ALL),--all --case 140,136x2,1x); \
	  [ $$op != gemm ] || one --op gemm --all --case '*x1000 r*'; \
	  case $$op in attention) export SAKER_CUDA_ISA=sm80; one --op $$op $(if $(EMULATE_ALL),$(EMULATE_ALL),--all --case 140,136x2,1x); unset SAKER_CUDA_ISA;; esac; \
	  case $$op in attention|attention_backward) export FAKE_CUDA_SM=89; one --op $$op --all --case 'wide*drop*'; unset FAKE_CUDA_SM;; esac; \
	done; echo "$$passed passed, $$failed failed, 0 skipped"; [ $$failed = 0 ]
