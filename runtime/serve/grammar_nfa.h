/* grammar_nfa.h - the automaton that a schema is compiled to: rules of byte edges that call one another.
 *
 * A rule is the inside of a string, an object or an array: a CALL edge reads the opening byte, pushes, and goes to the
 * rule's start; a RETURN edge reads the closing byte and goes on behind the call. Rule 0 is the document (it has no
 * bytes of its own: states that accept end it), rule 1 any JSON string. Numbers and words are written into the rule
 * where they stand. In what is generated a byte is never both: strings read quotes and brackets as themselves,
 * everything else as calls, so one stack is enough for all alternatives together.
 *
 * A rule has one counter: of characters in a string, of items in an array.
 *
 * Failures (budget, memory) stick in nfa->status; states made after one are 0, and edges are dropped. */
#ifndef TERN_RUNTIME_SERVE_GRAMMAR_NFA_H
#define TERN_RUNTIME_SERVE_GRAMMAR_NFA_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_NFA_STATES_MAX = 200000,
    TERN_NFA_EDGES_MAX = 600000,
    TERN_NFA_RULES_MAX = 50000,
    TERN_NFA_DOCUMENT = 0,   /* rules */
    TERN_NFA_ANY_STRING = 1, /* its states are the same in every automaton */
};
#define TERN_NFA_NO_MAX UINT32_MAX

enum tern_edge_kind {
    TERN_EDGE_BYTE,   /* lo..hi -> target */
    TERN_EDGE_EMPTY,  /* -> target */
    TERN_EDGE_CALL,   /* lo (the rule's opening byte), the rule, -> target */
    TERN_EDGE_RETURN, /* lo: the end of `rule` */
};

enum tern_edge_flags {
    TERN_EDGE_COUNTS = 1,    /* adds 1 to the counter, up to the largest number that matters */
    TERN_EDGE_BELOW_MAX = 2, /* only while the counter is below the rule's max */
    TERN_EDGE_FROM_MIN = 4,  /* only when it has reached the rule's min */
    TERN_EDGE_VETO = 8,      /* RETURN: the rule has NOT ended here, whatever its other edges say */
};

struct tern_edge {
    uint32_t from, target, rule;
    uint8_t kind, lo, hi, flags;
};

struct tern_nfa_state {
    uint32_t rule;
    /* of finished automata: the number of its first edge (they end where the next state's begin), and the levels of
     * calls that the shortest way to its rule's end needs */
    uint32_t edges, height;
    bool is_blank;    /* blanks may stand here */
    bool is_text;     /* any character that needs no escape leads back here */
    bool is_accepted; /* the document may end here */
};

struct tern_rule {
    uint32_t start;
    uint32_t min, max; /* of the counter */
    uint8_t open;
};

struct tern_nfa {
    struct tern_nfa_state *states;
    struct tern_edge *edges;
    struct tern_rule *rules;
    size_t state_count, edge_count, rule_count;
    size_t state_capacity, edge_capacity, rule_capacity;
    int64_t work; /* steps that all expressions took */
    tern_status status;
};

/* With the rules 0 and 1. */
TERN_MUST_CHECK tern_status tern_nfa_init(struct tern_nfa *nfa);
void tern_nfa_fini(struct tern_nfa *nfa);
/* A rule with a start state; open is one of " { [. Its closing byte follows from that. */
uint32_t tern_nfa_rule(struct tern_nfa *nfa, char open);
uint32_t tern_nfa_state(struct tern_nfa *nfa, uint32_t rule);
uint32_t tern_nfa_blank_state(struct tern_nfa *nfa, uint32_t rule);
void tern_nfa_edge(struct tern_nfa *nfa, struct tern_edge edge);
void tern_nfa_byte(struct tern_nfa *nfa, uint32_t from, int lo, int hi, uint32_t target);
void tern_nfa_empty(struct tern_nfa *nfa, uint32_t from, uint32_t target, int flags);
void tern_nfa_call(struct tern_nfa *nfa, uint32_t from, uint32_t rule, uint32_t target);
/* The end of the rule that `from` belongs to. */
void tern_nfa_return(struct tern_nfa *nfa, uint32_t from, int flags);
/* Bytes one after the other; returns the state behind the last. */
uint32_t tern_nfa_bytes(struct tern_nfa *nfa, uint32_t from, const char *bytes, size_t count);
/* Levels of calls that the rule and the shortest way through it need. */
uint32_t tern_nfa_height(const struct tern_nfa *nfa, uint32_t rule);
/* Removes what can never come to the end of its rule, sorts the edges by state. TERN_ERR_INPUT, without a place, when
 * no document is left. */
TERN_MUST_CHECK tern_status tern_nfa_finish(struct tern_nfa *nfa);

/* grammar_text.c: strings. */

/* A character's one spelling in what we call canonical: itself, or an escape where JSON needs one (\n and its kind, else
 * \u00xx in lower case). Returns its length, at most 6. code is no surrogate. */
size_t tern_nfa_spell(uint32_t code, char out[8]);
/* Makes `state` accept any character in any spelling and come back, under the edge flags. */
void tern_nfa_text_loop(struct tern_nfa *nfa, uint32_t state, int flags);
/* The same for canonical spelling. */
void tern_nfa_canonical_loop(struct tern_nfa *nfa, uint32_t state);
/* from -> to for every character lo..hi, in canonical spelling; surrogates are left out. */
void tern_nfa_chars(struct tern_nfa *nfa, uint32_t from, uint32_t lo, uint32_t hi, uint32_t to);
/* Strings as a tree in the rule of `start`; each ends it (flags: 0 or VETO). They are UTF-8. */
struct tern_span {
    const char *data;
    size_t bytes;
};
void tern_nfa_strings(struct tern_nfa *nfa,
                      uint32_t start,
                      struct tern_span *strings, /* is sorted in place */
                      size_t count,
                      int flags);

/* grammar_number.c: numbers, written from -> to. */

/* Any number (see grammar.h). */
void tern_nfa_any_number(struct tern_nfa *nfa, uint32_t from, uint32_t to);
/* Whole numbers in [lo, hi]. */
void tern_nfa_integers(struct tern_nfa *nfa, uint32_t from, uint32_t to, int64_t lo, int64_t hi);
/* Numbers between bounds, +-INFINITY for none; no exponent. False when a finite bound's magnitude is not 0 or in
 * [1e-9, 1e15). */
struct tern_bounds {
    double lo, hi;
    bool lo_excluded, hi_excluded;
};
bool tern_nfa_numbers(struct tern_nfa *nfa,
                      uint32_t from,
                      uint32_t to,
                      const struct tern_bounds *bounds);

/* grammar_regex.c */

/* The strings that match, as the inside of a rule that begins at `start`, min to max characters. Answers NULL, or what is
 * wrong with the expression (static text; nfa may then hold part of it). */
TERN_MUST_CHECK const char *tern_nfa_regex(struct tern_nfa *nfa,
                                           uint32_t start,
                                           const char *pattern,
                                           size_t bytes,
                                           uint32_t min,
                                           uint32_t max);
/* The expression of a format, NULL if we have none. */
const char *tern_grammar_format(const char *name);

/* Doubles an array so that it holds count + 1; false when there is no memory. */
bool tern_grammar_grow(void **block, size_t *capacity, size_t count, size_t item_bytes);

#endif
