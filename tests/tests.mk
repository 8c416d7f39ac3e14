# tests.mk - the test programs and the stages of `make test`. Included by the Makefile, whose variables it uses.
# SPDX-License-Identifier: Apache-2.0
#
#   test-build      every test program of this build directory
#   test-c          the C tests, at every level this machine has, and the command's
#   test-lint       include direction, form, exported names, the header alone
#   test-install    an outside consumer of an installation
#   test-asan       the same programs under ASan and UBSan         test-tsan   the pool under ThreadSanitizer
#   test-fuzz       libFuzzer for FUZZ_SECONDS                      test-cross  the other architecture under qemu-user
#   test-python     the bindings (pytest)                          test-examples  the examples
#   test-cuda       the cases on a GPU; not part of `make test`

FUZZ_SECONDS ?= 30
T := $(BUILD)/tests
O := $(BUILD)/obj/tests
LINK = $(Q)mkdir -p $(@D) && $(CC) $(CFLAGS) $(LDFLAGS) -pthread -o $@ $(filter %.o %.a,$^) $(LINK_FLAGS) -ldl -lm
DLPACK := $(firstword $(wildcard $(CURDIR)/.venv/lib/python3*/site-packages/torch/include/ATen/dlpack.h \
            $(CURDIR)/.venv/lib/python3*/site-packages/tvm_ffi/include/dlpack/dlpack.h /usr/include/dlpack/dlpack.h))

# ---------------------------------------------------------------- programs

PROGRAMS := $(addprefix $(T)/,runner test_oracle test_core test_args test_sentences test_refusals test_big test_process test_threads \
              test_abi test_alloc test_dlopen test_vmath test_rope test_edges test_gemm fuzz_replay)
.PHONY: test-build test-c test-lint test-install test-asan test-tsan test-fuzz test-cross test-python test-examples test-cuda
test-build: $(PROGRAMS)

$(T)/runner: $(addprefix $(O)/,runner.o run_case.o guard.o compare.o) $(SUITE_OBJECTS) $(BUILD)/libsaker.a
	$(LINK)
$(T)/test_args: $(addprefix $(O)/,test_args.o fixture.o guard.o) $(SUITE_OBJECTS) $(BUILD)/libsaker.a
	$(LINK)
$(addprefix $(T)/,test_oracle test_gemm): $(T)/%: $(O)/%.o $(SUITE_OBJECTS) $(BUILD)/libsaker.a
	$(LINK)
$(addprefix $(T)/,test_core test_sentences test_refusals test_big test_process test_threads test_abi test_rope test_edges): $(T)/%: $(O)/%.o $(BUILD)/libsaker.a
	$(LINK)
$(T)/test_dlopen: $(O)/test_dlopen.o
	$(LINK)
# The sanitizers bring allocators of their own, which do not let themselves be wrapped: there the test is left out.
ALLOCATORS := malloc calloc realloc aligned_alloc posix_memalign free
$(T)/test_alloc: LINK_FLAGS := $(ALLOCATORS:%=-Wl,--wrap=%)
$(T)/test_alloc: $(O)/test_alloc.o $(BUILD)/libsaker.a
	$(LINK)
# Vector math, compiled once per level beside the library.
$(T)/test_vmath: $(O)/test_vmath.o $(LEVELS:%=$(BUILD)/obj/cpu/simd/vmath_probe.%.o) $(BUILD)/libsaker.a
	$(LINK)
$(O)/test_vmath.o: CFLAGS += $(DEFINES_cpu)
$(T)/fuzz_replay: $(addprefix $(O)/,fuzz_replay.o fixture.o guard.o) $(SUITE_OBJECTS) $(BUILD)/libsaker.a
	$(LINK)
$(T)/fuzz_args: LINK_FLAGS := -fsanitize=fuzzer
$(T)/fuzz_args: $(addprefix $(O)/,fuzz_args.o fixture.o guard.o) $(SUITE_OBJECTS) $(BUILD)/libsaker.a
	$(LINK)
