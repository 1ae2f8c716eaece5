/* placed.h - where a model's tensors lie on a device for inference: in one flat block of one dtype,
 * or each by itself in the type its file has. */
#ifndef TERN_MODELS_PLACED_H
#define TERN_MODELS_PLACED_H

#include "models/pretrained.h"
#include "models/transformer.h"

struct tern_placed_tensor {
    struct tern_dptr data;
    enum tern_dtype dtype; /* of vectors always the model's */
    bool is_transposed;    /* lies as (shape[1], shape[0]) */
};

struct tern_placed {
    struct tern_placed_tensor *items; /* in the order of params */
    int count;
    /* Owned device memory: copies of what cannot be used where it lies. */
    struct tern_device *device;
    struct tern_dptr block;
};

/* Borrows a flat block of model->dtype as params lays it out. Owned: fini. */
TERN_MUST_CHECK tern_status tern_placed_flat(const struct tern_model *model,
                                             struct tern_device *device,
                                             struct tern_dptr weights,
                                             struct tern_placed *out);
/* The tensors of a file that stays open: used where they lie when the device computes from host
 * memory and from their type, else copied; matrices keep their type, vectors become model->dtype.
 * Owned: fini, before the file is closed. */
TERN_MUST_CHECK tern_status tern_placed_load(const struct tern_model *model,
                                             struct tern_device *device,
                                             const struct tern_pretrained *pretrained,
                                             struct tern_placed *out);
void tern_placed_fini(struct tern_placed *placed);
/* Bytes that load will take on the device. */
size_t tern_placed_bytes(const struct tern_model *model,
                         struct tern_device *device,
                         const struct tern_pretrained *pretrained);

#endif
