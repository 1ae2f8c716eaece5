/* tokenizer_fuzz.c - any bytes as a tokenizer.json, then what stands behind a NUL, or all of it,
 * as a text for it: refused with a sentence, or its
 * ids exist, come back as text, and do not depend on where a stream is cut; memory stays in proportion. */
#include "io/tokenizer.h"
#include "io/tokenizer_internal.h"
#include "runtime/base/mem.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

#define MUST(truth) \
    do { \
        if (!(truth)) { \
            abort(); \
        } \
    } while (0)

static void check_cut(const struct tern_tokenizer *tokenizer,
                      struct tern_encoder *encoder,
                      const char *text,
                      size_t bytes,
                      const struct tern_ids *whole)
{
    size_t cut = tern_tokenizer_cut(tokenizer, text, bytes);
    struct tern_ids ids = {0};
    MUST(cut <= bytes);
    if (cut == 0) {
        return;
    }
    MUST(tern_encoder_append(encoder, text, cut, true, &ids) == TERN_OK);
    tern_encoder_continue(encoder);
    MUST(tern_encoder_append(encoder, text + cut, bytes - cut, true, &ids) == TERN_OK);
    MUST(ids.count == whole->count &&
         memcmp(ids.data, whole->data, (size_t)ids.count * sizeof *ids.data) == 0);
    tern_free(ids.data);
}

static void check_text(const struct tern_tokenizer *tokenizer, const char *text, size_t bytes)
{
    struct tern_encoder *encoder;
    struct tern_ids ids = {0};
    char *back;
    size_t back_bytes;
    MUST(tern_encoder_create(tokenizer, &encoder) == TERN_OK);
    MUST(tern_encoder_append(encoder, text, bytes, true, &ids) == TERN_OK);
    for (int64_t i = 0; i < ids.count; i++) {
        size_t piece_bytes;
        MUST(tern_tokenizer_piece(tokenizer, ids.data[i], &piece_bytes) != NULL);
    }
    MUST(tern_tokenizer_decode(tokenizer, ids.data, ids.count, false, &back, &back_bytes) ==
         TERN_OK);
    tern_free(back);
    if (ids.count > 0) {
        check_cut(tokenizer, encoder, text, bytes, &ids);
    }
    tern_free(ids.data);
    tern_encoder_destroy(encoder);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    enum {
        TEXT_BYTES_MAX = 4096,
        MEMORY_MAX = 64 << 20
    };
    static const char sample[] = " Hello  w\xc3\xb6rld 123 <s>ab\n\xff\xe2\x96\x81 e\xcc\x81 ";
    int64_t before = tern_mem_stats().live_blocks;
    const char *json = (const char *)data;
    const char *end = bytes > 0 ? memchr(json, '\0', bytes) : NULL;
    size_t json_bytes = end != NULL ? (size_t)(end - json) : bytes;
    struct tern_tokenizer *tokenizer;
    if (tern_tokenizer_open_text("fuzz", json, json_bytes, &tokenizer) == TERN_OK) {
        MUST(tern_mem_stats().live_bytes < (int64_t)json_bytes * 64 + MEMORY_MAX);
        check_text(tokenizer, sample, sizeof sample - 1);
        const char *text = end != NULL ? end + 1 : json;
        size_t text_bytes = end != NULL ? bytes - json_bytes - 1 : bytes;
        check_text(tokenizer, text, text_bytes < TEXT_BYTES_MAX ? text_bytes : TEXT_BYTES_MAX);
        tern_tokenizer_close(tokenizer);
    } else {
        MUST(tokenizer == NULL && tern_detail()[0] != '\0');
    }
    MUST(tern_mem_stats().live_blocks == before);
    return 0;
}
