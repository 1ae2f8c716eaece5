/* tokenizer_split.h - text into words: the patterns of the model families, known by their exact
 * text and scanned by hand. */
#ifndef TERN_IO_TOKENIZER_SPLIT_H
#define TERN_IO_TOKENIZER_SPLIT_H

#include "io/tokenizer_chars.h"

enum tern_split_kind {
    TERN_SPLIT_GPT2,
    TERN_SPLIT_LLAMA3, /* also Llama 3.x, DBRX, ...: numbers in threes */
    TERN_SPLIT_QWEN2,  /* also Qwen 3: numbers alone */
    TERN_SPLIT_QWEN35, /* marks belong to words */
    TERN_SPLIT_TEKKEN, /* Mistral Nemo and later: words end where a capital follows a small letter */
    TERN_SPLIT_DIGIT,  /* each number alone, what lies between together */
    TERN_SPLIT_DIGITS,  /* runs of numbers, what lies between together */
    TERN_SPLIT_DIGITS3, /* numbers in threes */
    TERN_SPLIT_PATTERN_COUNT,
    /* Not patterns; done by the encoder: */
    TERN_SPLIT_STRING = TERN_SPLIT_PATTERN_COUNT, /* a fixed string, by behavior */
    TERN_SPLIT_METASPACE,                         /* blanks to marks, a mark put first */
    TERN_SPLIT_PREFIX,                            /* a blank put first, if there is none */
};

/* The kind of a regular expression, by its exact text; TERN_SPLIT_PATTERN_COUNT if it is none that
 * we know. */
enum tern_split_kind tern_split_by_pattern(const char *pattern);
/* What is known, for a message: "gpt2, llama3, ...". */
extern const char tern_split_known[];

/* Bytes of the first word of text[0, bytes); kind is a pattern, bytes > 0. Looks no further than a
 * constant number of times the words that it has found so far: linear over all calls. Invalid UTF-8
 * counts as characters that are neither letter, number nor space, one a byte. */
size_t tern_split_next(const struct tern_chars *chars,
                       enum tern_split_kind kind,
                       const uint8_t *text,
                       size_t bytes);

#endif
