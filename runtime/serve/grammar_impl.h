/* grammar_impl.h - what runs a grammar: the vocabulary's tree, the deterministic automaton, masks. */
#ifndef TERN_RUNTIME_SERVE_GRAMMAR_IMPL_H
#define TERN_RUNTIME_SERVE_GRAMMAR_IMPL_H

#include "runtime/serve/grammar.h"
#include "runtime/serve/grammar_nfa.h"

#include <pthread.h>
#include <stdatomic.h>

/* The automaton of frames; owned: tern_nfa_fini. */
TERN_MUST_CHECK tern_status tern_grammar_build(const struct tern_grammar_frame *frames,
                                               int count,
                                               struct tern_nfa *out);

/* A beginning of tokens. In preorder: the nodes below node i are i + 1 .. end - 1; its own tokens are
 * tokens[token] .. tokens[next node's token - 1], and those below follow. */
struct tern_vocab_node {
    uint32_t end, token;
    uint16_t depth; /* bytes */
    uint16_t
        chars; /* most characters on a way down from here, TERN_VOCAB_NO_TEXT if some way is no plain text */
    uint8_t byte; /* its last */
};

enum {
    TERN_VOCAB_NO_TEXT = 0xFFFF,
    TERN_VOCAB_TOKEN_BYTES_MAX = 4096, /* longer tokens are never allowed */
};

struct tern_grammar_vocab {
    atomic_int references;
    int64_t vocab_size;
    int32_t *end_ids;
    int end_count;
    struct tern_vocab_node *nodes; /* node 0 is the empty beginning; one more behind the last */
    size_t node_count;
    int32_t *tokens; /* ids sorted by their bytes */
    size_t token_count;
    uint32_t token_bytes_max;
    char *bytes;       /* of all tokens */
    uint32_t *offsets; /* id -> offset, vocab_size + 1 */
};

/* Where a sequence may be inside one rule: states of the automaton with their counters, how many blanks were
 * read (0; 1: a space; 2 + n: a line feed and n blanks), and how many levels of calls are left. A state that needs more
 * levels to its end is in no set. Number 0 is the dead set. */
struct tern_item {
    uint32_t state, count;
};

struct tern_set {
    size_t first_item;
    uint32_t item_count, next; /* next in its bucket */
    uint32_t alike;            /* the set whose masks are the same, 0: not yet known */
    uint32_t left;             /* TERN_LEVELS_ANY: any number */
    uint8_t blanks;
    bool is_accepted;
    uint32_t *moves; /* by byte: 0 not yet known, else number << 2 | kind; NULL before the first */
};

enum tern_move_kind {
    TERN_MOVE_NEXT = 1,   /* -> set; 0: dead */
    TERN_MOVE_CALL = 2,   /* push this set, -> set */
    TERN_MOVE_RETURN = 3, /* pop; the number of a set of rules that have ended */
};

struct tern_ended {
    size_t first; /* of ended_rules */
    uint32_t count;
};

struct tern_goto {
    uint32_t set, ended, to;
};

enum {
    TERN_DFA_BUCKETS = 8192,
    TERN_DFA_WORK_MAX = 4000000,   /* steps in one mask */
    TERN_DFA_BYTES_MAX = 48 << 20, /* then everything is forgotten and made again */
    TERN_BLANKS_MAX = 34,
    TERN_LEVELS_MAX = 200, /* or as many as the schema needs */
};
#define TERN_LEVELS_ANY UINT32_MAX

struct tern_dfa {
    const struct tern_nfa *nfa;
    uint32_t height_max; /* of any rule */
    struct tern_set *sets;
    struct tern_item *items;
    struct tern_ended *ended;
    uint32_t *ended_rules;
    struct tern_goto *gotos; /* open addressing, goto_capacity a power of two */
    size_t set_count, set_capacity, item_count, item_capacity, ended_count, ended_capacity;
    size_t ended_rule_count, ended_rule_capacity, goto_count, goto_capacity;
    uint32_t buckets[TERN_DFA_BUCKETS];
    uint32_t *stamps, round; /* by state: in which round it was reached */
    struct tern_item *found; /* being collected */
    size_t found_count, found_capacity;
    size_t bytes;
    int64_t work, work_max;
    bool is_failed; /* no memory, or work_max is reached: what follows is dead */
};

