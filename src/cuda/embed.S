/* embed.S - one fatbin as bytes of the library; assembled once per fatbin:
 *     cc -c -DSKR_FATBIN_NAME=skr_fatbin_norm_sm90 -DSKR_FATBIN_FILE='"build/cuda/norm_sm90.fatbin"' embed.S
 * SPDX-License-Identifier: Apache-2.0
 *
 * Defines the symbol and <symbol>_end, both hidden; SKR_FATBIN in launch.h refers to the first. */
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
#define IMAGE SKR_FATBIN_NAME
#define IMAGE_END JOIN(SKR_FATBIN_NAME, _end)

    .section .rodata.skr_fatbin, "a"
    .balign 64
    .globl IMAGE
    .hidden IMAGE
    .globl IMAGE_END
    .hidden IMAGE_END
IMAGE:
    .incbin SKR_FATBIN_FILE
IMAGE_END:
    .byte 0
    .type IMAGE, %object
    .size IMAGE, IMAGE_END - IMAGE

    .section .note.GNU-stack, "", %progbits
