/* tokenizer_nfc.h - canonical composition of UTF-8 (Unicode standard annex 15, form C), linear in the
 * text's length, with the data of Unicode 9 that Hugging Face's `tokenizers` has. */
#ifndef TERN_IO_TOKENIZER_NFC_H
#define TERN_IO_TOKENIZER_NFC_H

#include "io/tokenizer_chars.h"
#include "runtime/base/text.h"

struct tern_nfc_decomposition { /* whole, in canonical order */
    uint32_t code;
    uint16_t pool, count;
};
struct tern_nfc_pair {
    uint32_t first, second, composed;
};
struct tern_nfc_range {
    uint32_t first, last;
    uint8_t value;
};
/* All ascending; Hangul syllables are computed instead. */
extern const uint32_t tern_nfc_pool[];
extern const struct tern_nfc_decomposition tern_nfc_decompositions[];
extern const int tern_nfc_decomposition_count;
extern const struct tern_nfc_pair tern_nfc_pairs[];
extern const int tern_nfc_pair_count;
extern const struct tern_nfc_range tern_nfc_classes[]; /* combining classes other than 0 */
extern const int tern_nfc_class_count;
extern const struct tern_nfc_range tern_nfc_checks[]; /* TERN_CHAR_NFC */
extern const int tern_nfc_check_count;

/* Value of the range that holds code; 0 if none does. */
int tern_nfc_value(const struct tern_nfc_range *ranges, int count, uint32_t code);

/* Room to work in, kept between calls. Zero to begin with. */
struct tern_nfc {
    uint32_t *codes; /* the stretch in work, then the same in canonical order */
    uint32_t *sorted;
    int64_t count, capacity;
};
void tern_nfc_fini(struct tern_nfc *nfc);
/* Bytes at the start of text that are composed already and stay so whatever follows: all of them if
 * nothing is to do. */
size_t tern_nfc_clean(const struct tern_chars *chars, const char *text, size_t bytes);
/* Appends the composed text. Invalid bytes stay as they are; nothing composes across them. */
TERN_MUST_CHECK tern_status tern_nfc_append(struct tern_nfc *nfc,
                                            const struct tern_chars *chars,
                                            const char *text,
                                            size_t bytes,
                                            struct tern_text *out);

#endif