$(O)/fuzz_replay.o: tests/fuzz_args.c $(STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(BASE) $(WARN) $(CFLAGS) -Itests -DFUZZ_MAIN -c $< -o $@
$(O)/test_abi.o: CFLAGS += $(if $(DLPACK),-DDLPACK_HEADER='"$(DLPACK)"')

# ---------------------------------------------------------------- stages

# Runs each line, goes on after a failure, and fails in the end if one did.
define run_all
@failed=0; for command in $(1); do eval "$$command" || { echo "FAIL: $$command"; failed=1; }; done; exit $$failed
endef

# Every small case with some repetitions, and one case in so many, the large ones too, with all of them (1: every one).
# At the levels below the best that the machine has one case in so many: 25 minutes are for all of `make test`.
WHOLE_EVERY ?= 8
LOWER_EVERY ?= 4
# Work is dealt out to threads as they come; that must show in no bit.
repeated_ops := attention attention_backward attention_decode gemm
# What x86 writes past the caches when it is large: forced, for the cases are small.
past_ops := rms_norm rms_norm_backward layer_norm layer_norm_backward softmax softmax_backward activation activation_backward \
            rope rope_backward embedding embedding_backward cross_entropy cross_entropy_backward quantize dequantize stream
test-c: $(PROGRAMS) $(BUILD)/libsaker.so $(BUILD)/saker
	$(call run_all,"$(T)/test_oracle" "$(T)/test_core" "$(T)/test_sentences" "$(T)/test_refusals" "$(T)/test_args" "$(T)/test_abi" "$(T)/test_big" \
	  "$(T)/test_vmath" "$(T)/test_rope" "$(T)/test_edges" "$(T)/test_gemm 24" "$(T)/test_process" "$(T)/test_threads" "$(T)/test_alloc" "$(T)/test_dlopen $(BUILD)/libsaker.so" "$(T)/fuzz_replay 20000" "CC='$(CC)' sh tests/test_cli.sh $(BUILD)" \
	  "$(T)/runner --quick --lower $(LOWER_EVERY) --jobs $(JOBS)" "$(T)/runner --every $(WHOLE_EVERY) --lower $(LOWER_EVERY) --jobs $(JOBS)" $(foreach op,$(repeated_ops),"$(T)/runner --jobs $(JOBS) --op $(op) --every 50 --repeats 100") \
	  $(if $(filter x86_64,$(ARCH)),$(foreach op,$(past_ops),"SAKER_PAST_BYTES=1 $(T)/runner --jobs $(JOBS) --op $(op) --quick --every 5")))

test-lint: $(BUILD)/libsaker.so $(BUILD)/libsaker.a
	$(call run_all,"sh tests/check_includes.sh" "sh tests/check_style.sh" "CC='$(CC)' sh tests/check_symbols.sh $(BUILD)" \
	  "CC='$(CC)' sh tests/check_header.sh $(BUILD)")

test-install: all
	@CC='$(CC)' sh tests/install_consumer.sh $(BUILD) CC='$(CC)' CUDA=$(CUDA) CFLAGS='$(CFLAGS)'

# A build directory of its own, inside of this one, without CUDA kernels: their host side is C and has its own tests.
inner = $(MAKE) --no-print-directory -j$(JOBS) BUILD=$(BUILD)/$(1) CUDA=0 CC='$(2)' CFLAGS='$(3)'
links = $(shell echo 'int main(void){return 0;}' | $(1) -x c - -o /dev/null 2>/dev/null && echo yes)

# object-size: what it sees at run time ASan sees, too, and it is an eighth of the build.
ASAN := -fsanitize=address,undefined -fno-sanitize=object-size -fno-sanitize-recover=all -fno-omit-frame-pointer -O1
ASAN_ENV := ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1:handle_segv=0 UBSAN_OPTIONS=print_stacktrace=1
# One level that this kind of machine has; the plain one is there without sanitizers, for each is a third of the build.
ASAN_LEVELS := $(filter scalar neonmm avx2,$(LEVELS))
asan_programs := runner test_args test_core test_sentences test_refusals test_big test_threads test_rope test_edges test_gemm fuzz_replay
test-asan:
ifeq ($(call links,$(CC) $(ASAN)),yes)
	@$(call inner,asan,$(CC),$(ASAN)) LEVELS='$(ASAN_LEVELS)' FLAGS_scalar=-fno-sanitize=all $(asan_programs:%=$(BUILD)/asan/tests/%)
	$(call run_all,$(foreach p,$(filter-out runner fuzz_replay test_gemm,$(asan_programs)),"$(ASAN_ENV) $(BUILD)/asan/tests/$(p)") \
	  "$(ASAN_ENV) $(BUILD)/asan/tests/test_gemm 50" "$(ASAN_ENV) $(BUILD)/asan/tests/fuzz_replay 20000" \
	  "$(ASAN_ENV) $(BUILD)/asan/tests/runner --quick --every 10 --jobs $(JOBS)")
else
	@echo "skipped: $(CC) cannot link with $(ASAN)"; echo "0 passed, 0 failed, 1 skipped"
endif

# The pool is the same at every level, so one is enough. ThreadSanitizer needs addresses that are not randomised too far.
TSAN := -fsanitize=thread -O1
FIXED_ADDRESSES = $(shell setarch -R true 2>/dev/null && echo setarch -R)
test-tsan:
ifeq ($(call links,$(CC) $(TSAN)),yes)
	@$(call inner,tsan,$(CC),$(TSAN)) LEVELS=scalar $(BUILD)/tsan/tests/test_threads
	@TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1 $(FIXED_ADDRESSES) $(BUILD)/tsan/tests/test_threads
else
	@echo "skipped: $(CC) cannot link with $(TSAN)"; echo "0 passed, 0 failed, 1 skipped"
endif

CLANG ?= $(firstword $(shell command -v clang clang-19 clang-18 clang-17 clang-16 clang-15 clang-14 2>/dev/null))
# The kernels without UBSan, which test-asan has: clang takes minutes for a single one of them with it.
FUZZ := -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=all -O1
fuzzer_links = $(shell echo 'int LLVMFuzzerTestOneInput(const char *p, long n){return !p && n;}' | \
                 $(CLANG) -fsanitize=fuzzer,address -x c - -o /dev/null 2>/dev/null && echo yes)
test-fuzz:
ifeq ($(if $(CLANG),$(call fuzzer_links)),yes)
	@$(call inner,fuzz,$(CLANG),$(FUZZ)) KERNEL_CFLAGS=-fno-sanitize=undefined LEVELS=scalar $(BUILD)/fuzz/tests/fuzz_args
	@mkdir -p $(BUILD)/fuzz/corpus
	@ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1 $(BUILD)/fuzz/tests/fuzz_args -max_total_time=$(FUZZ_SECONDS) -timeout=10 \
	  -max_len=256 -rss_limit_mb=2048 -print_final_stats=1 -artifact_prefix=$(BUILD)/fuzz/ $(BUILD)/fuzz/corpus 2>$(BUILD)/fuzz/log \
	  || { grep -v -E "REDUCE|NEW|pulse" $(BUILD)/fuzz/log | tail -40; echo "FAIL: fuzz_args, input kept in $(BUILD)/fuzz"; exit 1; }
	@grep -E 'number_of_executed_units|average_exec' $(BUILD)/fuzz/log; echo "1 passed, 0 failed, 0 skipped"
else
	@echo "skipped: no clang with libFuzzer (Debian: clang, libclang-rt-14-dev); fuzz_replay in test-c and test-asan ran instead"
	@echo "0 passed, 0 failed, 1 skipped"
endif

# The other architecture, in an emulator: its build, its CPU detection and the levels that qemu knows.
CROSS_ARCH := $(if $(filter aarch64,$(ARCH)),x86_64,aarch64)
CROSS_CC ?= $(CROSS_ARCH)-linux-gnu-gcc
QEMU ?= qemu-$(CROSS_ARCH)
QEMU_CPU_x86_64 := -cpu max
QEMU_CPU_aarch64 := -cpu max
cross_programs := runner test_core test_args test_sentences test_refusals test_oracle
test-cross:
	@command -v $(CROSS_CC) >/dev/null || { echo "skipped: $(CROSS_CC) is not on this machine"; echo "0 passed, 0 failed, 1 skipped"; exit 0; }; \
	$(call inner,$(CROSS_ARCH),$(CROSS_CC),-O1) $(cross_programs:%=$(BUILD)/$(CROSS_ARCH)/tests/%) || exit 1; \
	command -v $(QEMU) >/dev/null || { echo "skipped: $(QEMU) is not on this machine: built, not run"; echo "1 passed, 0 failed, 1 skipped"; exit 0; }; \
	failed=0; for p in $(filter-out runner,$(cross_programs)) "runner --quick --every 90 --lower $(LOWER_EVERY) --jobs $(JOBS)"; do \
	  echo "$(QEMU) $$p"; $(QEMU) $(QEMU_CPU_$(CROSS_ARCH)) -L /usr/$(CROSS_ARCH)-linux-gnu $(BUILD)/$(CROSS_ARCH)/tests/$$p || failed=1; done; \
	for op in $(if $(filter x86_64,$(CROSS_ARCH)),$(past_ops)); do \
	  SAKER_PAST_BYTES=1 $(QEMU) $(QEMU_CPU_$(CROSS_ARCH)) -L /usr/$(CROSS_ARCH)-linux-gnu $(BUILD)/$(CROSS_ARCH)/tests/runner \
	    --op $$op --level avx2 --quick --every 90 --jobs $(JOBS) || failed=1; done; exit $$failed

# On a Neoverse V1 without SVE, as virtual machines have it, PyTorch's BLAS (NVPL) calls kernels that are not there: it hangs or dies unless it is told another type.
TORCH_ENV := $(if $(filter aarch64,$(ARCH)),$(shell grep -qw sve /proc/cpuinfo || echo NVPL_BLAS_DEBUG_CPU_TYPE=$(or $(NVPL_BLAS_DEBUG_CPU_TYPE),1)))

# The bindings, with the extension built in place.
test-python: python
	@$(TORCH_ENV) SAKER_TEST_TORCH=$(TORCH) $(PY) -m pytest -q -p no:cacheprovider python/tests

# The examples as a user would run them.
$(BUILD)/examples/%: examples/%.c $(BUILD)/libsaker.a
	@mkdir -p $(@D)
	$(Q)$(CC) -std=c11 -Wall -Wextra -Werror -Iinclude $(CFLAGS) -o $@ $^ -pthread -ldl -lm
test-examples: $(BUILD)/examples/rms_norm $(BUILD)/examples/rms_norm_cuda python
	$(call run_all,"$(BUILD)/examples/rms_norm" "$(BUILD)/examples/rms_norm_cuda" "PYTHONPATH=python $(PY) examples/numpy_norm.py" \
	  $(if $(filter 0,$(TORCH)),,"$(TORCH_ENV) PYTHONPATH=python $(PY) examples/train.py"))

# The CUDA host side (fake driver), and its questions to a real GPU.
-include tests/cuda.mk

# On a machine with a GPU, no network needed.
test-cuda: $(T)/runner $(T)/test_rope $(if $(wildcard tests/test_cuda_gpu.c),$(T)/test_cuda_gpu)
	$(call run_all,"$(T)/runner --cuda" $(foreach op,$(repeated_ops),"$(T)/runner --cuda --op $(op) --every 50 --repeats 100") "$(T)/test_rope --cuda" $(if $(wildcard tests/test_cuda_gpu.c),"$(T)/test_cuda_gpu"))
