/* grammar_schema.h - the parts of the schema compiler.
 *
 * A place of the schema is a node. What a value must satisfy is a list of nodes, all of which apply: $ref and allOf add
 * to the list, anyOf and oneOf make several lists of one (grammar_expand.c). A list without those is an alternative; its
 * keywords are intersected type by type to atoms: words, numbers, and rules (grammar_atoms.c). Rules are made once for
 * each list and filled from a queue (grammar_objects.c), so recursive schemas end. */
#ifndef TERN_RUNTIME_SERVE_GRAMMAR_SCHEMA_H
#define TERN_RUNTIME_SERVE_GRAMMAR_SCHEMA_H

#include "io/json.h"
#include "runtime/serve/grammar_nfa.h"

enum {
    TERN_SCHEMA_LIST_MAX = 32,      /* nodes that apply to one value */
    TERN_SCHEMA_STEPS_MAX = 200000, /* of expansion, in all */
    TERN_SCHEMA_PROPERTIES_MAX = 4096,
    TERN_SCHEMA_LITERAL_DEPTH_MAX = 64,
};

/* Types of values; a whole number is a number too. */
enum tern_schema_type {
    TERN_TYPE_NULL = 1,
    TERN_TYPE_BOOL = 2,
    TERN_TYPE_INTEGER = 4,
    TERN_TYPE_FRACTION = 8,
    TERN_TYPE_NUMBER = 12,
    TERN_TYPE_STRING = 16,
    TERN_TYPE_ARRAY = 32,
    TERN_TYPE_OBJECT = 64,
    TERN_TYPE_ANY = 127,
};

struct tern_schema_node {
    const struct tern_json *json;
    int32_t parent;  /* -1: the whole schema */
    const char *key; /* of the parent; NULL: index */
    int64_t index;
    bool is_checked;
    int types;    /* of `type`, TERN_TYPE_ANY without one */
    int keywords; /* types whose keywords it has */
    int32_t next; /* in its bucket */
};

struct tern_schema_list {
    int32_t nodes[TERN_SCHEMA_LIST_MAX];
    int count;
};

enum tern_atom_kind {
    TERN_ATOM_TEXT, /* null, true, false, a number that is given */
    TERN_ATOM_ANY_NUMBER,
    TERN_ATOM_NUMBER,
    TERN_ATOM_INTEGER,
    TERN_ATOM_RULE,
};

struct tern_atom {
    enum tern_atom_kind kind;
    uint32_t rule;
    struct tern_bounds bounds;
    int64_t lo, hi;
    char text[32];
};

struct tern_schema_value {
    struct tern_schema_list list;
    struct tern_atom *atoms;
    size_t atom_count, atom_capacity;
    int32_t next; /* in its bucket */
};

struct tern_schema_rule {
    struct tern_schema_list list;
    int type; /* one type */
    uint32_t rule;
    int32_t next;
};

struct tern_schema_key {
    const char *name; /* borrowed */
    uint32_t rule;
    int32_t next;
};

enum {
    TERN_SCHEMA_BUCKETS = 4096
};

struct tern_schema {
    struct tern_nfa nfa;
    const struct tern_json *root;
    struct tern_schema_node *nodes;
    struct tern_schema_value *values;
    struct tern_schema_rule *rules; /* rules[filled ..] have no inside yet */
    struct tern_schema_key *keys;
    size_t node_count, node_capacity, value_count, value_capacity, rule_count, rule_capacity;
    size_t key_count, key_capacity, filled;
    int64_t steps;
    /* hash tables with chains, -1: empty: nodes by address, values and rules by list, keys by name */
    int32_t node_buckets[TERN_SCHEMA_BUCKETS], value_buckets[TERN_SCHEMA_BUCKETS];
    int32_t rule_buckets[TERN_SCHEMA_BUCKETS], key_buckets[TERN_SCHEMA_BUCKETS];
};

/* A bucket's number. */
uint32_t tern_schema_bucket(const void *bytes, size_t count);
bool tern_schema_is_same_list(const struct tern_schema_list *a, const struct tern_schema_list *b);

/* A node of a member or an entry of another one; the same for the same place. */
TERN_MUST_CHECK tern_status tern_schema_child(struct tern_schema *schema,
                                              int32_t parent,
                                              const char *key,
                                              int64_t index,
                                              const struct tern_json *json,
                                              int32_t *out);
/* TERN_ERR_INPUT with the pointer of the node. */
tern_status tern_schema_fail(const struct tern_schema *schema,
                             int32_t node,
                             const char *format,
                             ...) TERN_PRINTF(3, 4);
/* Checks every keyword of a node, once: known, supported, of the right kind. */
TERN_MUST_CHECK tern_status tern_schema_check(struct tern_schema *schema, int32_t node);
/* Adds unless it is there; TERN_ERR_INPUT when the list is full. */
TERN_MUST_CHECK tern_status tern_schema_list_add(const struct tern_schema *schema,
                                                 struct tern_schema_list *list,
                                                 int32_t node);
/* Member of a node's object, NULL if it has none. */
const struct tern_json *tern_schema_get(const struct tern_schema *schema,
                                        int32_t node,
                                        const char *keyword);

/* Number of the value that satisfies the list: made when it is new. */
TERN_MUST_CHECK tern_status tern_schema_value(struct tern_schema *schema,
                                              const struct tern_schema_list *list,
                                              size_t *value_out);
/* Writes a value from -> to. */
TERN_MUST_CHECK tern_status tern_schema_write(struct tern_schema *schema,
                                              size_t value,
                                              uint32_t from,
                                              uint32_t to);
/* The target of $ref. */
TERN_MUST_CHECK tern_status tern_schema_resolve(struct tern_schema *schema,
                                                int32_t node,
                                                int32_t *target_out);
/* Atoms of one alternative, to a value. */
TERN_MUST_CHECK tern_status tern_schema_atoms(struct tern_schema *schema,
                                              const struct tern_schema_list *list,
                                              struct tern_schema_value *value);
TERN_MUST_CHECK tern_status tern_schema_add_atom(struct tern_schema_value *value,
                                                 const struct tern_atom *atom);
/* Atoms of enum and const. */
TERN_MUST_CHECK tern_status tern_schema_literals(struct tern_schema *schema,
                                                 const struct tern_schema_list *list,
                                                 int types,
                                                 struct tern_schema_value *value);
/* The insides of an object's and an array's rule. */
TERN_MUST_CHECK tern_status tern_schema_object(struct tern_schema *schema,
                                               const struct tern_schema_list *list,
                                               uint32_t rule);
TERN_MUST_CHECK tern_status tern_schema_array(struct tern_schema *schema,
                                              const struct tern_schema_list *list,
                                              uint32_t rule);
/* The rule of one string in canonical spelling; name is kept, not copied. */
TERN_MUST_CHECK tern_status tern_schema_key(struct tern_schema *schema,
                                            const char *name,
                                            uint32_t *rule_out);
/* A keyword that counts (minItems ...): the largest (is_min) or smallest of the list's, `none` without one. */
uint32_t tern_schema_count(const struct tern_schema *schema,
                           const struct tern_schema_list *list,
                           const char *keyword,
                           bool is_min,
                           uint32_t none);

#endif
