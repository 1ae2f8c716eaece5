/* grammar_check.c - places of a schema: nodes, pointers, the table of keywords. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

uint32_t tern_schema_bucket(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint32_t hash = 2166136261U; /* FNV-1a */
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ at[i]) * 16777619U;
    }
    return (hash ^ hash >> 16) % TERN_SCHEMA_BUCKETS;
}

bool tern_schema_is_same_list(const struct tern_schema_list *a, const struct tern_schema_list *b)
{
    return a->count == b->count &&
           memcmp(a->nodes, b->nodes, (size_t)a->count * sizeof a->nodes[0]) == 0;
}

tern_status tern_schema_child(struct tern_schema *schema,
                              int32_t parent,
                              const char *key,
                              int64_t index,
                              const struct tern_json *json,
                              int32_t *out)
{
    int32_t *bucket = &schema->node_buckets[tern_schema_bucket(&json, sizeof json)];
    for (int32_t i = *bucket; i >= 0; i = schema->nodes[i].next) {
        if (schema->nodes[i].json == json) {
            *out = i;
            return TERN_OK;
        }
    }
    if (!tern_grammar_grow((void **)&schema->nodes, &schema->node_capacity, schema->node_count,
                           sizeof *schema->nodes)) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    *out = (int32_t)schema->node_count;
    schema->nodes[schema->node_count++] = (struct tern_schema_node){.json = json,
                                                                    .parent = parent,
                                                                    .key = key,
                                                                    .index = index,
                                                                    .types = TERN_TYPE_ANY,
                                                                    .next = *bucket};
    *bucket = *out;
    return TERN_OK;
}

enum {
    POINTER_BYTES = 400
};

/* Puts text in front of what stands at *at, as much of it as there is room for. */
static void put_before(char *buffer, size_t *at, const char *text, size_t bytes)
{
    for (size_t i = bytes; i-- > 0 && *at > 3;) {
        char c = text[i];
        if (c == '~' || c == '/') {
            buffer[--*at] = c == '~' ? '0' : '1';
            c = '~';
        }
        buffer[--*at] = (unsigned char)c < 0x20 ? '?' : c;
    }
}

/* The pointer, "..." and its end when it is long. Returns where it begins in buffer. */
static const char *pointer(const struct tern_schema *schema,
                           int32_t node,
                           char buffer[POINTER_BYTES])
{
    size_t at = POINTER_BYTES - 1;
    buffer[at] = '\0';
    for (; node >= 0 && schema->nodes[node].parent >= 0 && at > 3;
         node = schema->nodes[node].parent) {
        const struct tern_schema_node *place = &schema->nodes[node];
        char number[24];
        if (place->index >= 0) {
            snprintf(number, sizeof number, "%lld", (long long)place->index);
            put_before(buffer, &at, number, strlen(number));
            if (at > 3) {
                buffer[--at] = '/';
            }
        }
        if (place->key != NULL) {
            put_before(buffer, &at, place->key, strlen(place->key));
            if (at > 3) {
                buffer[--at] = '/';
            }
        }
    }
    if (at <= 3) {
        memcpy(buffer, "...", 3);
        at = 0;
    }
    return buffer + at;
}

tern_status tern_schema_fail(const struct tern_schema *schema,
                             int32_t node,
                             const char *format,
                             ...)
{
    char buffer[POINTER_BYTES], message[600];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return tern_fail(TERN_ERR_INPUT, "%s: %s", pointer(schema, node, buffer), message);
}

const struct tern_json *tern_schema_get(const struct tern_schema *schema,
                                        int32_t node,
                                        const char *keyword)
{
    const struct tern_json *json = schema->nodes[node].json;
    return tern_json_kind_of(json) == TERN_JSON_OBJECT ? tern_json_get(json, keyword) : NULL;
}

tern_status tern_schema_list_add(const struct tern_schema *schema,
                                 struct tern_schema_list *list,
                                 int32_t node)
{
    for (int i = 0; i < list->count; i++) {
        if (list->nodes[i] == node) {
            return TERN_OK;
        }
    }
    if (list->count == TERN_SCHEMA_LIST_MAX) {
        return tern_schema_fail(schema, node, "more than %d schemas apply to one value",
                                TERN_SCHEMA_LIST_MAX);
    }
    list->nodes[list->count++] = node;
    return TERN_OK;
}

enum form {
    FORM_IGNORED,
    FORM_SCHEMA,  /* an object or a boolean */
    FORM_SCHEMAS, /* an array of those, not empty */
    FORM_OBJECT,  /* an object */
    FORM_NAMES,   /* an array of strings */
    FORM_COUNT,   /* a whole number from 0 */
    FORM_NUMBER,
    FORM_STRING,
    FORM_BOOL,
    FORM_TYPE,   /* a type's name or an array of them */
    FORM_VALUES, /* an array, not empty */
    FORM_ANY,
    FORM_ONE,   /* a number that is 1 */
    FORM_FALSE, /* supported only when it asks for nothing */
    FORM_ZERO,
};

