/* grammar_regex.c - an expression as an automaton: Thompson's construction over characters, made deterministic (so that
 * what it costs is known now and not while serving), then bytes. */
#include "runtime/serve/grammar_regex.h"

#include "runtime/base/mem.h"
#include "runtime/serve/grammar_nfa.h"

#include <stdlib.h>
#include <string.h>

enum {
    STATES_MAX = 20000,  /* of the nondeterministic automaton */
    SUBSETS_MAX = 4000,  /* of the deterministic one */
    COUNTED_MAX = 50000, /* of that with lengths */
    BUCKETS = 4096,
    MOVES_MAX = 8000000,
    WORK_MAX = 24000000, /* steps of the subset construction, of all expressions of a schema */
    NO_SUBSET = -1,
};

static const char tag[] = "grammar", no_memory[] = "no memory";

/* An edge of one character of a set, or of nothing (set -1). */
struct char_edge {
    int32_t set, target, next;
};

struct subset {
    int32_t first, count; /* of items, the states in it */
    uint32_t hash;        /* of those */
    int32_t next;         /* in its bucket, -1: none */
    bool is_end;
};

struct machine {
    const struct tern_regex *regex;
    const char *error;
    int32_t *first_edge; /* by state */
    struct char_edge *edges;
    size_t state_count, state_capacity, edge_count, edge_capacity;
    int32_t end;
    /* the alphabet cut where any set begins or ends: class c is cuts[c] .. cuts[c + 1] - 1 */
    uint32_t *cuts;
    size_t cut_count, cut_capacity;
    struct subset *subsets;
    int32_t *items, *moves; /* moves: subset * (cut_count - 1) + class -> subset */
    size_t subset_count, subset_capacity, item_count, item_capacity, move_capacity;
    int32_t *stamps; /* by state: in which round it was reached */
    int32_t round;
    int32_t buckets[BUCKETS]; /* of subsets by hash; number + 1, 0: empty */
    int64_t work;
};

static void *grow(struct machine *m, void *block, size_t *capacity, size_t count, size_t item_bytes)
{
    if (!tern_grammar_grow(&block, capacity, count, item_bytes)) {
        m->error = no_memory;
    }
    return block;
}

static int32_t new_state(struct machine *m)
{
    if (m->state_count >= STATES_MAX) {
        m->error = "it is too large: more than 20000 states (nested repetitions?)";
    }
    if (m->error == NULL) {
        m->first_edge =
            grow(m, m->first_edge, &m->state_capacity, m->state_count, sizeof *m->first_edge);
    }
    if (m->error != NULL) {
        return 0;
    }
    m->first_edge[m->state_count] = -1;
    return (int32_t)m->state_count++;
}

static void connect(struct machine *m, int32_t from, int32_t set, int32_t target)
{
    if (m->error == NULL) {
        m->edges = grow(m, m->edges, &m->edge_capacity, m->edge_count, sizeof *m->edges);
    }
    if (m->error == NULL) {
        m->edges[m->edge_count] = (struct char_edge){set, target, m->first_edge[from]};
        m->first_edge[from] = (int32_t)m->edge_count++;
    }
}

/* Builds node behind `from`; answers the state behind it. As deep as the expression's groups. */
static int32_t build(struct machine *m, int32_t number, int32_t from)
{
    const struct tern_regex_node *node = &m->regex->nodes[number];
    int32_t end = from;
    switch (node->kind) {
    case TERN_REGEX_SET:
        end = new_state(m);
        connect(m, from, node->set, end);
        break;
    case TERN_REGEX_JOIN:
        for (int32_t i = node->child; i >= 0 && m->error == NULL; i = m->regex->nodes[i].next) {
            end = build(m, i, end);
        }
        break;
    case TERN_REGEX_CHOICE:
        end = new_state(m);
        for (int32_t i = node->child; i >= 0 && m->error == NULL; i = m->regex->nodes[i].next) {
            int32_t start = new_state(m);
            connect(m, from, -1, start);
            connect(m, build(m, i, start), -1, end);
        }
        break;
    case TERN_REGEX_REPEAT:
        for (int32_t i = 0; i < node->min && m->error == NULL; i++) {
            end = build(m, node->child, end);
        }
        int32_t behind = new_state(m);
        for (int32_t i = node->min; i < node->max && m->error == NULL; i++) {
            connect(m, end, -1, behind);
            end = build(m, node->child, end);
        }
        if (node->max < 0) {
            int32_t loop = new_state(m);
            connect(m, end, -1, loop);
            connect(m, build(m, node->child, loop), -1, loop);
            end = loop;
        }
        connect(m, end, -1, behind);
        end = behind;
        break;
    }
    return end;
}