TERN_MUST_CHECK tern_status tern_dfa_init(struct tern_dfa *dfa, const struct tern_nfa *nfa);
void tern_dfa_fini(struct tern_dfa *dfa);
uint32_t tern_dfa_start(struct tern_dfa *dfa);
/* number << 2 | kind. */
uint32_t tern_dfa_make_move(struct tern_dfa *dfa, uint32_t set, uint8_t byte);
static inline uint32_t tern_dfa_move(struct tern_dfa *dfa, uint32_t set, uint8_t byte)
{
    const uint32_t *moves = dfa->sets[set].moves;
    return moves != NULL && moves[byte] != 0 ? moves[byte] : tern_dfa_make_move(dfa, set, byte);
}
/* Behind a call from `set` of which these rules have ended; 0: none of them was called there. */
uint32_t tern_dfa_goto(struct tern_dfa *dfa, uint32_t set, uint32_t ended);
/* The set whose masks are the same: counters, and levels, that no token of so many bytes can bring to a bound do not
 * matter. */
uint32_t tern_dfa_alike(struct tern_dfa *dfa, uint32_t set, uint32_t token_bytes_max);
/* Any plain text of so many characters may follow, and is all inside. */
bool tern_dfa_takes_text(const struct tern_dfa *dfa, uint32_t set, uint32_t chars);
/* A set by its content, as another automaton's; for starting again. */
uint32_t tern_dfa_intern(struct tern_dfa *dfa,
                         uint8_t blanks,
                         uint32_t left,
                         const struct tern_item *items,
                         size_t count);

/* The tokens that stay inside of a set's rule (and what they call), and where others leave it: for those the set below
 * decides (an entry of its own: parent, set). */
struct tern_leave {
    uint32_t node, ended;
};

struct tern_mask_entry {
    uint32_t parent, set, next; /* parent 0: of the top of the stack */
    uint32_t *bits;             /* of the vocabulary; NULL: the ids */
    int32_t *ids;
    uint32_t id_count, leave_count;
    struct tern_leave *leaves;
};

enum {
    TERN_MASKS_BYTES_MAX = 32 << 20,
    TERN_MASKS_BUCKETS = 4096,
};

struct tern_grammar {
    atomic_int references;
    struct tern_grammar_vocab *vocab;
    struct tern_nfa nfa;
    pthread_mutex_t lock; /* of all below */
    struct tern_dfa dfa;
    struct tern_mask_entry *entries; /* entry 0 is none */
    size_t entry_count, entry_capacity, entry_bytes;
    uint32_t entry_buckets[TERN_MASKS_BUCKETS];
    struct tern_grammar_state *states; /* that are alive */
    /* while a mask is made */
    uint32_t *bits;
    int32_t *ids;
    size_t id_count, id_max;
    struct tern_leave *leaves;
    size_t leave_count, leave_capacity;
    struct tern_config *path; /* by depth */
};

/* In a walk over the tree: a set, and what it was called from above the bottom. */
struct tern_config {
    uint32_t set;
    uint32_t caller; /* the depth whose entry of `callers` is next below, 0: the bottom */
    uint32_t caller_set, caller_next;
};

struct tern_grammar_state {
    struct tern_grammar *grammar;
    struct tern_grammar_state *previous, *next;
    uint32_t *stack; /* sets, the top last */
    size_t depth, capacity;
    bool is_ended;
};

/* Both under the lock. */
TERN_MUST_CHECK tern_status tern_masks_make(struct tern_grammar *grammar,
                                            const struct tern_grammar_state *state,
                                            uint32_t *bits);
/* Forgets all entries. */
void tern_masks_clear(struct tern_grammar *grammar);

#endif
