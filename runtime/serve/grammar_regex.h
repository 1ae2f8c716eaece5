/* grammar_regex.h - between the reader of expressions (grammar_pattern.c) and what makes an automaton of them. */
#ifndef TERN_RUNTIME_SERVE_GRAMMAR_REGEX_H
#define TERN_RUNTIME_SERVE_GRAMMAR_REGEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_REGEX_BYTES_MAX = 8192,
    TERN_REGEX_DEPTH_MAX = 64,    /* of groups */
    TERN_REGEX_REPEAT_MAX = 2000, /* in {m,n} */
    TERN_REGEX_LAST_CHAR = 0x10FFFF,
};

struct tern_char_range {
    uint32_t lo, hi;
};

/* Ranges in order, not touching. */
struct tern_char_set {
    struct tern_char_range *ranges;
    size_t count, capacity;
};

enum tern_regex_kind {
    TERN_REGEX_SET,    /* one character of sets[set] */
    TERN_REGEX_JOIN,   /* the children one after the other; none: the empty text */
    TERN_REGEX_CHOICE, /* one of the children */
    TERN_REGEX_REPEAT, /* the child, min to max times; max -1: any number */
};

struct tern_regex_node {
    enum tern_regex_kind kind;
    int32_t child, next; /* first child, next sibling; -1: none */
    int32_t set;
    int32_t min, max;
};

struct tern_regex {
    struct tern_regex_node *nodes;
    struct tern_char_set *sets;
    size_t node_count, node_capacity, set_count, set_capacity;
    int32_t root;
};

/* Reads an expression; what is not anchored at an end gets any text there. NULL, or what is wrong with it (static); fini
 * in both cases. "no memory" is one of those. */
const char *tern_regex_parse(struct tern_regex *regex, const char *pattern, size_t bytes);
void tern_regex_fini(struct tern_regex *regex);

/* Adds lo..hi; false when there is no memory. */
bool tern_char_set_add(struct tern_char_set *set, uint32_t lo, uint32_t hi);
/* Sorts, joins; then what is in it is what was not, if asked. */
bool tern_char_set_finish(struct tern_char_set *set, bool is_negated);

#endif
