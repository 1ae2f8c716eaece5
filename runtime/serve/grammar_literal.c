/* grammar_literal.c - enum and const: given values, written in one spelling. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_schema.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int type_of(const struct tern_json *json)
{
    double number = 0;
    switch (tern_json_kind_of(json)) {
    case TERN_JSON_NULL:
        return TERN_TYPE_NULL;
    case TERN_JSON_BOOL:
        return TERN_TYPE_BOOL;
    case TERN_JSON_NUMBER:
        (void)tern_json_f64(json, &number);
        return number == floor(number) ? TERN_TYPE_INTEGER : TERN_TYPE_FRACTION;
    case TERN_JSON_STRING:
        return TERN_TYPE_STRING;
    case TERN_JSON_ARRAY:
        return TERN_TYPE_ARRAY;
    default:
        return TERN_TYPE_OBJECT;
    }
}

struct comparison {
    const struct tern_json *other;
    int depth;
    bool is_same;
};

static bool is_same(const struct tern_json *a, const struct tern_json *b, int depth);

static tern_status compare_member(void *context,
                                  const char *key,
                                  size_t key_bytes,
                                  const struct tern_json *value)
{
    struct comparison *comparison = context;
    const struct tern_json *other = tern_json_get(comparison->other, key);
    comparison->is_same = comparison->is_same && strlen(key) == key_bytes && other != NULL &&
                          is_same(value, other, comparison->depth);
    return TERN_OK;
}

/* JSON Schema's equality: 1 and 1.0 are the same. What is nested deeper than literals may be is not compared. */
static bool is_same(const struct tern_json *a, const struct tern_json *b, int depth)
{
    if (tern_json_kind_of(a) != tern_json_kind_of(b) || depth > TERN_SCHEMA_LITERAL_DEPTH_MAX ||
        tern_json_count(a) != tern_json_count(b)) {
        return false;
    }
    size_t a_bytes, b_bytes;
    int64_t a_whole, b_whole;
    double a_number, b_number;
    switch (tern_json_kind_of(a)) {
    case TERN_JSON_BOOL:
        return tern_json_bool(a, false) == tern_json_bool(b, false);
    case TERN_JSON_NUMBER:
        if (tern_json_i64(a, &a_whole) && tern_json_i64(b, &b_whole)) {
            return a_whole == b_whole;
        }
        return tern_json_f64(a, &a_number) && tern_json_f64(b, &b_number) && a_number == b_number;
    case TERN_JSON_STRING: {
        const char *x = tern_json_string(a, &a_bytes), *y = tern_json_string(b, &b_bytes);
        return a_bytes == b_bytes && memcmp(x, y, a_bytes) == 0;
    }
    case TERN_JSON_ARRAY:
        for (int64_t i = 0; i < tern_json_count(a); i++) {
            if (!is_same(tern_json_item(a, i), tern_json_item(b, i), depth + 1)) {
                return false;
            }
        }
        return true;
    case TERN_JSON_OBJECT: {
        struct comparison comparison = {b, depth + 1, true};
        return tern_json_each(a, compare_member, &comparison) == TERN_OK && comparison.is_same;
    }
    default:
        return true;
    }
}

static bool is_among(const struct tern_json *array, const struct tern_json *value)
{
    for (int64_t i = 0; i < tern_json_count(array); i++) {
        if (is_same(tern_json_item(array, i), value, 0)) {
            return true;
        }
    }
    return false;
}

/* The shortest that reads back as the same. */
static void number_text(const struct tern_json *json, char *out, size_t bytes)
{
    int64_t whole;
    double number = 0;
    if (tern_json_i64(json, &whole)) {
        snprintf(out, bytes, "%lld", (long long)whole);
        return;
    }
    (void)tern_json_f64(json, &number);
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, bytes, "%.*g", digits, number);
        if (strtod(out, NULL) == number) {
            break;
        }
    }
}

struct literal {
    struct tern_schema *schema;
    uint32_t rule, at; /* where the next member is written */
    int64_t index;
    int depth;
};

static tern_status write_literal(struct tern_schema *schema,
                                 const struct tern_json *json,
                                 uint32_t from,
                                 uint32_t to,
                                 int depth);

