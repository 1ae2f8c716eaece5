/* grammar_nfa.c - building the automaton, and removing what leads nowhere. */
#include "runtime/serve/grammar_nfa.h"

#include "runtime/base/mem.h"

#include <string.h>

static const char tag[] = "grammar";

bool tern_grammar_grow(void **block, size_t *capacity, size_t count, size_t item_bytes)
{
    if (count < *capacity) {
        return true;
    }
    size_t larger = *capacity < 16 ? 32 : *capacity * 2;
    larger = larger > count ? larger : count + 1;
    void *grown = tern_realloc(tag, *block, larger * item_bytes);
    if (grown == NULL) {
        return false;
    }
    *block = grown;
    *capacity = larger;
    return true;
}

/* Room for one more of an array, within its budget; what fails sticks. */
static bool has_room(struct tern_nfa *nfa,
                     void **block,
                     size_t *capacity,
                     size_t count,
                     size_t item_bytes,
                     size_t count_max)
{
    if (nfa->status != TERN_OK) {
        return false;
    }
    if (count >= count_max) {
        nfa->status =
            tern_fail(TERN_ERR_INPUT,
                      "the schema is too large: its automaton has more than %d states, %d edges "
                      "or %d rules",
                      TERN_NFA_STATES_MAX, TERN_NFA_EDGES_MAX, TERN_NFA_RULES_MAX);
        return false;
    }
    if (!tern_grammar_grow(block, capacity, count, item_bytes)) {
        nfa->status = tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
        return false;
    }
    return true;
}

uint32_t tern_nfa_state(struct tern_nfa *nfa, uint32_t rule)
{
    if (!has_room(nfa, (void **)&nfa->states, &nfa->state_capacity, nfa->state_count,
                  sizeof *nfa->states, TERN_NFA_STATES_MAX)) {
        return 0;
    }
    nfa->states[nfa->state_count] = (struct tern_nfa_state){.rule = rule};
    return (uint32_t)nfa->state_count++;
}

uint32_t tern_nfa_blank_state(struct tern_nfa *nfa, uint32_t rule)
{
    uint32_t state = tern_nfa_state(nfa, rule);
    if (nfa->status == TERN_OK) {
        nfa->states[state].is_blank = true;
    }
    return state;
}

uint32_t tern_nfa_rule(struct tern_nfa *nfa, char open)
{
    if (!has_room(nfa, (void **)&nfa->rules, &nfa->rule_capacity, nfa->rule_count,
                  sizeof *nfa->rules, TERN_NFA_RULES_MAX)) {
        return 0;
    }
    uint32_t rule = (uint32_t)nfa->rule_count++;
    nfa->rules[rule] = (struct tern_rule){.max = TERN_NFA_NO_MAX, .open = (uint8_t)open};
    nfa->rules[rule].start =
        open == '"' ? tern_nfa_state(nfa, rule) : tern_nfa_blank_state(nfa, rule);
    return rule;
}

void tern_nfa_edge(struct tern_nfa *nfa, struct tern_edge edge)
{
    if (has_room(nfa, (void **)&nfa->edges, &nfa->edge_capacity, nfa->edge_count,
                 sizeof *nfa->edges, TERN_NFA_EDGES_MAX)) {
        nfa->edges[nfa->edge_count++] = edge;
    }
}

void tern_nfa_byte(struct tern_nfa *nfa, uint32_t from, int lo, int hi, uint32_t target)
{
    tern_nfa_edge(nfa, (struct tern_edge){.from = from,
                                          .target = target,
                                          .kind = TERN_EDGE_BYTE,
                                          .lo = (uint8_t)lo,
                                          .hi = (uint8_t)hi});
}

void tern_nfa_empty(struct tern_nfa *nfa, uint32_t from, uint32_t target, int flags)
{
    tern_nfa_edge(
        nfa, (struct tern_edge){
                 .from = from, .target = target, .kind = TERN_EDGE_EMPTY, .flags = (uint8_t)flags});
}

void tern_nfa_call(struct tern_nfa *nfa, uint32_t from, uint32_t rule, uint32_t target)
{
    if (nfa->status == TERN_OK) {
        uint8_t open = nfa->rules[rule].open;
        tern_nfa_edge(nfa, (struct tern_edge){.from = from,
                                              .target = target,
                                              .rule = rule,
                                              .kind = TERN_EDGE_CALL,
                                              .lo = open,
                                              .hi = open});
    }
}

void tern_nfa_return(struct tern_nfa *nfa, uint32_t from, int flags)
{
    if (nfa->status != TERN_OK) {
        return;
    }
    uint32_t rule = nfa->states[from].rule;
    uint8_t open = nfa->rules[rule].open;
    uint8_t close = open == '{' ? '}' : open == '[' ? ']' : '"';
    tern_nfa_edge(nfa, (struct tern_edge){.from = from,
                                          .rule = rule,
                                          .kind = TERN_EDGE_RETURN,
                                          .lo = close,
                                          .hi = close,
                                          .flags = (uint8_t)flags});
}

