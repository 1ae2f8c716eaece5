/* tokenizer_train.c - learns merges: words are counted, then the most frequent pair is merged,
 * again and again.
 *
 * Counts of pairs are kept up to date by the words that hold the merged pair, and the next best
 * comes from a heap whose entries may be out of date (then they are put back with the count of
 * now). Ids, ties and results are those of Hugging Face's BpeTrainer. */
#include "io/file.h"
#include "io/json.h"
#include "io/progress.h"
#include "io/text_stream.h"
#include "io/tokenizer_internal.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    NONE = -1,
    SPECIALS_MAX = 65536
};

struct word {
    int64_t count;
    size_t text; /* into texts; later its symbols are at symbols[text] */
    uint32_t bytes;
    uint32_t length; /* symbols */
};

struct pair {
    uint64_t key; /* left id << 32 | right id */
    int64_t count;
    int64_t first_use; /* NONE: no word */
    int64_t stamp;     /* merge that put it into the heap last */
};

struct use { /* a word that held the pair when it was noted */
    int64_t next;
    uint32_t word;
};

struct candidate {
    int64_t count;
    uint64_t key;
};

struct trainer {
    struct tern_tokenizer vocabulary; /* grows */
    struct tern_text texts;           /* all different words, end to end */
    struct word *words;
    int64_t word_count, word_capacity;
    uint32_t *word_slots; /* index + 1; 0: free */
    uint64_t word_mask;
    int32_t *symbols;
    struct pair *pairs; /* index 0.. in order of discovery */
    int64_t pair_count, pair_capacity;
    int64_t *pair_slots; /* index or NONE */
    uint64_t pair_mask;
    struct use *uses;
    int64_t use_count, use_capacity;
    struct candidate *heap;
    int64_t heap_count, heap_capacity;
    int64_t *touched; /* pairs that one merge made more frequent */
    int64_t touched_count, touched_capacity;
    uint64_t *merges; /* learnt, in order */
    int64_t merge_count, merge_capacity;
};

/* Room for one more entry in a growing array. */
static tern_status grow(void **block, int64_t count, int64_t *capacity, size_t entry_bytes)
{
    if (count < *capacity) {
        return TERN_OK;
    }
    int64_t wanted = *capacity < 1024 ? 1024 : *capacity * 2;
    void *grown = tern_realloc("tokenizer training", *block, (size_t)wanted * entry_bytes);
    if (grown == NULL) {
        return tern_fail(TERN_ERR_MEMORY,
                         "cannot allocate %" PRId64 " entries of %zu bytes to learn merges", wanted,
                         entry_bytes);
    }
    *block = grown;
    *capacity = wanted;
    return TERN_OK;
}

#define GROW(array, count, capacity) grow((void **)&(array), count, &(capacity), sizeof *(array))

/* ---- counting words ---- */

static tern_status grow_word_slots(struct trainer *trainer)
{
    uint64_t slots = trainer->word_slots == NULL ? 1 << 12 : (trainer->word_mask + 1) * 2;
    uint32_t *fresh = tern_alloc_zero("word slots", slots, sizeof *fresh);
    if (fresh == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRIu64 " word slots", slots);
    }
    tern_free(trainer->word_slots);
    trainer->word_slots = fresh;
    trainer->word_mask = slots - 1;
    for (int64_t i = 0; i < trainer->word_count; i++) {
        const struct word *word = &trainer->words[i];
        uint64_t slot =
            tern_word_hash(trainer->texts.data + word->text, word->bytes) & trainer->word_mask;
        while (fresh[slot] != 0) {
            slot = (slot + 1) & trainer->word_mask;
        }
        fresh[slot] = (uint32_t)i + 1;
    }
    return TERN_OK;
}

static tern_status count_word(struct trainer *trainer, const char *text, size_t bytes)
{
    if (trainer->word_slots == NULL || (uint64_t)trainer->word_count * 2 > trainer->word_mask) {
        TERN_RETURN_IF_ERR(grow_word_slots(trainer));
    }
    uint64_t slot = tern_word_hash(text, bytes) & trainer->word_mask;
    for (; trainer->word_slots[slot] != 0; slot = (slot + 1) & trainer->word_mask) {
        struct word *word = &trainer->words[trainer->word_slots[slot] - 1];
        if (word->bytes == bytes && memcmp(trainer->texts.data + word->text, text, bytes) == 0) {
            word->count++;
            return TERN_OK;
        }
    }
    if (trainer->word_count >= UINT32_MAX - 1) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "more than %" PRId64 " different words to learn from",
                         trainer->word_count);
    }
    TERN_RETURN_IF_ERR(GROW(trainer->words, trainer->word_count, trainer->word_capacity));
    trainer->words[trainer->word_count] = (struct word){.count = 1,
                                                        .text = trainer->texts.length,
                                                        .bytes = (uint32_t)bytes,
                                                        .length = (uint32_t)bytes};
    TERN_RETURN_IF_ERR(tern_text_append(&trainer->texts, text, bytes));
    trainer->word_slots[slot] = (uint32_t)++trainer->word_count;
    return TERN_OK;
}

