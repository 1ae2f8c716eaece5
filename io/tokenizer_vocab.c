/* tokenizer_vocab.c - the vocabulary in memory: pieces and their names, merges, what a token's text
 * stands for. */
#include "io/tokenizer_internal.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    NONE = -1
};

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

/* Copies bytes to the blob. */
static tern_status store(struct tern_tokenizer *tokenizer,
                         const char *bytes,
                         size_t count,
                         uint32_t *offset_out)
{
    if (tokenizer->blob.length + count >= UINT32_MAX) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "vocabulary: more than 4 GiB of token text");
    }
    *offset_out = (uint32_t)tokenizer->blob.length;
    return tern_text_append(&tokenizer->blob, bytes, count);
}

tern_status tern_tokenizer_add_piece(struct tern_tokenizer *tokenizer,
                                     int32_t id,
                                     const char *bytes,
                                     size_t count)
{
    uint32_t offset = 0;
    TERN_RETURN_IF_ERR(tern_tokenizer_reserve(tokenizer, (int64_t)id + 1));
    TERN_RETURN_IF_ERR(store(tokenizer, bytes, count, &offset));
    struct tern_piece *piece = &tokenizer->pieces[id];
    tokenizer->present_count += !piece->is_present;
    *piece = (struct tern_piece){
        .offset = offset,
        .bytes = (uint32_t)count,
        .name = offset,
        .name_bytes = (uint32_t)count,
        .is_present = true,
        .is_special = piece->is_special,
    };
    return TERN_OK;
}

/* Some character of a text is not in the byte alphabet: it stands for itself. */
static bool is_raw_text(const char *text, size_t count)
{
    for (size_t at = 0; at < count;) {
        uint32_t code;
        int step = tern_utf8_decode((const uint8_t *)text + at, count - at, &code);
        if (step == 0 || tern_code_to_byte(code) < 0) {
            return true;
        }
        at += (size_t)step;
    }
    return false;
}

/* Bytes that a token's text stands for in the byte alphabet, into out (at least `count` long). */
static size_t undo_alphabet(const char *text, size_t count, char *out)
{
    if (is_raw_text(text, count)) {
        memcpy(out, text, count);
        return count;
    }
    size_t length = 0;
    for (size_t at = 0; at < count;) {
        uint32_t code = 0;
        at += (size_t)tern_utf8_decode((const uint8_t *)text + at, count - at, &code);
        out[length++] = (char)tern_code_to_byte(code);
    }
    return length;
}

static int hex_digit(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : NONE;
}

/* The byte that "<0x41>" stands for; NONE if it is no such text. */
static int byte_of_text(const char *text, size_t bytes)
{
    if (bytes != 6 || memcmp(text, "<0x", 3) != 0 || text[5] != '>') {
        return NONE;
    }
    int high = hex_digit(text[3]), low = hex_digit(text[4]);
    return high < 0 || low < 0 ? NONE : high * 16 + low;
}

/* Appends the bytes that a token's text decodes to. */
static tern_status append_decoded(const struct tern_decode_rules *rules,
                                  const char *text,
                                  size_t bytes,
                                  struct tern_text *out)
{
    struct tern_text texts[2] = {{0}, {0}};
    tern_status status = TERN_OK;
    for (int i = 0; i < rules->replace_count; i++) {
        struct tern_text *next = &texts[i % 2];
        next->length = 0;
        TERN_GOTO_IF_ERR(
            status, tern_replace_append(text, bytes, &rules->from[i], &rules->to[i], next), out);
        text = next->data;
        bytes = next->length;
    }
    int byte = rules->has_bytes ? byte_of_text(text, bytes) : NONE;
    char one = (char)byte;
    status = byte >= 0 ? tern_text_append(out, &one, 1) : tern_text_append(out, text, bytes);
out:
    tern_text_fini(&texts[0]);
    tern_text_fini(&texts[1]);
    return status;
}

