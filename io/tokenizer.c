/* tokenizer.c - the vocabulary: opening, looking up, decoding. */
#include "io/tokenizer.h"

#include "io/file.h"
#include "io/hash.h"
#include "io/tokenizer_internal.h"
#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum {
    FILE_BYTES_MAX = 1 << 30
};

void tern_tokenizer_fini(struct tern_tokenizer *tokenizer)
{
    tern_splitter_fini(&tokenizer->splitter);
    tern_free(tokenizer->pieces);
    tern_text_fini(&tokenizer->blob);
    tern_free(tokenizer->names);
    tern_free(tokenizer->merges);
    tern_free(tokenizer->added);
    tern_free(tokenizer->prefix_ids);
    tern_free(tokenizer->suffix_ids);
}

tern_status tern_tokenizer_open(const char *path, struct tern_tokenizer **out)
{
    *out = NULL;
    char file[TERN_PATH_BYTES];
    if (tern_file_is_folder(path)) {
        TERN_RETURN_IF_ERR(tern_path_join(file, path, "tokenizer.json"));
    } else {
        TERN_RETURN_IF_ERR(tern_path_join(file, "", path));
    }
    char *text = NULL;
    size_t bytes = 0;
    struct tern_tokenizer *tokenizer = NULL;
    tern_status status = tern_file_read(file, FILE_BYTES_MAX, &text, &bytes);
    if (status != TERN_OK) {
        return tern_fail_prefix(status, "tokenizer");
    }
    tokenizer = tern_alloc_zero("tokenizer", 1, sizeof *tokenizer);
    if (tokenizer == NULL) {
        tern_free(text);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a tokenizer");
    }
    tern_hash_bytes(text, bytes, tokenizer->hash);
    status = tern_splitter_init(&tokenizer->splitter);
    if (status == TERN_OK) {
        status = tern_tokenizer_parse(tokenizer, file, text, bytes);
    }
    tern_free(text);
    if (status != TERN_OK) {
        tern_tokenizer_close(tokenizer);
        return status;
    }
    *out = tokenizer;
    return TERN_OK;
}

void tern_tokenizer_close(struct tern_tokenizer *tokenizer)
{
    if (tokenizer != NULL) {
        tern_tokenizer_fini(tokenizer);
        tern_free(tokenizer);
    }
}

/* ---- building ---- */

tern_status tern_tokenizer_reserve(struct tern_tokenizer *tokenizer, int64_t count)
{
    if (count > tokenizer->piece_capacity) {
        int64_t capacity = count < 1024 ? 1024 : count + count / 2;
        struct tern_piece *grown =
            tern_realloc("tokenizer pieces", tokenizer->pieces, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " tokens", capacity);
        }
        size_t added = (size_t)(capacity - tokenizer->piece_capacity);
        memset(grown + tokenizer->piece_capacity, 0, added * sizeof *grown);
        tokenizer->pieces = grown;
        tokenizer->piece_capacity = capacity;
    }
    if (count > tokenizer->vocab_size) {
        tokenizer->vocab_size = count;
    }
    return TERN_OK;
}

tern_status tern_tokenizer_add_piece(struct tern_tokenizer *tokenizer,
                                     int32_t id,
                                     const char *bytes,
                                     size_t count)
{
    TERN_RETURN_IF_ERR(tern_tokenizer_reserve(tokenizer, (int64_t)id + 1));
    if (tokenizer->blob.length + count >= UINT32_MAX) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "vocabulary: more than 4 GiB of token text");
    }
    struct tern_piece *piece = &tokenizer->pieces[id];
    piece->offset = (uint32_t)tokenizer->blob.length;
    piece->bytes = (uint32_t)count;
    piece->is_present = true;
    return tern_text_append(&tokenizer->blob, bytes, count);
}

