/* grammar_dfa.c - the deterministic automaton, made as far as it is walked: sets of states, moves by byte, and where a
 * call goes on. */
#include "runtime/base/mem.h"
#include "runtime/serve/grammar_impl.h"

#include <stdlib.h>
#include <string.h>

static const char tag[] = "grammar states";

enum {
    MOVES_BYTES = 256 * sizeof(uint32_t),
    DEAD = TERN_MOVE_NEXT,
};

static bool room(struct tern_dfa *dfa, void **block, size_t *capacity, size_t count, size_t bytes)
{
    size_t before = *capacity;
    if (!dfa->is_failed && !tern_grammar_grow(block, capacity, count, bytes)) {
        dfa->is_failed = true;
    }
    dfa->bytes += (*capacity - before) * bytes;
    return !dfa->is_failed;
}

/* A state with its counter joins what is being collected. */
static void find(struct tern_dfa *dfa, uint32_t state, uint32_t count)
{
    if (dfa->stamps[state] == dfa->round) {
        for (size_t i = 0; i < dfa->found_count; i++) {
            if (dfa->found[i].state == state && dfa->found[i].count == count) {
                return;
            }
        }
    }
    if (room(dfa, (void **)&dfa->found, &dfa->found_capacity, dfa->found_count,
             sizeof *dfa->found)) {
        dfa->stamps[state] = dfa->round;
        dfa->found[dfa->found_count++] = (struct tern_item){state, count};
    }
}

/* Whether the item may take the edge; *count_out is the counter behind it. */
static bool may_take(const struct tern_dfa *dfa,
                     const struct tern_edge *edge,
                     struct tern_item item,
                     uint32_t *count_out)
{
    *count_out = item.count;
    if (edge->flags == 0) {
        return true;
    }
    const struct tern_rule *rule = &dfa->nfa->rules[dfa->nfa->states[item.state].rule];
    if (((edge->flags & TERN_EDGE_BELOW_MAX) != 0 && item.count >= rule->max) ||
        ((edge->flags & TERN_EDGE_FROM_MIN) != 0 && item.count < rule->min)) {
        return false;
    }
    uint32_t last = rule->max != TERN_NFA_NO_MAX ? rule->max : rule->min;
    *count_out += (edge->flags & TERN_EDGE_COUNTS) != 0 && item.count < last ? 1 : 0;
    return true;
}

static const struct tern_edge *edges_of(const struct tern_dfa *dfa, uint32_t state, size_t *count)
{
    const struct tern_nfa_state *at = &dfa->nfa->states[state];
    *count = at[1].edges - at->edges;
    return dfa->nfa->edges + at->edges;
}

/* Adds what is reached without a byte. */
static void close_found(struct tern_dfa *dfa)
{
    for (size_t i = 0; i < dfa->found_count && !dfa->is_failed; i++) {
        struct tern_item item = dfa->found[i];
        size_t count;
        const struct tern_edge *edges = edges_of(dfa, item.state, &count);
        dfa->work += (int64_t)count + 1;
        for (size_t e = 0; e < count; e++) {
            uint32_t counter;
            if (edges[e].kind == TERN_EDGE_EMPTY && may_take(dfa, &edges[e], item, &counter)) {
                find(dfa, edges[e].target, counter);
            }
        }
    }
    if (dfa->work > dfa->work_max) {
        dfa->is_failed = true;
    }
}

static int compare_items(const void *a, const void *b)
{
    const struct tern_item *x = a, *y = b;
    return x->state != y->state ? (x->state > y->state) - (x->state < y->state)
                                : (x->count > y->count) - (x->count < y->count);
}

static uint32_t hash_items(uint64_t hash, const struct tern_item *items, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        hash = (hash ^ (items[i].state | (uint64_t)items[i].count << 32)) * 0x9E3779B97F4A7C15ULL;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 16) % TERN_DFA_BUCKETS;
}

