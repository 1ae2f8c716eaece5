/* grammar_expand.c - references, conjunctions and alternatives: from a list of nodes to lists without them.
 *
 * A node that comes back to itself through its own references adds nothing (the least fixed point): that alternative is
 * dropped. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_schema.h"

#include <stdlib.h>
#include <string.h>

enum {
    TODO_MAX = 64,
    POINTER_PART_BYTES = 1024,
};

/* One way through the alternatives: what applies so far and what is still to be looked at. */
struct path {
    struct {
        int32_t node;
        int origin; /* of done: whose keyword asked for it; -1: the beginning */
    } todo[TODO_MAX];
    int todo_count, head;
    struct tern_schema_list done;
    int origins[TERN_SCHEMA_LIST_MAX];
};

static tern_status push(const struct tern_schema *schema,
                        struct path *path,
                        int32_t node,
                        int origin)
{
    if (path->todo_count == TODO_MAX) {
        return tern_schema_fail(schema, node, "more than %d schemas apply to one value", TODO_MAX);
    }
    path->todo[path->todo_count].node = node;
    path->todo[path->todo_count++].origin = origin;
    return TERN_OK;
}

static bool is_own_ancestor(const struct path *path, int32_t node, int origin)
{
    for (; origin >= 0; origin = path->origins[origin]) {
        if (path->done.nodes[origin] == node) {
            return true;
        }
    }
    return false;
}

static bool is_done(const struct path *path, int32_t node)
{
    for (int i = 0; i < path->done.count; i++) {
        if (path->done.nodes[i] == node) {
            return true;
        }
    }
    return false;
}

/* $ref and allOf of the node that was done last. */
static tern_status push_conjuncts(struct tern_schema *schema, struct path *path, int32_t node)
{
    int origin = path->done.count - 1;
    const struct tern_json *all = tern_schema_get(schema, node, "allOf");
    int32_t next;
    if (tern_schema_get(schema, node, "$ref") != NULL) {
        TERN_RETURN_IF_ERR(tern_schema_resolve(schema, node, &next));
        TERN_RETURN_IF_ERR(push(schema, path, next, origin));
    }
    for (int64_t i = 0; all != NULL && i < tern_json_count(all); i++) {
        TERN_RETURN_IF_ERR(
            tern_schema_child(schema, node, "allOf", i, tern_json_item(all, i), &next));
        TERN_RETURN_IF_ERR(push(schema, path, next, origin));
    }
    return TERN_OK;
}

static tern_status expand(struct tern_schema *schema,
                          struct path *path,
                          struct tern_schema_value *value);

