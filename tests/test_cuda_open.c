/* test_cuda_open.c - opening the CUDA driver with everything that can be missing (FAULTS D1), on the fake driver.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cuda_host.h"

/* ---------------------------------------------------------------- D1: what can be missing */

static void no_driver(void)
{
    void *real = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
    if (real) {
        skip("this machine has a CUDA driver");
        return;
    }
    no_cuda("there is no CUDA driver on this machine (libcuda.so.1: cannot open shared object file: No such file or "
            "directory)");
}

static void old_driver(void)
{
    setenv("FAKE_CUDA_VERSION", "11080", 1);
    load_fake("");
    no_cuda("the CUDA driver is too old: it offers CUDA 11.8, Saker needs 12.0 or newer");
    NUMBER(fake_calls("cuInit"), 0);
}

static void oldest_driver(void)
{
    setenv("FAKE_CUDA_VERSION", "12000", 1);
    load_fake("");
    NUMBER(saker_cuda_count(NULL), 2);
    saker_context *ctx = made(0, NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    saker_context_destroy(ctx);
}

static void stub_driver(void)
{
    setenv("FAKE_CUDA_FAIL", "cuDriverGetVersion=34", 1);
    load_fake("");
    no_cuda("libcuda.so.1 is the toolkit's stub, not a CUDA driver: take its folder out of LD_LIBRARY_PATH");
}

static void partial_driver(void)
{
    load_fake("partial/");
    no_cuda("the CUDA driver (CUDA 13.0) has no function cuLaunchKernelEx");
}

static void plain_driver(void)
{
    load_fake("plain/");
    NUMBER(saker_cuda_count(NULL), 2);
    saker_context *ctx = made(1, NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    NUMBER(fake_launch_at(0)->device, 1);
    CHECK(!skr_cu.cuTensorMapEncodeTiled); /* what is optional is not there */
    saker_context_destroy(ctx);
}

static void no_device(void)
{
    setenv("FAKE_CUDA_DEVICES", "0", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    load_fake("");
    no_cuda("the CUDA driver finds no device on this machine");
}

static void none_counted(void)
{
    setenv("FAKE_CUDA_FAIL", "cuDeviceGetCount=100", 1);
    unsetenv("CUDA_VISIBLE_DEVICES");
    load_fake("");
    no_cuda("the CUDA driver finds no device on this machine");
}

static void count_unknown(void)
{
    setenv("FAKE_CUDA_FAIL", "cuDeviceGetCount=999", 1);
    load_fake("");
    no_cuda("the CUDA driver could not count its devices: CUDA_ERROR_UNKNOWN (words of the fake driver)");
}

static void hidden_devices(void)
{
    setenv("CUDA_VISIBLE_DEVICES", "", 1);
    load_fake("");
    no_cuda("no CUDA device is visible: CUDA_VISIBLE_DEVICES is \"\"");
}

static void init_unknown(void)
{
    setenv("FAKE_CUDA_FAIL", "cuInit=999", 1);
    load_fake("");
    no_cuda("the CUDA driver did not initialise: CUDA_ERROR_UNKNOWN (words of the fake driver)");
}

static void init_mismatch(void)
{
    setenv("FAKE_CUDA_FAIL", "cuInit=803", 1);
    load_fake("");
    no_cuda("the CUDA driver did not initialise: CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (words of the fake driver); "
            "libcuda.so.1 and the kernel module are of different versions, a restart of the machine usually helps");
}

static void init_forked_by_others(void)
{
    setenv("FAKE_CUDA_FAIL", "cuInit=3", 1);
    load_fake("");
    no_cuda(
        "the CUDA driver did not initialise: CUDA_ERROR_NOT_INITIALIZED (words of the fake driver); this is its answer "
        "in a process that was forked from one that had already initialised CUDA");
}

static void no_image(void)
{
    setenv("FAKE_CUDA_SM", "75", 1);
    load_fake("");
    saker_cuda_info info;
    NUMBER(saker_cuda_at(0, &info), SAKER_OK);
    NUMBER(info.has_image, 0);
    refused(SAKER_DEVICE,
            "no kernel image for this GPU: CUDA device 0 has compute capability 7.5, this library holds sm_80, "
            "sm_90, sm_90a, PTX for compute_80");
    NUMBER(fake_primary_holders(0), 0);
    /* The rules of images: same major and not newer, "a" for that one only, PTX for everything from it on. */
    CHECK(skr_cuda_has_image(8, 0) && skr_cuda_has_image(8, 6) && skr_cuda_has_image(8, 9) && skr_cuda_has_image(9, 0));
    CHECK(skr_cuda_has_image(10, 0) && skr_cuda_has_image(12, 1) && !skr_cuda_has_image(7, 5));
}

static void device_ids(void)
{
    setenv("FAKE_CUDA_DEVICES", "20", 1);
    load_fake("");
    saker_context *ctx;
    NUMBER(create(&ctx, -1, NULL), SAKER_INVALID_ARG);
    TEXT(saker_context_error(NULL),
         "saker_context_create: device_id is -1, expected 0 to 19 (CUDA devices that the driver shows)");
    NUMBER(create(&ctx, 20, NULL), SAKER_INVALID_ARG);
    NUMBER(create(&ctx, 16, NULL), SAKER_UNSUPPORTED);
    TEXT(saker_context_error(NULL),
         "saker_context_create: device_id is 16, this library uses CUDA devices 0 to 15 only");
    ctx = made(15, NULL);
    NUMBER(run_one(ctx), SAKER_OK);
    saker_context_destroy(ctx);
}

static void device_info(void)
{
    load_fake("");
    const char *why = NULL;
    NUMBER(saker_cuda_count(&why), 2);
    TEXT(why, "");
    saker_cuda_info info;
    NUMBER(saker_cuda_at(1, &info), SAKER_OK);
    TEXT(info.name, "Fake GPU 1");
    NUMBER(info.compute_major * 10 + info.compute_minor, 90);
    NUMBER(info.multiprocessors, 132);
    NUMBER(info.driver_version, 13000);
    NUMBER(info.memory_bytes, INT64_C(2) << 30);
    NUMBER(info.l2_bytes, 50 << 20);
    NUMBER(info.shared_bytes, 232448);
    NUMBER(info.has_image, 1);
    NUMBER(saker_cuda_at(2, &info), SAKER_INVALID_ARG);
    NUMBER(saker_cuda_at(-1, &info), SAKER_INVALID_ARG);
    NUMBER(saker_cuda_at(0, NULL), SAKER_NULL_POINTER);
    /* Asking is not using. */
    NUMBER(fake_calls("cuDevicePrimaryCtxRetain"), 0);
}

int main(int argc, char **argv)
{
    static const scenario_row rows[] = {
        SCENARIO(no_driver),
        SCENARIO(old_driver),
        SCENARIO(oldest_driver),
        SCENARIO(none_counted),
        SCENARIO(count_unknown),
        SCENARIO(stub_driver),
        SCENARIO(partial_driver),
        SCENARIO(plain_driver),
        SCENARIO(no_device),
        SCENARIO(hidden_devices),
        SCENARIO(init_unknown),
        SCENARIO(init_mismatch),
        SCENARIO(init_forked_by_others),
        SCENARIO(no_image),
        SCENARIO(device_ids),
        SCENARIO(device_info),
    };
    return run_with_fake(argc, argv, rows, sizeof rows / sizeof *rows);
}
