/* grammar_objects.c - the insides of objects and arrays. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_schema.h"

#include <string.h>

/* Members of an object in the order in which they are written. */
struct member {
    const char *key;
    size_t key_bytes;
    uint32_t rule; /* of the key */
    size_t value;
    bool is_required;
};

struct object {
    struct tern_schema *schema;
    const struct tern_schema_list *list;
    struct member *members;
    size_t count, capacity;
    int32_t *buckets; /* by key; members.next */
    int32_t *next;
    size_t next_capacity;
    int32_t node; /* that is being read */
};

static struct member *find(const struct object *object, const char *key, size_t bytes)
{
    for (int32_t i = object->buckets[tern_schema_bucket(key, bytes)]; i >= 0; i = object->next[i]) {
        struct member *member = &object->members[i];
        if (member->key_bytes == bytes && memcmp(member->key, key, bytes) == 0) {
            return member;
        }
    }
    return NULL;
}

static tern_status add_member(struct object *object,
                              const char *key,
                              size_t bytes,
                              bool is_required)
{
    if (memchr(key, '\0', bytes) != NULL) {
        return tern_schema_fail(object->schema, object->node,
                                "a property whose name has U+0000 is not supported");
    }
    struct member *old = find(object, key, bytes);
    if (old != NULL) {
        old->is_required = old->is_required || is_required;
        return TERN_OK;
    }
    if (object->count == TERN_SCHEMA_PROPERTIES_MAX) {
        return tern_schema_fail(object->schema, object->node, "more than %d properties",
                                TERN_SCHEMA_PROPERTIES_MAX);
    }
    if (!tern_grammar_grow((void **)&object->members, &object->capacity, object->count,
                           sizeof *object->members) ||
        !tern_grammar_grow((void **)&object->next, &object->next_capacity, object->count,
                           sizeof *object->next)) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    int32_t *bucket = &object->buckets[tern_schema_bucket(key, bytes)];
    object->next[object->count] = *bucket;
    *bucket = (int32_t)object->count;
    object->members[object->count++] =
        (struct member){.key = key, .key_bytes = bytes, .is_required = is_required};
    return TERN_OK;
}

static tern_status visit_property(void *context,
                                  const char *key,
                                  size_t key_bytes,
                                  const struct tern_json *value)
{
    (void)value;
    return add_member(context, key, key_bytes, false);
}

static tern_status collect(struct object *object)
{
    for (int i = 0; i < object->list->count; i++) {
        object->node = object->list->nodes[i];
        const struct tern_json *properties =
            tern_schema_get(object->schema, object->node, "properties");
        if (properties != NULL) {
            TERN_RETURN_IF_ERR(tern_json_each(properties, visit_property, object));
        }
    }
    for (int i = 0; i < object->list->count; i++) {
        object->node = object->list->nodes[i];
        const struct tern_json *required =
            tern_schema_get(object->schema, object->node, "required");
        for (int64_t k = 0; required != NULL && k < tern_json_count(required); k++) {
            size_t bytes;
            const char *key = tern_json_string(tern_json_item(required, k), &bytes);
            TERN_RETURN_IF_ERR(add_member(object, key, bytes, true));
        }
    }
    return TERN_OK;
}

/* What the value of a key must satisfy (key NULL: of those that no node names). */
static tern_status member_list(const struct object *object,
                               const char *key,
                               struct tern_schema_list *list)
{
    struct tern_schema *schema = object->schema;
    *list = (struct tern_schema_list){.count = 0};
    for (int i = 0; i < object->list->count; i++) {
        int32_t node = object->list->nodes[i], place;
        const struct tern_json *properties = tern_schema_get(schema, node, "properties");
        const struct tern_json *own =
            properties != NULL && key != NULL ? tern_json_get(properties, key) : NULL;
        const struct tern_json *others = tern_schema_get(schema, node, "additionalProperties");
        if (own != NULL) {
            TERN_RETURN_IF_ERR(
                tern_schema_child(schema, node, "properties", -1, properties, &place));
            TERN_RETURN_IF_ERR(tern_schema_child(schema, place, key, -1, own, &place));
        } else if (others != NULL) {
            TERN_RETURN_IF_ERR(
                tern_schema_child(schema, node, "additionalProperties", -1, others, &place));
        } else {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_schema_list_add(schema, list, place));
    }
    return TERN_OK;
}

/* Others than the named: said by additionalProperties, else only where no properties are named. */
static bool has_others(const struct object *object)
{
    bool is_said = false, is_named = false;
    for (int i = 0; i < object->list->count; i++) {
        int32_t node = object->list->nodes[i];
        is_named = is_named || tern_schema_get(object->schema, node, "properties") != NULL;
        is_said = is_said || tern_schema_get(object->schema, node, "additionalProperties") != NULL;
    }
    return is_said || !is_named;
}

