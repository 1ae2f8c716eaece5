/* cursor.h - the part of a checkpoint that is not a tensor, as JSON. */
#ifndef TERN_RUNTIME_TRAIN_CURSOR_H
#define TERN_RUNTIME_TRAIN_CURSOR_H

#include "io/hash.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdint.h>

enum {
    TERN_CURSOR_BASE_BYTES = 4096
};

struct tern_cursor {
    int64_t step, updates, tokens, samples;
    int64_t seed;
    char isa[64];                      /* CPU instruction level that computed it */
    char data_id[64];                  /* of the training data; "" unknown */
    char base[TERN_CURSOR_BASE_BYTES]; /* MODEL that the run began as; "": from a seed */
    /* Of its weights where they are frozen (adapters); "" where they are not. */
    char base_hash[TERN_HASH_HEX_BYTES];
    /* The model as a Hugging Face config.json says it, where a fine-tuned one has more than the YAML
     * can say; borrowed, for write only; NULL: none. */
    const char *model;
};

/* {"format":1,"cursor":{step, updates, samples, tokens},"seed":..,"isa":..,"data":..,
 * "base":PATH,"base_hash":..,"model":JSON,"config":YAML}, base, base_hash and model only if there is
 * one. The "cursor" object says nothing about machines: two runs that are the same have the same
 * one. */
TERN_MUST_CHECK tern_status tern_cursor_write(const struct tern_cursor *cursor,
                                              const char *config_yaml,
                                              struct tern_text *out);
/* "model", tern_alloc'd; *out NULL: there is none. */
TERN_MUST_CHECK tern_status tern_cursor_read_model(const char *json, char **out);
/* config_out, if not NULL, receives the YAML, tern_alloc'd. */
TERN_MUST_CHECK tern_status tern_cursor_read(const char *json,
                                             struct tern_cursor *out,
                                             char **config_out);

#endif