static tern_status count_stretch(struct trainer *trainer, const char *text, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        size_t word = tern_split_next(&trainer->vocabulary.chars, TERN_SPLIT_GPT2,
                                      (const uint8_t *)text + at, bytes - at);
        TERN_RETURN_IF_ERR(count_word(trainer, text + at, word));
        at += word;
    }
    return TERN_OK;
}

/* Special tokens in the text are borders, nothing to learn from. */
static tern_status count_block(struct trainer *trainer, const char *text, size_t bytes)
{
    struct tern_added_scan scan = {
        .tokenizer = &trainer->vocabulary,
        .text = text,
        .bytes = bytes,
        .parse_special = true,
    };
    struct tern_added_match match;
    while (tern_added_next(&scan, &match)) {
        if (match.added == NULL) {
            TERN_RETURN_IF_ERR(count_stretch(trainer, text + match.start, match.end - match.start));
        }
    }
    return TERN_OK;
}

static tern_status count_file(struct trainer *trainer,
                              const char *path,
                              struct tern_progress *progress,
                              int64_t *done)
{
    struct tern_text_stream stream;
    tern_status status = tern_text_stream_open(path, &stream);
    while (status == TERN_OK) {
        const char *data;
        size_t bytes;
        TERN_GOTO_IF_ERR(status,
                         tern_text_stream_block(&stream, &trainer->vocabulary, &data, &bytes),
                         close_stream);
        if (bytes == 0) {
            break;
        }
        TERN_GOTO_IF_ERR(status, count_block(trainer, data, bytes), close_stream);
        *done += (int64_t)bytes;
        tern_progress_update(progress, *done);
    }
close_stream:
    tern_text_stream_close(&stream);
    return status;
}

/* ---- pairs ---- */

static tern_status grow_pair_slots(struct trainer *trainer)
{
    uint64_t slots = trainer->pair_slots == NULL ? 1 << 14 : (trainer->pair_mask + 1) * 2;
    int64_t *fresh = tern_alloc("pair slots", slots * sizeof *fresh);
    if (fresh == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRIu64 " pair slots", slots);
    }
    memset(fresh, 0xff, slots * sizeof *fresh);
    tern_free(trainer->pair_slots);
    trainer->pair_slots = fresh;
    trainer->pair_mask = slots - 1;
    for (int64_t i = 0; i < trainer->pair_count; i++) {
        uint64_t slot = tern_word_mix(trainer->pairs[i].key) & trainer->pair_mask;
        while (fresh[slot] != NONE) {
            slot = (slot + 1) & trainer->pair_mask;
        }
        fresh[slot] = i;
    }
    return TERN_OK;
}

static tern_status find_pair(struct trainer *trainer,
                             int32_t left,
                             int32_t right,
                             int64_t *index_out)
{
    if (trainer->pair_slots == NULL || (uint64_t)trainer->pair_count * 2 > trainer->pair_mask) {
        TERN_RETURN_IF_ERR(grow_pair_slots(trainer));
    }
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = tern_word_mix(key) & trainer->pair_mask;
    for (; trainer->pair_slots[slot] != NONE; slot = (slot + 1) & trainer->pair_mask) {
        if (trainer->pairs[trainer->pair_slots[slot]].key == key) {
            *index_out = trainer->pair_slots[slot];
            return TERN_OK;
        }
    }
    TERN_RETURN_IF_ERR(GROW(trainer->pairs, trainer->pair_count, trainer->pair_capacity));
    trainer->pairs[trainer->pair_count] =
        (struct pair){.key = key, .first_use = NONE, .stamp = NONE};
    trainer->pair_slots[slot] = trainer->pair_count;
    *index_out = trainer->pair_count++;
    return TERN_OK;
}

