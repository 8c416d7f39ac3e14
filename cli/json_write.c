/* json_write.c - the writer of json.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <math.h>

/* Bytes of the UTF-8 character at s; 0: there is none (cut short, longer than need be, a surrogate, past 10ffff). */
static int utf8(const unsigned char *s)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n = s[0] < 0x80 ? 1 : s[0] < 0xc0 ? 0 : s[0] < 0xe0 ? 2 : s[0] < 0xf0 ? 3 : s[0] < 0xf8 ? 4 : 0;
    uint32_t code = n > 1 ? s[0] & (0x7fu >> n) : s[0];
    for (int i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        code = code << 6 | (s[i] & 0x3fu);
    }
    return code < least[n] || code > 0x10ffff || code >> 11 == 0xd800 >> 11 ? 0 : n;
}

/* A byte that is no UTF-8, as an environment variable may hold, becomes the replacement character U+FFFD. */
static void quoted(FILE *f, const char *s)
{
    fputc('"', f);
    for (int n; *s; s += n ? n : 1) {
        unsigned char c = (unsigned char)*s;
        n = utf8((const unsigned char *)s);
        if (c == '"' || c == '\\')
            fprintf(f, "\\%c", c);
        else if (c == '\n')
            fputs("\\n", f);
        else if (c < 0x20)
            fprintf(f, "\\u%04x", c);
        else if (n)
            fwrite(s, 1, (size_t)n, f);
        else
            fputs("\xef\xbf\xbd", f);
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