uint32_t tern_dfa_intern(struct tern_dfa *dfa,
                         uint8_t blanks,
                         uint32_t left,
                         const struct tern_item *items,
                         size_t count)
{
    if (count == 0 || dfa->is_failed) {
        return 0;
    }
    uint32_t *bucket = &dfa->buckets[hash_items(left | (uint64_t)blanks << 32, items, count)];
    for (uint32_t i = *bucket; i != 0; i = dfa->sets[i].next) {
        const struct tern_set *set = &dfa->sets[i];
        if (set->blanks == blanks && set->left == left && set->item_count == count &&
            memcmp(dfa->items + set->first_item, items, count * sizeof *items) == 0) {
            return i;
        }
    }
    if (!room(dfa, (void **)&dfa->sets, &dfa->set_capacity, dfa->set_count, sizeof *dfa->sets) ||
        !room(dfa, (void **)&dfa->items, &dfa->item_capacity, dfa->item_count + count,
              sizeof *dfa->items)) {
        return 0;
    }
    struct tern_set *set = &dfa->sets[dfa->set_count];
    *set = (struct tern_set){.first_item = dfa->item_count,
                             .item_count = (uint32_t)count,
                             .next = *bucket,
                             .left = left,
                             .blanks = blanks};
    for (size_t i = 0; i < count; i++) {
        dfa->items[dfa->item_count++] = items[i];
        set->is_accepted = set->is_accepted || dfa->nfa->states[items[i].state].is_accepted;
    }
    dfa->work += 64 + (int64_t)count;
    *bucket = (uint32_t)dfa->set_count;
    return (uint32_t)dfa->set_count++;
}

static void start_round(struct tern_dfa *dfa)
{
    dfa->found_count = 0;
    dfa->round++;
}

/* What was found as a set, without the states that need more levels than are left. */
static uint32_t found_set(struct tern_dfa *dfa, uint8_t blanks, uint32_t left)
{
    size_t kept = 0;
    close_found(dfa);
    for (size_t i = 0; i < dfa->found_count; i++) {
        if (dfa->nfa->states[dfa->found[i].state].height <= left) {
            dfa->found[kept++] = dfa->found[i];
        }
    }
    dfa->found_count = kept;
    if (kept > 1) {
        qsort(dfa->found, kept, sizeof *dfa->found, compare_items);
    }
    return tern_dfa_intern(dfa, blanks, left, dfa->found, kept);
}

tern_status tern_dfa_init(struct tern_dfa *dfa, const struct tern_nfa *nfa)
{
    *dfa = (struct tern_dfa){.nfa = nfa, .work_max = INT64_MAX};
    for (size_t i = 0; i < nfa->rule_count; i++) {
        uint32_t height = tern_nfa_height(nfa, (uint32_t)i);
        dfa->height_max = height > dfa->height_max ? height : dfa->height_max;
    }
    dfa->stamps = tern_alloc_zero(tag, nfa->state_count + 1, sizeof *dfa->stamps);
    if (dfa->stamps == NULL ||
        !room(dfa, (void **)&dfa->sets, &dfa->set_capacity, 1, sizeof *dfa->sets) ||
        !room(dfa, (void **)&dfa->ended, &dfa->ended_capacity, 1, sizeof *dfa->ended)) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    dfa->sets[0] = (struct tern_set){0};
    dfa->ended[0] = (struct tern_ended){0};
    dfa->set_count = dfa->ended_count = 1;
    return TERN_OK;
}

void tern_dfa_fini(struct tern_dfa *dfa)
{
    for (size_t i = 0; i < dfa->set_count; i++) {
        tern_free(dfa->sets[i].moves);
    }
    tern_free(dfa->sets);
    tern_free(dfa->items);
    tern_free(dfa->ended);
    tern_free(dfa->ended_rules);
    tern_free(dfa->gotos);
    tern_free(dfa->stamps);
    tern_free(dfa->found);
    *dfa = (struct tern_dfa){0};
}

uint32_t tern_dfa_start(struct tern_dfa *dfa)
{
    uint32_t start = dfa->nfa->rules[TERN_NFA_DOCUMENT].start;
    uint32_t height = dfa->nfa->states[start].height;
    start_round(dfa);
    find(dfa, start, 0);
    return found_set(dfa, 0, height > TERN_LEVELS_MAX ? height : TERN_LEVELS_MAX);
}

