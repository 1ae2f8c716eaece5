/* tokenizer_chars.h - characters as tokenizers see them: UTF-8, the GPT-2 byte alphabet, classes of
 * Unicode 16. */
#ifndef TERN_IO_TOKENIZER_CHARS_H
#define TERN_IO_TOKENIZER_CHARS_H

#include "runtime/base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TERN_CODE_POINTS = 0x110000,
    TERN_CHARS_MAPPED = 0x20000, /* code points below are looked up in one step */
};

/* What the general categories come to here. */
enum tern_range_kind {
    TERN_RANGE_UPPER,       /* Lu */
    TERN_RANGE_LOWER,       /* Ll */
    TERN_RANGE_TITLE,       /* Lt */
    TERN_RANGE_MODIFIER,    /* Lm */
    TERN_RANGE_LETTER,      /* Lo */
    TERN_RANGE_MARK,        /* M */
    TERN_RANGE_WORD_NUMBER, /* Nd, Nl: \w too */
    TERN_RANGE_NUMBER,      /* No */
    TERN_RANGE_SPACE,       /* White_Space */
    TERN_RANGE_WORD,        /* \w for other reasons */
};

struct tern_class_range {
    uint32_t first, last;
    uint8_t kind; /* enum tern_range_kind */
};
extern const struct tern_class_range tern_class_ranges[]; /* ascending; what is in none is OTHER */
extern const int tern_class_range_count;

/* The low two bits of a character's flags. */
enum tern_class {
    TERN_CLASS_OTHER,
    TERN_CLASS_LETTER,
    TERN_CLASS_NUMBER,
    TERN_CLASS_SPACE,
    TERN_CLASS_MASK = 3,
};

enum tern_char_flag {
    TERN_CHAR_MARK = 4,
    TERN_CHAR_UPPER = 8,  /* Lu Lt Lm Lo M */
    TERN_CHAR_LOWER = 16, /* Ll Lm Lo M */
    TERN_CHAR_WORD = 32,  /* \w */
    TERN_CHAR_NFC = 64,   /* canonical composition may change it, or what stands before it */
};

struct tern_chars {
    uint8_t *map; /* [TERN_CHARS_MAPPED] flags; owned */
};

TERN_MUST_CHECK tern_status tern_chars_init(struct tern_chars *chars);
void tern_chars_fini(struct tern_chars *chars);
/* Flags of a code point. */
int tern_chars_of_code(const struct tern_chars *chars, uint32_t code);
/* Flags and length (1 to 4 bytes) of the first character; an invalid byte is one OTHER of length
 * 1. bytes > 0. */
int tern_chars_next(const struct tern_chars *chars,
                    const uint8_t *text,
                    size_t bytes,
                    int *length_out);
/* Flags of the character that ends at text[at), at > 0, and its length. */
int tern_chars_before(const struct tern_chars *chars,
                      const uint8_t *text,
                      size_t at,
                      int *length_out);

/* One UTF-8 character: its length, or 0 if it is invalid or cut off. */
int tern_utf8_decode(const uint8_t *text, size_t bytes, uint32_t *code_out);
int tern_utf8_encode(uint32_t code, char out[4]);
/* The GPT-2 byte alphabet: code point that stands for a byte, and back (-1: none). */
uint32_t tern_byte_to_code(uint8_t byte);
int tern_code_to_byte(uint32_t code);

#endif