uint32_t tern_nfa_bytes(struct tern_nfa *nfa, uint32_t from, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count && nfa->status == TERN_OK; i++) {
        uint32_t next = tern_nfa_state(nfa, nfa->states[from].rule);
        tern_nfa_byte(nfa, from, (uint8_t)bytes[i], (uint8_t)bytes[i], next);
        from = next;
    }
    return nfa->status == TERN_OK ? from : 0;
}

tern_status tern_nfa_init(struct tern_nfa *nfa)
{
    *nfa = (struct tern_nfa){0};
    tern_nfa_rule(nfa, '\0');
    uint32_t string = tern_nfa_rule(nfa, '"');
    if (nfa->status == TERN_OK) {
        tern_nfa_text_loop(nfa, nfa->rules[string].start, 0);
        tern_nfa_return(nfa, nfa->rules[string].start, 0);
    }
    return nfa->status;
}

void tern_nfa_fini(struct tern_nfa *nfa)
{
    tern_free(nfa->states);
    tern_free(nfa->edges);
    tern_free(nfa->rules);
    *nfa = (struct tern_nfa){0};
}

uint32_t tern_nfa_height(const struct tern_nfa *nfa, uint32_t rule)
{
    return nfa->states[nfa->rules[rule].start].height + 1;
}

/* Which states can come to the end of their rule, and through how many levels of calls: backwards from the ends, first all
 * that need none, then all that need one ... A call waits for both the state behind it and the rule's start. */
struct live {
    struct tern_nfa *nfa;
    bool *states;
    uint32_t *queue; /* of states that became live at this level */
    uint32_t *callable,
        *next_callable; /* rules whose start did at the last level, and does at this one */
    size_t head, tail, callable_count, next_count;
    uint32_t level;
    uint32_t *by_target, *target_first; /* edges by target state */
    uint32_t *by_rule, *rule_first;     /* call edges by rule */
    uint32_t *rule_of_start;            /* state -> rule that begins there + 1, 0: none */
};

static void live_mark(struct live *live, uint32_t state)
{
    if (live->states[state]) {
        return;
    }
    live->states[state] = true;
    live->nfa->states[state].height = live->level;
    live->queue[live->tail++] = state;
    if (live->rule_of_start[state] != 0) {
        live->next_callable[live->next_count++] = live->rule_of_start[state] - 1;
    }
}

/* Edge numbers sorted by a key below count: first[k] .. first[k + 1]. */
static void sort_edges(const struct tern_nfa *nfa,
                       uint32_t key_of(const struct tern_edge *edge),
                       size_t count,
                       uint32_t *first,
                       uint32_t *sorted)
{
    for (size_t i = 0; i < nfa->edge_count; i++) {
        first[key_of(&nfa->edges[i]) + 1]++;
    }
    for (size_t i = 0; i < count; i++) {
        first[i + 1] += first[i];
    }
    for (size_t i = nfa->edge_count; i-- > 0;) {
        sorted[--first[key_of(&nfa->edges[i]) + 1]] = (uint32_t)i;
    }
    /* each entry k + 1 is now where k begins */
    memmove(first, first + 1, count * sizeof *first);
    first[count] = (uint32_t)nfa->edge_count;
}

static uint32_t key_from(const struct tern_edge *edge)
{
    return edge->from;
}

static uint32_t key_target(const struct tern_edge *edge)
{
    return edge->target;
}

static uint32_t key_rule(const struct tern_edge *edge)
{
    return edge->rule;
}

static bool is_callable(const struct live *live, uint32_t rule)
{
    return live->states[live->nfa->rules[rule].start] &&
           tern_nfa_height(live->nfa, rule) <= live->level;
}

/* What leads to the states in the queue at this level. */
static void live_spread(struct live *live)
{
    const struct tern_nfa *nfa = live->nfa;
    while (live->head < live->tail) {
        uint32_t state = live->queue[live->head++];
        for (uint32_t i = live->target_first[state]; i < live->target_first[state + 1]; i++) {
            const struct tern_edge *edge = &nfa->edges[live->by_target[i]];
            if (edge->kind == TERN_EDGE_BYTE || edge->kind == TERN_EDGE_EMPTY ||
                (edge->kind == TERN_EDGE_CALL && is_callable(live, edge->rule))) {
                live_mark(live, edge->from);
            }
        }
    }
}

static void live_run(struct live *live)
{
    const struct tern_nfa *nfa = live->nfa;
    for (size_t i = 0; i < nfa->edge_count; i++) {
        if (nfa->edges[i].kind == TERN_EDGE_RETURN) {
            live_mark(live, nfa->edges[i].from);
        }
    }
    for (size_t i = 0; i < nfa->state_count; i++) {
        if (nfa->states[i].is_accepted) {
            live_mark(live, (uint32_t)i);
        }
    }
    live_spread(live);
    while (live->next_count > 0) {
        uint32_t *done = live->callable;
        live->callable = live->next_callable;
        live->callable_count = live->next_count;
        live->next_callable = done;
        live->next_count = 0;
        live->level++;
        for (size_t i = 0; i < live->callable_count; i++) {
            uint32_t rule = live->callable[i];
            for (uint32_t k = live->rule_first[rule]; k < live->rule_first[rule + 1]; k++) {
                const struct tern_edge *edge = &nfa->edges[live->by_rule[k]];
                if (edge->kind == TERN_EDGE_CALL && live->states[edge->target]) {
                    live_mark(live, edge->from);
                }
            }
        }
        live_spread(live);
    }
}

