/* suite_random.h - draws for random combinations: a number gives the same case everywhere.
 * SPDX-License-Identifier: Apache-2.0
 *
 * One draw a statement: their order must be fixed. */
#ifndef SUITE_RANDOM_H
#define SUITE_RANDOM_H

#include "suite.h"

/* Combinations of each operation of rows. A description's `random` is 1 and the combination's number, 0: it is none. */
enum { SUITE_RANDOM = 300 };

/* Begins the name of a case with its number, where it has one. */
void suite_say_random(suite_case *c, int random);

/* Where the draws of combination `number` begin. */
uint64_t suite_draws(int number);
/* From 0 to n - 1. */
int suite_draw(uint64_t *draws, int n);
/* True once in n times. */
bool suite_draw_once_in(uint64_t *draws, int n);
saker_type suite_draw_float(uint64_t *draws);
/* The given type, one time in three any. */
saker_type suite_draw_near(uint64_t *draws, saker_type type);
/* Columns: small ones, those around powers of two, whole vectors, and any up to 5000. */
int64_t suite_draw_width(uint64_t *draws);
/* Fills lead with up to `most` dimensions and returns how many they are; few rows where they are wide, and none at all
 * now and then. */
int suite_draw_lead(uint64_t *draws, int most, int64_t width, int64_t *lead);

#endif
