/* json_write.c - the writer of json.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <math.h>

static void quoted(FILE *f, const char *s)
{
    fputc('"', f);
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", f);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else
            fputc(c, f);
    }
    fputc('"', f);
}

/* Comma, line break and indent before a value, then its key. */
static void lead(json_out *j, const char *key)
{
    bool inside_row = j->row && j->depth >= j->row;
    if (j->more[j->depth])
        fputs(inside_row ? ", " : ",", j->file);
    j->more[j->depth] = true;
    if (!inside_row && j->depth)
        fprintf(j->file, "\n%*s", 2 * j->depth, "");
    if (key) {
        quoted(j->file, key);
        fputs(": ", j->file);
    }
}

void json_begin(json_out *j, const char *key, char bracket)
{
    lead(j, key);
    fputc(bracket, j->file);
    j->more[++j->depth] = false;
}

void json_row(json_out *j, const char *key)
{
    json_begin(j, key, '{');
    if (!j->row)
        j->row = j->depth;
}

void json_end(json_out *j, char bracket)
{
    bool inside_row = j->row && j->depth >= j->row;
    if (j->row == j->depth)
        j->row = 0;
    j->depth--;
    if (!inside_row && j->more[j->depth + 1])
        fprintf(j->file, "\n%*s", 2 * j->depth, "");
    fputc(bracket, j->file);
    if (j->depth == 0)
        fputc('\n', j->file);
}

void json_text(json_out *j, const char *key, const char *value)
{
    lead(j, key);
    if (value)
        quoted(j->file, value);
    else
        fputs("null", j->file);
}

void json_number(json_out *j, const char *key, double value)
{
    lead(j, key);
    if (isfinite(value))
        fprintf(j->file, "%.6g", value);
    else
        fputs("null", j->file);
}

void json_int(json_out *j, const char *key, int64_t value)
{
    lead(j, key);
    fprintf(j->file, "%lld", (long long)value);
}

void json_bool(json_out *j, const char *key, bool value)
{
    lead(j, key);
    fputs(value ? "true" : "false", j->file);
}