/* More: notes the word and marks the pair for the heap. Fewer: only the count. */
static tern_status change_pair(struct trainer *trainer,
                               int32_t left,
                               int32_t right,
                               int64_t change,
                               uint32_t word,
                               int64_t stamp)
{
    int64_t index;
    TERN_RETURN_IF_ERR(find_pair(trainer, left, right, &index));
    struct pair *pair = &trainer->pairs[index];
    pair->count += change;
    if (change < 0) {
        return TERN_OK;
    }
    bool is_noted = pair->first_use != NONE && trainer->uses[pair->first_use].word == word;
    if (!is_noted) {
        TERN_RETURN_IF_ERR(GROW(trainer->uses, trainer->use_count, trainer->use_capacity));
        trainer->uses[trainer->use_count] = (struct use){pair->first_use, word};
        pair->first_use = trainer->use_count++;
    }
    if (pair->stamp != stamp) {
        pair->stamp = stamp;
        TERN_RETURN_IF_ERR(
            GROW(trainer->touched, trainer->touched_count, trainer->touched_capacity));
        trainer->touched[trainer->touched_count++] = index;
    }
    return TERN_OK;
}

/* ---- the heap: most frequent first, then the smaller pair ---- */

static bool comes_first(struct candidate a, struct candidate b)
{
    return a.count != b.count ? a.count > b.count : a.key < b.key;
}

static tern_status push_candidate(struct trainer *trainer, struct candidate candidate)
{
    TERN_RETURN_IF_ERR(GROW(trainer->heap, trainer->heap_count, trainer->heap_capacity));
    struct candidate *heap = trainer->heap;
    int64_t at = trainer->heap_count++;
    while (at > 0 && comes_first(candidate, heap[(at - 1) / 2])) {
        heap[at] = heap[(at - 1) / 2];
        at = (at - 1) / 2;
    }
    heap[at] = candidate;
    return TERN_OK;
}

static struct candidate pop_candidate(struct trainer *trainer)
{
    struct candidate *heap = trainer->heap;
    struct candidate top = heap[0];
    struct candidate moved = heap[--trainer->heap_count];
    int64_t at = 0;
    for (;;) {
        int64_t child = at * 2 + 1;
        if (child >= trainer->heap_count) {
            break;
        }
        if (child + 1 < trainer->heap_count && comes_first(heap[child + 1], heap[child])) {
            child++;
        }
        if (!comes_first(heap[child], moved)) {
            break;
        }
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = moved;
    return top;
}

static tern_status push_touched(struct trainer *trainer)
{
    for (int64_t i = 0; i < trainer->touched_count; i++) {
        const struct pair *pair = &trainer->pairs[trainer->touched[i]];
        if (pair->count > 0) {
            TERN_RETURN_IF_ERR(push_candidate(trainer, (struct candidate){pair->count, pair->key}));
        }
    }
    trainer->touched_count = 0;
    return TERN_OK;
}

/* ---- merging ---- */

/* Words from bytes to ids, and all their pairs counted. */
static tern_status start_symbols(struct trainer *trainer)
{
    size_t total = trainer->texts.length;
    trainer->symbols = tern_alloc("training symbols", (total + 1) * sizeof *trainer->symbols);
    if (trainer->symbols == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu symbols to learn merges", total);
    }
    for (size_t i = 0; i < total; i++) {
        trainer->symbols[i] = trainer->vocabulary.byte_ids[(uint8_t)trainer->texts.data[i]];
    }
    for (int64_t w = 0; w < trainer->word_count; w++) {
        const struct word *word = &trainer->words[w];
        const int32_t *symbols = trainer->symbols + word->text;
        for (uint32_t i = 0; i + 1 < word->length; i++) {
            TERN_RETURN_IF_ERR(
                change_pair(trainer, symbols[i], symbols[i + 1], word->count, (uint32_t)w, 0));
        }
    }
    return push_touched(trainer);
}

/* Replaces the pair in one word, left to right, and corrects the counts of its neighbours. */
static tern_status merge_in_word(struct trainer *trainer,
                                 uint32_t index,
                                 int32_t left,
                                 int32_t right,
                                 int32_t result,
                                 int64_t stamp)
{
    struct word *word = &trainer->words[index];
    int32_t *symbols = trainer->symbols + word->text;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < word->length; i++) {
        bool is_pair = i + 1 < word->length && symbols[i] == left && symbols[i + 1] == right;
        if (!is_pair) {
            symbols[kept++] = symbols[i];
            continue;
        }
        if (kept > 0) {
            TERN_RETURN_IF_ERR(
                change_pair(trainer, symbols[kept - 1], left, -word->count, index, stamp));
            TERN_RETURN_IF_ERR(
                change_pair(trainer, symbols[kept - 1], result, word->count, index, stamp));
        }
        if (i + 2 < word->length) {
            TERN_RETURN_IF_ERR(
                change_pair(trainer, right, symbols[i + 2], -word->count, index, stamp));
            TERN_RETURN_IF_ERR(
                change_pair(trainer, result, symbols[i + 2], word->count, index, stamp));
        }
        symbols[kept++] = result;
        i++;
    }
    word->length = kept;
    return TERN_OK;
}