static const char *const g_form_names[] = {
    [FORM_IGNORED] = "anything",
    [FORM_SCHEMA] = "an object or a boolean",
    [FORM_SCHEMAS] = "an array of schemas that is not empty",
    [FORM_OBJECT] = "an object",
    [FORM_NAMES] = "an array of strings",
    [FORM_COUNT] = "a whole number from 0 to 2147483647",
    [FORM_NUMBER] = "a number",
    [FORM_STRING] = "a string",
    [FORM_BOOL] = "a boolean",
    [FORM_TYPE] = "null, boolean, integer, number, string, array, object, or an array of those",
    [FORM_VALUES] = "an array that is not empty",
    [FORM_ANY] = "anything",
    [FORM_ONE] = "1 (other multiples are not supported)",
    [FORM_FALSE] = "false (true is not supported)",
    [FORM_ZERO] = "0 (more is not supported)",
};

static const struct {
    const char *name;
    enum form form;
    int types; /* whose values it restricts */
} g_keywords[] = {
    {"title", FORM_IGNORED, 0},
    {"description", FORM_IGNORED, 0},
    {"default", FORM_IGNORED, 0},
    {"example", FORM_IGNORED, 0},
    {"examples", FORM_IGNORED, 0},
    {"deprecated", FORM_IGNORED, 0},
    {"readOnly", FORM_IGNORED, 0},
    {"writeOnly", FORM_IGNORED, 0},
    {"discriminator", FORM_IGNORED, 0},
    {"$schema", FORM_IGNORED, 0},
    {"$id", FORM_IGNORED, 0},
    {"$comment", FORM_IGNORED, 0},
    {"$defs", FORM_OBJECT, 0},
    {"definitions", FORM_OBJECT, 0},
    {"$ref", FORM_STRING, 0},
    {"allOf", FORM_SCHEMAS, 0},
    {"anyOf", FORM_SCHEMAS, 0},
    {"oneOf", FORM_SCHEMAS, 0},
    {"type", FORM_TYPE, 0},
    {"nullable", FORM_BOOL, 0},
    {"enum", FORM_VALUES, 0},
    {"const", FORM_ANY, 0},
    {"properties", FORM_OBJECT, TERN_TYPE_OBJECT},
    {"required", FORM_NAMES, TERN_TYPE_OBJECT},
    {"additionalProperties", FORM_SCHEMA, TERN_TYPE_OBJECT},
    {"minProperties", FORM_ZERO, TERN_TYPE_OBJECT},
    {"items", FORM_SCHEMA, TERN_TYPE_ARRAY},
    {"prefixItems", FORM_SCHEMAS, TERN_TYPE_ARRAY},
    {"minItems", FORM_COUNT, TERN_TYPE_ARRAY},
    {"maxItems", FORM_COUNT, TERN_TYPE_ARRAY},
    {"uniqueItems", FORM_FALSE, TERN_TYPE_ARRAY},
    {"minLength", FORM_COUNT, TERN_TYPE_STRING},
    {"maxLength", FORM_COUNT, TERN_TYPE_STRING},
    {"pattern", FORM_STRING, TERN_TYPE_STRING},
    {"format", FORM_STRING, TERN_TYPE_STRING},
    {"minimum", FORM_NUMBER, TERN_TYPE_NUMBER},
    {"maximum", FORM_NUMBER, TERN_TYPE_NUMBER},
    {"exclusiveMinimum", FORM_NUMBER, TERN_TYPE_NUMBER},
    {"exclusiveMaximum", FORM_NUMBER, TERN_TYPE_NUMBER},
    {"multipleOf", FORM_ONE, TERN_TYPE_NUMBER},
};

static int type_named(const char *name)
{
    static const struct {
        const char *name;
        int type;
    } rows[] = {
        {"null", TERN_TYPE_NULL},     {"boolean", TERN_TYPE_BOOL},  {"integer", TERN_TYPE_INTEGER},
        {"number", TERN_TYPE_NUMBER}, {"string", TERN_TYPE_STRING}, {"array", TERN_TYPE_ARRAY},
        {"object", TERN_TYPE_OBJECT},
    };
    for (size_t i = 0; name != NULL && i < sizeof rows / sizeof rows[0]; i++) {
        if (strcmp(rows[i].name, name) == 0) {
            return rows[i].type;
        }
    }
    return 0;
}

