/* grammar_atoms.c - one alternative, type by type, and atoms written into an automaton. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_schema.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    SAME_ATOMS_MAX = 256
};

tern_status tern_schema_add_atom(struct tern_schema_value *value, const struct tern_atom *atom)
{
    /* twice the same costs a little time later, no more */
    for (size_t i = 0; i < value->atom_count && i < SAME_ATOMS_MAX; i++) {
        if (memcmp(&value->atoms[i], atom, sizeof *atom) == 0) {
            return TERN_OK;
        }
    }
    if (!tern_grammar_grow((void **)&value->atoms, &value->atom_capacity, value->atom_count,
                           sizeof *value->atoms)) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    value->atoms[value->atom_count++] = *atom;
    return TERN_OK;
}

static struct tern_atom atom_of(enum tern_atom_kind kind)
{
    struct tern_atom atom;
    memset(&atom, 0, sizeof atom); /* atoms are compared byte by byte */
    atom.kind = kind;
    return atom;
}

static tern_status add_text(struct tern_schema_value *value, const char *text)
{
    struct tern_atom atom = atom_of(TERN_ATOM_TEXT);
    snprintf(atom.text, sizeof atom.text, "%s", text);
    return tern_schema_add_atom(value, &atom);
}

static tern_status add_rule(struct tern_schema_value *value, uint32_t rule)
{
    struct tern_atom atom = atom_of(TERN_ATOM_RULE);
    atom.rule = rule;
    return tern_schema_add_atom(value, &atom);
}

uint32_t tern_schema_count(const struct tern_schema *schema,
                           const struct tern_schema_list *list,
                           const char *keyword,
                           bool is_min,
                           uint32_t none)
{
    uint32_t result = none;
    for (int i = 0; i < list->count; i++) {
        int64_t count;
        if (tern_json_i64(tern_schema_get(schema, list->nodes[i], keyword), &count) &&
            (is_min ? count > result : count < result)) {
            result = (uint32_t)count;
        }
    }
    return result;
}

/* The bounds that all of the list's keywords leave. */
static struct tern_bounds bounds_of(const struct tern_schema *schema,
                                    const struct tern_schema_list *list)
{
    struct tern_bounds bounds = {-INFINITY, INFINITY, false, false};
    static const char *const keywords[] = {"minimum", "exclusiveMinimum", "maximum",
                                           "exclusiveMaximum"};
    for (int i = 0; i < list->count * 4; i++) {
        double number;
        bool is_upper = i % 4 >= 2, is_excluded = i % 2 != 0;
        if (!tern_json_f64(tern_schema_get(schema, list->nodes[i / 4], keywords[i % 4]), &number)) {
            continue;
        }
        double *bound = is_upper ? &bounds.hi : &bounds.lo;
        bool *excluded = is_upper ? &bounds.hi_excluded : &bounds.lo_excluded;
        if (is_upper ? number < *bound : number > *bound) {
            *bound = number;
            *excluded = is_excluded;
        } else if (number == *bound) {
            *excluded = *excluded || is_excluded;
        }
    }
    return bounds;
}

/* The whole numbers between the bounds: exactly, also beyond 2^53 when the schema gives whole numbers. */
static void whole_bounds(const struct tern_schema *schema,
                         const struct tern_schema_list *list,
                         struct tern_atom *atom)
{
    static const int64_t digits18 = 999999999999999999;
    static const char *const keywords[] = {"minimum", "exclusiveMinimum", "maximum",
                                           "exclusiveMaximum"};
    bool has_lo = false, has_hi = false;
    atom->lo = INT64_MIN;
    atom->hi = INT64_MAX;
    for (int i = 0; i < list->count * 4; i++) {
        const struct tern_json *json = tern_schema_get(schema, list->nodes[i / 4], keywords[i % 4]);
        bool is_upper = i % 4 >= 2, is_excluded = i % 2 != 0;
        int64_t whole;
        double number;
        if (!tern_json_f64(json, &number)) {
            continue;
        }
        if (!tern_json_i64(json, &whole)) {
            double rounded = is_upper ? floor(number) : ceil(number);
            is_excluded = is_excluded && rounded == number;
            whole = rounded >= 9.2e18    ? INT64_MAX
                    : rounded <= -9.2e18 ? INT64_MIN
                                         : (int64_t)rounded;
        }
        if (is_upper) {
            has_hi = true;
            whole -= is_excluded && whole > INT64_MIN ? 1 : 0;
            atom->hi = whole < atom->hi ? whole : atom->hi;
        } else {
            has_lo = true;
            whole += is_excluded && whole < INT64_MAX ? 1 : 0;
            atom->lo = whole > atom->lo ? whole : atom->lo;
        }
    }
    atom->lo = has_lo ? atom->lo : atom->hi < -digits18 ? INT64_MIN : -digits18;
    atom->hi = has_hi ? atom->hi : atom->lo > digits18 ? INT64_MAX : digits18;
}

