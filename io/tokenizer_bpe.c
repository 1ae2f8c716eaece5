/* tokenizer_bpe.c - one word's ids: its symbols, then merges, lowest rank first, leftmost first among
 * equals, as Hugging Face does. Up to SHORT_WORD_BYTES the lowest is found by looking at all. Longer
 * words keep, for each rank, a list of the places where it applies, and a heap of the ranks that have
 * any: 10 MB of one letter are a few passes over memory, where a heap of places would miss the cache
 * at every pop. That is quick where ranks ascend (a merge makes only pairs that come later), as they
 * do in every vocabulary that was learnt; where they do not, the heap of places takes over. */
#include "io/tokenizer_encode.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <stdlib.h>
#include <string.h>

enum {
    NONE = -1,
    PUT_BACK_SHARE = 4, /* so many places put back a symbol, then another way is taken */
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

/* The symbols of a word of bytes. Some vocabularies lack bytes that their text never had. */
static int64_t symbols_of_bytes(const struct tern_tokenizer *tokenizer,
                                const uint8_t *word,
                                size_t bytes,
                                int32_t *ids)
{
    int64_t count = 0;
    bool was_unknown = false;
    for (size_t i = 0; i < bytes; i++) {
        int32_t id = tokenizer->byte_ids[word[i]];
        bool is_unknown = id < 0;
        if (is_unknown && !(was_unknown && tokenizer->fuses_unknown)) {
            id = tokenizer->unknown_id;
        }
        if (id >= 0) {
            ids[count++] = id;
        }
        was_unknown = is_unknown;
    }
    return count;
}

static int64_t symbols_of(const struct tern_tokenizer *tokenizer,
                          const uint8_t *word,
                          size_t bytes,
                          int32_t *ids)
{
    return tokenizer->model == TERN_MODEL_CHARS ? symbols_of_chars(tokenizer, word, bytes, ids)
                                                : symbols_of_bytes(tokenizer, word, bytes, ids);
}

/* ---- short words ---- */

/* Merges ids [count] in place; returns how many are left. count <= TERN_SHORT_WORD_BYTES */
static int merge_short(const struct tern_tokenizer *tokenizer, int32_t *ids, int count)
{
    struct tern_pair pairs[TERN_SHORT_WORD_BYTES]; /* of (i, i + 1) */
    for (int i = 0; i + 1 < count; i++) {
        pairs[i] = tern_tokenizer_pair(tokenizer, ids[i], ids[i + 1]);
    }
    for (;;) {
        int best = NONE;
        int32_t rank = TERN_PAIR_NONE;
        for (int i = 0; i + 1 < count; i++) {
            if (pairs[i].rank < rank) {
                best = i;
                rank = pairs[i].rank;
            }
        }
        if (best == NONE) {
            return count;
        }
        ids[best] = pairs[best].result;
        count--;
        for (int i = best + 1; i < count; i++) {
            ids[i] = ids[i + 1];
        }
        for (int i = best; i + 1 < count; i++) {
            pairs[i] = pairs[i + 1];
        }
        if (best > 0) {
            pairs[best - 1] = tern_tokenizer_pair(tokenizer, ids[best - 1], ids[best]);
        }
        if (best + 1 < count) {
            pairs[best] = tern_tokenizer_pair(tokenizer, ids[best], ids[best + 1]);
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

/* The pair that begins at symbol `at`. */
static struct tern_pair pair_at(const struct tern_merger *merger, int32_t at)
{
    const struct tern_symbol *symbol = &merger->symbols[at];
    if (symbol->id == NONE || symbol->next == NONE) {
        return (struct tern_pair){TERN_PAIR_NONE, NONE};
    }
    return tern_tokenizer_pair(merger->tokenizer, symbol->id, merger->symbols[symbol->next].id);
}

/* Pushes the pair at `at` if it merges; returns its rank. */
static int32_t push_pair(struct tern_merger *merger, int32_t at)
{
    struct tern_pair pair = pair_at(merger, at);
    if (pair.rank != TERN_PAIR_NONE) {
        push_place(merger, pair.rank, at);
    }
    return pair.rank;
}

/* Symbol `at` takes in the one after it. */
static void merge_at(struct tern_merger *merger, int32_t at, int32_t result)
{
    struct tern_symbol *left = &merger->symbols[at];
    struct tern_symbol *right = &merger->symbols[left->next];
    left->id = result;
    right->id = NONE;
    left->next = right->next;
    if (left->next != NONE) {
        merger->symbols[left->next].previous = at;
    }
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

/* Merges everywhere that `rank`, the lowest, applies. Stops early, putting the rest back, if a rank
 * appears that is lower, or the same (then the leftmost comes first). */
static void merge_rank(struct tern_merger *merger, int32_t rank)
{
    int32_t count = take_run(merger, rank);
    for (int32_t i = 0; i < count; i++) {
        int32_t at = merger->run[i];
        struct tern_pair pair = pair_at(merger, at);
        if (pair.rank != rank) {
            continue; /* a merge beside it came first */
        }
        merge_at(merger, at, pair.result);
        int32_t previous = merger->symbols[at].previous;
        int32_t lowest = previous != NONE ? push_pair(merger, previous) : TERN_PAIR_NONE;
        int32_t other = push_pair(merger, at); /* after the one before it: lists stay in order */
        lowest = other < lowest ? other : lowest;
        if (lowest <= rank) {
            merger->put_back += count - i;
            while (++i < count) {
                push_place(merger, rank, merger->run[i]);
            }
        }
    }
}

/* ---- long words whose ranks do not ascend ---- */

/* A heap of rank << 32 | place, in the memory of the places: a merge takes one out and puts at most
 * two in, so that there are never more than two a symbol. */
static void heap_push(uint64_t *heap, int64_t *count, uint64_t key)
{
    int64_t at = (*count)++;
    while (at > 0 && heap[(at - 1) / 2] > key) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = key;
}

static uint64_t heap_pop(uint64_t *heap, int64_t *count)
{
    uint64_t top = heap[0];
    uint64_t moved = heap[--*count];
    int64_t at = 0;
    for (;;) {
        int64_t child = at * 2 + 1;
        if (child >= *count) {
            break;
        }
        if (child + 1 < *count && heap[child + 1] < heap[child]) {
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

static void heap_push_pair(const struct tern_merger *merger,
                           uint64_t *heap,
                           int64_t *count,
                           int32_t at)
{
    int32_t rank = pair_at(merger, at).rank;
    if (rank != TERN_PAIR_NONE) {
        heap_push(heap, count, (uint64_t)rank << 32 | (uint32_t)at);
    }
}

/* Finishes a word, of which some symbols are merged, in n log n whatever the ranks. */
static void merge_by_heap(struct tern_merger *merger)
{
    uint64_t *heap = (void *)merger->places;
    int64_t count = 0;
    while (merger->rank_count > 0) {
        merger->first_place[merger->ranks[--merger->rank_count]] = NONE;
    }
    for (int32_t at = 0; at != NONE; at = merger->symbols[at].next) {
        heap_push_pair(merger, heap, &count, at);
    }
    while (count > 0) {
        uint64_t key = heap_pop(heap, &count);
        int32_t at = (int32_t)(key & UINT32_MAX);
        struct tern_pair pair = pair_at(merger, at);
        if (pair.rank != (int32_t)(key >> 32)) {
            continue;
        }
        merge_at(merger, at, pair.result);
        int32_t previous = merger->symbols[at].previous;
        if (previous != NONE) {
            heap_push_pair(merger, heap, &count, previous);
        }
        heap_push_pair(merger, heap, &count, at);
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
    merger->put_back = 0;
    while (merger->rank_count > 0 && merger->put_back <= PUT_BACK_SHARE * (int64_t)count) {
        merge_rank(merger, pop_rank(merger));
    }
    if (merger->rank_count > 0) {
        merge_by_heap(merger);
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
