/* json_read.c - the reader of json.h: recursive descent, a depth limit, no surprises.
 * SPDX-License-Identifier: Apache-2.0 */
#include "json.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 32 };

typedef struct parser {
    const char *at;
    int depth;
    const char *wrong; /* first complaint */
} parser;

static void skip(parser *p)
{
    while (*p->at == ' ' || *p->at == '\n' || *p->at == '\t' || *p->at == '\r')
        p->at++;
}

static bool take(parser *p, char c)
{
    skip(p);
    if (*p->at != c)
        return false;
    p->at++;
    return true;
}

static void complain(parser *p, const char *what)
{
    if (!p->wrong)
        p->wrong = what;
}

/* After the opening quote. Escapes other than \uXXXX above 0x7f are decoded; those become '?', which our own writer
 * never produces. */
static char *string(parser *p)
{
    size_t length = 0;
    for (const char *s = p->at; *s && *s != '"'; s += *s == '\\' && s[1] ? 2 : 1)
        length++;
    char *text = malloc(length + 1), *out = text;
    if (!text) {
        complain(p, "out of memory");
        return NULL;
    }
    while (*p->at && *p->at != '"') {
        char c = *p->at++;
        if (c == '\\' && *p->at) {
            c = *p->at++;
            if (c == 'u') {
                char digits[5] = {0};
                for (int i = 0; i < 4 && *p->at && *p->at != '"'; i++)
                    digits[i] = *p->at++;
                long code = strtol(digits, NULL, 16);
                c = code > 0 && code < 0x80 ? (char)code : '?';
            } else {
                c = c == 'n' ? '\n' : c == 't' ? '\t' : c == 'r' ? '\r' : c;
            }
        }
        *out++ = c;
    }
    *out = 0;
    if (*p->at)
        p->at++;
    else
        complain(p, "a string does not end");
    return text;
}

static json_value *value(parser *p);

static void members(parser *p, json_value *v, char close)
{
    json_value **tail = &v->child;
    if (take(p, close))
        return;
    do {
        char *key = NULL;
        if (close == '}') {
            if (!take(p, '"')) {
                complain(p, "a key was expected");
                return;
            }
            key = string(p);
            if (!take(p, ':'))
                complain(p, "a colon was expected");
        }
        json_value *child = p->wrong ? NULL : value(p);
        if (!child) {
            free(key);
            return;
        }
        child->key = key;
        *tail = child;
        tail = &child->next;
    } while (!p->wrong && take(p, ','));
    if (!take(p, close))
        complain(p, "a bracket does not close");
}

static bool word(parser *p, const char *text)
{
    if (strncmp(p->at, text, strlen(text)))
        return false;
    p->at += strlen(text);
    return true;
}

static json_value *value(parser *p)
{
    skip(p);
    json_value *v = calloc(1, sizeof *v);
    if (!v || p->depth == MAX_DEPTH) {
        complain(p, v ? "nested too deeply" : "out of memory");
        free(v);
        return NULL;
    }
    p->depth++;
    char *end;
    if (take(p, '{')) {
        v->kind = JSON_OBJECT;
        members(p, v, '}');
    } else if (take(p, '[')) {
        v->kind = JSON_ARRAY;
        members(p, v, ']');
    } else if (take(p, '"')) {
        v->kind = JSON_TEXT;
        v->text = string(p);
    } else if (word(p, "true")) {
        v->kind = JSON_BOOL;
        v->number = 1;
    } else if (word(p, "false")) {
        v->kind = JSON_BOOL;
    } else if (!word(p, "null")) {
        v->kind = JSON_NUMBER;
        v->number = strtod(p->at, &end);
        if (end == p->at)
            complain(p, "a value was expected");
        p->at = end;
    }
    p->depth--;
    return v;
}

json_value *json_read(const char *path, char *error)
{
    FILE *f = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0, room = 0;
    while (f) {
        if (room - size < 65536) {
            char *grown = realloc(text, room = room * 2 + 131072);
            if (!grown)
                break;
            text = grown;
        }
        size_t n = fread(text + size, 1, room - size - 1, f);
        size += n;
        if (n == 0)
            break;
    }
    if (!f || !text || ferror(f)) {
        snprintf(error, 160, "cannot read '%s': %s", path, strerror(errno));
        if (f)
            fclose(f);
        free(text);
        return NULL;
    }
    fclose(f);
    text[size] = 0;
    parser p = {.at = text};
    json_value *root = value(&p);
    skip(&p);
    if (!p.wrong && *p.at)
        p.wrong = "something follows the end";
    if (p.wrong) {
        snprintf(error, 160, "'%s' is not JSON: %s at byte %lld", path, p.wrong, (long long)(p.at - text));
        json_free(root);
        root = NULL;
    }
    free(text);
    return root;
}

void json_free(json_value *v)
{
    while (v) {
        json_value *next = v->next;
        json_free(v->child);
        free(v->text);
        free(v->key);
        free(v);
        v = next;
    }
}

const json_value *json_get(const json_value *object, const char *key)
{
    if (!object || object->kind != JSON_OBJECT)
        return NULL;
    for (const json_value *v = object->child; v; v = v->next)
        if (v->key && !strcmp(v->key, key))
            return v;
    return NULL;
}

double json_get_number(const json_value *object, const char *key, double otherwise)
{
    const json_value *v = json_get(object, key);
    return v && v->kind == JSON_NUMBER ? v->number : otherwise;
}

const char *json_get_text(const json_value *object, const char *key, const char *otherwise)
{
    const json_value *v = json_get(object, key);
    return v && v->kind == JSON_TEXT ? v->text : otherwise;
}