tern_status tern_tokenizer_set_decoded(struct tern_tokenizer *tokenizer,
                                       int32_t id,
                                       const char *text,
                                       size_t bytes)
{
    size_t start = tokenizer->blob.length;
    if (tokenizer->model == TERN_MODEL_BYTES) {
        char *plain = tern_alloc("token text", bytes);
        if (plain == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes of token text", bytes);
        }
        size_t count = undo_alphabet(text, bytes, plain);
        tern_status status = tern_text_append(&tokenizer->blob, plain, count);
        tern_free(plain);
        TERN_RETURN_IF_ERR(status);
    } else {
        TERN_RETURN_IF_ERR(append_decoded(&tokenizer->decode, text, bytes, &tokenizer->blob));
    }
    if (tokenizer->blob.length >= UINT32_MAX) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "vocabulary: more than 4 GiB of token text");
    }
    tokenizer->pieces[id].offset = (uint32_t)start;
    tokenizer->pieces[id].bytes = (uint32_t)(tokenizer->blob.length - start);
    return TERN_OK;
}

tern_status tern_tokenizer_add_token(struct tern_tokenizer *tokenizer,
                                     int32_t id,
                                     const char *text,
                                     size_t bytes)
{
    bool is_named_by_text = tokenizer->model != TERN_MODEL_BYTES;
    TERN_RETURN_IF_ERR(tern_tokenizer_add_piece(tokenizer, id, text, is_named_by_text ? bytes : 0));
    TERN_RETURN_IF_ERR(tern_tokenizer_set_decoded(tokenizer, id, text, bytes));
    struct tern_piece *piece = &tokenizer->pieces[id];
    if (!is_named_by_text) {
        piece->name = piece->offset;
        piece->name_bytes = piece->bytes;
        piece->is_raw = is_raw_text(text, bytes);
    }
    return TERN_OK;
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

static int32_t find_named(const struct tern_tokenizer *tokenizer,
                          const char *bytes,
                          size_t count,
                          bool is_raw)
{
    uint64_t slot = tern_word_hash(bytes, count) & tokenizer->name_mask;
    for (; tokenizer->names[slot] >= 0; slot = (slot + 1) & tokenizer->name_mask) {
        const struct tern_piece *piece = &tokenizer->pieces[tokenizer->names[slot]];
        if (piece->name_bytes == count && piece->is_raw == is_raw &&
            memcmp(tokenizer->blob.data + piece->name, bytes, count) == 0) {
            return tokenizer->names[slot];
        }
    }
    return -1;
}

void tern_tokenizer_add_name(struct tern_tokenizer *tokenizer, int32_t id)
{
    const struct tern_piece *piece = &tokenizer->pieces[id];
    const char *bytes = tokenizer->blob.data + piece->name;
    if (find_named(tokenizer, bytes, piece->name_bytes, piece->is_raw) >= 0) {
        return;
    }
    if ((int)piece->name_bytes > tokenizer->longest_name_bytes) {
        tokenizer->longest_name_bytes = (int)piece->name_bytes;
    }
    uint64_t slot = tern_word_hash(bytes, piece->name_bytes) & tokenizer->name_mask;
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

int32_t tern_tokenizer_find(const struct tern_tokenizer *tokenizer, const char *bytes, size_t count)
{
    return find_named(tokenizer, bytes, count, false);
}

int32_t tern_tokenizer_find_text(const struct tern_tokenizer *tokenizer,
                                 const char *text,
                                 size_t bytes)
{
    if (tokenizer->model != TERN_MODEL_BYTES) {
        return tern_tokenizer_find(tokenizer, text, bytes);
    }
    char few[256];
    char *plain = bytes <= sizeof few ? few : tern_alloc("token text", bytes);
    if (plain == NULL) {
        return NONE;
    }
    size_t count = undo_alphabet(text, bytes, plain);
    int32_t id = find_named(tokenizer, plain, count, is_raw_text(text, bytes));
    if (plain != few) {
        tern_free(plain);
    }
    return id;
}

int tern_tokenizer_missing_byte(const struct tern_tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++) {
        bool is_common = (byte >= ' ' && byte <= '~') || byte == '\n';
        if (is_common && tokenizer->byte_ids[byte] < 0) {
            return byte;
        }
    }
    return NONE;
}

void tern_tokenizer_find_bytes(struct tern_tokenizer *tokenizer)
{
    for (int byte = 0; byte < 256; byte++) {
        char name[8];
        int length = 1;
        name[0] = (char)byte;
        if (tokenizer->model != TERN_MODEL_BYTES) {
            length = snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        }
        tokenizer->byte_ids[byte] = tern_tokenizer_find(tokenizer, name, (size_t)length);
    }
}

tern_status tern_tokenizer_reserve_merges(struct tern_tokenizer *tokenizer, int64_t count)
{
    uint64_t slots = 64;
    while (slots < (uint64_t)count * 2) {
        slots *= 2;
    }
    tokenizer->merges = tern_alloc("tokenizer merges", slots * sizeof *tokenizer->merges);
    if (tokenizer->merges == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRIu64 " merges", slots);
    }
    memset(tokenizer->merges, 0xff, slots * sizeof *tokenizer->merges);
    tokenizer->merge_mask = slots - 1;
    tokenizer->merge_count = count;
    return TERN_OK;
}

