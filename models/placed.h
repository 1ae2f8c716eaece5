/* placed.h - where a model's tensors lie on a device for inference: in one flat block of one dtype,
 * or each by itself in the type its file has. */
#ifndef TERN_MODELS_PLACED_H
#define TERN_MODELS_PLACED_H

#include "models/pretrained.h"
#include "models/transformer.h"

/* What matrices become, where the device has packed weights (kernels/ops.h); elsewhere they stay as they are stored. */
enum tern_placed_mode {
    TERN_PLACED_STORED, /* as the file has them, not packed */
    TERN_PLACED_EXACT,  /* their values, in f32 or bf16 */
    TERN_PLACED_AUTO, /* blocks keep their codes, products are taken from int8; f16 becomes bf16 */
    TERN_PLACED_BF16,
    TERN_PLACED_Q8, /* 8 bits in groups of 32, but what has fewer keeps its codes */
    TERN_PLACED_Q4, /* 4 bits likewise, but for embeddings and head, which are as with Q8 */
    TERN_PLACED_MODE_COUNT
};
/* "stored", "exact", "auto", "bf16", "q8", "q4", NULL. */
extern const char *const tern_placed_mode_names[TERN_PLACED_MODE_COUNT + 1];

struct tern_placed_tensor {
    struct tern_dptr data;
    enum tern_dtype dtype;   /* of vectors always the model's; of what is packed nothing */
    bool is_transposed;      /* lies as (shape[1], shape[0]) */
    enum tern_packed packed; /* rows are the outputs, whatever the shape says */
};

struct tern_placed {
    struct tern_placed_tensor *items; /* in the order of params */
    int count;
    /* Owned device memory: copies of what cannot be used where it lies. */
    struct tern_device *device;
    struct tern_dptr block;
};

/* From a flat block of model->dtype as params lays it out. STORED, or a device without packed weights: the block is
 * borrowed, *is_borrowed_out true; else nothing of it is needed afterwards. Owned: fini. */
TERN_MUST_CHECK tern_status tern_placed_flat(const struct tern_model *model,
                                             struct tern_device *device,
                                             struct tern_dptr weights,
                                             enum tern_placed_mode mode,
                                             struct tern_placed *out,
                                             bool *is_borrowed_out);
/* The tensors of a file that stays open. What is packed leaves the file, whose pages are given back; the rest is used
 * where it lies when the device computes from host memory and from its type, else copied; matrices keep their type,
 * vectors become model->dtype. Matrices whose k has no whole groups of 32 become bf16 where codes were asked for.
 * Owned: fini, before the file is closed. */
TERN_MUST_CHECK tern_status tern_placed_load(const struct tern_model *model,
                                             struct tern_device *device,
                                             const struct tern_pretrained *pretrained,
                                             enum tern_placed_mode mode,
                                             struct tern_placed *out);
void tern_placed_fini(struct tern_placed *placed);
/* Bytes that load will take on the device. */
size_t tern_placed_bytes(const struct tern_model *model,
                         struct tern_device *device,
                         const struct tern_pretrained *pretrained,
                         enum tern_placed_mode mode);

#endif