static tern_status write_literal_member(void *context,
                                        const char *key,
                                        size_t key_bytes,
                                        const struct tern_json *value)
{
    struct literal *literal = context;
    struct tern_nfa *nfa = &literal->schema->nfa;
    uint32_t from = literal->at, key_rule = tern_nfa_rule(nfa, '"');
    TERN_RETURN_IF_ERR(nfa->status);
    if (literal->index++ > 0) {
        from = tern_nfa_blank_state(nfa, literal->rule);
        tern_nfa_byte(nfa, literal->at, ',', ',', from);
    }
    uint32_t colon = tern_nfa_blank_state(nfa, literal->rule);
    uint32_t start = tern_nfa_blank_state(nfa, literal->rule);
    literal->at = tern_nfa_blank_state(nfa, literal->rule);
    TERN_RETURN_IF_ERR(nfa->status);
    struct tern_span span = {key, key_bytes};
    tern_nfa_strings(nfa, nfa->rules[key_rule].start, &span, 1, 0);
    tern_nfa_call(nfa, from, key_rule, colon);
    tern_nfa_byte(nfa, colon, ':', ':', start);
    return write_literal(literal->schema, value, start, literal->at, literal->depth);
}

static tern_status write_literal_entries(struct literal *literal, const struct tern_json *array)
{
    struct tern_nfa *nfa = &literal->schema->nfa;
    for (int64_t i = 0; i < tern_json_count(array); i++) {
        uint32_t from = literal->at;
        if (i > 0) {
            from = tern_nfa_blank_state(nfa, literal->rule);
            tern_nfa_byte(nfa, literal->at, ',', ',', from);
        }
        literal->at = tern_nfa_blank_state(nfa, literal->rule);
        TERN_RETURN_IF_ERR(nfa->status);
        TERN_RETURN_IF_ERR(write_literal(literal->schema, tern_json_item(array, i), from,
                                         literal->at, literal->depth));
    }
    return nfa->status;
}

/* A rule with one content. */
static tern_status write_rule(struct tern_schema *schema,
                              const struct tern_json *json,
                              uint32_t from,
                              uint32_t to,
                              int depth)
{
    struct tern_nfa *nfa = &schema->nfa;
    enum tern_json_kind kind = tern_json_kind_of(json);
    char open = kind == TERN_JSON_OBJECT ? '{' : kind == TERN_JSON_ARRAY ? '[' : '"';
    uint32_t rule = tern_nfa_rule(nfa, open);
    TERN_RETURN_IF_ERR(nfa->status);
    struct literal literal = {
        .schema = schema, .rule = rule, .at = nfa->rules[rule].start, .depth = depth + 1};
    if (kind == TERN_JSON_STRING) {
        struct tern_span span;
        span.data = tern_json_string(json, &span.bytes);
        tern_nfa_strings(nfa, literal.at, &span, 1, 0);
    } else {
        TERN_RETURN_IF_ERR(kind == TERN_JSON_OBJECT
                               ? tern_json_each(json, write_literal_member, &literal)
                               : write_literal_entries(&literal, json));
        tern_nfa_return(nfa, literal.at, 0);
    }
    tern_nfa_call(nfa, from, rule, to);
    return nfa->status;
}

static const char *scalar_text(const struct tern_json *json, char *buffer, size_t bytes)
{
    switch (tern_json_kind_of(json)) {
    case TERN_JSON_NULL:
        return "null";
    case TERN_JSON_BOOL:
        return tern_json_bool(json, false) ? "true" : "false";
    default:
        number_text(json, buffer, bytes);
        return buffer;
    }
}

static tern_status write_literal(struct tern_schema *schema,
                                 const struct tern_json *json,
                                 uint32_t from,
                                 uint32_t to,
                                 int depth)
{
    enum tern_json_kind kind = tern_json_kind_of(json);
    if (depth > TERN_SCHEMA_LITERAL_DEPTH_MAX) {
        return tern_fail(TERN_ERR_INPUT,
                         "a value of \"enum\" or \"const\" is nested deeper than %d levels",
                         TERN_SCHEMA_LITERAL_DEPTH_MAX);
    }
    if (kind == TERN_JSON_STRING || kind == TERN_JSON_ARRAY || kind == TERN_JSON_OBJECT) {
        return write_rule(schema, json, from, to, depth);
    }
    char buffer[32];
    const char *text = scalar_text(json, buffer, sizeof buffer);
    uint32_t end = tern_nfa_bytes(&schema->nfa, from, text, strlen(text));
    tern_nfa_empty(&schema->nfa, end, to, 0);
    return schema->nfa.status;
}

