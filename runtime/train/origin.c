/* origin.c - a MODEL to begin as, or the run itself when that has begun. */
#include "runtime/train/origin.h"

#include "io/checkpoint.h"
#include "runtime/base/mem.h"
#include "runtime/train/config.h"
#include "runtime/train/keep.h"

#include <stdio.h>
#include <string.h>

/* The run's own copies of what it began as. */
static tern_status read_run(struct tern_origin *origin, const char *run_dir)
{
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    bool is_there;
    struct tern_train_config config = {0};
    origin->ids.bos = -1;
    TERN_RETURN_IF_ERR(tern_kept_model(run_dir, &origin->model, &is_there));
    if (is_there) {
        return tern_kept_tokenizer(run_dir, origin->tokenizer);
    }
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "config.yaml"));
    TERN_RETURN_IF_ERR(tern_file_read(path, TERN_CONFIG_FILE_BYTES_MAX, &text, &bytes));
    tern_status status = tern_train_config_parse(path, text, bytes, NULL, 0, &config);
    tern_free(text);
    origin->model = config.model;
    tern_train_config_fini(&config);
    TERN_RETURN_IF_ERR(status);
    return tern_kept_tokenizer(run_dir, origin->tokenizer);
}

tern_status tern_origin_open(struct tern_origin *origin, const char *model, const char *run_dir)
{
    int checkpoints = 0;
    *origin = (struct tern_origin){0};
    snprintf(origin->name, sizeof origin->name, "%s", model);
    TERN_RETURN_IF_ERR(tern_ckpt_list(run_dir, NULL, 0, &checkpoints));
    if (checkpoints > 0) {
        return read_run(origin, run_dir);
    }
    TERN_RETURN_IF_ERR(tern_weights_open(model, &origin->weights));
    origin->model = *tern_weights_config(origin->weights);
    origin->ids = *tern_weights_ids(origin->weights);
    snprintf(origin->tokenizer, sizeof origin->tokenizer, "%s",
             tern_weights_tokenizer(origin->weights));
    return TERN_OK;
}

/* Of a run that goes on: where its base was, or where the user says that it is now. */
static tern_status reopen(struct tern_origin *origin, const char *recorded)
{
    bool is_there = tern_file_exists(recorded);
    if (!is_there && !tern_file_exists(origin->name)) {
        return tern_fail(TERN_ERR_CONFIG,
                         "the model that the adapters belong to is gone: neither %s, where the run "
                         "found it, nor %s is there",
                         recorded, origin->name);
    }
    return tern_weights_open(is_there ? recorded : origin->name, &origin->weights);
}

tern_status tern_origin_freeze(struct tern_origin *origin,
                               const char *recorded,
                               const struct tern_model *model,
                               struct tern_device *device,
                               char hash[TERN_HASH_HEX_BYTES])
{
    struct tern_hash *sum;
    char found[TERN_HASH_HEX_BYTES];
    if (origin->weights == NULL) {
        TERN_RETURN_IF_ERR(reopen(origin, recorded));
    }
    TERN_RETURN_IF_ERR(tern_hash_create(&sum));
    origin->device = device;
    tern_status status = tern_weights_load(origin->weights, model, device, sum, &origin->frozen);
    tern_hash_hex(sum, found);
    tern_hash_destroy(sum);
    TERN_RETURN_IF_ERR(status);
    if (hash[0] == '\0') {
        strcpy(hash, found);
    }
    return strcmp(hash, found) == 0
               ? TERN_OK
               : tern_fail(TERN_ERR_CONFIG,
                           "%s is not the model that the adapters belong to: its weights have the "
                           "hash %s, expected %s",
                           tern_weights_path(origin->weights), found, hash);
}

void tern_origin_close_files(struct tern_origin *origin)
{
    tern_weights_close(origin->weights);
    origin->weights = NULL;
}

void tern_origin_close(struct tern_origin *origin)
{
    tern_origin_close_files(origin);
    if (origin->device != NULL) {
        origin->device->ops->device->free(origin->device, origin->frozen);
        origin->device = NULL;
    }
}

/* The first id that the two do not share, -1 if there is none. */
static int64_t first_difference(const struct tern_tokenizer *a, const struct tern_tokenizer *b)
{
    int64_t size_a = tern_tokenizer_vocab_size(a);
    int64_t size_b = tern_tokenizer_vocab_size(b);
    for (int64_t id = 0; id < size_a || id < size_b; id++) {
        size_t bytes_a = 0;
        size_t bytes_b = 0;
        const char *piece_a = tern_tokenizer_piece(a, (int32_t)id, &bytes_a);
        const char *piece_b = tern_tokenizer_piece(b, (int32_t)id, &bytes_b);
        bool is_same = piece_a == NULL || piece_b == NULL
                           ? piece_a == piece_b
                           : bytes_a == bytes_b && memcmp(piece_a, piece_b, bytes_a) == 0;
        if (!is_same) {
            return id;
        }
    }
    return -1;
}

tern_status tern_origin_check_tokenizer(const struct tern_origin *origin,
                                        const struct tern_tokenizer *tokenizer,
                                        const char *path)
{
    struct tern_tokenizer *own;
    if (origin->tokenizer[0] == '\0' || strcmp(origin->tokenizer, path) == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_tokenizer_open(origin->tokenizer, &own));
    int64_t id = first_difference(own, tokenizer);
    tern_tokenizer_close(own);
    return id < 0 ? TERN_OK
                  : tern_fail(TERN_ERR_CONFIG,
                              "data.tokenizer: token %lld of %s is not that of %s, whose "
                              "vocabulary a fine-tuned model keeps; leave the key out",
                              (long long)id, path, origin->name);
}
