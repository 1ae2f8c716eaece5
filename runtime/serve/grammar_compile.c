/* grammar_compile.c - from a schema to a finished automaton. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_impl.h"
#include "runtime/serve/grammar_schema.h"

#include <string.h>

/* The one pattern that the list names, its node in *node_out; NULL when there is none. */
static tern_status pattern_of(const struct tern_schema *schema,
                              const struct tern_schema_list *list,
                              const char **pattern_out,
                              size_t *bytes_out,
                              int32_t *node_out)
{
    *pattern_out = NULL;
    for (int i = 0; i < list->count * 2; i++) {
        int32_t node = list->nodes[i / 2];
        bool is_format = i % 2 != 0;
        size_t bytes;
        const char *text = tern_json_string(
            tern_schema_get(schema, node, is_format ? "format" : "pattern"), &bytes);
        if (text != NULL && is_format) {
            const char *name = text;
            text = tern_grammar_format(name);
            bytes = text != NULL ? strlen(text) : 0;
            if (text == NULL) {
                return tern_schema_fail(schema, node,
                                        "\"format\" \"%.64s\" is not supported (date, time, "
                                        "date-time, duration, uuid, email, hostname, ipv4, ipv6, "
                                        "uri are)",
                                        name);
            }
        }
        if (text == NULL || (*pattern_out != NULL && *bytes_out == bytes &&
                             memcmp(*pattern_out, text, bytes) == 0)) {
            continue;
        }
        if (*pattern_out != NULL) {
            return tern_schema_fail(schema, node,
                                    "more than one \"pattern\" or \"format\" for one string is not "
                                    "supported");
        }
        *pattern_out = text;
        *bytes_out = bytes;
        *node_out = node;
    }
    return TERN_OK;
}

static tern_status fill_string(struct tern_schema *schema,
                               const struct tern_schema_list *list,
                               uint32_t rule)
{
    struct tern_nfa *nfa = &schema->nfa;
    uint32_t start = nfa->rules[rule].start;
    uint32_t min = tern_schema_count(schema, list, "minLength", true, 0);
    uint32_t max = tern_schema_count(schema, list, "maxLength", false, TERN_NFA_NO_MAX);
    const char *pattern;
    size_t bytes;
    int32_t node;
    TERN_RETURN_IF_ERR(pattern_of(schema, list, &pattern, &bytes, &node));
    if (min > max) {
        return TERN_OK; /* no string: the rule never ends, and is removed */
    }
    if (pattern != NULL) {
        const char *error = tern_nfa_regex(nfa, start, pattern, bytes, min, max);
        return error != NULL ? tern_schema_fail(schema, node, "\"pattern\": %s", error)
                             : nfa->status;
    }
    nfa->rules[rule].min = min;
    nfa->rules[rule].max = max;
    tern_nfa_text_loop(nfa, start, TERN_EDGE_COUNTS | TERN_EDGE_BELOW_MAX);
    tern_nfa_return(nfa, start, TERN_EDGE_FROM_MIN);
    return nfa->status;
}

/* Fills the rules in the queue, which grows on the way. */
static tern_status fill_rules(struct tern_schema *schema)
{
    while (schema->filled < schema->rule_count) {
        struct tern_schema_rule rule = schema->rules[schema->filled++];
        TERN_RETURN_IF_ERR(
            rule.type == TERN_TYPE_OBJECT  ? tern_schema_object(schema, &rule.list, rule.rule)
            : rule.type == TERN_TYPE_ARRAY ? tern_schema_array(schema, &rule.list, rule.rule)
                                           : fill_string(schema, &rule.list, rule.rule));
    }
    return TERN_OK;
}

static void schema_fini(struct tern_schema *schema)
{
    for (size_t i = 0; i < schema->value_count; i++) {
        tern_free(schema->values[i].atoms);
    }
    tern_free(schema->values);
    tern_free(schema->nodes);
    tern_free(schema->rules);
    tern_free(schema->keys);
}

/* Forgets one frame's places, so that the next one's schema has its own; rules and states stay. */
static void schema_restart(struct tern_schema *schema, const struct tern_json *root)
{
    struct tern_nfa nfa = schema->nfa;
    schema_fini(schema);
    memset(schema, 0, sizeof *schema);
    schema->nfa = nfa;
    schema->root = root;
    memset(schema->node_buckets, 0xFF, sizeof schema->node_buckets);
    memset(schema->value_buckets, 0xFF, sizeof schema->value_buckets);
    memset(schema->rule_buckets, 0xFF, sizeof schema->rule_buckets);
    memset(schema->key_buckets, 0xFF, sizeof schema->key_buckets);
}

static tern_status write_frame(struct tern_schema *schema, const struct tern_grammar_frame *frame)
{
    struct tern_nfa *nfa = &schema->nfa;
    const char *prefix = frame->prefix != NULL ? frame->prefix : "";
    const char *suffix = frame->suffix != NULL ? frame->suffix : "";
    schema_restart(schema, frame->schema);
    uint32_t at = tern_nfa_bytes(nfa, nfa->rules[TERN_NFA_DOCUMENT].start, prefix, strlen(prefix));
    uint32_t start = tern_nfa_blank_state(nfa, TERN_NFA_DOCUMENT);
    uint32_t end = tern_nfa_state(nfa, TERN_NFA_DOCUMENT);
    tern_nfa_empty(nfa, at, start, 0);
    struct tern_schema_list list = {.count = 1};
    size_t value;
    TERN_RETURN_IF_ERR(tern_schema_child(schema, -1, NULL, -1, frame->schema, &list.nodes[0]));
    TERN_RETURN_IF_ERR(tern_schema_value(schema, &list, &value));
    TERN_RETURN_IF_ERR(tern_schema_write(schema, value, start, end));
    TERN_RETURN_IF_ERR(fill_rules(schema));
    end = tern_nfa_bytes(nfa, end, suffix, strlen(suffix));
    TERN_RETURN_IF_ERR(nfa->status);
    nfa->states[end].is_accepted = true;
    return TERN_OK;
}

tern_status tern_grammar_build(const struct tern_grammar_frame *frames,
                               int count,
                               struct tern_nfa *out)
{
    struct tern_schema *schema = tern_alloc_zero("grammar", 1, sizeof *schema);
    if (schema == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    tern_status status = tern_nfa_init(&schema->nfa);
    if (status == TERN_OK) {
        schema->nfa.states[schema->nfa.rules[TERN_NFA_DOCUMENT].start].is_blank = false;
    }
    for (int i = 0; i < count && status == TERN_OK; i++) {
        status = write_frame(schema, &frames[i]);
    }
    if (status == TERN_OK) {
        status = tern_nfa_finish(&schema->nfa);
    }
    schema_fini(schema);
    *out = schema->nfa;
    if (status != TERN_OK) {
        tern_nfa_fini(out);
    }
    if (status == TERN_ERR_INPUT && tern_detail()[0] != '/' && tern_detail()[0] != ':') {
        tern_fail_prefix(status, "%s",
                         ""); /* what is said of the whole schema has its pointer, "" */
    }
    tern_free(schema);
    return status;
}
