/* device.h - the GPUs of this process, for the backend's own files: opening, making current, loading, launching.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_CUDA_DEVICE_H
#define SKR_CUDA_DEVICE_H

#include "launch.h"

/* ---------------------------------------------------------------- devices (device.c) */

/* One GPU as this process uses it; shared by all contexts on it. */
typedef struct skr_cuda_device {
    int32_t id;       /* as the driver counts */
    int32_t contexts; /* how many are open; device.c's lock guards it and the next three */
    skr_cu_device handle;
    skr_cu_context primary;
    skr_cu_pool pool; /* NULL: no stream-ordered memory on this device */
    int32_t major, minor;
    int32_t n_sms;
    int32_t shared_bytes;  /* per block, opted in */
    bool can_overlap;      /* programmatic launches, also in graphs */
    _Atomic(int32_t) lost; /* 0, or the error with which it faulted under our work */
    _Atomic(int32_t) busy; /* contexts with launches that no wait has confirmed yet */
} skr_cuda_device;

/* Opens the device for one more context, or says why not. */
saker_status skr_cuda_device_take(skr_call *call, int32_t id, skr_cuda_device **out);
void skr_cuda_device_give(skr_cuda_device *device);

/* A stay in the device's context: the caller's context and capture mode are put back when it ends. */
typedef struct skr_cuda_visit {
    bool pushed, relaxed;
    skr_cu_capture_mode mode;
} skr_cuda_visit;
skr_cu_result skr_cuda_make_current(const skr_cuda_device *device, skr_cuda_visit *visit);
/* The same, refused after a fork and on a lost device. */
saker_status skr_cuda_enter(skr_call *call, skr_cuda_device *device, skr_cuda_visit *visit);
/* Allocation is forbidden to a thread while any stream is captured in global mode, unless the thread says that it
 * knows. */
void skr_cuda_relax(skr_cuda_visit *visit);
void skr_cuda_leave(skr_cuda_visit *visit);

/* ---------------------------------------------------------------- errors and launches (launch.c) */

/* Turns an error of the driver into status and sentence; format says what was being done ("loading %s"). An error that
 * sticks to the device marks it lost when work of ours is unconfirmed; else it was there before us, and is reported as
 * such. */
__attribute__((format(printf, 4, 5))) saker_status skr_cuda_fail(skr_call *call, skr_cuda_device *device,
                                                                 skr_cu_result result, const char *format, ...);
/* The same for a device that is lost already. */
saker_status skr_cuda_fail_lost(skr_call *call, const skr_cuda_device *device);

/* Launches one step; the device's context is current. */
saker_status skr_cuda_launch(skr_call *call, skr_cuda_device *device, const skr_step *step, const void *job,
                             skr_cu_stream stream);

/* ---------------------------------------------------------------- images (module.c) */

/* Loads the kernel's fatbin and prepares the kernel on the device, whose context is current. Any thread, also while a
 * stream is captured. */
saker_status skr_cuda_load(skr_call *call, skr_cuda_device *device, skr_cuda_kernel *kernel);

/* "80,90,90a,ptx80": the images that the fatbins of this library hold, "" without any. */
extern const char skr_cuda_images[];
/* True when one of the images runs on a GPU of this compute capability. */
bool skr_cuda_has_image(int major, int minor);
/* DEVICE, with what the GPU is and what the library holds. */
saker_status skr_cuda_fail_image(skr_call *call, const skr_cuda_device *device);

#endif
