/* tokens_prepare.h - text to token shards: files, JSON lines, standard input. */
#ifndef TERN_IO_TOKENS_PREPARE_H
#define TERN_IO_TOKENS_PREPARE_H

#include "io/tokenizer.h"
#include "io/tokens_file.h"

#include <stdbool.h>

enum tern_text_format {
    TERN_TEXT_BY_NAME, /* .jsonl: JSON lines; everything else: plain */
    TERN_TEXT_PLAIN,   /* one document a file; the end-of-document token inside it starts another */
    TERN_TEXT_LINES,   /* one document a line */
    TERN_TEXT_JSONL,   /* one document an object: its "text" */
};

struct tern_prepare {
    const char *const *paths; /* "-": standard input */
    int path_count;
    const struct tern_tokenizer
        *tokenizer; /* every document ends with its end-of-document token, if it has one */
    const char *out_prefix;
    double val_fraction; /* [0, 1): see tern_shard_writer_commit */
    enum tern_text_format format;
    bool plain_specials; /* special tokens in the text are text */
    bool keep_existing;  /* do nothing if another process made the shards first (no split) */
    int64_t sequence_tokens_max; /* 0: default */
};

struct tern_prepared {
    struct tern_shard_part parts[2];
    int part_count;
    int64_t text_bytes;
    int64_t empty_documents; /* left out */
};

/* Streams the texts in bounded memory; shows progress. Errors name file, line or byte. */
TERN_MUST_CHECK tern_status tern_tokens_prepare(const struct tern_prepare *prepare,
                                                struct tern_prepared *out);
/* The shards of one text in a cache folder, made if need be; other processes that want them
 * meanwhile wait. The name holds a hash of path, size, time of change and tokenizer. */
TERN_MUST_CHECK tern_status tern_tokens_cache(const char *path,
                                              const struct tern_tokenizer *tokenizer,
                                              const char *cache_dir,
                                              char prefix_out[TERN_PATH_BYTES]);

#endif
