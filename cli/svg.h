/* svg.h - a line plot as inline SVG, nothing more.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_SVG_H
#define CLI_SVG_H

#include <stdbool.h>
#include <stdio.h>

enum { SVG_POINTS = 32, SVG_COLOURS = 6 };

typedef struct svg_series {
    char label[64]; /* "": not in the legend */
    int n;
    double x[SVG_POINTS], y[SVG_POINTS]; /* x rising and positive */
    int colour;                          /* 0 .. SVG_COLOURS - 1 */
    bool dashed;                         /* a bound, not a result */
} svg_series;

/* The style sheet that plots need, once per page: colours that are legible on light and dark grounds. */
void svg_style(FILE *out);
/* x is logarithmic (powers of two), y starts at 0. */
void svg_plot(FILE *out, const char *title, const char *x_label, const char *y_label, const svg_series *series, int n);
/* Text with <, >, & and quotes made harmless. */
void svg_text(FILE *out, const char *text);

#endif
