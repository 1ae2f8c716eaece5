/* tokenizer_bpe.c - one word's ids: its symbols, then merges, lowest rank first, leftmost first among
 * equals, as Hugging Face does. Up to SHORT_WORD_BYTES the lowest is found by looking at all. Longer
 * words keep, for each rank, a list of the places where it applies, and a heap of the ranks that have
 * any: 10 MB of one letter are a few passes over memory, where a heap of places would miss the cache
 * at every pop. */
#include "io/tokenizer_encode.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    NONE = -1
};

void tern_merger_fini(struct tern_merger *merger)
{
    tern_free(merger->symbols);
    tern_free(merger->places);
    tern_free(merger->run);
    tern_free(merger->first_place);
    tern_free(merger->ranks);
}

/* ---- symbols ---- */

/* The symbols of a word of characters: one a character that is a token, the bytes' tokens of one that
 * is none, else the unknown token, one for all in a row if they fuse. The order in which bytes and
 * unknown ones come out is the reference's, whose unknown ones wait for the next known character.
 * ids out [bytes]; returns how many. */
static int64_t symbols_of_chars(const struct tern_tokenizer *tokenizer,
                                const uint8_t *word,
                                size_t bytes,
                                int32_t *ids)
{
    int64_t count = 0;
    bool has_unknown = false;
    for (size_t at = 0; at < bytes;) {
        uint32_t code;
        int length = tern_utf8_decode(word + at, bytes - at, &code);
        int32_t id = length == 0
                         ? NONE
                         : tern_tokenizer_find(tokenizer, (const char *)word + at, (size_t)length);
        length = length == 0 ? 1 : length;
        const uint8_t *first = word + at;
        at += (size_t)length;
        if (id >= 0) {
            if (has_unknown) {
                ids[count++] = tokenizer->unknown_id;
                has_unknown = false;
            }
            ids[count++] = id;
            continue;
        }
        bool falls_back = tokenizer->has_fallback;
        for (int i = 0; i < length && falls_back; i++) {
            falls_back = tokenizer->byte_ids[first[i]] >= 0;
        }
        if (falls_back) {
            for (int i = 0; i < length; i++) {
                ids[count++] = tokenizer->byte_ids[first[i]];
            }
        } else if (tokenizer->unknown_id >= 0) {
            if (has_unknown && !tokenizer->fuses_unknown) {
                ids[count++] = tokenizer->unknown_id;
            }
            has_unknown = true;
        }
    }
    if (has_unknown) {
        ids[count++] = tokenizer->unknown_id;
    }
    return count;
}

static int64_t symbols_of(const struct tern_tokenizer *tokenizer,
                          const uint8_t *word,
                          size_t bytes,
                          int32_t *ids)
{
    if (tokenizer->model == TERN_MODEL_CHARS) {
        return symbols_of_chars(tokenizer, word, bytes, ids);
    }
    for (size_t i = 0; i < bytes; i++) {
        ids[i] = tokenizer->byte_ids[word[i]];
    }
    return (int64_t)bytes;
}

/* ---- short words ---- */

/* Merges ids [count] in place; returns how many are left. count <= TERN_SHORT_WORD_BYTES */
static int merge_short(const struct tern_tokenizer *tokenizer, int32_t *ids, int count)
{
    const struct tern_merge *pairs[TERN_SHORT_WORD_BYTES]; /* of (i, i + 1) */
    for (int i = 0; i + 1 < count; i++) {
        pairs[i] = tern_tokenizer_merge(tokenizer, ids[i], ids[i + 1]);
    }
    for (;;) {
        int best = NONE;
        for (int i = 0; i + 1 < count; i++) {
            if (pairs[i] != NULL && (best == NONE || pairs[i]->rank < pairs[best]->rank)) {
                best = i;
            }
        }
        if (best == NONE) {
            return count;
        }
        ids[best] = pairs[best]->result;
        count--;
        for (int i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
        }
        for (int i = best; i + 1 < count; i++) {
            pairs[i] = pairs[i + 1];
        }
        if (best > 0) {
            pairs[best - 1] = tern_tokenizer_merge(tokenizer, ids[best - 1], ids[best]);
        }
        if (best + 1 < count) {
            pairs[best] = tern_tokenizer_merge(tokenizer, ids[best], ids[best + 1]);
        }
    }
}

