/* lora.h - low-rank adapters beside frozen linear layers (Hu et al. 2021), as PEFT names and stores
 * them.
 *
 * A layer y = x W + b becomes y = x W + b + (alpha / rank) (x A^T) B^T. Only A (rank, in) and
 * B (out, rank) are trained; they make a table and a flat block of their own, one bucket a layer. A
 * starts uniform, B zero: at first the model is what it was. Where several tensors of the model are
 * one product (q, k, v; gate, up) each has its own A and B, and their A's lie one after another. */
#ifndef TERN_MODELS_LORA_H
#define TERN_MODELS_LORA_H

#include "models/transformer.h"

enum {
    TERN_LORA_RANK_MAX = 1024,
    TERN_LORA_TARGETS_MAX = 16,
    TERN_LORA_PARTS_MAX = 3
};

struct tern_lora_config {
    int64_t rank; /* 0: no adapters */
    double alpha;
    const char *const *targets; /* last names of modules: "q_proj", "c_attn", ... */
    int target_count;
};

/* One adapted tensor: columns [out_begin, out_begin + out) of its linear layer's product. */
struct tern_lora_part {
    const struct tern_param *base;
    const struct tern_param *a, *b; /* in the adapters' table */
    int64_t out_begin, out;
};

struct tern_lora_linear {
    int count; /* 0: not adapted */
    struct tern_lora_part parts[TERN_LORA_PARTS_MAX];
    int64_t rank;
    float scale; /* alpha / rank */
};

struct tern_lora_layer {
    struct tern_lora_linear qkv, out, up, down;
    int bucket; /* -1: nothing in this layer is adapted */
};

struct tern_lora {
    const struct tern_model *model;
    int64_t rank;
    float scale;
    struct tern_params params; /* A and B of every part, PEFT's names */
    struct tern_lora_layer *layers;
};

/* Names that a target of this model can have, in the order of a layer's tensors; at most capacity of
 * them, borrowed from nowhere: copied. Returns how many. */
struct tern_lora_target {
    char name[32];
};
int tern_lora_targets(const struct tern_params *params, struct tern_lora_target *out, int capacity);
/* Whether the target means this tensor: the last name of its module, the last ones with dots between
 * them, or all-linear. */
bool tern_lora_is_target(const struct tern_param *param, const char *target);

/* Makes the adapters and attaches them to the model's linear layers, for its training passes.
 * TERN_ERR_CONFIG names a target that the model does not have. Owned: fini, and then the model has
 * no more passes. */
TERN_MUST_CHECK tern_status tern_lora_init(struct tern_lora *lora,
                                           struct tern_model *model,
                                           const struct tern_lora_config *config);
void tern_lora_fini(struct tern_lora *lora);
/* Elements a row that a pass needs beside the model's own: low-rank rows of one linear layer, and the
 * widest input or output of an adapted one. */
struct tern_lora_width {
    int64_t low, wide;
};
struct tern_lora_width tern_lora_width(const struct tern_lora *lora);
/* As tern_model_train_flops_per_token: no weight gradients of the model, three products of each
 * adapter. */
double tern_lora_train_flops_per_token(const struct tern_lora *lora, int64_t sequence);
/* The part that adapts a tensor of the model, NULL if none does. */
const struct tern_lora_part *tern_lora_find(const struct tern_lora *lora,
                                            const struct tern_param *base);
/* rows += scale * B A, as f32, of rows [row, row + count) of the base tensor as it is stored: a
 * (rank, in) whole; b: of a tensor stored (out, in) the same rows (count, rank), else whole
 * (out, rank). Sums in double, rounded once. */
void tern_lora_merge(const struct tern_lora *lora,
                     const struct tern_param *base,
                     int64_t row,
                     int64_t count,
                     const float *a,
                     const float *b,
                     float *rows);

#endif