/* How many blanks there are behind one more, 0 when it may not stand here. */
static uint8_t more_blanks(uint8_t blanks, uint8_t byte)
{
    if (byte == '\n') {
        return blanks == 0 ? 2 : 0;
    }
    if (blanks == 0) {
        return byte == ' ' ? 1 : 0;
    }
    return blanks >= 2 && blanks < TERN_BLANKS_MAX ? (uint8_t)(blanks + 1) : 0;
}

static int compare_rules(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* The number of a set of rules, given in any order with repetitions; 0 for none. */
static uint32_t intern_ended(struct tern_dfa *dfa, uint32_t *rules, size_t count)
{
    size_t kept = 0;
    if (count > 1) {
        qsort(rules, count, sizeof *rules, compare_rules);
    }
    for (size_t i = 0; i < count; i++) {
        if (kept == 0 || rules[kept - 1] != rules[i]) {
            rules[kept++] = rules[i];
        }
    }
    dfa->work += (int64_t)dfa->ended_count / 8;
    for (size_t i = 1; i < dfa->ended_count && kept > 0; i++) {
        if (dfa->ended[i].count == kept &&
            memcmp(dfa->ended_rules + dfa->ended[i].first, rules, kept * sizeof *rules) == 0) {
            return (uint32_t)i;
        }
    }
    if (kept == 0 ||
        !room(dfa, (void **)&dfa->ended, &dfa->ended_capacity, dfa->ended_count,
              sizeof *dfa->ended) ||
        !room(dfa, (void **)&dfa->ended_rules, &dfa->ended_rule_capacity,
              dfa->ended_rule_count + kept, sizeof *dfa->ended_rules)) {
        return 0;
    }
    dfa->ended[dfa->ended_count] = (struct tern_ended){dfa->ended_rule_count, (uint32_t)kept};
    memcpy(dfa->ended_rules + dfa->ended_rule_count, rules, kept * sizeof *rules);
    dfa->ended_rule_count += kept;
    return (uint32_t)dfa->ended_count++;
}

/* The rules that end with a byte, found as items' states (they are numbers of rules here): those that an edge ends and
 * none vetoes. */
static uint32_t ended_by(struct tern_dfa *dfa, const struct tern_set *set, uint8_t byte)
{
    uint32_t *rules = NULL;
    size_t capacity = 0, count = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < set->item_count && !dfa->is_failed; i++) {
            struct tern_item item = dfa->items[set->first_item + i];
            size_t edge_count;
            const struct tern_edge *edges = edges_of(dfa, item.state, &edge_count);
            for (size_t e = 0; e < edge_count; e++) {
                uint32_t counter;
                bool is_veto = (edges[e].flags & TERN_EDGE_VETO) != 0;
                if (edges[e].kind != TERN_EDGE_RETURN || edges[e].lo != byte ||
                    is_veto != (pass == 1) || !may_take(dfa, &edges[e], item, &counter)) {
                    continue;
                }
                for (size_t k = 0; is_veto && k < count; k++) {
                    if (rules[k] == edges[e].rule) {
                        rules[k--] = rules[--count];
                    }
                }
                if (!is_veto &&
                    tern_grammar_grow((void **)&rules, &capacity, count, sizeof *rules)) {
                    rules[count++] = edges[e].rule;
                }
            }
        }
    }
    uint32_t ended = intern_ended(dfa, rules, count);
    tern_free(rules);
    return ended;
}

/* The levels that are left are enough for the call and for what comes behind it. */
static bool may_call(const struct tern_dfa *dfa, const struct tern_edge *edge, uint32_t left)
{
    return tern_nfa_height(dfa->nfa, edge->rule) <= left &&
           dfa->nfa->states[edge->target].height <= left;
}

