/* stream_shape.h - the launch shape of the probe's CUDA kernels, for plan and kernel alike.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_STREAM_SHAPE_H
#define SKR_STREAM_SHAPE_H

/* THREADS of a block. Without a checksum a block moves one access of each thread and ends: the fastest copy on an H200.
 * With one, WALK blocks an SM walk over tiles of UNROLL accesses of each thread. */
enum { SKR_STREAM_THREADS = 256, SKR_STREAM_UNROLL = 4, SKR_STREAM_WALK = 8 };

#endif
