/* tokenizer_normal.c - what changes a text before it is split: composition, replacing, putting
 * before. */
#include "io/tokenizer_internal.h"
#include "runtime/base/mem.h"

#include <string.h>

const char tern_mark[4] = "\xe2\x96\x81";

tern_status tern_string_set(struct tern_string *string, const char *data, size_t bytes)
{
    char *copy = tern_alloc("tokenizer string", bytes + 1);
    if (copy == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes for a tokenizer", bytes);
    }
    memcpy(copy, data, bytes);
    copy[bytes] = '\0';
    tern_free(string->data);
    *string = (struct tern_string){copy, bytes};
    return TERN_OK;
}

tern_status tern_replace_append(const char *text,
                                size_t bytes,
                                const struct tern_string *from,
                                const struct tern_string *to,
                                struct tern_text *out)
{
    size_t start = 0;
    while (start < bytes) {
        const char *found = from->bytes == 1
                                ? memchr(text + start, from->data[0], bytes - start)
                                : memmem(text + start, bytes - start, from->data, from->bytes);
        size_t end = found == NULL ? bytes : (size_t)(found - text);
        TERN_RETURN_IF_ERR(tern_text_append(out, text + start, end - start));
        if (found == NULL) {
            break;
        }
        TERN_RETURN_IF_ERR(tern_text_append(out, to->data, to->bytes));
        start = end + from->bytes;
    }
    return TERN_OK;
}

void tern_normalizer_fini(struct tern_normalizer *normalizer)
{
    tern_text_fini(&normalizer->texts[0]);
    tern_text_fini(&normalizer->texts[1]);
    tern_nfc_fini(&normalizer->nfc);
}

/* Whether a step leaves the text as it is. */
static bool is_idle(const struct tern_tokenizer *tokenizer,
                    const struct tern_normal_step *step,
                    bool continues,
                    const char *text,
                    size_t bytes)
{
    switch (step->kind) {
    case TERN_NORMAL_NFC:
        return tern_nfc_clean(&tokenizer->chars, text, bytes) == bytes;
    case TERN_NORMAL_PREPEND:
        return continues || bytes == 0;
    default:
        return memmem(text, bytes, step->from.data, step->from.bytes) == NULL;
    }
}

tern_status tern_normalize(const struct tern_tokenizer *tokenizer,
                           struct tern_normalizer *normalizer,
                           bool continues,
                           const char **text,
                           size_t *bytes)
{
    int turn = 0;
    for (int i = 0; i < tokenizer->normal_count; i++) {
        const struct tern_normal_step *step = &tokenizer->normal[i];
        if (is_idle(tokenizer, step, continues, *text, *bytes)) {
            continue;
        }
        struct tern_text *out = &normalizer->texts[turn];
        out->length = 0;
        if (step->kind == TERN_NORMAL_NFC) {
            TERN_RETURN_IF_ERR(
                tern_nfc_append(&normalizer->nfc, &tokenizer->chars, *text, *bytes, out));
        } else if (step->kind == TERN_NORMAL_PREPEND) {
            TERN_RETURN_IF_ERR(tern_text_append(out, step->to.data, step->to.bytes));
            TERN_RETURN_IF_ERR(tern_text_append(out, *text, *bytes));
        } else {
            TERN_RETURN_IF_ERR(tern_replace_append(*text, *bytes, &step->from, &step->to, out));
        }
        *text = out->data;
        *bytes = out->length;
        turn = 1 - turn;
    }
    return TERN_OK;
}