/* The id of both texts together: a new one, or that of an equal token. */
static tern_status token_of_pair(struct trainer *trainer,
                                 int32_t left,
                                 int32_t right,
                                 int32_t *id_out)
{
    struct tern_tokenizer *vocabulary = &trainer->vocabulary;
    const struct tern_piece *a = &vocabulary->pieces[left];
    const struct tern_piece *b = &vocabulary->pieces[right];
    size_t bytes = (size_t)a->bytes + b->bytes;
    char *text = tern_alloc("merged token", bytes);
    if (text == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a token of %zu bytes", bytes);
    }
    memcpy(text, vocabulary->blob.data + a->offset, a->bytes);
    memcpy(text + a->bytes, vocabulary->blob.data + b->offset, b->bytes);
    *id_out = tern_tokenizer_find(vocabulary, text, bytes);
    tern_status status = TERN_OK;
    if (*id_out < 0) {
        *id_out = (int32_t)vocabulary->vocab_size;
        status = tern_tokenizer_add_piece(vocabulary, *id_out, text, bytes);
        if (status == TERN_OK) {
            tern_tokenizer_add_name(vocabulary, *id_out);
        }
    }
    tern_free(text);
    return status;
}

static tern_status merge_pair(struct trainer *trainer, int64_t index)
{
    uint64_t key = trainer->pairs[index].key;
    int32_t left = (int32_t)(key >> 32);
    int32_t right = (int32_t)(key & UINT32_MAX);
    int32_t result = NONE;
    TERN_RETURN_IF_ERR(token_of_pair(trainer, left, right, &result));
    TERN_RETURN_IF_ERR(GROW(trainer->merges, trainer->merge_count, trainer->merge_capacity));
    trainer->merges[trainer->merge_count++] = key;
    int64_t use = trainer->pairs[index].first_use;
    trainer->pairs[index].first_use = NONE;
    while (use != NONE) {
        uint32_t word = trainer->uses[use].word;
        use = trainer->uses[use].next; /* the array may move below */
        TERN_RETURN_IF_ERR(merge_in_word(trainer, word, left, right, result, trainer->merge_count));
    }
    trainer->pairs[index].count = 0;
    return push_touched(trainer);
}

static tern_status learn(struct trainer *trainer, int64_t vocab_size)
{
    TERN_RETURN_IF_ERR(start_symbols(trainer));
    struct tern_progress progress;
    int64_t first = trainer->vocabulary.vocab_size;
    tern_progress_start(&progress, "learn merges", vocab_size - first, false);
    while (trainer->vocabulary.vocab_size < vocab_size && trainer->heap_count > 0) {
        struct candidate top = pop_candidate(trainer);
        int64_t index;
        TERN_RETURN_IF_ERR(
            find_pair(trainer, (int32_t)(top.key >> 32), (int32_t)(top.key & UINT32_MAX), &index));
        int64_t count = trainer->pairs[index].count;
        if (count != top.count) {
            if (count > 0) {
                TERN_RETURN_IF_ERR(push_candidate(trainer, (struct candidate){count, top.key}));
            }
            continue;
        }
        TERN_RETURN_IF_ERR(merge_pair(trainer, index));
        tern_progress_update(&progress, trainer->vocabulary.vocab_size - first);
    }
    return TERN_OK;
}

/* ---- the file ---- */

