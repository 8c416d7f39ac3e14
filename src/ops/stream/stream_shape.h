/* stream_shape.h - the launch shape of the probe's CUDA kernels, for plan and kernel alike.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef SKR_STREAM_SHAPE_H
#define SKR_STREAM_SHAPE_H

/* THREADS of a block; UNROLL accesses of a thread in one tile; WALK blocks an SM when a block takes more than one tile. */
enum { SKR_STREAM_THREADS = 256, SKR_STREAM_UNROLL = 4, SKR_STREAM_WALK = 8 };

#endif