/* ---- long words ---- */

static tern_status reserve_long(struct tern_merger *merger, size_t wanted)
{
    if (merger->first_place == NULL) {
        size_t ranks = (size_t)merger->tokenizer->rank_count + 1;
        int32_t *first_place = tern_alloc("merger ranks", ranks * sizeof *first_place);
        merger->ranks = tern_alloc("merger ranks", ranks * sizeof *merger->ranks);
        if (first_place == NULL || merger->ranks == NULL) {
            tern_free(first_place);
            tern_free(merger->ranks);
            merger->ranks = NULL;
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu ranks", ranks);
        }
        memset(first_place, 0xff, ranks * sizeof *first_place);
        merger->first_place = first_place;
    }
    if ((int64_t)wanted <= merger->long_capacity) {
        return TERN_OK;
    }
    tern_free(merger->symbols);
    tern_free(merger->places);
    tern_free(merger->run);
    int64_t capacity = (int64_t)wanted + (int64_t)wanted / 2;
    size_t count = (size_t)capacity;
    merger->symbols = tern_alloc("merger symbols", count * sizeof *merger->symbols);
    /* One a pair at first; a merge frees one and adds at most two: never more than two a byte. */
    merger->places = tern_alloc("merger places", count * 2 * sizeof *merger->places);
    merger->run = tern_alloc("merger run", count * 2 * sizeof *merger->run);
    bool is_whole = merger->symbols != NULL && merger->places != NULL && merger->run != NULL;
    merger->long_capacity = is_whole ? capacity : 0;
    return is_whole ? TERN_OK
                    : tern_fail(TERN_ERR_MEMORY, "cannot allocate a word of %zu symbols", wanted);
}

static void push_rank(struct tern_merger *merger, int32_t rank)
{
    int32_t *heap = merger->ranks;
    int32_t at = merger->rank_count++;
    while (at > 0 && heap[(at - 1) / 2] > rank) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = rank;
}