static tern_status quote_piece(const struct tern_tokenizer *vocabulary,
                               int32_t id,
                               struct tern_text *out)
{
    const struct tern_piece *piece = &vocabulary->pieces[id];
    const char *bytes = vocabulary->blob.data + piece->offset;
    if (piece->is_special) {
        return tern_json_quote(out, bytes, piece->bytes);
    }
    TERN_RETURN_IF_ERR(tern_text_append(out, "\"", 1));
    for (uint32_t i = 0; i < piece->bytes; i++) {
        uint32_t code = tern_byte_to_code((uint8_t)bytes[i]);
        char utf8[5] = {'\\'};
        int length = tern_utf8_encode(code, utf8 + 1);
        bool is_escaped = code == '"' || code == '\\';
        TERN_RETURN_IF_ERR(
            tern_text_append(out, is_escaped ? utf8 : utf8 + 1, (size_t)length + is_escaped));
    }
    return tern_text_append(out, "\"", 1);
}

static tern_status write_added(const struct tern_tokenizer *vocabulary, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n"
                                             "  \"padding\": null,\n  \"added_tokens\": ["));
    for (int id = 0; id < vocabulary->added_count; id++) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "%s\n    {\"id\": %d, \"content\": ", id > 0 ? "," : "", id));
        TERN_RETURN_IF_ERR(quote_piece(vocabulary, id, out));
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, ", \"single_word\": false, \"lstrip\": false, \"rstrip\": false, "
                                  "\"normalized\": false, \"special\": true}"));
    }
    return tern_text_printf(out, "\n  ],\n");
}

static tern_status write_file(const struct trainer *trainer, struct tern_text *out)
{
    const struct tern_tokenizer *vocabulary = &trainer->vocabulary;
    TERN_RETURN_IF_ERR(write_added(vocabulary, out));
    TERN_RETURN_IF_ERR(tern_text_printf(
        out,
        "  \"normalizer\": null,\n"
        "  \"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": true, "
        "\"use_regex\": true},\n"
        "  \"post_processor\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
        "\"trim_offsets\": false, "
        "\"use_regex\": true},\n"
        "  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, \"trim_offsets\": "
        "true, "
        "\"use_regex\": true},\n"
        "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": null,\n"
        "    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    "
        "\"fuse_unk\": false,\n"
        "    \"byte_fallback\": false,\n    \"ignore_merges\": false,\n    \"vocab\": {"));
    for (int64_t id = 0; id < vocabulary->vocab_size; id++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s\n      ", id > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(quote_piece(vocabulary, (int32_t)id, out));
        TERN_RETURN_IF_ERR(tern_text_printf(out, ": %" PRId64, id));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\n    },\n    \"merges\": ["));
    for (int64_t i = 0; i < trainer->merge_count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s\n      [", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(quote_piece(vocabulary, (int32_t)(trainer->merges[i] >> 32), out));
        TERN_RETURN_IF_ERR(tern_text_printf(out, ", "));
        TERN_RETURN_IF_ERR(
            quote_piece(vocabulary, (int32_t)(trainer->merges[i] & UINT32_MAX), out));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "]"));
    }
    return tern_text_printf(out, "\n    ]\n  }\n}\n");
}

/* ---- the whole ---- */

static tern_status add_specials(struct tern_tokenizer *vocabulary,
                                const char *const *specials,
                                int count)
{
    vocabulary->added = tern_alloc_zero("special tokens", (size_t)count, sizeof *vocabulary->added);
    if (vocabulary->added == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %d special tokens", count);
    }
    for (int i = 0; i < count; i++) {
        size_t bytes = strlen(specials[i]);
        if (bytes < 2 || bytes > TERN_SPECIAL_BYTES_MAX) {
            return tern_fail(TERN_ERR_USAGE,
                             "special token '%.64s' has %zu bytes; expected 2 to %d", specials[i],
                             bytes, TERN_SPECIAL_BYTES_MAX);
        }
        for (size_t at = 0; at < bytes;) {
            uint32_t code;
            int step = tern_utf8_decode((const uint8_t *)specials[i] + at, bytes - at, &code);
            if (step == 0) {
                return tern_fail(TERN_ERR_USAGE, "special token '%.64s' is not UTF-8 at byte %zu",
                                 specials[i], at);
            }
            at += (size_t)step;
        }
        for (int j = 0; j < i; j++) {
            if (strcmp(specials[i], specials[j]) == 0) {
                return tern_fail(TERN_ERR_USAGE, "special token '%.64s' is given twice",
                                 specials[i]);
            }
        }
        TERN_RETURN_IF_ERR(tern_tokenizer_add_piece(vocabulary, i, specials[i], bytes));
        vocabulary->pieces[i].is_special = true;
        vocabulary->added[i] = (struct tern_added){.id = i, .is_special = true};
        vocabulary->added_count++;
        TERN_RETURN_IF_ERR(tern_string_set(&vocabulary->added[i].text, specials[i], bytes));
    }
    return tern_tokenizer_finish(vocabulary);
}