static uint32_t compute_move(struct tern_dfa *dfa, uint32_t number, uint8_t byte)
{
    const struct tern_set set = dfa->sets[number]; /* the array may move */
    bool has_calls = false, has_returns = false;
    start_round(dfa);
    for (size_t i = 0; i < set.item_count && !dfa->is_failed; i++) {
        struct tern_item item = dfa->items[set.first_item + i];
        size_t count;
        const struct tern_edge *edges = edges_of(dfa, item.state, &count);
        dfa->work += (int64_t)count + 1;
        for (size_t e = 0; e < count; e++) {
            uint32_t counter;
            if (edges[e].kind == TERN_EDGE_EMPTY || edges[e].lo > byte || edges[e].hi < byte ||
                !may_take(dfa, &edges[e], item, &counter)) {
                continue;
            }
            if (edges[e].kind == TERN_EDGE_CALL) {
                has_calls = true;
                if (may_call(dfa, &edges[e], set.left)) {
                    find(dfa, dfa->nfa->rules[edges[e].rule].start, 0);
                }
            } else if (edges[e].kind == TERN_EDGE_RETURN) {
                has_returns = true;
            } else {
                find(dfa, edges[e].target, counter);
            }
        }
    }
    if (has_calls) {
        uint32_t callee =
            found_set(dfa, 0, set.left != TERN_LEVELS_ANY ? set.left - 1 : TERN_LEVELS_ANY);
        return callee != 0 ? callee << 2 | TERN_MOVE_CALL : DEAD;
    }
    if (has_returns) {
        uint32_t ended = ended_by(dfa, &set, byte);
        return ended != 0 ? ended << 2 | TERN_MOVE_RETURN : DEAD;
    }
    uint8_t blanks = 0;
    if (dfa->found_count == 0 && (byte == ' ' || byte == '\n' || byte == '\t')) {
        blanks = more_blanks(set.blanks, byte);
        for (size_t i = 0; i < set.item_count && blanks > 0; i++) {
            struct tern_item item = dfa->items[set.first_item + i];
            if (dfa->nfa->states[item.state].is_blank) {
                find(dfa, item.state, item.count);
            }
        }
    }
    return found_set(dfa, blanks, set.left) << 2 | TERN_MOVE_NEXT;
}

uint32_t tern_dfa_make_move(struct tern_dfa *dfa, uint32_t set, uint8_t byte)
{
    if (dfa->is_failed) {
        return DEAD;
    }
    if (dfa->sets[set].moves == NULL) {
        dfa->sets[set].moves = tern_alloc_zero(tag, 256, sizeof(uint32_t));
        dfa->bytes += MOVES_BYTES;
    }
    if (dfa->sets[set].moves == NULL) {
        dfa->is_failed = true;
        return DEAD;
    }
    uint32_t move = compute_move(dfa, set, byte);
    if (dfa->is_failed) {
        return DEAD; /* not kept: it may be known another time */
    }
    dfa->sets[set].moves[byte] = move;
    return move;
}

static bool has_ended(const struct tern_dfa *dfa, uint32_t ended, uint32_t rule)
{
    const uint32_t *rules = dfa->ended_rules + dfa->ended[ended].first;
    size_t lo = 0, hi = dfa->ended[ended].count;
    while (lo < hi) {
        size_t middle = (lo + hi) / 2;
        if (rules[middle] < rule) {
            lo = middle + 1;
        } else {
            hi = middle;
        }
    }
    return lo < dfa->ended[ended].count && rules[lo] == rule;
}

static uint32_t compute_goto(struct tern_dfa *dfa, uint32_t number, uint32_t ended)
{
    const struct tern_set set = dfa->sets[number];
    start_round(dfa);
    for (size_t i = 0; i < set.item_count && !dfa->is_failed; i++) {
        struct tern_item item = dfa->items[set.first_item + i];
        size_t count;
        const struct tern_edge *edges = edges_of(dfa, item.state, &count);
        dfa->work += (int64_t)count + 1;
        for (size_t e = 0; e < count; e++) {
            if (edges[e].kind == TERN_EDGE_CALL && has_ended(dfa, ended, edges[e].rule)) {
                find(dfa, edges[e].target, item.count);
            }
        }
    }
    return found_set(dfa, 0, set.left);
}

