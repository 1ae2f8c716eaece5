/* tokenizer_decode.c - ids to bytes, and what a decoder does to the beginning of a text. */
#include "io/tokenizer_internal.h"

#include <inttypes.h>

void tern_decoder_init(struct tern_decoder *decoder,
                       const struct tern_tokenizer *tokenizer,
                       bool skip_special)
{
    *decoder = (struct tern_decoder){
        .tokenizer = tokenizer,
        .skip_special = skip_special,
        .is_first = true,
        .strip_blanks = tokenizer->first_rule == TERN_FIRST_STRIPS ? tokenizer->strip_blanks : 0,
    };
}

/* Appends a token's text without its marks, wherever they are. */
static tern_status append_without_marks(const struct tern_tokenizer *tokenizer,
                                        const struct tern_piece *piece,
                                        struct tern_text *out)
{
    static char empty[] = "";
    const struct tern_string nothing = {empty, 0};
    return tern_replace_append(tokenizer->blob.data + piece->name, piece->name_bytes,
                               &tokenizer->decode.from[0], &nothing, out);
}

tern_status tern_decoder_push(struct tern_decoder *decoder, int32_t id, struct tern_text *out)
{
    const struct tern_tokenizer *tokenizer = decoder->tokenizer;
    if (id < 0 || id >= tokenizer->vocab_size || !tokenizer->pieces[id].is_present) {
        return tern_fail(TERN_ERR_INPUT,
                         "id %d at position %" PRId64 " is not in the vocabulary of %" PRId64
                         " tokens",
                         id, decoder->position, tokenizer->vocab_size);
    }
    decoder->position++;
    const struct tern_piece *piece = &tokenizer->pieces[id];
    if (decoder->skip_special && piece->is_special) {
        return TERN_OK;
    }
    bool is_first = decoder->is_first;
    decoder->is_first = false;
    if (is_first && tokenizer->first_rule == TERN_FIRST_DROPS_MARKS) {
        return append_without_marks(tokenizer, piece, out);
    }
    const char *bytes = tokenizer->blob.data + piece->offset;
    size_t count = piece->bytes;
    while (decoder->strip_blanks > 0 && count > 0) {
        if (bytes[0] != ' ') {
            decoder->strip_blanks = 0;
            break;
        }
        bytes++;
        count--;
        decoder->strip_blanks--;
    }
    return tern_text_append(out, bytes, count);
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
    struct tern_text out;
    struct tern_decoder decoder;
    tern_text_init(&out);
    tern_decoder_init(&decoder, tokenizer, skip_special);
    tern_status status = tern_text_append(&out, "", 0); /* no ids: a block all the same */
    for (int64_t i = 0; i < count && status == TERN_OK; i++) {
        status = tern_decoder_push(&decoder, ids[i], &out);
    }
    if (status != TERN_OK) {
        tern_text_fini(&out);
        return status;
    }
    *text_out = out.data;
    *bytes_out = out.length;
    return TERN_OK;
}