static tern_status expand_choice(struct tern_schema *schema,
                                 const struct path *path,
                                 int32_t node,
                                 const char *keyword,
                                 struct tern_schema_value *value)
{
    const struct tern_json *choices = tern_schema_get(schema, node, keyword);
    struct path *copy = tern_alloc("grammar", sizeof *copy);
    tern_status status = TERN_OK;
    if (copy == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    for (int64_t i = 0; i < tern_json_count(choices) && status == TERN_OK; i++) {
        int32_t next;
        *copy = *path;
        TERN_GOTO_IF_ERR(
            status, tern_schema_child(schema, node, keyword, i, tern_json_item(choices, i), &next),
            out);
        TERN_GOTO_IF_ERR(status, push(schema, copy, next, path->done.count - 1), out);
        status = expand(schema, copy, value);
    }
out:
    tern_free(copy);
    return status;
}

/* As deep as lists are long: each level has done a node more. */
static tern_status expand(struct tern_schema *schema,
                          struct path *path,
                          struct tern_schema_value *value)
{
    while (path->head < path->todo_count) {
        int32_t node = path->todo[path->head].node;
        int origin = path->todo[path->head++].origin;
        const struct tern_json *json = schema->nodes[node].json;
        if (++schema->steps > TERN_SCHEMA_STEPS_MAX) {
            return tern_schema_fail(schema, node,
                                    "too many combinations of alternatives (more "
                                    "than 200000 steps)");
        }
        if (tern_json_kind_of(json) == TERN_JSON_BOOL) {
            if (tern_json_bool(json, true)) {
                continue;
            }
            return TERN_OK; /* nothing is valid under false */
        }
        if (is_own_ancestor(path, node, origin)) {
            return TERN_OK;
        }
        TERN_RETURN_IF_ERR(tern_schema_check(schema, node));
        if (is_done(path, node)) {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_schema_list_add(schema, &path->done, node));
        path->origins[path->done.count - 1] = origin;
        TERN_RETURN_IF_ERR(push_conjuncts(schema, path, node));
        const char *choice = tern_schema_get(schema, node, "anyOf") != NULL   ? "anyOf"
                             : tern_schema_get(schema, node, "oneOf") != NULL ? "oneOf"
                                                                              : NULL;
        if (choice != NULL) {
            return expand_choice(schema, path, node, choice, value);
        }
    }
    return tern_schema_atoms(schema, &path->done, value);
}

tern_status tern_schema_value(struct tern_schema *schema,
                              const struct tern_schema_list *list,
                              size_t *value_out)
{
    int32_t *bucket = &schema->value_buckets[tern_schema_bucket(
        list->nodes, (size_t)list->count * sizeof list->nodes[0])];
    for (int32_t i = *bucket; i >= 0; i = schema->values[i].next) {
        if (tern_schema_is_same_list(&schema->values[i].list, list)) {
            *value_out = (size_t)i;
            return TERN_OK;
        }
    }
    if (!tern_grammar_grow((void **)&schema->values, &schema->value_capacity, schema->value_count,
                           sizeof *schema->values)) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    struct tern_schema_value *value = &schema->values[schema->value_count];
    *value = (struct tern_schema_value){.list = *list, .next = *bucket};
    *bucket = (int32_t)schema->value_count;
    *value_out = schema->value_count++;
    struct path *path = tern_alloc_zero("grammar", 1, sizeof *path);
    if (path == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    tern_status status = TERN_OK;
    for (int i = 0; i < list->count && status == TERN_OK; i++) {
        status = push(schema, path, list->nodes[i], -1);
    }
    if (status == TERN_OK) {
        status = expand(schema, path, value);
    }
    tern_free(path);
    return status;
}

/* One part of a pointer: %XX, then ~1 and ~0 undone. False when it is too long or not well-formed. */
static bool read_part(const char **at, char out[POINTER_PART_BYTES])
{
    size_t length = 0;
    const char *text = *at;
    for (; *text != '\0' && *text != '/'; text++) {
        char c = *text;
        if (c == '%') {
            char digits[3] = {text[1], text[1] != '\0' ? text[2] : '\0', '\0'}, *end;
            c = (char)strtol(digits, &end, 16);
            if (end != digits + 2 || c == '\0') {
                return false;
            }
            text += 2;
        }
        if (c == '~') {
            if (text[1] != '0' && text[1] != '1') {
                return false;
            }
            c = *++text == '0' ? '~' : '/';
        }
        if (length + 1 >= POINTER_PART_BYTES) {
            return false;
        }
        out[length++] = c;
    }
    out[length] = '\0';
    *at = text;
    return true;
}

/* The entry of an array that a part names, NULL if it is no index or past the end. */
static const struct tern_json *entry(const struct tern_json *array,
                                     const char *part,
                                     int64_t *index)
{
    bool is_number = part[0] != '\0' && strspn(part, "0123456789") == strlen(part);
    *index = is_number && strlen(part) < 10 ? strtol(part, NULL, 10) : -1;
    return *index >= 0 ? tern_json_item(array, *index) : NULL;
}

struct key_search {
    const struct tern_json *value;
    const char *key;
};

static tern_status find_key(void *context,
                            const char *key,
                            size_t key_bytes,
                            const struct tern_json *value)
{
    struct key_search *search = context;
    (void)key_bytes;
    search->key = value == search->value ? key : search->key;
    return TERN_OK;
}

tern_status tern_schema_resolve(struct tern_schema *schema, int32_t node, int32_t *target_out)
{
    const char *ref = tern_json_string(tern_schema_get(schema, node, "$ref"), NULL);
    const char *at = ref + 1;
    const struct tern_json *json = schema->root;
    int32_t place = 0;
    if (ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/')) {
        return tern_schema_fail(schema, node,
                                "\"$ref\" is \"%.100s\", expected \"#\" or \"#/...\": other "
                                "documents and anchors are not supported",
                                ref);
    }
    while (*at == '/') {
        char part[POINTER_PART_BYTES];
        int64_t index = -1;
        at++;
        if (!read_part(&at, part)) {
            return tern_schema_fail(schema, node, "\"$ref\" is no JSON pointer: \"%.100s\"", ref);
        }
        enum tern_json_kind kind = tern_json_kind_of(json);
        const struct tern_json *next = kind == TERN_JSON_OBJECT  ? tern_json_get(json, part)
                                       : kind == TERN_JSON_ARRAY ? entry(json, part, &index)
                                                                 : NULL;
        if (next == NULL) {
            return tern_schema_fail(schema, node, "\"$ref\": there is no \"%.100s\" in the schema",
                                    ref);
        }
        struct key_search search = {next,
                                    NULL}; /* the schema's own text of the key: nodes keep it */
        TERN_RETURN_IF_ERR(tern_json_each(json, find_key, &search));
        json = next;
        TERN_RETURN_IF_ERR(tern_schema_child(schema, place, search.key, index, json, &place));
    }
    *target_out = place;
    return TERN_OK;
}
