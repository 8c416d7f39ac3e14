# cuda.mk - the tests of the CUDA backend's host side. Included by tests.mk, after the Makefile's variables.
# SPDX-License-Identifier: Apache-2.0
#
#   test-cuda-host  against the fake driver: no GPU, no driver and no toolkit needed
#   test-cuda-gpu   the same questions to a real GPU (part of test-cuda)
#
# The fake driver comes in three variants: as a driver should be, without cuGetProcAddress_v2 and what is optional, and lacking a function.
# The programs are linked with the library's objects, because they also call what the library hides.

fake_sources := tests/fake_cuda.c tests/fake_cuda_kernels.c
FAKE_CUDA := $(addprefix $(BUILD)/fake_cuda/,libcuda.so.1 plain/libcuda.so.1 partial/libcuda.so.1)
$(BUILD)/fake_cuda/plain/libcuda.so.1: FAKE_FLAGS := -DFAKE_PLAIN
$(BUILD)/fake_cuda/partial/libcuda.so.1: FAKE_FLAGS := -DFAKE_PARTIAL
$(FAKE_CUDA): $(fake_sources) tests/fake_cuda.h tests/fake_cuda_state.h src/cuda/driver.h src/cuda/driver.def $(STAMP)
	@mkdir -p $(@D)
	$(Q)$(CC) $(filter-out -MMD -MP,$(BASE)) $(WARN) $(CFLAGS) $(FAKE_FLAGS) -shared -Wl,-soname,libcuda.so.1 $(fake_sources) -o $@

cuda_host_tests := test_cuda_open test_cuda_host test_cuda_faults test_cuda_call test_cuda_kernels
$(BUILD)/tests/test_cuda_kernels: $(SUITE_OBJECTS)
$(cuda_host_tests:%=$(BUILD)/tests/%): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.o $(OBJECTS)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $^ -ldl -lm
$(BUILD)/tests/test_cuda_abi: $(BUILD)/obj/tests/test_cuda_abi.o
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -o $@ $^ -ldl
$(BUILD)/obj/tests/test_cuda_abi.o: CFLAGS += $(if $(NVCC),-isystem $(patsubst %/bin/nvcc,%/include,$(realpath $(NVCC))))
$(BUILD)/tests/test_cuda_gpu: $(BUILD)/obj/tests/test_cuda_gpu.o $(BUILD)/libsaker.a
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS) -pthread -o $@ $^ -ldl -lm

.PHONY: test-cuda-host test-cuda-gpu
test-cuda-gpu: $(BUILD)/tests/test_cuda_gpu
	@$<
# The command that has an image for every kernel, whether nvcc is there or not (emulator.mk).
test-cuda-host: $(FAKE_CUDA) $(cuda_host_tests:%=$(BUILD)/tests/%) $(BUILD)/tests/test_cuda_abi $(BUILD)/emulator/saker
	@failed=0; export PLANNED=$(BUILD)/tests/kernels_planned; rm -f $$PLANNED; \
	for t in $(cuda_host_tests); do echo $$t; $(BUILD)/tests/$$t $(BUILD)/fake_cuda || failed=1; done; \
	sh tests/check_kernels.sh $(BUILD) $$PLANNED $(if $(CU),$(BUILD)/cuda) || failed=1; \
	sh tests/check_plans.sh $(BUILD)/emulator/saker $(BUILD)/fake_cuda || failed=1; \
	echo test_cuda_abi; $(BUILD)/tests/test_cuda_abi || failed=1; exit $$failed
-include tests/emulator.mk
