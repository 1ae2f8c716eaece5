/* tokenizer_encode.c - text to ids: added tokens cut out, words split, byte pairs merged, words
 * remembered.
 *
 * A word's merges are done lowest rank first, leftmost first among equals, as Hugging Face does. Up
 * to SHORT_WORD_BYTES the lowest is found by looking at all. Longer words keep, for each rank, a list
 * of the places where it applies, and a heap of the ranks that have any: 10 MB of one letter are a
 * few passes over memory, where a heap of places would miss the cache at every pop. */
#include "io/tokenizer_internal.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHORT_WORD_BYTES = 40,
    CACHED_WORD_BYTES = 40, /* longer ones are not remembered */
    CACHE_SLOTS_START = 1 << 9,
    CACHE_SLOTS_MAX = 1 << 17, /* half are used, then it is emptied: at most 10 MB in all */
    NONE = -1,
};

struct cached_word {
    uint64_t hash;
    uint32_t text;  /* into texts */
    uint32_t ids;   /* into ids */
    uint16_t bytes; /* 0: free */
    uint16_t count;
};

struct symbol {
    int32_t id; /* NONE: merged into the one before */
    int32_t previous, next;
};

struct place {
    int32_t at, next;
};

struct tern_encoder {
    const struct tern_tokenizer *tokenizer;
    struct cached_word *slots;
    int64_t slot_count, used_count;
    struct tern_text texts;
    struct tern_ids ids; /* of the cached words */
    /* Long words only, made at the first: */
    struct symbol *symbols;
    struct place *places;
    int32_t *run; /* places of the rank in work */
    int64_t long_capacity;
    int32_t *first_place; /* [merge_count], NONE: no place */
    int32_t *ranks;       /* heap of ranks with places, [merge_count] */
    int32_t rank_count;
    int32_t free_place;
};

tern_status tern_encoder_create(const struct tern_tokenizer *tokenizer, struct tern_encoder **out)
{
    *out = NULL;
    struct tern_encoder *encoder = tern_alloc_zero("encoder", 1, sizeof *encoder);
    if (encoder == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an encoder");
    }
    encoder->tokenizer = tokenizer;
    encoder->slot_count = CACHE_SLOTS_START;
    encoder->slots = tern_alloc_zero("word cache", CACHE_SLOTS_START, sizeof *encoder->slots);
    if (encoder->slots == NULL) {
        tern_encoder_destroy(encoder);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a word cache");
    }
    *out = encoder;
    return TERN_OK;
}

void tern_encoder_destroy(struct tern_encoder *encoder)
{
    if (encoder == NULL) {
        return;
    }
    tern_free(encoder->slots);
    tern_text_fini(&encoder->texts);
    tern_free(encoder->ids.data);
    tern_free(encoder->symbols);
    tern_free(encoder->places);
    tern_free(encoder->run);
    tern_free(encoder->first_place);
    tern_free(encoder->ranks);
    tern_free(encoder);
}

/* ---- growing lists of ids ---- */

static tern_status ids_reserve(struct tern_ids *ids, int64_t extra)
{
    if (extra <= ids->capacity - ids->count) {
        return TERN_OK;
    }
    int64_t capacity = (ids->count + extra) * 2 + 64;
    int32_t *grown = tern_realloc("token ids", ids->data, (size_t)capacity * sizeof *grown);
    if (grown == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " token ids", capacity);
    }
    ids->data = grown;
    ids->capacity = capacity;
    return TERN_OK;
}

/* ---- short words ---- */

