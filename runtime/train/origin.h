/* origin.h - the MODEL that a fine-tuned run begins as. */
#ifndef TERN_RUNTIME_TRAIN_ORIGIN_H
#define TERN_RUNTIME_TRAIN_ORIGIN_H

#include "io/file.h"
#include "io/tokenizer.h"
#include "runtime/generate/weights.h"

struct tern_origin {
    char name[TERN_PATH_BYTES]; /* as the user wrote it */
    struct tern_model_config model;
    char tokenizer[TERN_PATH_BYTES]; /* "": none */
    struct tern_model_ids ids;       /* of a MODEL that is opened */
    struct tern_weights *weights;    /* NULL when the run goes on: it holds what it needs */
    /* Of a run with adapters: */
    struct tern_device *device;
    struct tern_dptr frozen;
};

/* What MODEL is; of a run that has checkpoints, what it says it is, and MODEL is not looked at.
 * Owned: close. */
TERN_MUST_CHECK tern_status tern_origin_open(struct tern_origin *origin,
                                             const char *model,
                                             const char *run_dir);
/* The weights that adapters are trained beside, in a flat block of origin->frozen; opens `recorded`
 * (the path that the run's checkpoint names; "" when it begins), or else MODEL again. hash (XXH3-128)
 * is checked if it is not "", else filled in. */
TERN_MUST_CHECK tern_status tern_origin_freeze(struct tern_origin *origin,
                                               const char *recorded,
                                               const struct tern_model *model,
                                               struct tern_device *device,
                                               char hash[TERN_HASH_HEX_BYTES]);
/* MODEL's files; what is frozen stays. */
void tern_origin_close_files(struct tern_origin *origin);
/* Everything; before the device is closed. */
void tern_origin_close(struct tern_origin *origin);
/* That a tokenizer read from `path` has the vocabulary of the MODEL's own, if it has one. */
TERN_MUST_CHECK tern_status tern_origin_check_tokenizer(const struct tern_origin *origin,
                                                        const struct tern_tokenizer *tokenizer,
                                                        const char *path);

#endif
