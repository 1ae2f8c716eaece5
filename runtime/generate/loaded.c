/* loaded.c - from a path to weights on a device. */
#include "runtime/generate/loaded.h"

#include "runtime/base/mem.h"
#include "runtime/generate/weights.h"
#include "runtime/plan/compute.h"

static tern_status open_device(struct tern_loaded *loaded)
{
    struct tern_compute compute;
    TERN_RETURN_IF_ERR(tern_compute_choose(NULL, &compute));
    return tern_device_open(compute.backend, compute.threads, &loaded->device);
}

/* With the ids before it, if the text is a prompt. */
static tern_status encode(const struct tern_tokenizer *tokenizer,
                          const char *text,
                          size_t bytes,
                          enum tern_loaded_text kind,
                          int32_t **ids_out,
                          int64_t *count_out)
{
    int before = 0;
    const int32_t *prefix = tern_tokenizer_prefix(tokenizer, &before);
    TERN_RETURN_IF_ERR(tern_tokenizer_encode(tokenizer, text, bytes, kind != TERN_TEXT_AS_IT_IS,
                                             ids_out, count_out));
    if (kind != TERN_TEXT_PROMPT || before == 0) {
        return TERN_OK;
    }
    size_t all = ((size_t)*count_out + (size_t)before) * sizeof **ids_out;
    int32_t *ids = tern_realloc("tokens", *ids_out, all);
    if (ids == NULL) {
        tern_free(*ids_out);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes of tokens", all);
    }
    memmove(ids + before, ids, (size_t)*count_out * sizeof *ids);
    memcpy(ids, prefix, (size_t)before * sizeof *ids);
    *ids_out = ids;
    *count_out += before;
    return TERN_OK;
}

tern_status tern_loaded_encode(const struct tern_loaded *loaded,
                               const char *text,
                               size_t bytes,
                               enum tern_loaded_text kind,
                               int32_t **ids_out,
                               int64_t *count_out)
{
    int64_t vocab = loaded->model.config.vocab_size;
    int32_t *ids;
    if (loaded->tokenizer == NULL) {
        return tern_fail(
            TERN_ERR_INPUT,
            "text cannot become tokens: there is no tokenizer.json beside ckpt/ in the run "
            "directory, or in the model's folder; copy it there");
    }
    TERN_RETURN_IF_ERR(encode(loaded->tokenizer, text, bytes, kind, &ids, count_out));
    for (int64_t i = 0; i < *count_out; i++) {
        if (ids[i] < 0 || ids[i] >= vocab) {
            int32_t id = ids[i];
            tern_free(ids);
            return tern_fail(TERN_ERR_INPUT,
                             "token %lld of the text is %d, expected below the model's vocabulary "
                             "of %lld: the run's tokenizer.json is not the one it was trained with",
                             (long long)i, id, (long long)vocab);
        }
    }
    *ids_out = ids;
    return TERN_OK;
}

static enum tern_dtype choose_dtype(const struct tern_loaded *loaded,
                                    const struct tern_weights *weights,
                                    enum tern_loaded_precision precision)
{
    struct tern_dptr probe;
    if (precision != TERN_LOADED_AUTO) {
        return precision == TERN_LOADED_BF16 ? TERN_BF16 : TERN_F32;
    }
    if (tern_weights_pretrained(weights) != NULL &&
        !tern_device_borrow(loaded->device, loaded, &probe)) {
        return TERN_BF16;
    }
    return tern_weights_dtype(weights);
}

/* Tensors of a run into a flat block, from which they are packed; those of other files where they lie, as far as can be.
 */
static tern_status place(struct tern_loaded *loaded,
                         struct tern_weights *weights,
                         enum tern_placed_mode mode)
{
    const struct tern_pretrained *pretrained = tern_weights_pretrained(weights);
    bool is_borrowed = false;
    if (pretrained != NULL) {
        return tern_placed_load(&loaded->model, loaded->device, pretrained, mode, &loaded->placed);
    }
    TERN_RETURN_IF_ERR(
        tern_weights_load(weights, &loaded->model, loaded->device, NULL, &loaded->weights));
    TERN_RETURN_IF_ERR(tern_placed_flat(&loaded->model, loaded->device, loaded->weights, mode,
                                        &loaded->placed, &is_borrowed));
    if (!is_borrowed) {
        loaded->device->ops->device->free(loaded->device, loaded->weights);
        loaded->weights = (struct tern_dptr){0};
    }
    return TERN_OK;
}

tern_status tern_loaded_open(const char *model,
                             enum tern_loaded_precision precision,
                             enum tern_placed_mode mode,
                             struct tern_loaded *out)
{
    struct tern_weights *weights = NULL;
    *out = (struct tern_loaded){0};
    tern_status status;
    precision = mode == TERN_PLACED_EXACT ? TERN_LOADED_F32 : precision;
    TERN_RETURN_IF_ERR(tern_weights_open(model, &weights));
    TERN_GOTO_IF_ERR(status, open_device(out), out);
    TERN_GOTO_IF_ERR(status,
                     tern_model_init(&out->model, tern_weights_config(weights),
                                     choose_dtype(out, weights, precision)),
                     out);
    out->step = tern_weights_step(weights);
    out->ids = *tern_weights_ids(weights);
    TERN_GOTO_IF_ERR(status, place(out, weights, mode), out);
    if (tern_weights_tokenizer(weights)[0] != '\0') {
        status = tern_tokenizer_open(tern_weights_tokenizer(weights), &out->tokenizer);
    }
    if (status == TERN_OK && tern_weights_pretrained(weights) != NULL) {
        out->files = weights;
        weights = NULL;
    }
out:
    if (status != TERN_OK) {
        tern_loaded_close(out);
    }
    tern_weights_close(weights);
    return status;
}

bool tern_loaded_is_end(const struct tern_loaded *loaded, int32_t id)
{
    for (int i = 0; i < loaded->ids.eos_count; i++) {
        if (loaded->ids.eos[i] == id) {
            return true;
        }
    }
    return loaded->tokenizer != NULL && id == tern_tokenizer_eos(loaded->tokenizer);
}

void tern_loaded_close(struct tern_loaded *loaded)
{
    tern_placed_fini(&loaded->placed);
    if (loaded->device != NULL) {
        loaded->device->ops->device->free(loaded->device, loaded->weights);
    }
    tern_model_fini(&loaded->model);
    tern_device_close(loaded->device);
    tern_tokenizer_close(loaded->tokenizer);
    tern_weights_close(loaded->files);
    *loaded = (struct tern_loaded){0};
}