/* ids out [bytes]; returns how many. 0 < bytes <= SHORT_WORD_BYTES */
static int merge_short(const struct tern_tokenizer *tokenizer,
                       const uint8_t *word,
                       int bytes,
                       int32_t *ids)
{
    const struct tern_merge *pairs[SHORT_WORD_BYTES]; /* of (i, i + 1) */
    int count = bytes;
    for (int i = 0; i < count; i++) {
        ids[i] = tokenizer->byte_ids[word[i]];
    }
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

static tern_status reserve_long(struct tern_encoder *encoder, size_t bytes)
{
    if (bytes > INT32_MAX / 4) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "a word of %zu bytes without a break; expected at most %d", bytes,
                         INT32_MAX / 4);
    }
    if (encoder->first_place == NULL) {
        size_t ranks = (size_t)encoder->tokenizer->merge_count + 1;
        int32_t *first_place = tern_alloc("encoder ranks", ranks * sizeof *first_place);
        encoder->ranks = tern_alloc("encoder ranks", ranks * sizeof *encoder->ranks);
        if (first_place == NULL || encoder->ranks == NULL) {
            tern_free(first_place);
            tern_free(encoder->ranks);
            encoder->ranks = NULL;
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu ranks", ranks);
        }
        memset(first_place, 0xff, ranks * sizeof *first_place);
        encoder->first_place = first_place;
    }
    if ((int64_t)bytes <= encoder->long_capacity) {
        return TERN_OK;
    }
    tern_free(encoder->symbols);
    tern_free(encoder->places);
    tern_free(encoder->run);
    int64_t capacity = (int64_t)bytes + (int64_t)bytes / 2;
    size_t count = (size_t)capacity;
    encoder->symbols = tern_alloc("encoder symbols", count * sizeof *encoder->symbols);
    /* One a pair at first; a merge frees one and adds at most two: never more than two a byte. */
    encoder->places = tern_alloc("encoder places", count * 2 * sizeof *encoder->places);
    encoder->run = tern_alloc("encoder run", count * 2 * sizeof *encoder->run);
    bool is_whole = encoder->symbols != NULL && encoder->places != NULL && encoder->run != NULL;
    encoder->long_capacity = is_whole ? capacity : 0;
    return is_whole ? TERN_OK
                    : tern_fail(TERN_ERR_MEMORY, "cannot allocate a word of %zu bytes", bytes);
}

static void push_rank(struct tern_encoder *encoder, int32_t rank)
{
    int32_t *heap = encoder->ranks;
    int32_t at = encoder->rank_count++;
    while (at > 0 && heap[(at - 1) / 2] > rank) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = rank;
}

