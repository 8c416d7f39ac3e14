/* list.c - `saker list`: the operations as their field tables describe them.
 * SPDX-License-Identifier: Apache-2.0 */
#include <string.h>

#include "cli.h"
#include "json.h"

/* Without a default, so that the compiler names a kind that is missing here. */
static const char *kind_name(saker_field_kind kind)
{
    switch (kind) {
    case SAKER_FIELD_IN:
        return "in";
    case SAKER_FIELD_OUT:
        return "out";
    case SAKER_FIELD_INOUT:
        return "in/out";
    case SAKER_FIELD_F32:
        return "f32";
    case SAKER_FIELD_BOOL:
        return "bool";
    case SAKER_FIELD_ENUM:
        return "enum";
    case SAKER_FIELD_I64:
        return "i64";
    case SAKER_FIELD_F64:
        return "f64";
    }
    return "?";
}

static const char *type_name(uint32_t type)
{
    const char *name = saker_type_name(SAKER_DTYPE(type));
    return name ? name : "?";
}

static void show_json(json_out *j, const saker_op_info *op)
{
    json_begin(j, NULL, '{');
    json_text(j, "name", op->name);
    json_text(j, "doc", op->doc);
    json_int(j, "args_size", op->args_size);
    json_begin(j, "fields", '[');
    for (int i = 0; i < op->n_fields; i++) {
        const saker_field *f = &op->fields[i];
        json_row(j, NULL);
        json_text(j, "name", f->name);
        json_text(j, "kind", kind_name((saker_field_kind)f->kind));
        json_text(j, "doc", f->doc);
        json_int(j, "offset", f->offset);
        if (f->kind <= SAKER_FIELD_INOUT) {
            json_bool(j, "required", f->required);
            json_begin(j, "types", '[');
            for (const uint32_t *t = f->types; t && *t; t++)
                json_text(j, NULL, type_name(*t));
            json_end(j, ']');
        } else {
            json_number(j, "default", f->default_value);
            if (f->choices)
                json_text(j, "choices", f->choices);
        }
        json_end(j, '}');
    }
    json_end(j, ']');
    json_end(j, '}');
}

static void show_text(const saker_op_info *op)
{
    printf("%s: %s\n", op->name, op->doc);
    for (int i = 0; i < op->n_fields; i++) {
        const saker_field *f = &op->fields[i];
        char what[96] = "";
        if (f->kind <= SAKER_FIELD_INOUT) {
            for (const uint32_t *t = f->types; t && *t; t++)
                snprintf(what + strlen(what), sizeof what - strlen(what), "%s%s", what[0] ? " " : "", type_name(*t));
        } else if (f->kind == SAKER_FIELD_ENUM) {
            snprintf(what, sizeof what, "%s", f->choices ? f->choices : "");
        } else {
            snprintf(what, sizeof what, "default %g", f->default_value);
        }
        bool required = f->kind <= SAKER_FIELD_INOUT && f->required;
        printf("  %-6s %-20s %-38s %s%s\n", kind_name((saker_field_kind)f->kind), f->name, what, f->doc,
               required ? " (required)" : "");
    }
    putchar('\n');
}

int cli_list(int argc, char **argv)
{
    bool json = false, names = false;
    int words = 0;
    const cli_option table[] = {
        {"--names", CLI_FLAG, &names, NULL, "only the names, one a line"},
        {"--json", CLI_FLAG, &json, NULL, "machine-readable output"},
    };
    int code = cli_parse(argc, argv, "list [OP...] [options]",
                         "Shows the operations with their arguments, accepted types, options and defaults.", table,
                         sizeof table / sizeof table[0], &words);
    if (code >= 0)
        return code;
    for (int w = 1; w <= words; w++)
        if (!saker_op_find(argv[w]))
            return cli_usage("there is no operation '%s'; `saker list --names` shows them", argv[w]);
    json_out j = {.file = stdout};
    if (json) {
        json_begin(&j, NULL, '{');
        json_text(&j, "version", saker_version());
        json_begin(&j, "ops", '[');
    }
    for (int i = 0; i < saker_op_count(); i++) {
        const saker_op_info *op = saker_op_at(i);
        bool wanted = words == 0;
        for (int w = 1; w <= words; w++)
            wanted |= !strcmp(argv[w], op->name);
        if (!wanted)
            continue;
        if (json)
            show_json(&j, op);
        else if (names)
            puts(op->name);
        else
            show_text(op);
    }
    if (json) {
        json_end(&j, ']');
        json_end(&j, '}');
    }
    return CLI_OK;
}