uint64_t tern_word_hash(const char *bytes, size_t count)
{
    uint64_t hash = UINT64_C(0x9e3779b97f4a7c15) ^ count;
    while (count >= 8) {
        uint64_t word;
        memcpy(&word, bytes, 8);
        hash = tern_word_mix(hash ^ word) + word;
        bytes += 8;
        count -= 8;
    }
    uint64_t tail = 0;
    memcpy(&tail, bytes, count);
    return tern_word_mix(tern_word_mix(hash ^ tail) + count);
}

void tern_tokenizer_add_name(struct tern_tokenizer *tokenizer, int32_t id)
{
    const struct tern_piece *piece = &tokenizer->pieces[id];
    const char *bytes = tokenizer->blob.data + piece->offset;
    if (tern_tokenizer_find(tokenizer, bytes, piece->bytes) >= 0) {
        return;
    }
    uint64_t slot = tern_word_hash(bytes, piece->bytes) & tokenizer->name_mask;
    while (tokenizer->names[slot] >= 0) {
        slot = (slot + 1) & tokenizer->name_mask;
    }
    tokenizer->names[slot] = id;
}

tern_status tern_tokenizer_index_names(struct tern_tokenizer *tokenizer, int64_t capacity)
{
    uint64_t slots = 1024;
    while (slots < (uint64_t)capacity * 2) {
        slots *= 2;
    }
    tern_free(tokenizer->names);
    tokenizer->names = tern_alloc("tokenizer names", slots * sizeof *tokenizer->names);
    if (tokenizer->names == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an index of %" PRIu64 " names", slots);
    }
    memset(tokenizer->names, 0xff, slots * sizeof *tokenizer->names);
    tokenizer->name_mask = slots - 1;
    for (int64_t id = 0; id < tokenizer->vocab_size; id++) {
        if (tokenizer->pieces[id].is_present) {
            tern_tokenizer_add_name(tokenizer, (int32_t)id);
        }
    }
    return TERN_OK;
}

static int compare_added(const void *left, const void *right)
{
    const struct tern_added *a = left;
    const struct tern_added *b = right;
    int first = (unsigned char)a->text[0] - (unsigned char)b->text[0];
    if (first != 0) {
        return first;
    }
    return a->bytes != b->bytes ? (a->bytes > b->bytes ? -1 : 1) : a->id - b->id;
}

void tern_tokenizer_index_added(struct tern_tokenizer *tokenizer)
{
    for (int i = 0; i < tokenizer->added_count; i++) {
        struct tern_added *added = &tokenizer->added[i];
        added->text = tokenizer->blob.data + tokenizer->pieces[added->id].offset;
        if ((int)added->bytes > tokenizer->longest_added_bytes) {
            tokenizer->longest_added_bytes = (int)added->bytes;
        }
    }
    qsort(tokenizer->added, (size_t)tokenizer->added_count, sizeof *tokenizer->added,
          compare_added);
    for (int byte = 0, at = 0; byte <= 256; byte++) {
        while (at < tokenizer->added_count && (unsigned char)tokenizer->added[at].text[0] < byte) {
            at++;
        }
        tokenizer->added_first[byte] = at;
    }
}

int32_t tern_tokenizer_find(const struct tern_tokenizer *tokenizer, const char *bytes, size_t count)
{
    uint64_t slot = tern_word_hash(bytes, count) & tokenizer->name_mask;
    for (; tokenizer->names[slot] >= 0; slot = (slot + 1) & tokenizer->name_mask) {
        const struct tern_piece *piece = &tokenizer->pieces[tokenizer->names[slot]];
        if (piece->bytes == count &&
            memcmp(tokenizer->blob.data + piece->offset, bytes, count) == 0) {
            return tokenizer->names[slot];
        }
    }
    return -1;
}

const struct tern_merge *tern_tokenizer_merge(const struct tern_tokenizer *tokenizer,
                                              int32_t left,
                                              int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = tern_word_mix(key) & tokenizer->merge_mask;
    for (;; slot = (slot + 1) & tokenizer->merge_mask) {
        const struct tern_merge *merge = &tokenizer->merges[slot];
        if (merge->key == key) {
            return merge;
        }
        if (merge->key == TERN_MERGE_EMPTY) {
            return NULL;
        }
    }
}