void tern_tokenizer_add_merge(struct tern_tokenizer *tokenizer,
                              int32_t left,
                              int32_t right,
                              int32_t rank,
                              int32_t result)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = tern_word_mix(key) & tokenizer->merge_mask;
    while (tokenizer->merges[slot].key != TERN_MERGE_EMPTY && tokenizer->merges[slot].key != key) {
        slot = (slot + 1) & tokenizer->merge_mask;
    }
    tokenizer->merges[slot] = (struct tern_merge){key, rank, result};
    tokenizer->rank_count = rank >= tokenizer->rank_count ? rank + 1 : tokenizer->rank_count;
}

int32_t tern_tokenizer_join(const struct tern_tokenizer *tokenizer, int32_t left, int32_t right)
{
    enum {
        ROOM = 512
    };
    const struct tern_piece *a = &tokenizer->pieces[left];
    const struct tern_piece *b = &tokenizer->pieces[right];
    size_t bytes = (size_t)a->name_bytes + b->name_bytes;
    char few[ROOM];
    if (bytes > (size_t)tokenizer->longest_name_bytes) {
        return NONE;
    }
    char *text = bytes <= ROOM ? few : tern_alloc("token text", bytes);
    if (text == NULL) {
        return NONE;
    }
    memcpy(text, tokenizer->blob.data + a->name, a->name_bytes);
    memcpy(text + a->name_bytes, tokenizer->blob.data + b->name, b->name_bytes);
    int32_t id = find_named(tokenizer, text, bytes, a->is_raw || b->is_raw);
    if (text != few) {
        tern_free(text);
    }
    return id;
}

static struct tern_pair pair_by_text(const struct tern_tokenizer *tokenizer,
                                     int32_t left,
                                     int32_t right)
{
    int32_t id = tern_tokenizer_join(tokenizer, left, right);
    if (id < 0 || tokenizer->token_ranks[id] < 0) {
        return (struct tern_pair){TERN_PAIR_NONE, NONE};
    }
    return (struct tern_pair){tokenizer->token_ranks[id], id};
}

struct tern_pair tern_tokenizer_pair(const struct tern_tokenizer *tokenizer,
                                     int32_t left,
                                     int32_t right)
{
    if (tokenizer->token_ranks != NULL) {
        return pair_by_text(tokenizer, left, right);
    }
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    uint64_t slot = tern_word_mix(key) & tokenizer->merge_mask;
    for (;; slot = (slot + 1) & tokenizer->merge_mask) {
        const struct tern_merge *merge = &tokenizer->merges[slot];
        if (merge->key == key) {
            return (struct tern_pair){merge->rank, merge->result};
        }
        if (merge->key == TERN_MERGE_EMPTY) {
            return (struct tern_pair){TERN_PAIR_NONE, NONE};
        }
    }
}