static struct tern_goto *goto_slot(struct tern_goto *gotos,
                                   size_t capacity,
                                   uint32_t set,
                                   uint32_t ended)
{
    uint64_t hash = (set | (uint64_t)ended << 32) * 0x9E3779B97F4A7C15ULL;
    size_t at = (size_t)(hash >> 20) & (capacity - 1);
    while (gotos[at].set != 0 && (gotos[at].set != set || gotos[at].ended != ended)) {
        at = (at + 1) & (capacity - 1);
    }
    return &gotos[at];
}

static bool grow_gotos(struct tern_dfa *dfa)
{
    size_t capacity = dfa->goto_capacity == 0 ? 256 : dfa->goto_capacity * 2;
    struct tern_goto *gotos = tern_alloc_zero(tag, capacity, sizeof *gotos);
    if (gotos == NULL) {
        return false;
    }
    for (size_t i = 0; i < dfa->goto_capacity; i++) {
        if (dfa->gotos[i].set != 0) {
            *goto_slot(gotos, capacity, dfa->gotos[i].set, dfa->gotos[i].ended) = dfa->gotos[i];
        }
    }
    dfa->bytes += (capacity - dfa->goto_capacity) * sizeof *gotos;
    tern_free(dfa->gotos);
    dfa->gotos = gotos;
    dfa->goto_capacity = capacity;
    return true;
}

uint32_t tern_dfa_goto(struct tern_dfa *dfa, uint32_t set, uint32_t ended)
{
    if (dfa->is_failed ||
        (dfa->goto_count * 2 >= dfa->goto_capacity && (dfa->is_failed = !grow_gotos(dfa)))) {
        return 0;
    }
    struct tern_goto *slot = goto_slot(dfa->gotos, dfa->goto_capacity, set, ended);
    if (slot->set == 0) {
        uint32_t to = compute_goto(dfa, set, ended);
        if (dfa->is_failed) {
            return 0;
        }
        *slot = (struct tern_goto){set, ended, to};
        dfa->goto_count++;
    }
    return slot->to;
}

/* A counter that no token reaches a bound from is as good as another such one. */
static uint32_t alike_count(const struct tern_rule *rule, uint32_t count, uint32_t reach)
{
    if (rule->max != TERN_NFA_NO_MAX && (uint64_t)count + reach > rule->max) {
        return count;
    }
    return count >= rule->min ? rule->min : (uint64_t)count + reach < rule->min ? 0 : count;
}

uint32_t tern_dfa_alike(struct tern_dfa *dfa, uint32_t set, uint32_t token_bytes_max)
{
    if (dfa->sets[set].alike == 0 && !dfa->is_failed) {
        const struct tern_set old = dfa->sets[set];
        start_round(dfa);
        for (size_t i = 0; i < old.item_count; i++) {
            struct tern_item item = dfa->items[old.first_item + i];
            const struct tern_rule *rule = &dfa->nfa->rules[dfa->nfa->states[item.state].rule];
            find(dfa, item.state, alike_count(rule, item.count, token_bytes_max + 1));
        }
        if (dfa->found_count > 1) {
            qsort(dfa->found, dfa->found_count, sizeof *dfa->found, compare_items);
        }
        bool is_far = old.left > (uint64_t)dfa->height_max + token_bytes_max;
        uint32_t alike = tern_dfa_intern(dfa, old.blanks, is_far ? TERN_LEVELS_ANY : old.left,
                                         dfa->found, dfa->found_count);
        dfa->sets[set].alike = alike;
    }
    return dfa->sets[set].alike != 0 ? dfa->sets[set].alike : set;
}

bool tern_dfa_takes_text(const struct tern_dfa *dfa, uint32_t set, uint32_t chars)
{
    const struct tern_set *at = &dfa->sets[set];
    for (size_t i = 0; i < at->item_count; i++) {
        struct tern_item item = dfa->items[at->first_item + i];
        const struct tern_nfa_state *state = &dfa->nfa->states[item.state];
        const struct tern_rule *rule = &dfa->nfa->rules[state->rule];
        if (state->is_text &&
            (rule->max == TERN_NFA_NO_MAX || item.count + (uint64_t)chars <= rule->max)) {
            return true;
        }
    }
    return false;
}