/* Atoms of one value that is no string: a rule whose only content it is, or a text. */
static tern_status add_literal(struct tern_schema *schema,
                               const struct tern_json *json,
                               struct tern_schema_value *value)
{
    struct tern_atom atom;
    memset(&atom, 0, sizeof atom);
    atom.kind = TERN_ATOM_TEXT;
    if ((type_of(json) & (TERN_TYPE_ARRAY | TERN_TYPE_OBJECT)) == 0) {
        char buffer[32];
        snprintf(atom.text, sizeof atom.text, "%s", scalar_text(json, buffer, sizeof buffer));
        return tern_schema_add_atom(value, &atom);
    }
    /* the rule is the next that write_rule makes; the states here only hold the call, and are dropped as dead */
    struct tern_nfa *nfa = &schema->nfa;
    uint32_t from = tern_nfa_state(nfa, TERN_NFA_DOCUMENT), to = from;
    TERN_RETURN_IF_ERR(nfa->status);
    atom.kind = TERN_ATOM_RULE;
    atom.rule = (uint32_t)nfa->rule_count;
    TERN_RETURN_IF_ERR(write_rule(schema, json, from, to, 0));
    return tern_schema_add_atom(value, &atom);
}

/* Whether a value that node gives is of the types, and in the enums and consts of the list's other nodes. */
static bool is_valid(const struct tern_schema *schema,
                     const struct tern_schema_list *list,
                     int32_t node,
                     int types,
                     const struct tern_json *json)
{
    if ((type_of(json) & types) == 0) {
        return false;
    }
    for (int i = 0; i < list->count; i++) {
        const struct tern_json *values = tern_schema_get(schema, list->nodes[i], "enum");
        const struct tern_json *one = tern_schema_get(schema, list->nodes[i], "const");
        if (list->nodes[i] == node && (values == NULL || one == NULL)) {
            continue;
        }
        if ((values != NULL && !is_among(values, json)) ||
            (one != NULL && !is_same(one, json, 0))) {
            return false;
        }
    }
    return true;
}

/* The list's first set of given values: an enum's array, or (count 1, array NULL) a const. */
static const struct tern_json *given(const struct tern_schema *schema,
                                     const struct tern_schema_list *list,
                                     int32_t *node_out,
                                     int64_t *count_out)
{
    for (int i = 0; i < list->count; i++) {
        const struct tern_json *one = tern_schema_get(schema, list->nodes[i], "const");
        *node_out = list->nodes[i];
        *count_out = 1;
        if (one != NULL) {
            return one;
        }
    }
    for (int i = 0; i < list->count; i++) {
        const struct tern_json *values = tern_schema_get(schema, list->nodes[i], "enum");
        *node_out = list->nodes[i];
        *count_out = tern_json_count(values);
        if (values != NULL) {
            return values;
        }
    }
    return NULL;
}

tern_status tern_schema_literals(struct tern_schema *schema,
                                 const struct tern_schema_list *list,
                                 int types,
                                 struct tern_schema_value *value)
{
    int32_t node = 0;
    int64_t count = 0;
    const struct tern_json *values = given(schema, list, &node, &count);
    bool is_const = tern_schema_get(schema, node, "const") != NULL;
    struct tern_span *strings = tern_alloc("grammar", (size_t)(count + 1) * sizeof *strings);
    size_t string_count = 0;
    tern_status status = TERN_OK;
    if (strings == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    for (int64_t i = 0; i < count && status == TERN_OK; i++) {
        const struct tern_json *json = is_const ? values : tern_json_item(values, i);
        int restricted = 0;
        for (int k = 0; k < list->count; k++) {
            restricted |= schema->nodes[list->nodes[k]].keywords;
        }
        schema->steps += list->count > 1 ? count : 1;
        if (schema->steps > TERN_SCHEMA_STEPS_MAX) {
            status = tern_schema_fail(schema, node, "too many values of \"enum\"");
        } else if (!is_valid(schema, list, node, types, json)) {
            continue;
        } else if ((type_of(json) & restricted) != 0) {
            status = tern_schema_fail(schema, node,
                                      "\"enum\" or \"const\" beside keywords that restrict the "
                                      "same type is not supported");
        } else if (type_of(json) == TERN_TYPE_STRING) {
            struct tern_span *span = &strings[string_count++];
            span->data = tern_json_string(json, &span->bytes);
        } else {
            status = add_literal(schema, json, value);
        }
    }
    if (status == TERN_OK && string_count > 0) {
        struct tern_nfa *nfa = &schema->nfa;
        struct tern_atom atom;
        memset(&atom, 0, sizeof atom);
        atom.kind = TERN_ATOM_RULE;
        atom.rule = tern_nfa_rule(nfa, '"');
        status = nfa->status;
        if (status == TERN_OK) {
            tern_nfa_strings(nfa, nfa->rules[atom.rule].start, strings, string_count, 0);
            status = tern_schema_add_atom(value, &atom);
        }
    }
    tern_free(strings);
    return status;
}