/* 0 when it is not well-formed. */
static int types_of(const struct tern_json *json)
{
    if (tern_json_kind_of(json) == TERN_JSON_STRING) {
        return type_named(tern_json_string(json, NULL));
    }
    int types = 0;
    for (int64_t i = 0; tern_json_kind_of(json) == TERN_JSON_ARRAY && i < tern_json_count(json);
         i++) {
        int type = type_named(tern_json_string(tern_json_item(json, i), NULL));
        if (type == 0) {
            return 0;
        }
        types |= type;
    }
    return types;
}

static bool is_schema(const struct tern_json *json)
{
    enum tern_json_kind kind = tern_json_kind_of(json);
    return kind == TERN_JSON_OBJECT || kind == TERN_JSON_BOOL;
}

static bool each_is(const struct tern_json *array, bool is_schemas)
{
    bool is_ok = tern_json_kind_of(array) == TERN_JSON_ARRAY;
    for (int64_t i = 0; is_ok && i < tern_json_count(array); i++) {
        const struct tern_json *item = tern_json_item(array, i);
        is_ok = is_schemas ? is_schema(item) : tern_json_kind_of(item) == TERN_JSON_STRING;
    }
    return is_ok;
}

static bool has_form(const struct tern_json *json, enum form form)
{
    int64_t whole = 0;
    double number = 0;
    bool is_whole = tern_json_i64(json, &whole), is_number = tern_json_f64(json, &number);
    switch (form) {
    case FORM_SCHEMA:
        return is_schema(json);
    case FORM_SCHEMAS:
        return each_is(json, true) && tern_json_count(json) > 0;
    case FORM_OBJECT:
        return tern_json_kind_of(json) == TERN_JSON_OBJECT;
    case FORM_NAMES:
        return each_is(json, false);
    case FORM_COUNT:
        return is_whole && whole >= 0 && whole <= INT32_MAX;
    case FORM_NUMBER:
        return is_number;
    case FORM_STRING:
        return tern_json_kind_of(json) == TERN_JSON_STRING;
    case FORM_BOOL:
        return tern_json_kind_of(json) == TERN_JSON_BOOL;
    case FORM_TYPE:
        return types_of(json) != 0;
    case FORM_VALUES:
        return tern_json_kind_of(json) == TERN_JSON_ARRAY && tern_json_count(json) > 0;
    case FORM_ONE:
        return is_number && number == 1;
    case FORM_FALSE:
        return tern_json_kind_of(json) == TERN_JSON_BOOL && !tern_json_bool(json, true);
    case FORM_ZERO:
        return is_whole && whole == 0;
    default:
        return true;
    }
}

struct checking {
    struct tern_schema *schema;
    int32_t node;
};

static tern_status check_keyword(void *context,
                                 const char *key,
                                 size_t key_bytes,
                                 const struct tern_json *value)
{
    struct checking *checking = context;
    struct tern_schema_node *node = &checking->schema->nodes[checking->node];
    if (strncmp(key, "x-", 2) == 0) {
        return TERN_OK;
    }
    for (size_t i = 0; i < sizeof g_keywords / sizeof g_keywords[0]; i++) {
        if (strlen(g_keywords[i].name) != key_bytes || strcmp(g_keywords[i].name, key) != 0) {
            continue;
        }
        if (!has_form(value, g_keywords[i].form)) {
            return tern_schema_fail(checking->schema, checking->node, "\"%s\" is %s, expected %s",
                                    key, tern_json_kind_name(tern_json_kind_of(value)),
                                    g_form_names[g_keywords[i].form]);
        }
        node->keywords |= g_keywords[i].types;
        return TERN_OK;
    }
    return tern_schema_fail(checking->schema, checking->node, "\"%.64s\" is not supported", key);
}

tern_status tern_schema_check(struct tern_schema *schema, int32_t node)
{
    struct tern_schema_node *place = &schema->nodes[node];
    if (place->is_checked) {
        return TERN_OK;
    }
    if (tern_json_kind_of(place->json) != TERN_JSON_OBJECT) {
        return tern_schema_fail(schema, node, "a schema is %s, expected an object or a boolean",
                                tern_json_kind_name(tern_json_kind_of(place->json)));
    }
    struct checking checking = {schema, node};
    TERN_RETURN_IF_ERR(tern_json_each(place->json, check_keyword, &checking));
    const struct tern_json *type = tern_json_get(place->json, "type");
    if (type != NULL) {
        place->types = types_of(type);
        if (tern_json_bool(tern_json_get(place->json, "nullable"), false)) {
            place->types |= TERN_TYPE_NULL;
        }
    }
    if (tern_json_get(place->json, "anyOf") != NULL &&
        tern_json_get(place->json, "oneOf") != NULL) {
        return tern_schema_fail(schema, node, "\"oneOf\" beside \"anyOf\" is not supported");
    }
    place->is_checked = true;
    return TERN_OK;
}
