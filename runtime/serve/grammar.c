/* grammar.c - grammars and the states of sequences: the functions of grammar.h. */
#include "runtime/serve/grammar.h"

#include "runtime/base/mem.h"
#include "runtime/serve/grammar_impl.h"

#include <string.h>

static const char tag[] = "grammar";

static void destroy(struct tern_grammar *grammar)
{
    tern_masks_clear(grammar);
    tern_free(grammar->entries);
    tern_free(grammar->bits);
    tern_free(grammar->ids);
    tern_free(grammar->leaves);
    tern_free(grammar->path);
    tern_dfa_fini(&grammar->dfa);
    tern_nfa_fini(&grammar->nfa);
    pthread_mutex_destroy(&grammar->lock);
    tern_grammar_vocab_release(grammar->vocab);
    tern_free(grammar);
}

static tern_status prepare(struct tern_grammar *grammar)
{
    const struct tern_grammar_vocab *vocab = grammar->vocab;
    size_t ids = (size_t)vocab->vocab_size;
    grammar->entry_count = 1;
    grammar->id_max = ids / 64;
    grammar->bits = tern_alloc(tag, (ids / 32 + 1) * sizeof *grammar->bits);
    grammar->ids = tern_alloc(tag, (grammar->id_max + 1) * sizeof *grammar->ids);
    grammar->path = tern_alloc(tag, (vocab->token_bytes_max + 2) * sizeof *grammar->path);
    if (grammar->bits == NULL || grammar->ids == NULL || grammar->path == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    return tern_dfa_init(&grammar->dfa, &grammar->nfa);
}

/* The first mask, so that a grammar that is too costly is refused here, and the engine has less to do. */
static tern_status rehearse(struct tern_grammar *grammar)
{
    struct tern_grammar_state *state;
    uint32_t *bits = tern_alloc(tag, ((size_t)grammar->vocab->vocab_size / 32 + 1) * sizeof *bits);
    if (bits == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    tern_status status = tern_grammar_state_create(grammar, &state);
    if (status == TERN_OK) {
        status = tern_grammar_mask(state, bits);
        tern_grammar_state_destroy(state);
    }
    tern_free(bits);
    return status;
}

/* Where one text begins with another, the next byte could be both the document's and the text's. */
static tern_status check_frames(const struct tern_grammar_frame *frames, int count)
{
    for (int i = 0; i < count; i++) {
        const char *a = frames[i].prefix != NULL ? frames[i].prefix : "";
        for (int k = 0; k < count; k++) {
            const char *b = frames[k].prefix != NULL ? frames[k].prefix : "";
            if (strlen(a) < strlen(b) && strncmp(a, b, strlen(a)) == 0) {
                return tern_fail(TERN_ERR_ARGUMENT,
                                 "the frame \"%.100s\" begins with another frame, \"%.100s\"", b,
                                 a);
            }
        }
    }
    return count > 0 ? TERN_OK : tern_fail(TERN_ERR_ARGUMENT, "a grammar of no frames");
}

static tern_status compile(struct tern_grammar_vocab *vocab,
                           const struct tern_grammar_frame *frames,
                           int count,
                           struct tern_grammar **out)
{
    *out = NULL;
    TERN_RETURN_IF_ERR(check_frames(frames, count));
    struct tern_grammar *grammar = tern_alloc_zero(tag, 1, sizeof *grammar);
    if (grammar == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    atomic_init(&grammar->references, 1);
    pthread_mutex_init(&grammar->lock, NULL);
    grammar->vocab = tern_grammar_vocab_retain(vocab);
    tern_status status = tern_grammar_build(frames, count, &grammar->nfa);
    if (status == TERN_OK) {
        status = prepare(grammar);
    }
    if (status == TERN_OK) {
        status = rehearse(grammar);
    }
    if (status != TERN_OK) {
        destroy(grammar);
        return status;
    }
    *out = grammar;
    return TERN_OK;
}

tern_status tern_grammar_compile_frames(struct tern_grammar_vocab *vocab,
                                        const struct tern_grammar_frame *frames,
                                        int count,
                                        struct tern_grammar **out)
{
    static const char object[] = "{\"type\": \"object\"}";
    struct tern_json *any = NULL;
    struct tern_grammar_frame *copies = tern_alloc(tag, (size_t)(count + 1) * sizeof *copies);
    tern_status status = TERN_OK;
    *out = NULL;
    if (copies == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
    }
    TERN_GOTO_IF_ERR(status, tern_json_parse("any object", object, sizeof object - 1, &any), out);
    for (int i = 0; i < count; i++) {
        copies[i] = frames[i];
        copies[i].schema = frames[i].schema != NULL ? frames[i].schema : any;
    }
    status = compile(vocab, copies, count, out);
out:
    tern_json_close(any);
    tern_free(copies);
    return status;
}

tern_status tern_grammar_compile_schema(struct tern_grammar_vocab *vocab,
                                        const struct tern_json *schema,
                                        struct tern_grammar **out)
{
    struct tern_grammar_frame frame = {.schema = schema};
    return tern_grammar_compile_frames(vocab, &frame, 1, out);
}

tern_status tern_grammar_compile_json(struct tern_grammar_vocab *vocab, struct tern_grammar **out)
{
    return tern_grammar_compile_schema(vocab, NULL, out);
}

struct tern_grammar *tern_grammar_retain(struct tern_grammar *grammar)
{
    atomic_fetch_add(&grammar->references, 1);
    return grammar;
}

void tern_grammar_release(struct tern_grammar *grammar)
{
    if (grammar != NULL && atomic_fetch_sub(&grammar->references, 1) == 1) {
        destroy(grammar);
    }
}

/* A new state with room for a stack, in the grammar's list; the lock is held. */
static struct tern_grammar_state *new_state(struct tern_grammar *grammar, size_t depth)
{
    struct tern_grammar_state *state = tern_alloc_zero(tag, 1, sizeof *state);
    if (state == NULL ||
        !tern_grammar_grow((void **)&state->stack, &state->capacity, depth, sizeof *state->stack)) {
        tern_free(state);
        return NULL;
    }
    state->grammar = tern_grammar_retain(grammar);
    state->next = grammar->states;
    if (state->next != NULL) {
        state->next->previous = state;
    }
    grammar->states = state;
    return state;
}

tern_status tern_grammar_state_create(struct tern_grammar *grammar, struct tern_grammar_state **out)
{
    pthread_mutex_lock(&grammar->lock);
    struct tern_grammar_state *state = *out = new_state(grammar, 1);
    if (state != NULL) {
        state->stack[0] = tern_dfa_start(&grammar->dfa);
        state->depth = 1;
    }
    pthread_mutex_unlock(&grammar->lock);
    return state != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "no memory for a grammar's state");
}

tern_status tern_grammar_state_copy(const struct tern_grammar_state *state,
                                    struct tern_grammar_state **out)
{
    pthread_mutex_lock(&state->grammar->lock);
    struct tern_grammar_state *copy = *out = new_state(state->grammar, state->depth);
    if (copy != NULL) {
        memcpy(copy->stack, state->stack, state->depth * sizeof *copy->stack);
        copy->depth = state->depth;
        copy->is_ended = state->is_ended;
    }
    pthread_mutex_unlock(&state->grammar->lock);
    return copy != NULL ? TERN_OK : tern_fail(TERN_ERR_MEMORY, "no memory for a grammar's state");
}

void tern_grammar_state_destroy(struct tern_grammar_state *state)
{
    if (state == NULL) {
        return;
    }
    struct tern_grammar *grammar = state->grammar;
    pthread_mutex_lock(&grammar->lock);
    *(state->previous != NULL ? &state->previous->next : &grammar->states) = state->next;
    if (state->next != NULL) {
        state->next->previous = state->previous;
    }
    pthread_mutex_unlock(&grammar->lock);
    tern_free(state->stack);
    tern_free(state);
    tern_grammar_release(grammar);
}

/* Makes the automaton again with only the sets that live sequences are in. */
static tern_status forget(struct tern_grammar *grammar)
{
    struct tern_dfa fresh;
    tern_masks_clear(grammar);
    tern_status status = tern_dfa_init(&fresh, &grammar->nfa);
    for (struct tern_grammar_state *state = grammar->states; state != NULL && status == TERN_OK;
         state = state->next) {
        for (size_t i = 0; i < state->depth; i++) {
            const struct tern_set *old = &grammar->dfa.sets[state->stack[i]];
            uint32_t set = tern_dfa_intern(&fresh, old->blanks, old->left,
                                           grammar->dfa.items + old->first_item, old->item_count);
            status = set != 0 ? status : tern_fail(TERN_ERR_MEMORY, "no memory for a grammar");
        }
    }
    if (status != TERN_OK) {
        tern_dfa_fini(&fresh);
        return status;
    }
    /* a second time: now they are all there, and nothing can fail half way */
    for (struct tern_grammar_state *state = grammar->states; state != NULL; state = state->next) {
        for (size_t i = 0; i < state->depth; i++) {
            const struct tern_set *old = &grammar->dfa.sets[state->stack[i]];
            state->stack[i] =
                tern_dfa_intern(&fresh, old->blanks, old->left,
                                grammar->dfa.items + old->first_item, old->item_count);
        }
    }
    tern_dfa_fini(&grammar->dfa);
    grammar->dfa = fresh;
    return TERN_OK;
}

tern_status tern_grammar_mask(struct tern_grammar_state *state, uint32_t *bits)
{
    struct tern_grammar *grammar = state->grammar;
    const struct tern_grammar_vocab *vocab = grammar->vocab;
    tern_status status = TERN_OK;
    if (state->is_ended) {
        memset(bits, 0, ((size_t)vocab->vocab_size + 31) / 32 * sizeof *bits);
        return TERN_OK;
    }
    pthread_mutex_lock(&grammar->lock);
    if (grammar->dfa.bytes > TERN_DFA_BYTES_MAX) {
        status = forget(grammar);
    }
    if (status == TERN_OK) {
        status = tern_masks_make(grammar, state, bits);
    }
    bool is_complete = state->depth == 1 && grammar->dfa.sets[state->stack[0]].is_accepted;
    pthread_mutex_unlock(&grammar->lock);
    for (int i = 0; i < vocab->end_count && is_complete; i++) {
        bits[vocab->end_ids[i] >> 5] |= 1U << (vocab->end_ids[i] & 31);
    }
    return status;
}

bool tern_grammar_is_complete(const struct tern_grammar_state *state)
{
    pthread_mutex_lock(&state->grammar->lock);
    bool is_complete = state->depth == 1 && state->grammar->dfa.sets[state->stack[0]].is_accepted;
    pthread_mutex_unlock(&state->grammar->lock);
    return is_complete;
}

/* One byte; false when it may not come, or there is no memory. */
static bool accept_byte(struct tern_grammar_state *state, uint8_t byte)
{
    struct tern_dfa *dfa = &state->grammar->dfa;
    uint32_t *top = &state->stack[state->depth - 1];
    uint32_t move = tern_dfa_move(dfa, *top, byte);
    switch (move & 3) {
    case TERN_MOVE_NEXT:
        *top = move >> 2;
        return *top != 0;
    case TERN_MOVE_CALL:
        if (!tern_grammar_grow((void **)&state->stack, &state->capacity, state->depth,
                               sizeof *state->stack)) {
            return false;
        }
        state->stack[state->depth++] = move >> 2;
        return true;
    default:
        if (state->depth == 1) {
            return false;
        }
        state->depth--;
        top = &state->stack[state->depth - 1];
        *top = tern_dfa_goto(dfa, *top, move >> 2);
        return *top != 0;
    }
}

static bool is_end(const struct tern_grammar_vocab *vocab, int32_t id)
{
    for (int i = 0; i < vocab->end_count; i++) {
        if (vocab->end_ids[i] == id) {
            return true;
        }
    }
    return false;
}

bool tern_grammar_accept(struct tern_grammar_state *state, int32_t id)
{
    struct tern_grammar *grammar = state->grammar;
    const struct tern_grammar_vocab *vocab = grammar->vocab;
    if (state->is_ended || id < 0 || id >= vocab->vocab_size) {
        return false;
    }
    if (is_end(vocab, id)) {
        state->is_ended = tern_grammar_is_complete(state);
        return state->is_ended;
    }
    uint32_t first = vocab->offsets[id], end = vocab->offsets[id + 1];
    if (first == end) {
        return false;
    }
    pthread_mutex_lock(&grammar->lock);
    size_t depth = state->depth, at = first;
    uint32_t *saved = tern_alloc(tag, depth * sizeof *saved);
    if (saved != NULL) {
        memcpy(saved, state->stack, depth * sizeof *saved);
        while (at < end && accept_byte(state, (uint8_t)vocab->bytes[at])) {
            at++;
        }
        if (at < end) {
            memcpy(state->stack, saved, depth * sizeof *saved);
            state->depth = depth;
            grammar->dfa.is_failed = false;
        }
        tern_free(saved);
    }
    pthread_mutex_unlock(&grammar->lock);
    return saved != NULL && at == end;
}