/* Only the nodes that say something about a type. */
static struct tern_schema_list nodes_about(const struct tern_schema *schema,
                                           const struct tern_schema_list *list,
                                           int types)
{
    struct tern_schema_list about = {.count = 0};
    for (int i = 0; i < list->count; i++) {
        if ((schema->nodes[list->nodes[i]].keywords & types) != 0) {
            about.nodes[about.count++] = list->nodes[i];
        }
    }
    return about;
}

static tern_status add_number(struct tern_schema *schema,
                              const struct tern_schema_list *list,
                              int types,
                              struct tern_schema_value *value)
{
    struct tern_schema_list about = nodes_about(schema, list, TERN_TYPE_NUMBER);
    struct tern_atom atom = atom_of(TERN_ATOM_ANY_NUMBER);
    bool is_whole = (types & TERN_TYPE_NUMBER) == TERN_TYPE_INTEGER;
    for (int i = 0; i < about.count; i++) {
        is_whole = is_whole || tern_schema_get(schema, about.nodes[i], "multipleOf") != NULL;
    }
    if (is_whole) {
        atom.kind = TERN_ATOM_INTEGER;
        whole_bounds(schema, &about, &atom);
    } else if (about.count > 0) {
        struct tern_nfa trial = {.status = TERN_ERR_STATE}; /* asks only whether it would do */
        struct tern_bounds bounds = bounds_of(schema, &about);
        atom.kind = TERN_ATOM_NUMBER;
        atom.bounds.lo = bounds.lo;
        atom.bounds.hi = bounds.hi;
        atom.bounds.lo_excluded = bounds.lo_excluded;
        atom.bounds.hi_excluded = bounds.hi_excluded;
        if (!tern_nfa_numbers(&trial, 0, 0, &bounds)) {
            return tern_schema_fail(schema, about.nodes[0],
                                    "bounds of a number are supported where they are 0 or their "
                                    "magnitude is in [1e-9, 1e15)");
        }
    }
    return tern_schema_add_atom(value, &atom);
}

/* The rule of this list and type: an old one, or a new one for the queue. */
static tern_status rule_of(struct tern_schema *schema,
                           const struct tern_schema_list *list,
                           int type,
                           uint32_t *rule_out)
{
    int32_t *bucket = &schema->rule_buckets[tern_schema_bucket(
        list->nodes, (size_t)list->count * sizeof list->nodes[0])];
    for (int32_t i = *bucket; i >= 0; i = schema->rules[i].next) {
        const struct tern_schema_rule *old = &schema->rules[i];
        if (old->type == type && tern_schema_is_same_list(&old->list, list)) {
            *rule_out = old->rule;
            return TERN_OK;
        }
    }
    if (!tern_grammar_grow((void **)&schema->rules, &schema->rule_capacity, schema->rule_count,
                           sizeof *schema->rules)) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    char open = type == TERN_TYPE_OBJECT ? '{' : type == TERN_TYPE_ARRAY ? '[' : '"';
    *rule_out = tern_nfa_rule(&schema->nfa, open);
    schema->rules[schema->rule_count] =
        (struct tern_schema_rule){.list = *list, .type = type, .rule = *rule_out, .next = *bucket};
    *bucket = (int32_t)schema->rule_count++;
    return schema->nfa.status;
}

static tern_status add_rule_of(struct tern_schema *schema,
                               const struct tern_schema_list *list,
                               int type,
                               struct tern_schema_value *value)
{
    struct tern_schema_list about = nodes_about(schema, list, type);
    uint32_t rule = TERN_NFA_ANY_STRING;
    if (type != TERN_TYPE_STRING || about.count > 0) {
        TERN_RETURN_IF_ERR(rule_of(schema, &about, type, &rule));
    }
    return add_rule(value, rule);
}