static int compare_codes(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void add_cut(struct machine *m, uint32_t code)
{
    m->cuts = grow(m, m->cuts, &m->cut_capacity, m->cut_count, sizeof *m->cuts);
    if (m->error == NULL) {
        m->cuts[m->cut_count++] = code;
    }
}

static void cut_alphabet(struct machine *m)
{
    add_cut(m, 0);
    add_cut(m, TERN_REGEX_LAST_CHAR + 1);
    for (size_t i = 0; i < m->regex->set_count; i++) {
        const struct tern_char_set *set = &m->regex->sets[i];
        for (size_t k = 0; k < set->count && m->error == NULL; k++) {
            add_cut(m, set->ranges[k].lo);
            add_cut(m, set->ranges[k].hi + 1);
        }
    }
    if (m->error == NULL) {
        qsort(m->cuts, m->cut_count, sizeof *m->cuts, compare_codes);
        size_t kept = 0;
        for (size_t i = 0; i < m->cut_count; i++) {
            if (kept == 0 || m->cuts[kept - 1] != m->cuts[i]) {
                m->cuts[kept++] = m->cuts[i];
            }
        }
        m->cut_count = kept;
    }
}

static bool has_char(const struct tern_char_set *set, uint32_t code)
{
    size_t lo = 0, hi = set->count;
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        if (set->ranges[middle].hi < code) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    return lo < set->count && set->ranges[lo].lo <= code;
}

static void reach(struct machine *m, int32_t state)
{
    if (m->error == NULL && m->stamps[state] != m->round) {
        m->items = grow(m, m->items, &m->item_capacity, m->item_count, sizeof *m->items);
        if (m->error == NULL) {
            m->stamps[state] = m->round;
            m->items[m->item_count++] = state;
        }
    }
}

static int compare_states(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* What was reached since item `first`, and what follows without a character, as a subset: an old one or a new one. */
static int32_t subset(struct machine *m, size_t first)
{
    for (size_t i = first; i < m->item_count && m->error == NULL; i++) {
        for (int32_t e = m->first_edge[m->items[i]]; e >= 0; e = m->edges[e].next) {
            if (m->edges[e].set < 0) {
                reach(m, m->edges[e].target);
            }
            m->work++;
        }
    }
    size_t count = m->item_count - first;
    if (m->error != NULL || count == 0) {
        return NO_SUBSET;
    }
    qsort(m->items + first, count, sizeof *m->items, compare_states);
    uint32_t hash = 2166136261U; /* FNV-1a, by numbers */
    for (size_t i = first; i < m->item_count; i++) {
        hash = (hash ^ (uint32_t)m->items[i]) * 16777619U;
    }
    m->work += (int64_t)count;
    int32_t *bucket = &m->buckets[(hash ^ hash >> 15) % BUCKETS];
    for (int32_t i = *bucket - 1; i >= 0; i = m->subsets[i].next) {
        const struct subset *old = &m->subsets[i];
        if (old->hash == hash && (size_t)old->count == count &&
            memcmp(m->items + old->first, m->items + first, count * sizeof *m->items) == 0) {
            m->item_count = first;
            return i;
        }
    }
    size_t classes = m->cut_count - 1;
    if (m->subset_count >= SUBSETS_MAX || m->subset_count * classes > MOVES_MAX) {
        m->error = "it is too large: its deterministic automaton has more than 4000 states";
        return NO_SUBSET;
    }
    m->subsets = grow(m, m->subsets, &m->subset_capacity, m->subset_count, sizeof *m->subsets);
    m->moves =
        grow(m, m->moves, &m->move_capacity, (m->subset_count + 1) * classes, sizeof *m->moves);
    if (m->error != NULL) {
        return NO_SUBSET;
    }
    m->subsets[m->subset_count] = (struct subset){
        .first = (int32_t)first,
        .count = (int32_t)count,
        .hash = hash,
        .next = *bucket - 1,
        .is_end = m->stamps[m->end] == m->round,
    };
    *bucket = (int32_t)m->subset_count + 1;
    return (int32_t)m->subset_count++;
}

static void determinize(struct machine *m, int32_t start)
{
    m->stamps = tern_alloc_zero(tag, m->state_count, sizeof *m->stamps);
    if (m->stamps == NULL) {
        m->error = no_memory;
        return;
    }
    m->round = 1;
    reach(m, start);
    subset(m, 0);
    size_t classes = m->cut_count - 1;
    for (size_t s = 0; s < m->subset_count && m->error == NULL; s++) {
        for (size_t c = 0; c < classes && m->error == NULL; c++) {
            size_t first = m->item_count;
            m->round++;
            for (int32_t i = 0; i < m->subsets[s].count && m->error == NULL; i++) {
                int32_t state = m->items[m->subsets[s].first + i];
                for (int32_t e = m->first_edge[state]; e >= 0; e = m->edges[e].next) {
                    if (m->edges[e].set >= 0 &&
                        has_char(&m->regex->sets[m->edges[e].set], m->cuts[c])) {
                        reach(m, m->edges[e].target);
                    }
                    m->work++;
                }
            }
            int32_t to = subset(m, first);
            if (m->work > WORK_MAX && m->error == NULL) {
                m->error = "it is too large to be made deterministic (or those before it were)";
            }
            if (m->error == NULL) {
                m->moves[s * classes + c] = to;
            }
        }
    }
}

/* One state of the result with its edges: neighbouring classes with the same target at once. */
static void emit_moves(struct machine *m,
                       struct tern_nfa *nfa,
                       size_t s,
                       uint32_t from,
                       uint32_t base)
{
    size_t classes = m->cut_count - 1;
    const int32_t *moves = m->moves + s * classes;
    for (size_t c = 0; c < classes && nfa->status == TERN_OK;) {
        size_t end = c + 1;
        while (end < classes && moves[end] == moves[c]) {
            end++;
        }
        if (moves[c] != NO_SUBSET) {
            tern_nfa_chars(nfa, from, m->cuts[c], m->cuts[end] - 1, base + (uint32_t)moves[c]);
        }
        if (end - c == classes && base + (uint32_t)moves[c] == from && moves[c] != NO_SUBSET) {
            nfa->states[from].is_text = true; /* every character leads back */
        }
        c = end;
    }
}

/* The states once for each number of characters that matters. */
static void emit(struct machine *m,
                 struct tern_nfa *nfa,
                 uint32_t start,
                 uint32_t min,
                 uint32_t max)
{
    bool is_counted = min > 0 || max != TERN_NFA_NO_MAX;
    uint32_t last = max != TERN_NFA_NO_MAX ? max : min;
    size_t subsets = m->subset_count;
    if (is_counted && (uint64_t)(last + (uint64_t)1) * subsets > COUNTED_MAX) {
        m->error = "with minLength and maxLength it is too large: more than 50000 states";
        return;
    }
    uint32_t rule = nfa->states[start].rule, base = (uint32_t)nfa->state_count;
    size_t layers = is_counted ? (size_t)last + 1 : 1;
    for (size_t i = 0; i < layers * subsets && nfa->status == TERN_OK; i++) {
        tern_nfa_state(nfa, rule);
    }
    tern_nfa_empty(nfa, start, base, 0);
    for (size_t layer = 0; layer < layers && nfa->status == TERN_OK; layer++) {
        bool is_last = layer + 1 == layers;
        size_t next = !is_counted || is_last ? layer : layer + 1;
        for (size_t s = 0; s < subsets && nfa->status == TERN_OK; s++) {
            uint32_t from = base + (uint32_t)(layer * subsets + s);
            if (m->subsets[s].is_end && layer >= (is_counted ? min : 0)) {
                tern_nfa_return(nfa, from, 0);
            }
            if (!is_counted || !is_last || max == TERN_NFA_NO_MAX) {
                emit_moves(m, nfa, s, from, base + (uint32_t)(next * subsets));
            }
        }
    }
}

const char *tern_nfa_regex(struct tern_nfa *nfa,
                           uint32_t start,
                           const char *pattern,
                           size_t bytes,
                           uint32_t min,
                           uint32_t max)
{
    struct tern_regex regex;
    struct machine m = {.regex = &regex, .work = nfa->work};
    m.error = tern_regex_parse(&regex, pattern, bytes);
    if (m.error == NULL) {
        int32_t first = new_state(&m);
        m.end = build(&m, regex.root, first);
        if (m.error == NULL) {
            cut_alphabet(&m);
        }
        if (m.error == NULL) {
            determinize(&m, first);
        }
        if (m.error == NULL) {
            emit(&m, nfa, start, min, max);
        }
    }
    nfa->work = m.work;
    tern_regex_fini(&regex);
    tern_free(m.first_edge);
    tern_free(m.edges);
    tern_free(m.cuts);
    tern_free(m.subsets);
    tern_free(m.items);
    tern_free(m.moves);
    tern_free(m.stamps);
    return m.error;
}