/* ---- looking up ---- */

int64_t tern_tokenizer_vocab_size(const struct tern_tokenizer *tokenizer)
{
    return tokenizer->vocab_size;
}

int32_t tern_tokenizer_id(const struct tern_tokenizer *tokenizer, const char *token)
{
    size_t bytes = strlen(token);
    for (int i = 0; i < tokenizer->added_count; i++) {
        const struct tern_added *added = &tokenizer->added[i];
        if (added->bytes == bytes && memcmp(added->text, token, bytes) == 0) {
            return added->id;
        }
    }
    return tern_tokenizer_find(tokenizer, token, bytes);
}

int32_t tern_tokenizer_eos(const struct tern_tokenizer *tokenizer)
{
    static const char *const names[] = {"<|endoftext|>", "</s>",  "<|end_of_text|>", "<|im_end|>",
                                        "<|eot_id|>",    "<eos>", "<|eos|>",         "[EOS]"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        for (int j = 0; j < tokenizer->added_count; j++) {
            const struct tern_added *added = &tokenizer->added[j];
            if (added->bytes == strlen(names[i]) &&
                memcmp(added->text, names[i], added->bytes) == 0) {
                return added->id;
            }
        }
    }
    return -1;
}

bool tern_tokenizer_is_special(const struct tern_tokenizer *tokenizer, int32_t id)
{
    return id >= 0 && id < tokenizer->vocab_size && tokenizer->pieces[id].is_special;
}

int64_t tern_tokenizer_merge_count(const struct tern_tokenizer *tokenizer)
{
    return tokenizer->merge_count;
}

const char *tern_tokenizer_hash(const struct tern_tokenizer *tokenizer)
{
    return tokenizer->hash;
}

const int32_t *tern_tokenizer_prefix(const struct tern_tokenizer *tokenizer, int *count_out)
{
    *count_out = tokenizer->prefix_count;
    return tokenizer->prefix_ids;
}

const int32_t *tern_tokenizer_suffix(const struct tern_tokenizer *tokenizer, int *count_out)
{
    *count_out = tokenizer->suffix_count;
    return tokenizer->suffix_ids;
}

const char *tern_tokenizer_piece(const struct tern_tokenizer *tokenizer,
                                 int32_t id,
                                 size_t *bytes_out)
{
    *bytes_out = 0;
    if (id < 0 || id >= tokenizer->vocab_size || !tokenizer->pieces[id].is_present) {
        return NULL;
    }
    *bytes_out = tokenizer->pieces[id].bytes;
    return tokenizer->blob.data + tokenizer->pieces[id].offset;
}

tern_status tern_tokenizer_decode(const struct tern_tokenizer *tokenizer,
                                  const int32_t *ids,
                                  int64_t count,
                                  bool skip_special,
                                  char **text_out,
                                  size_t *bytes_out)
{
    *text_out = NULL;
    *bytes_out = 0;
    size_t total = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t bytes;
        if (tern_tokenizer_piece(tokenizer, ids[i], &bytes) == NULL) {
            return tern_fail(TERN_ERR_INPUT,
                             "id %d at position %" PRId64 " is not in the vocabulary of %" PRId64
                             " tokens",
                             ids[i], i, tokenizer->vocab_size);
        }
        total += skip_special && tern_tokenizer_is_special(tokenizer, ids[i]) ? 0 : bytes;
    }
    char *text = tern_alloc("decoded text", total + 1);
    if (text == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes of decoded text", total + 1);
    }
    size_t at = 0;
    for (int64_t i = 0; i < count; i++) {
        size_t bytes;
        const char *piece = tern_tokenizer_piece(tokenizer, ids[i], &bytes);
        if (!(skip_special && tern_tokenizer_is_special(tokenizer, ids[i]))) {
            memcpy(text + at, piece, bytes);
            at += bytes;
        }
    }
    TERN_CHECK(at == total);
    text[total] = '\0';
    *text_out = text;
    *bytes_out = total;
    return TERN_OK;
}
