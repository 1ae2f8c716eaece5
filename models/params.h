/* params.h - a model's parameters: one table row a tensor, expanded into one flat block.
 *
 * Flat block: buckets in order (embeddings; each layer; final norm and head), each a run of whole
 * tensors without gaps, its start a multiple of 16 elements. A bucket is what is reduced in one
 * piece. Blocks are runs of whole rows of one tensor of about 16 Ki elements: the only places where
 * a bucket is cut between ranks, and the units of the gradient norm, so that neither depends on the
 * number of ranks. */
#ifndef TERN_MODELS_PARAMS_H
#define TERN_MODELS_PARAMS_H

#include "models/model.h"

enum {
    TERN_PARAM_NAME_BYTES = 96
};

enum tern_init {
    TERN_INIT_ZERO,
    TERN_INIT_ONE,
    TERN_INIT_NORMAL,
    TERN_INIT_NORMAL_RESIDUAL,
    TERN_INIT_UNIFORM /* in (-1/sqrt(cols), 1/sqrt(cols)): an adapter's A */
};

/* What a tensor is for: how the transformer finds it. */
enum tern_role {
    TERN_ROLE_TOKEN_EMBEDDING,
    TERN_ROLE_POSITION_EMBEDDING,
    TERN_ROLE_NORM1_WEIGHT,
    TERN_ROLE_NORM1_BIAS,
    TERN_ROLE_QKV_WEIGHT, /* fused, or q: k and v follow without a gap */
    TERN_ROLE_K_WEIGHT,
    TERN_ROLE_V_WEIGHT,
    TERN_ROLE_QKV_BIAS, /* fused, or q: k and v follow without a gap */
    TERN_ROLE_K_BIAS,
    TERN_ROLE_V_BIAS,
    TERN_ROLE_Q_NORM_WEIGHT, /* (D), of every head */
    TERN_ROLE_K_NORM_WEIGHT,
    TERN_ROLE_OUT_WEIGHT,
    TERN_ROLE_OUT_BIAS,
    TERN_ROLE_POST1_WEIGHT, /* norm at the end of the attention sublayer */
    TERN_ROLE_NORM2_WEIGHT,
    TERN_ROLE_NORM2_BIAS,
    TERN_ROLE_UP_WEIGHT, /* gpt2 c_fc, fused gate and up, or gate: up follows without a gap */
    TERN_ROLE_UP2_WEIGHT,
    TERN_ROLE_UP_BIAS,
    TERN_ROLE_UP2_BIAS,
    TERN_ROLE_DOWN_WEIGHT,
    TERN_ROLE_DOWN_BIAS,
    TERN_ROLE_ROUTER,      /* (E, C) */
    TERN_ROLE_EXPERT_GATE, /* one an expert: gate, then up without a gap, then down */
    TERN_ROLE_EXPERT_UP,
    TERN_ROLE_EXPERT_DOWN,
    TERN_ROLE_POST2_WEIGHT, /* norm at the end of the feed-forward sublayer */
    TERN_ROLE_FINAL_NORM_WEIGHT,
    TERN_ROLE_FINAL_NORM_BIAS,
    TERN_ROLE_HEAD,
    TERN_ROLE_COUNT
};

struct tern_param {
    char name[TERN_PARAM_NAME_BYTES]; /* Hugging Face's */
    enum tern_role role;
    int layer;  /* -1: not in a layer */
    int expert; /* -1: of no expert */
    int bucket;
    int rank;         /* 1 or 2 */
    int64_t shape[2]; /* as Hugging Face stores it */
    int64_t size, offset;
    enum tern_init init;
    bool decay; /* weight decay applies: matrices, not embeddings, norms or biases */
};

struct tern_params {
    struct tern_param *items; /* ascending offset */
    int count;
    int64_t parameter_count; /* without padding */
    int64_t flat_size;       /* elements of the flat block, padding included */
    int bucket_count;
    int64_t *bucket_starts; /* (bucket_count + 1); the last is flat_size */
    int64_t *block_starts;  /* (block_count + 1); covers the flat block */
    int64_t block_count;
    int64_t *bucket_blocks; /* (bucket_count + 1): first block of each bucket */
};

/* How many values and tensors a model has, before a table of them is made: counts that no file
 * could have do not overflow. */
void tern_params_count(const struct tern_model_config *config, double *values, double *tensors);
/* Pure arithmetic on the config; owns its arrays: fini. vocab_size must be known. */
TERN_MUST_CHECK tern_status tern_params_init(struct tern_params *params,
                                             const struct tern_model_config *config);
/* For a table made by other means: items are there with names, shapes and buckets, which ascend from
 * 0; the rest follows. Items are the table's own from here on, also after a failure: nothing is left
 * then. */
TERN_MUST_CHECK tern_status tern_params_layout(struct tern_params *params);
void tern_params_fini(struct tern_params *params);
/* Tensor of a role in a layer (-1 outside layers), NULL if the model has none; of experts the
 * first. */
const struct tern_param *tern_params_find(const struct tern_params *params,
                                          enum tern_role role,
                                          int layer);
/* The tensor that element `index` of the flat block belongs to; NULL in padding. */
const struct tern_param *tern_params_at(const struct tern_params *params, int64_t index);
/* Initial values of elements [first, first + count) of a tensor, a pure function of (seed, tensor,
 * element): normal(0, 0.02), residual projections normal(0, 0.02/sqrt(2 layers)), norms 1, biases
 * 0, adapters uniform and 0. Any machine, same bits. */
void tern_param_initial(const struct tern_params *params,
                        const struct tern_param *param,
                        int64_t layers,
                        uint64_t seed,
                        int64_t first,
                        int64_t count,
                        float *out);

#endif