static tern_status live_create(struct live *live, struct tern_nfa *nfa)
{
    size_t states = nfa->state_count + 2, edges = nfa->edge_count + 1, rules = nfa->rule_count + 2;
    *live = (struct live){
        .nfa = nfa,
        .states = tern_alloc_zero(tag, states, sizeof(bool)),
        .queue = tern_alloc_zero(tag, states, sizeof(uint32_t)),
        .callable = tern_alloc_zero(tag, rules, sizeof(uint32_t)),
        .next_callable = tern_alloc_zero(tag, rules, sizeof(uint32_t)),
        .by_target = tern_alloc_zero(tag, edges, sizeof(uint32_t)),
        .target_first = tern_alloc_zero(tag, states, sizeof(uint32_t)),
        .by_rule = tern_alloc_zero(tag, edges, sizeof(uint32_t)),
        .rule_first = tern_alloc_zero(tag, rules, sizeof(uint32_t)),
        .rule_of_start = tern_alloc_zero(tag, states, sizeof(uint32_t)),
    };
    if (live->states == NULL || live->queue == NULL || live->callable == NULL ||
        live->next_callable == NULL || live->by_target == NULL || live->target_first == NULL ||
        live->by_rule == NULL || live->rule_first == NULL || live->rule_of_start == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    sort_edges(nfa, key_target, nfa->state_count, live->target_first, live->by_target);
    sort_edges(nfa, key_rule, nfa->rule_count, live->rule_first, live->by_rule);
    for (size_t i = 0; i < nfa->rule_count; i++) {
        live->rule_of_start[nfa->rules[i].start] = (uint32_t)i + 1;
    }
    return TERN_OK;
}

static void live_destroy(struct live *live)
{
    tern_free(live->states);
    tern_free(live->queue);
    tern_free(live->callable);
    tern_free(live->next_callable);
    tern_free(live->by_target);
    tern_free(live->target_first);
    tern_free(live->by_rule);
    tern_free(live->rule_first);
    tern_free(live->rule_of_start);
}

/* Keeps the edges between live states, in the order of their states. */
static tern_status keep_live(struct tern_nfa *nfa, const bool *is_live)
{
    size_t kept = 0;
    for (size_t i = 0; i < nfa->edge_count; i++) {
        const struct tern_edge *edge = &nfa->edges[i];
        bool is_kept = is_live[edge->from] &&
                       (edge->kind == TERN_EDGE_RETURN || is_live[edge->target]) &&
                       (edge->kind != TERN_EDGE_CALL || is_live[nfa->rules[edge->rule].start]);
        if (is_kept) {
            nfa->edges[kept++] = *edge;
        }
    }
    nfa->edge_count = kept;
    uint32_t *first = tern_alloc_zero(tag, nfa->state_count + 2, sizeof *first);
    uint32_t *order = tern_alloc_zero(tag, kept + 1, sizeof *order);
    struct tern_edge *sorted = tern_alloc(tag, (kept + 1) * sizeof *sorted);
    struct tern_nfa_state *states =
        tern_realloc(tag, nfa->states, (nfa->state_count + 1) * sizeof *states);
    nfa->states = states != NULL ? states : nfa->states;
    if (first == NULL || order == NULL || sorted == NULL || states == NULL) {
        tern_free(first);
        tern_free(order);
        tern_free(sorted);
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    sort_edges(nfa, key_from, nfa->state_count, first, order);
    for (size_t i = 0; i < kept; i++) {
        sorted[i] = nfa->edges[order[i]];
    }
    nfa->states[nfa->state_count] = (struct tern_nfa_state){0};
    for (size_t i = 0; i <= nfa->state_count; i++) {
        nfa->states[i].edges = first[i];
    }
    tern_free(first);
    tern_free(order);
    tern_free(nfa->edges);
    nfa->edges = sorted;
    nfa->edge_capacity = kept + 1;
    return TERN_OK;
}

tern_status tern_nfa_finish(struct tern_nfa *nfa)
{
    TERN_RETURN_IF_ERR(nfa->status);
    struct live live;
    tern_status status = live_create(&live, nfa);
    if (status == TERN_OK) {
        live_run(&live);
        status = live.states[nfa->rules[TERN_NFA_DOCUMENT].start]
                     ? keep_live(nfa, live.states)
                     : tern_fail(TERN_ERR_INPUT, "no document is valid under the schema");
    }
    live_destroy(&live);
    return status;
}
