/* fake_grammar.h - a grammar for the fake model: only even tokens and the end, which must follow
 * the eighth. */
#ifndef TERN_TESTS_RUNTIME_SERVE_FAKE_GRAMMAR_H
#define TERN_TESTS_RUNTIME_SERVE_FAKE_GRAMMAR_H

#include "runtime/serve/grammar.h"
#include "tests/runtime/serve/fake_pass.h"

enum {
    FAKE_GRAMMAR_LENGTH = 8
};

struct tern_grammar {
    int refs;
    int dead_at; /* tokens after which nothing may follow; 0: none */
};

struct tern_grammar_state {
    int count;
    int dead_at;
};

struct tern_grammar *tern_grammar_retain(struct tern_grammar *grammar)
{
    grammar->refs++;
    return grammar;
}

void tern_grammar_release(struct tern_grammar *grammar)
{
    grammar->refs--;
}

tern_status tern_grammar_state_create(struct tern_grammar *grammar, struct tern_grammar_state **out)
{
    *out = tern_alloc_zero("fake", 1, sizeof **out);
    (*out)->dead_at = grammar->dead_at;
    return TERN_OK;
}

void tern_grammar_state_destroy(struct tern_grammar_state *state)
{
    tern_free(state);
}

static bool fake_allows(const struct tern_grammar_state *state, int32_t id)
{
    if (state->dead_at > 0 && state->count >= state->dead_at) {
        return false;
    }
    return state->count == FAKE_GRAMMAR_LENGTH ? id == FAKE_END : id % 2 == 0;
}

tern_status tern_grammar_mask(struct tern_grammar_state *state, uint32_t *bits)
{
    memset(bits, 0, (FAKE_VOCAB + 31) / 32 * sizeof *bits);
    for (int32_t id = 0; id < FAKE_VOCAB; id++) {
        bits[id / 32] |= (uint32_t)fake_allows(state, id) << (id % 32);
    }
    return TERN_OK;
}

bool tern_grammar_accept(struct tern_grammar_state *state, int32_t id)
{
    bool is_allowed = fake_allows(state, id);
    state->count += is_allowed;
    return is_allowed;
}

#endif