/* The types that the list leaves. Without `type` anywhere: those of its keywords; without any, all. */
static int types_of(const struct tern_schema *schema, const struct tern_schema_list *list)
{
    int types = TERN_TYPE_ANY, keywords = 0;
    bool has_type = false;
    for (int i = 0; i < list->count; i++) {
        const struct tern_schema_node *node = &schema->nodes[list->nodes[i]];
        types &= node->types;
        keywords |= node->keywords;
        has_type = has_type || tern_json_get(node->json, "type") != NULL ||
                   tern_json_get(node->json, "enum") != NULL ||
                   tern_json_get(node->json, "const") != NULL;
    }
    return has_type || keywords == 0 ? types : keywords;
}

tern_status tern_schema_atoms(struct tern_schema *schema,
                              const struct tern_schema_list *list,
                              struct tern_schema_value *value)
{
    int types = types_of(schema, list);
    for (int i = 0; i < list->count; i++) {
        if (tern_schema_get(schema, list->nodes[i], "enum") != NULL ||
            tern_schema_get(schema, list->nodes[i], "const") != NULL) {
            return tern_schema_literals(schema, list, types, value);
        }
    }
    if ((types & TERN_TYPE_NULL) != 0) {
        TERN_RETURN_IF_ERR(add_text(value, "null"));
    }
    if ((types & TERN_TYPE_BOOL) != 0) {
        TERN_RETURN_IF_ERR(add_text(value, "true"));
        TERN_RETURN_IF_ERR(add_text(value, "false"));
    }
    if ((types & TERN_TYPE_NUMBER) != 0) {
        TERN_RETURN_IF_ERR(add_number(schema, list, types, value));
    }
    static const int kinds[] = {TERN_TYPE_STRING, TERN_TYPE_ARRAY, TERN_TYPE_OBJECT};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if ((types & kinds[i]) != 0) {
            TERN_RETURN_IF_ERR(add_rule_of(schema, list, kinds[i], value));
        }
    }
    return TERN_OK;
}

tern_status tern_schema_write(struct tern_schema *schema, size_t value, uint32_t from, uint32_t to)
{
    struct tern_nfa *nfa = &schema->nfa;
    for (size_t i = 0; i < schema->values[value].atom_count && nfa->status == TERN_OK; i++) {
        const struct tern_atom *atom = &schema->values[value].atoms[i];
        uint32_t end;
        switch (atom->kind) {
        case TERN_ATOM_TEXT:
            end = tern_nfa_bytes(nfa, from, atom->text, strlen(atom->text));
            tern_nfa_empty(nfa, end, to, 0);
            break;
        case TERN_ATOM_ANY_NUMBER:
            tern_nfa_any_number(nfa, from, to);
            break;
        case TERN_ATOM_INTEGER:
            tern_nfa_integers(nfa, from, to, atom->lo, atom->hi);
            break;
        case TERN_ATOM_NUMBER:
            if (!tern_nfa_numbers(nfa, from, to, &atom->bounds)) {
                return tern_fail(TERN_ERR_STATE, "bounds that were checked");
            }
            break;
        case TERN_ATOM_RULE:
            tern_nfa_call(nfa, from, atom->rule, to);
            break;
        }
    }
    return nfa->status;
}

tern_status tern_schema_key(struct tern_schema *schema, const char *name, uint32_t *rule_out)
{
    int32_t *bucket = &schema->key_buckets[tern_schema_bucket(name, strlen(name))];
    for (int32_t i = *bucket; i >= 0; i = schema->keys[i].next) {
        if (strcmp(schema->keys[i].name, name) == 0) {
            *rule_out = schema->keys[i].rule;
            return TERN_OK;
        }
    }
    if (!tern_grammar_grow((void **)&schema->keys, &schema->key_capacity, schema->key_count,
                           sizeof *schema->keys)) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    struct tern_nfa *nfa = &schema->nfa;
    uint32_t rule = tern_nfa_rule(nfa, '"');
    TERN_RETURN_IF_ERR(nfa->status);
    struct tern_span span = {name, strlen(name)};
    tern_nfa_strings(nfa, nfa->rules[rule].start, &span, 1, 0);
    schema->keys[schema->key_count] = (struct tern_schema_key){name, rule, *bucket};
    *bucket = (int32_t)schema->key_count++;
    *rule_out = rule;
    return nfa->status;
}
