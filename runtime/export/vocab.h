/* vocab.h - a tokenizer.json as lists: tokens by id with their kinds and scores, and merges. */
#ifndef TERN_RUNTIME_EXPORT_VOCAB_H
#define TERN_RUNTIME_EXPORT_VOCAB_H

#include "io/json.h"

/* With GGUF's own numbers. */
enum tern_vocab_kind {
    TERN_VOCAB_NORMAL = 1,
    TERN_VOCAB_UNKNOWN,
    TERN_VOCAB_CONTROL,
    TERN_VOCAB_USER_DEFINED,
    TERN_VOCAB_UNUSED,
    TERN_VOCAB_BYTE
};

struct tern_vocab_token {
    const char *text; /* NULL: no token has this id */
    size_t bytes;
    float score; /* of SentencePiece's kind: the higher the earlier it is merged */
    enum tern_vocab_kind kind;
};

struct tern_vocab {
    struct tern_json *root;
    char *path;
    struct tern_vocab_token *tokens; /* (count), texts within root */
    int64_t count;
    const struct tern_json *merges;
    int64_t merge_count;
    bool is_spm;     /* BPE as SentencePiece has it, with bytes as a way out; else of bytes */
    bool adds_space; /* before a text */
    const char *pre; /* GGUF's name of how a text is cut before it is merged */
};

/* count: rows of the model's embedding, at least as many as there are ids. TERN_ERR_UNSUPPORTED names
 * what GGUF has no name for. Owned: fini. */
TERN_MUST_CHECK tern_status tern_vocab_open(const char *path,
                                            int64_t count,
                                            struct tern_vocab *out);
void tern_vocab_fini(struct tern_vocab *vocab);
/* The pattern of a name of GGUF's: of llama-bpe and qwen2; NULL: another. */
const char *tern_vocab_pattern(const char *pre);
/* Id of a token by its text, -1 if there is none. */
int64_t tern_vocab_find(const struct tern_vocab *vocab, const char *text);
/* Appends merge `index` as "left right". */
TERN_MUST_CHECK tern_status tern_vocab_merge(const struct tern_vocab *vocab,
                                             int64_t index,
                                             struct tern_text *out);

#endif
