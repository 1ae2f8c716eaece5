/* prepare.h - JSON lines of conversations to packed documents on disk (io/packs.h). */
#ifndef TERN_RUNTIME_CHAT_PREPARE_H
#define TERN_RUNTIME_CHAT_PREPARE_H

#include "io/file.h"
#include "io/tokenizer.h"
#include "io/tokens_file.h"
#include "runtime/chat/template.h"

struct tern_chat_prepare {
    const char *const
        *paths; /* JSON lines, an object with "messages" each; blank lines are passed over */
    int path_count;
    const struct tern_template *template;
    const struct tern_tokenizer *tokenizer;
    const char *out_prefix;
    double val_fraction; /* [0, 1): see tern_shard_writer_commit */
    bool keep_existing;  /* do nothing if another process made them first (no split) */
};

struct tern_chat_prepared {
    struct tern_shard_part parts[2];
    int part_count;
    int64_t conversations;
    int64_t silent;  /* left out: the assistant says nothing in them */
    int64_t learned; /* tokens to predict */
};

/* Errors name file and line. */
TERN_MUST_CHECK tern_status tern_chat_prepare(const struct tern_chat_prepare *prepare,
                                              struct tern_chat_prepared *out);
/* The prefix of what a pattern means: itself, if it was prepared before; else JSON lines, prepared once into cache_dir;
 * other processes that want them meanwhile wait. The name holds a hash of paths, sizes, times, tokenizer and template. */
TERN_MUST_CHECK tern_status tern_chat_cache(const char *pattern,
                                            const struct tern_template *template,
                                            const struct tern_tokenizer *tokenizer,
                                            const char *cache_dir,
                                            char prefix_out[TERN_PATH_BYTES]);

#endif