static tern_status add_bytes(struct tern_tokenizer *vocabulary)
{
    for (uint32_t code = 0; code <= 0x143;
         code++) { /* in the order of the characters that stand for them */
        int byte = tern_code_to_byte(code);
        if (byte >= 0) {
            char text = (char)byte;
            vocabulary->byte_ids[byte] = (int32_t)vocabulary->vocab_size;
            TERN_RETURN_IF_ERR(
                tern_tokenizer_add_piece(vocabulary, (int32_t)vocabulary->vocab_size, &text, 1));
        }
    }
    return TERN_OK;
}

static tern_status count_files(struct trainer *trainer, const char *const *paths, int path_count)
{
    int64_t total, done = 0;
    TERN_RETURN_IF_ERR(tern_text_stream_total(paths, path_count, &total));
    struct tern_progress progress;
    tern_progress_start(&progress, "count words", total, true);
    for (int i = 0; i < path_count; i++) {
        TERN_RETURN_IF_ERR(count_file(trainer, paths[i], &progress, &done));
    }
    if (done == 0) {
        return tern_fail(TERN_ERR_INPUT, "no text to learn from: %s%s %s empty", paths[0],
                         path_count > 1 ? " and the others" : "", path_count > 1 ? "are" : "is");
    }
    return TERN_OK;
}

static tern_status train(struct trainer *trainer,
                         const char *const *paths,
                         int path_count,
                         int64_t vocab_size,
                         const char *const *specials,
                         int special_count,
                         struct tern_text *out)
{
    struct tern_tokenizer *vocabulary = &trainer->vocabulary;
    TERN_RETURN_IF_ERR(tern_chars_init(&vocabulary->chars));
    vocabulary->splits[0].kind = TERN_SPLIT_GPT2;
    vocabulary->split_count = 1;
    TERN_RETURN_IF_ERR(add_specials(vocabulary, specials, special_count));
    TERN_RETURN_IF_ERR(count_files(trainer, paths, path_count));
    TERN_RETURN_IF_ERR(add_bytes(vocabulary));
    TERN_RETURN_IF_ERR(tern_tokenizer_index_names(vocabulary, vocab_size));
    TERN_RETURN_IF_ERR(learn(trainer, vocab_size));
    if (vocabulary->vocab_size < vocab_size) {
        tern_log_warn("the text has pairs for %" PRId64 " tokens only, not %" PRId64
                      ": the vocabulary is that small",
                      vocabulary->vocab_size, vocab_size);
    }
    return write_file(trainer, out);
}

static void trainer_fini(struct trainer *trainer)
{
    tern_tokenizer_fini(&trainer->vocabulary);
    tern_text_fini(&trainer->texts);
    tern_free(trainer->words);
    tern_free(trainer->word_slots);
    tern_free(trainer->symbols);
    tern_free(trainer->pairs);
    tern_free(trainer->pair_slots);
    tern_free(trainer->uses);
    tern_free(trainer->heap);
    tern_free(trainer->touched);
    tern_free(trainer->merges);
    tern_free(trainer);
}

tern_status tern_tokenizer_train(const char *const *paths,
                                 int path_count,
                                 int64_t vocab_size,
                                 const char *const *specials,
                                 int special_count,
                                 const char *out_path)
{
    int64_t least = 256 + special_count;
    if (special_count > SPECIALS_MAX || vocab_size < least || vocab_size > TERN_VOCAB_MAX) {
        return tern_fail(TERN_ERR_USAGE,
                         "vocabulary of %" PRId64 " tokens; expected %" PRId64
                         " (256 bytes and %d special tokens) to %d",
                         vocab_size, least, special_count, TERN_VOCAB_MAX);
    }
    struct trainer *trainer = tern_alloc_zero("tokenizer training", 1, sizeof *trainer);
    if (trainer == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a tokenizer trainer");
    }
    struct tern_text out;
    tern_text_init(&out);
    tern_status status =
        train(trainer, paths, path_count, vocab_size, specials, special_count, &out);
    if (status == TERN_OK) {
        status = tern_file_replace(out_path, out.data, out.length);
    }
    tern_text_fini(&out);
    trainer_fini(trainer);
    return status;
}