static int32_t pop_rank(struct tern_encoder *encoder)
{
    int32_t *heap = encoder->ranks;
    int32_t top = heap[0];
    int32_t moved = heap[--encoder->rank_count];
    int32_t at = 0;
    for (;;) {
        int32_t child = at * 2 + 1;
        if (child >= encoder->rank_count) {
            break;
        }
        if (child + 1 < encoder->rank_count && heap[child + 1] < heap[child]) {
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

static void push_place(struct tern_encoder *encoder, int32_t rank, int32_t at)
{
    int32_t slot = encoder->free_place;
    TERN_CHECK(slot != NONE);
    encoder->free_place = encoder->places[slot].next;
    if (encoder->first_place[rank] == NONE) {
        push_rank(encoder, rank);
    }
    encoder->places[slot] = (struct place){at, encoder->first_place[rank]};
    encoder->first_place[rank] = slot;
}

/* The pair that begins at symbol `at`, NULL if it does not merge. */
static const struct tern_merge *pair_at(const struct tern_encoder *encoder, int32_t at)
{
    const struct symbol *symbol = &encoder->symbols[at];
    if (symbol->id == NONE || symbol->next == NONE) {
        return NULL;
    }
    return tern_tokenizer_merge(encoder->tokenizer, symbol->id, encoder->symbols[symbol->next].id);
}

/* Pushes the pair at `at`; returns its rank or INT32_MAX. */
static int32_t push_pair(struct tern_encoder *encoder, int32_t at)
{
    const struct tern_merge *merge = pair_at(encoder, at);
    if (merge == NULL) {
        return INT32_MAX;
    }
    push_place(encoder, merge->rank, at);
    return merge->rank;
}

static int compare_places(const void *left, const void *right)
{
    int32_t a = *(const int32_t *)left;
    int32_t b = *(const int32_t *)right;
    return (a > b) - (a < b);
}

/* Takes all places of a rank into run, ascending; returns how many. */
static int32_t take_run(struct tern_encoder *encoder, int32_t rank)
{
    int32_t count = 0;
    bool descends = true;
    int32_t slot = encoder->first_place[rank];
    while (slot != NONE) {
        struct place *place = &encoder->places[slot];
        descends = descends && (count == 0 || encoder->run[count - 1] > place->at);
        encoder->run[count++] = place->at;
        int32_t next = place->next;
        place->next = encoder->free_place;
        encoder->free_place = slot;
        slot = next;
    }
    encoder->first_place[rank] = NONE;
    if (descends) { /* pushed from left to right: the usual case */
        for (int32_t i = 0, j = count - 1; i < j; i++, j--) {
            int32_t kept = encoder->run[i];
            encoder->run[i] = encoder->run[j];
            encoder->run[j] = kept;
        }
    } else {
        qsort(encoder->run, (size_t)count, sizeof *encoder->run, compare_places);
    }
    return count;
}

/* Merges everywhere that `rank`, the lowest, applies. Stops early, putting the rest back, if a
 * lower rank appears. */
static void merge_rank(struct tern_encoder *encoder, int32_t rank)
{
    int32_t count = take_run(encoder, rank);
    for (int32_t i = 0; i < count; i++) {
        int32_t at = encoder->run[i];
        const struct tern_merge *merge = pair_at(encoder, at);
        if (merge == NULL || merge->rank != rank) {
            continue; /* a merge beside it came first */
        }
        struct symbol *left = &encoder->symbols[at];
        struct symbol *right = &encoder->symbols[left->next];
        left->id = merge->result;
        right->id = NONE;
        left->next = right->next;
        if (left->next != NONE) {
            encoder->symbols[left->next].previous = at;
        }
        int32_t lowest = left->previous != NONE ? push_pair(encoder, left->previous) : INT32_MAX;
        int32_t other = push_pair(encoder, at); /* after the one before it: lists stay in order */
        lowest = other < lowest ? other : lowest;
        if (lowest < rank) {
            while (++i < count) {
                push_place(encoder, rank, encoder->run[i]);
            }
        }
    }
}

static tern_status append_long(struct tern_encoder *encoder,
                               const uint8_t *word,
                               size_t bytes,
                               struct tern_ids *ids)
{
    TERN_RETURN_IF_ERR(reserve_long(encoder, bytes));
    TERN_RETURN_IF_ERR(ids_reserve(ids, (int64_t)bytes));
    int32_t count = (int32_t)bytes;
    for (int32_t i = 0; i < count; i++) {
        encoder->symbols[i] = (struct symbol){encoder->tokenizer->byte_ids[word[i]], i - 1,
                                              i + 1 < count ? i + 1 : NONE};
    }
    for (int32_t i = 0; i < count * 2; i++) {
        encoder->places[i].next = i + 1 < count * 2 ? i + 1 : NONE;
    }
    encoder->free_place = 0;
    encoder->rank_count = 0;
    for (int32_t i = 0; i + 1 < count; i++) {
        push_pair(encoder, i);
    }
    while (encoder->rank_count > 0) {
        merge_rank(encoder, pop_rank(encoder));
    }
    for (int32_t at = 0; at != NONE; at = encoder->symbols[at].next) {
        ids->data[ids->count++] = encoder->symbols[at].id;
    }
    return TERN_OK;
}

/* ---- the cache ---- */

static void cache_clear(struct tern_encoder *encoder)
{
    memset(encoder->slots, 0, (size_t)encoder->slot_count * sizeof *encoder->slots);
    encoder->used_count = 0;
    encoder->texts.length = 0;
    encoder->ids.count = 0;
}

static tern_status cache_grow(struct tern_encoder *encoder)
{
    int64_t count = encoder->slot_count * 4;
    if (count > CACHE_SLOTS_MAX) {
        cache_clear(encoder);
        return TERN_OK;
    }
    struct cached_word *slots = tern_alloc_zero("word cache", (size_t)count, sizeof *slots);
    if (slots == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a cache of %" PRId64 " words", count);
    }
    for (int64_t i = 0; i < encoder->slot_count; i++) {
        if (encoder->slots[i].bytes == 0) {
            continue;
        }
        uint64_t at = encoder->slots[i].hash & (uint64_t)(count - 1);
        while (slots[at].bytes != 0) {
            at = (at + 1) & (uint64_t)(count - 1);
        }
        slots[at] = encoder->slots[i];
    }
    tern_free(encoder->slots);
    encoder->slots = slots;
    encoder->slot_count = count;
    return TERN_OK;
}

static tern_status cache_add(struct tern_encoder *encoder,
                             uint64_t hash,
                             const char *word,
                             size_t bytes,
                             const int32_t *ids,
                             int count)
{
    if (encoder->used_count * 2 >= encoder->slot_count) {
        TERN_RETURN_IF_ERR(cache_grow(encoder));
    }
    TERN_RETURN_IF_ERR(ids_reserve(&encoder->ids, count));
    struct cached_word entry = {
        .hash = hash,
        .text = (uint32_t)encoder->texts.length,
        .ids = (uint32_t)encoder->ids.count,
        .bytes = (uint16_t)bytes,
        .count = (uint16_t)count,
    };
    TERN_RETURN_IF_ERR(tern_text_append(&encoder->texts, word, bytes));
    memcpy(encoder->ids.data + encoder->ids.count, ids, (size_t)count * sizeof *ids);
    encoder->ids.count += count;
    uint64_t at = hash & (uint64_t)(encoder->slot_count - 1);
    while (encoder->slots[at].bytes != 0) {
        at = (at + 1) & (uint64_t)(encoder->slot_count - 1);
    }
    encoder->slots[at] = entry;
    encoder->used_count++;
    return TERN_OK;
}

static tern_status append_word(struct tern_encoder *encoder,
                               const char *word,
                               size_t bytes,
                               struct tern_ids *ids)
{
    TERN_RETURN_IF_ERR(ids_reserve(ids, CACHED_WORD_BYTES));
    if (bytes == 1) {
        ids->data[ids->count++] = encoder->tokenizer->byte_ids[(uint8_t)word[0]];
        return TERN_OK;
    }
    if (encoder->tokenizer->ignore_merges) {
        int32_t whole = tern_tokenizer_find(encoder->tokenizer, word, bytes);
        if (whole >= 0) {
            ids->data[ids->count++] = whole;
            return TERN_OK;
        }
    }
    if (bytes > CACHED_WORD_BYTES) {
        return append_long(encoder, (const uint8_t *)word, bytes, ids);
    }
    uint64_t hash = tern_word_hash(word, bytes);
    uint64_t at = hash & (uint64_t)(encoder->slot_count - 1);
    for (; encoder->slots[at].bytes != 0; at = (at + 1) & (uint64_t)(encoder->slot_count - 1)) {
        const struct cached_word *entry = &encoder->slots[at];
        if (entry->hash == hash && entry->bytes == bytes &&
            memcmp(encoder->texts.data + entry->text, word, bytes) == 0) {
            const int32_t *known = encoder->ids.data + entry->ids;
            for (int i = 0; i < entry->count; i++) {
                ids->data[ids->count + i] = known[i];
            }
            ids->count += entry->count;
            return TERN_OK;
        }
    }
    int32_t *made = ids->data + ids->count;
    int count = merge_short(encoder->tokenizer, (const uint8_t *)word, (int)bytes, made);
    ids->count += count;
    return cache_add(encoder, hash, word, bytes, made, count);
}

/* ---- a text ---- */

/* A stretch without added tokens. */
static tern_status append_words(struct tern_encoder *encoder,
                                const char *text,
                                size_t bytes,
                                struct tern_ids *ids)
{
    const struct tern_splitter *splitter = &encoder->tokenizer->splitter;
    size_t stretch_end = 0;
    for (size_t at = 0; at < bytes;) {
        size_t word = tern_split_next(splitter, (const uint8_t *)text, bytes, at, &stretch_end);
        TERN_RETURN_IF_ERR(append_word(encoder, text + at, word, ids));
        at += word;
    }
    return TERN_OK;
}

const struct tern_added *tern_tokenizer_match_added(const struct tern_tokenizer *tokenizer,
                                                    const char *text,
                                                    size_t bytes,
                                                    size_t at,
                                                    bool is_normalized,
                                                    bool parse_special)
{
    int first = (unsigned char)text[at];
    for (int i = tokenizer->added_first[first]; i < tokenizer->added_first[first + 1]; i++) {
        const struct tern_added *added = &tokenizer->added[i];
        if (added->is_normalized == is_normalized && (parse_special || !added->is_special) &&
            added->bytes <= bytes - at && memcmp(added->text, text + at, added->bytes) == 0) {
            return added;
        }
    }
    return NULL;
}

/* Cuts the added tokens of one pass out; what lies between goes to the second pass, then to the
 * words. */
static tern_status append_pass(struct tern_encoder *encoder,
                               const char *text,
                               size_t bytes,
                               bool is_normalized,
                               bool parse_special,
                               struct tern_ids *ids)
{
    const struct tern_tokenizer *tokenizer = encoder->tokenizer;
    size_t start = 0;
    for (size_t at = 0; at <= bytes;) {
        const struct tern_added *added = NULL;
        if (at < bytes) {
            added = tern_tokenizer_match_added(tokenizer, text, bytes, at, is_normalized,
                                               parse_special);
            if (added == NULL) {
                at++;
                continue;
            }
        }
        if (at > start) {
            TERN_RETURN_IF_ERR(is_normalized ? append_words(encoder, text + start, at - start, ids)
                                             : append_pass(encoder, text + start, at - start, true,
                                                           parse_special, ids));
        }
        if (added == NULL) {
            break;
        }
        TERN_RETURN_IF_ERR(ids_reserve(ids, 1));
        ids->data[ids->count++] = added->id;
        at += added->bytes;
        start = at;
    }
    return TERN_OK;
}

tern_status tern_encoder_append(struct tern_encoder *encoder,
                                const char *text,
                                size_t bytes,
                                bool parse_special,
                                struct tern_ids *ids)
{
    if (encoder->tokenizer->added_count == 0) {
        return append_words(encoder, text, bytes, ids);
    }
    return append_pass(encoder, text, bytes, false, parse_special, ids);
}

tern_status tern_tokenizer_encode(const struct tern_tokenizer *tokenizer,
                                  const char *text,
                                  size_t bytes,
                                  bool parse_special,
                                  int32_t **ids_out,
                                  int64_t *count_out)
{
    *ids_out = NULL;
    *count_out = 0;
    struct tern_encoder *encoder;
    TERN_RETURN_IF_ERR(tern_encoder_create(tokenizer, &encoder));
    struct tern_ids ids = {0};
    tern_status status = ids_reserve(&ids, 1); /* no ids: a block all the same */
    if (status == TERN_OK) {
        status = tern_encoder_append(encoder, text, bytes, parse_special, &ids);
    }
    tern_encoder_destroy(encoder);
    if (status != TERN_OK) {
        tern_free(ids.data);
        return status;
    }
    *ids_out = ids.data;
    *count_out = ids.count;
    return TERN_OK;
}

/* ---- streams ---- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

/* The character that ends at text[at) is no white space. An invalid one is none. */
static bool ends_visible(const struct tern_tokenizer *tokenizer, const char *text, size_t at)
{
    size_t start = at - 1;
    while (start > 0 && at - start < 4 && ((uint8_t)text[start] & 0xc0) == 0x80) {
        start--;
    }
    for (; start < at; start++) {
        int length;
        enum tern_class kind = tern_split_class(&tokenizer->splitter, (const uint8_t *)text + start,
                                                at - start, &length);
        if (start + (size_t)length == at) {
            return kind != TERN_CLASS_SPACE;
        }
    }
    return true;
}

/* Some added token has bytes on both sides of text[at]. */
static bool straddles_added(const struct tern_tokenizer *tokenizer,
                            const char *text,
                            size_t bytes,
                            size_t at)
{
    size_t reach = (size_t)tokenizer->longest_added_bytes;
    for (size_t start = at > reach ? at - reach : 0; start < at; start++) {
        int first = (unsigned char)text[start];
        for (int i = tokenizer->added_first[first]; i < tokenizer->added_first[first + 1]; i++) {
            const struct tern_added *added = &tokenizer->added[i];
            if (start + added->bytes > at && added->bytes <= bytes - start &&
                memcmp(added->text, text + start, added->bytes) == 0) {
                return true;
            }
        }
    }
    return false;
}

size_t tern_tokenizer_cut(const struct tern_tokenizer *tokenizer, const char *text, size_t bytes)
{
    size_t reach =
        (size_t)
            tokenizer->longest_added_bytes; /* a token may begin before at and end within reach */
    for (size_t at = bytes > reach ? bytes - reach : 0; at > 0; at--) {
        if (at < bytes && is_blank(text[at]) && ends_visible(tokenizer, text, at) &&
            !straddles_added(tokenizer, text, bytes, at)) {
            return at;
        }
    }
    return 0;
}
