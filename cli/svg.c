/* svg.c - see svg.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "svg.h"

#include <math.h>

enum { WIDTH = 680, HEIGHT = 380, LEFT = 64, RIGHT = 16, TOP = 40, BOTTOM = 84 };

void svg_style(FILE *out)
{
    /* Mid-lightness hues: contrast above 3:1 on white and on near-black alike. */
    static const char *const colours[SVG_COLOURS] = {"#2f7ed8", "#d9722e", "#2f9e57", "#a05fd0", "#c9447a", "#8a7a2f"};
    fputs(".plot{max-width:680px;width:100%;height:auto;font:12px system-ui,sans-serif}.plot text{fill:currentColor}"
          ".plot .title{font-size:14px;font-weight:600}.plot .grid{stroke:currentColor;stroke-opacity:.15}"
          ".plot .axis{stroke:currentColor;stroke-opacity:.6}.plot polyline{fill:none;stroke-width:2}.plot "
          ".dash{stroke-dasharray:5 4;stroke-width:1.5}",
          out);
    for (int i = 0; i < SVG_COLOURS; i++)
        fprintf(out, ".plot .c%d{stroke:%s}.plot circle.c%d{fill:%s}", i, colours[i], i, colours[i]);
}

void svg_text(FILE *out, const char *text)
{
    for (; *text; text++) {
        const char *entity = *text == '<'   ? "&lt;"
                             : *text == '>' ? "&gt;"
                             : *text == '&' ? "&amp;"
                             : *text == '"' ? "&quot;"
                                            : NULL;
        if (entity)
            fputs(entity, out);
        else
            fputc(*text, out);
    }
}

typedef struct frame {
    double x0, x1, y1; /* log2 of the first and last x; top of y */
} frame;

static double place_x(const frame *f, double x)
{
    double span = f->x1 > f->x0 ? f->x1 - f->x0 : 1;
    return LEFT + (log2(x) - f->x0) / span * (WIDTH - LEFT - RIGHT);
}

static double place_y(const frame *f, double y)
{
    return HEIGHT - BOTTOM - y / f->y1 * (HEIGHT - TOP - BOTTOM);
}

/* 1, 2 or 5 times a power of ten, so that there are four to nine steps. */
static double nice_step(double top)
{
    double power = pow(10, floor(log10(top / 5))), digit = top / 5 / power;
    return power * (digit >= 5 ? 5 : digit >= 2 ? 2 : 1);
}

static void axes(FILE *out, const frame *f, double step, const char *x_label, const char *y_label)
{
    int every = f->x1 - f->x0 > 10 ? 2 : 1;
    for (double y = 0; y <= f->y1 * 1.0001; y += step) {
        fprintf(out, "<line class=\"grid\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", LEFT, WIDTH - RIGHT,
                place_y(f, y), place_y(f, y));
        fprintf(out, "<text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%g</text>", LEFT - 6, place_y(f, y) + 4, y);
    }
    for (int e = (int)ceil(f->x0); e <= (int)floor(f->x1); e += every) {
        double x = place_x(f, ldexp(1, e));
        fprintf(out, "<line class=\"grid\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%d\" y2=\"%d\"/>", x, x, TOP, HEIGHT - BOTTOM);
        if (e < 10)
            fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%g</text>", x, HEIGHT - BOTTOM + 16,
                    ldexp(1, e));
        else
            fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%gK</text>", x, HEIGHT - BOTTOM + 16,
                    ldexp(1, e - 10));
    }
    fprintf(out, "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%d\" y2=\"%d\"/>", LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM,
            HEIGHT - BOTTOM);
    fprintf(out, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\">", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - BOTTOM + 34);
    svg_text(out, x_label);
    fprintf(out, "</text><text transform=\"translate(14 %d) rotate(-90)\" text-anchor=\"middle\">",
            (TOP + HEIGHT - BOTTOM) / 2);
    svg_text(out, y_label);
    fputs("</text>", out);
}

static void line(FILE *out, const frame *f, const svg_series *s)
{
    fprintf(out, "<polyline class=\"c%d%s\" points=\"", s->colour, s->dashed ? " dash" : "");
    for (int i = 0; i < s->n; i++)
        fprintf(out, "%.1f,%.1f ", place_x(f, s->x[i]), place_y(f, s->y[i]));
    fputs("\"/>", out);
    for (int i = 0; i < s->n && !s->dashed; i++) {
        fprintf(out, "<circle class=\"c%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", s->colour, place_x(f, s->x[i]),
                place_y(f, s->y[i]));
        svg_text(out, s->label);
        fprintf(out, ", %g: %.1f</title></circle>", s->x[i], s->y[i]);
    }
}

void svg_plot(FILE *out, const char *title, const char *x_label, const char *y_label, const svg_series *series, int n)
{
    frame f = {1e300, -1e300, 0};
    for (int k = 0; k < n; k++)
        for (int i = 0; i < series[k].n; i++) {
            f.x0 = fmin(f.x0, log2(series[k].x[i]));
            f.x1 = fmax(f.x1, log2(series[k].x[i]));
            f.y1 = fmax(f.y1, series[k].y[i]);
        }
    if (!(f.y1 > 0))
        return;
    double step = nice_step(f.y1);
    f.y1 = ceil(f.y1 * 1.02 / step) * step;
    fprintf(out, "<svg class=\"plot\" viewBox=\"0 0 %d %d\" role=\"img\"><text class=\"title\" x=\"%d\" y=\"20\">",
            WIDTH, HEIGHT, LEFT);
    svg_text(out, title);
    fputs("</text>", out);
    axes(out, &f, step, x_label, y_label);
    for (int k = 0; k < n; k++)
        line(out, &f, &series[k]);
    for (int k = 0, at = 0; k < n; k++) { /* legend: three columns under the axis */
        if (!series[k].label[0])
            continue;
        int x = LEFT + at % 3 * 200, y = HEIGHT - 30 + at / 3 * 16;
        fprintf(out, "<polyline class=\"c%d%s\" points=\"%d,%d %d,%d\"/><text x=\"%d\" y=\"%d\">", series[k].colour,
                series[k].dashed ? " dash" : "", x, y, x + 22, y, x + 28, y + 4);
        svg_text(out, series[k].label);
        fputs("</text>", out);
        at++;
    }
    fputs("</svg>\n", out);
}
