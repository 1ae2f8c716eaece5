/* tokenizer_json.h - what the two readers of tokenizer.json share. */
#ifndef TERN_IO_TOKENIZER_JSON_H
#define TERN_IO_TOKENIZER_JSON_H

#include "io/json.h"
#include "io/tokenizer_internal.h"

struct tern_tokenizer_reader {
    struct tern_tokenizer *tokenizer;
    const char *file;
    const struct tern_json *special_tokens; /* of the post-processor's template */
    int64_t id_limit;                       /* ids are below it: what so many tokens can need */
    bool has_byte_level;                    /* the pre-tokenizer ends in bytes */
    bool is_fused;                          /* the decoder has joined its tokens */
};

/* "" if there is no such string. */
const char *tern_reader_string(const struct tern_json *object, const char *key);
bool tern_reader_is_absent(const struct tern_json *value);
/* "FILE: WHAT 'FOUND' is not supported; expected EXPECTED" */
tern_status tern_reader_refuse(const struct tern_tokenizer_reader *reader,
                               const char *what,
                               const char *found,
                               const char *expected);
TERN_MUST_CHECK tern_status tern_reader_expect(const struct tern_tokenizer_reader *reader,
                                               const struct tern_json *value,
                                               const char *what,
                                               enum tern_json_kind kind);

/* ---- tokenizer_stages.c ---- */

TERN_MUST_CHECK tern_status tern_reader_normalizer(struct tern_tokenizer_reader *reader,
                                                   const struct tern_json *stage);
TERN_MUST_CHECK tern_status tern_reader_pre_tokenizer(struct tern_tokenizer_reader *reader,
                                                      const struct tern_json *stage);
/* After the model's kind is known. */
TERN_MUST_CHECK tern_status tern_reader_decoder(struct tern_tokenizer_reader *reader,
                                                const struct tern_json *stage);
/* After the vocabulary. */
TERN_MUST_CHECK tern_status tern_reader_post_processor(struct tern_tokenizer_reader *reader,
                                                       const struct tern_json *stage);

#endif