static int32_t pop_rank(struct tern_merger *merger)
{
    int32_t *heap = merger->ranks;
    int32_t top = heap[0];
    int32_t moved = heap[--merger->rank_count];
    int32_t at = 0;
    for (;;) {
        int32_t child = at * 2 + 1;
        if (child >= merger->rank_count) {
            break;
        }
        if (child + 1 < merger->rank_count && heap[child + 1] < heap[child]) {
            child++;
        }
        if (heap[child] >= moved) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return top;
}

static void push_place(struct tern_merger *merger, int32_t rank, int32_t at)
{
    int32_t slot = merger->free_place;
    TERN_CHECK(slot != NONE);
    merger->free_place = merger->places[slot].next;
    if (merger->first_place[rank] == NONE) {
        push_rank(merger, rank);
    }
    merger->places[slot] = (struct tern_place){at, merger->first_place[rank]};
    merger->first_place[rank] = slot;
}

/* The pair that begins at symbol `at`, NULL if it does not merge. */
static const struct tern_merge *pair_at(const struct tern_merger *merger, int32_t at)
{
    const struct tern_symbol *symbol = &merger->symbols[at];
    if (symbol->id == NONE || symbol->next == NONE) {
        return NULL;
    }
    return tern_tokenizer_merge(merger->tokenizer, symbol->id, merger->symbols[symbol->next].id);
}

/* Pushes the pair at `at`; returns its rank or INT32_MAX. */
static int32_t push_pair(struct tern_merger *merger, int32_t at)
{
    const struct tern_merge *merge = pair_at(merger, at);
    if (merge == NULL) {
        return INT32_MAX;
    }
    push_place(merger, merge->rank, at);
    return merge->rank;
}

static int compare_places(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left;
    int32_t b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* Takes all places of a rank into run, ascending; returns how many. */
static int32_t take_run(struct tern_merger *merger, int32_t rank)
{
    int32_t count = 0;
    bool descends = true;
    int32_t slot = merger->first_place[rank];
    while (slot != NONE) {
        struct tern_place *place = &merger->places[slot];
        descends = descends && (count == 0 || merger->run[count - 1] > place->at);
        merger->run[count++] = place->at;
        int32_t next = place->next;
        place->next = merger->free_place;
        merger->free_place = slot;
        slot = next;
    }
    merger->first_place[rank] = NONE;
    if (descends) { /* pushed from left to right: the usual case */
        for (int32_t i = 0, j = count - 1; i < j; i++, j--) {
            int32_t kept = merger->run[i];
            merger->run[i] = merger->run[j];
            merger->run[j] = kept;
        }
    } else {
        qsort(merger->run, (size_t)count, sizeof *merger->run, compare_places);
    }
    return count;
}

/* Merges everywhere that `rank`, the lowest, applies. Stops early, putting the rest back, if a
 * lower rank appears. */
static void merge_rank(struct tern_merger *merger, int32_t rank)
{
    int32_t count = take_run(merger, rank);
    for (int32_t i = 0; i < count; i++) {
        int32_t at = merger->run[i];
        const struct tern_merge *merge = pair_at(merger, at);
        if (merge == NULL || merge->rank != rank) {
            continue; /* a merge beside it came first */
        }
        struct tern_symbol *left = &merger->symbols[at];
        struct tern_symbol *right = &merger->symbols[left->next];
        left->id = merge->result;
        right->id = NONE;
        left->next = right->next;
        if (left->next != NONE) {
            merger->symbols[left->next].previous = at;
        }
        int32_t lowest = left->previous != NONE ? push_pair(merger, left->previous) : INT32_MAX;
        int32_t other = push_pair(merger, at); /* after the one before it: lists stay in order */
        lowest = other < lowest ? other : lowest;
        if (lowest < rank) {
            while (++i < count) {
                push_place(merger, rank, merger->run[i]);
            }
        }
    }
}

/* As merge_short, for any count. */
static tern_status merge_long(struct tern_merger *merger, int32_t *ids, int64_t *count_io)
{
    TERN_RETURN_IF_ERR(reserve_long(merger, (size_t)*count_io));
    int32_t count = (int32_t)*count_io;
    for (int32_t i = 0; i < count; i++) {
        merger->symbols[i] = (struct tern_symbol){ids[i], i - 1, i + 1 < count ? i + 1 : NONE};
    }
    for (int32_t i = 0; i < count * 2; i++) {
        merger->places[i].next = i + 1 < count * 2 ? i + 1 : NONE;
    }
    merger->free_place = 0;
    merger->rank_count = 0;
    for (int32_t i = 0; i + 1 < count; i++) {
        push_pair(merger, i);
    }
    while (merger->rank_count > 0) {
        merge_rank(merger, pop_rank(merger));
    }
    *count_io = 0;
    for (int32_t at = 0; at != NONE; at = merger->symbols[at].next) {
        ids[(*count_io)++] = merger->symbols[at].id;
    }
    return TERN_OK;
}

tern_status tern_bpe_append(struct tern_merger *merger,
                            const uint8_t *word,
                            size_t bytes,
                            struct tern_ids *ids)
{
    if (bytes > INT32_MAX / 4) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "a word of %zu bytes without a break; expected at most %d", bytes,
                         INT32_MAX / 4);
    }
    TERN_RETURN_IF_ERR(tern_ids_reserve(ids, (int64_t)bytes));
    int32_t *made = ids->data + ids->count;
    int64_t count = symbols_of(merger->tokenizer, word, bytes, made);
    if (count <= TERN_SHORT_WORD_BYTES) {
        count = merge_short(merger->tokenizer, made, (int)count);
    } else {
        TERN_RETURN_IF_ERR(merge_long(merger, made, &count));
    }
    ids->count += count;
    return TERN_OK;
}
