/* json.h - writing JSON, and reading back what the command itself wrote.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef CLI_JSON_H
#define CLI_JSON_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* ---- writer. Objects and arrays nest; key is NULL inside an array. A row is an object on one line. */
typedef struct json_out {
    FILE *file;
    int depth, row; /* row: depth at which a one-line object began, 0 if none */
    bool more[16];
} json_out;

void json_begin(json_out *j, const char *key, char bracket);     /* '{' or '[' */
void json_row(json_out *j, const char *key);                     /* '{', everything inside on one line */
void json_end(json_out *j, char bracket);                        /* '}' or ']' */
void json_text(json_out *j, const char *key, const char *value); /* NULL: null */
void json_number(json_out *j, const char *key, double value);    /* not finite: null */
void json_int(json_out *j, const char *key, int64_t value);
void json_bool(json_out *j, const char *key, bool value);

/* ---- reader: a tree of values in one allocation chain. */
typedef enum json_kind { JSON_NULL, JSON_BOOL, JSON_NUMBER, JSON_TEXT, JSON_ARRAY, JSON_OBJECT } json_kind;
typedef struct json_value {
    json_kind kind;
    double number; /* also of booleans */
    char *text;
    char *key;                /* inside an object */
    struct json_value *child; /* first element */
    struct json_value *next;  /* next sibling */
} json_value;

/* NULL with a sentence in error (at least 160 bytes) if the file cannot be read or is not JSON. */
json_value *json_read(const char *path, char *error);
void json_free(json_value *value);
const json_value *json_get(const json_value *object, const char *key); /* NULL if absent */
double json_get_number(const json_value *object, const char *key, double otherwise);
const char *json_get_text(const json_value *object, const char *key, const char *otherwise);

#endif