/* The rule of the keys that are not among the members. */
static tern_status other_keys(const struct object *object, uint32_t *rule_out)
{
    struct tern_nfa *nfa = &object->schema->nfa;
    if (object->count == 0) {
        *rule_out = TERN_NFA_ANY_STRING;
        return TERN_OK;
    }
    struct tern_span *names = tern_alloc("grammar", object->count * sizeof *names);
    if (names == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    for (size_t i = 0; i < object->count; i++) {
        names[i] = (struct tern_span){object->members[i].key, object->members[i].key_bytes};
    }
    *rule_out = tern_nfa_rule(nfa, '"');
    if (nfa->status == TERN_OK) {
        uint32_t start = nfa->rules[*rule_out].start, any = tern_nfa_state(nfa, *rule_out);
        tern_nfa_empty(nfa, start, any, 0);
        tern_nfa_canonical_loop(nfa, any);
        tern_nfa_return(nfa, any, 0);
        tern_nfa_strings(nfa, start, names, object->count, TERN_EDGE_VETO);
    }
    tern_free(names);
    return nfa->status;
}

/* A key in one of two states, the colon, the value, -> to. */
static tern_status write_member(const struct object *object,
                                const uint32_t from[2],
                                uint32_t rule,
                                size_t value,
                                uint32_t to)
{
    struct tern_nfa *nfa = &object->schema->nfa;
    TERN_RETURN_IF_ERR(nfa->status);
    uint32_t in = nfa->states[from[0]].rule;
    uint32_t colon = tern_nfa_blank_state(nfa, in), start = tern_nfa_blank_state(nfa, in);
    tern_nfa_call(nfa, from[0], rule, colon);
    tern_nfa_call(nfa, from[1], rule, colon);
    tern_nfa_byte(nfa, colon, ':', ':', start);
    return tern_schema_write(object->schema, value, start, to);
}

/* first: nothing was written yet, behind the brace; later: behind a comma. In both the members from i on may come. */
static tern_status write_members(const struct object *object, uint32_t in)
{
    struct tern_nfa *nfa = &object->schema->nfa;
    uint32_t at[2] = {nfa->rules[in].start, tern_nfa_blank_state(nfa, in)};
    uint32_t behind = 0;      /* the member before i */
    size_t last_required = 0; /* + 1 */
    for (size_t i = 0; i < object->count; i++) {
        last_required = object->members[i].is_required ? i + 1 : last_required;
    }
    for (size_t i = 0; i <= object->count && nfa->status == TERN_OK; i++) {
        if (i > 0) {
            tern_nfa_byte(nfa, behind, ',', ',', at[1]);
            if (i >= last_required) {
                tern_nfa_return(nfa, behind, 0);
            }
        }
        if (i == object->count) {
            break;
        }
        const struct member *member = &object->members[i];
        uint32_t next[2] = {tern_nfa_blank_state(nfa, in), tern_nfa_blank_state(nfa, in)};
        behind = tern_nfa_blank_state(nfa, in);
        TERN_RETURN_IF_ERR(write_member(object, at, member->rule, member->value, behind));
        for (int k = 0; k < 2 && !member->is_required; k++) {
            tern_nfa_empty(nfa, at[k], next[k], 0);
        }
        at[0] = next[0];
        at[1] = next[1];
    }
    if (last_required == 0) {
        tern_nfa_return(nfa, at[0], 0);
    }
    if (has_others(object)) {
        struct tern_schema_list list;
        size_t value;
        uint32_t rule = 0;
        TERN_RETURN_IF_ERR(member_list(object, NULL, &list));
        TERN_RETURN_IF_ERR(tern_schema_value(object->schema, &list, &value));
        TERN_RETURN_IF_ERR(other_keys(object, &rule));
        behind = tern_nfa_blank_state(nfa, in);
        TERN_RETURN_IF_ERR(write_member(object, at, rule, value, behind));
        tern_nfa_byte(nfa, behind, ',', ',', at[1]);
        tern_nfa_return(nfa, behind, 0);
    }
    return nfa->status;
}

tern_status tern_schema_object(struct tern_schema *schema,
                               const struct tern_schema_list *list,
                               uint32_t rule)
{
    struct object object = {.schema = schema, .list = list};
    object.buckets = tern_alloc("grammar", TERN_SCHEMA_BUCKETS * sizeof *object.buckets);
    tern_status status = TERN_OK;
    if (object.buckets == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    memset(object.buckets, 0xFF, TERN_SCHEMA_BUCKETS * sizeof *object.buckets);
    TERN_GOTO_IF_ERR(status, collect(&object), out);
    for (size_t i = 0; i < object.count; i++) {
        struct member *member = &object.members[i];
        struct tern_schema_list value;
        TERN_GOTO_IF_ERR(status, member_list(&object, member->key, &value), out);
        TERN_GOTO_IF_ERR(status, tern_schema_value(schema, &value, &member->value), out);
        TERN_GOTO_IF_ERR(status, tern_schema_key(schema, member->key, &member->rule), out);
    }
    status = write_members(&object, rule);
out:
    tern_free(object.members);
    tern_free(object.next);
    tern_free(object.buckets);
    return status;
}

/* What the entry at an index must satisfy: prefixItems where they reach, items behind them. */
static tern_status entry_value(struct tern_schema *schema,
                               const struct tern_schema_list *list,
                               int64_t index,
                               size_t *value_out)
{
    struct tern_schema_list entry = {.count = 0};
    for (int i = 0; i < list->count; i++) {
        int32_t node = list->nodes[i], place;
        const struct tern_json *prefix = tern_schema_get(schema, node, "prefixItems");
        const struct tern_json *items = tern_schema_get(schema, node, "items");
        if (prefix != NULL && index < tern_json_count(prefix)) {
            TERN_RETURN_IF_ERR(tern_schema_child(schema, node, "prefixItems", index,
                                                 tern_json_item(prefix, index), &place));
        } else if (items != NULL) {
            TERN_RETURN_IF_ERR(tern_schema_child(schema, node, "items", -1, items, &place));
        } else {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_schema_list_add(schema, &entry, place));
    }
    return tern_schema_value(schema, &entry, value_out);
}

/* Any number of entries of one kind behind `at` (is_first: the bracket, else an entry), by the rule's counter. */
static tern_status write_rest(struct tern_schema *schema, size_t value, uint32_t at, bool is_first)
{
    struct tern_nfa *nfa = &schema->nfa;
    TERN_RETURN_IF_ERR(nfa->status);
    uint32_t in = nfa->states[at].rule;
    const int gate = TERN_EDGE_COUNTS | TERN_EDGE_BELOW_MAX;
    uint32_t entry = tern_nfa_blank_state(nfa, in), comma = tern_nfa_state(nfa, in);
    uint32_t behind = is_first ? tern_nfa_blank_state(nfa, in) : at;
    if (is_first) {
        tern_nfa_empty(nfa, at, entry, gate);
    }
    tern_nfa_empty(nfa, behind, comma, gate);
    tern_nfa_byte(nfa, comma, ',', ',', entry);
    tern_nfa_return(nfa, behind, TERN_EDGE_FROM_MIN);
    return tern_schema_write(schema, value, entry, behind);
}

tern_status tern_schema_array(struct tern_schema *schema,
                              const struct tern_schema_list *list,
                              uint32_t rule)
{
    struct tern_nfa *nfa = &schema->nfa;
    uint32_t min = tern_schema_count(schema, list, "minItems", true, 0);
    uint32_t max = tern_schema_count(schema, list, "maxItems", false, TERN_NFA_NO_MAX);
    uint32_t at = nfa->rules[rule].start, prefix = 0;
    size_t value;
    for (int i = 0; i < list->count; i++) {
        int64_t count = tern_json_count(tern_schema_get(schema, list->nodes[i], "prefixItems"));
        prefix = count > prefix ? (uint32_t)count : prefix;
    }
    for (uint32_t i = 0; i < prefix && i < max; i++) {
        TERN_RETURN_IF_ERR(nfa->status);
        uint32_t entry = tern_nfa_blank_state(nfa, rule), behind = tern_nfa_blank_state(nfa, rule);
        if (i == 0) {
            tern_nfa_empty(nfa, at, entry, 0);
        } else {
            tern_nfa_byte(nfa, at, ',', ',', entry);
        }
        if (i >= min) {
            tern_nfa_return(nfa, at, 0);
        }
        TERN_RETURN_IF_ERR(entry_value(schema, list, i, &value));
        TERN_RETURN_IF_ERR(tern_schema_write(schema, value, entry, behind));
        at = behind;
    }
    if (max <= prefix || min > max) {
        if (min <= max) {
            tern_nfa_return(nfa, at, 0);
        }
        return nfa->status;
    }
    TERN_RETURN_IF_ERR(nfa->status);
    nfa->rules[rule].min = min > prefix ? min - prefix : 0;
    nfa->rules[rule].max = max != TERN_NFA_NO_MAX ? max - prefix : max;
    if (prefix == 0 && min == 0) {
        tern_nfa_return(nfa, at, 0);
    }
    TERN_RETURN_IF_ERR(entry_value(schema, list, prefix, &value));
    return write_rest(schema, value, at, prefix == 0);
}
