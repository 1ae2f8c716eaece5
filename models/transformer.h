/* transformer.h - one transformer for all families: where each weight lies, and the training pass.
 *
 * Weights and gradients are flat blocks laid out by params.h: weights in the model's dtype,
 * gradients f32. Shapes: B batch, T sequence, N = B*T, C width, H heads, K kv heads, D head width,
 * F feed-forward, V vocabulary. */
#ifndef TERN_MODELS_TRANSFORMER_H
#define TERN_MODELS_TRANSFORMER_H

#include "models/params.h"

struct tern_lora;
struct tern_lora_linear;

/* y (N, out) = x (N, in) W + b. Offsets into the flat block; bias -1: none. */
struct tern_linear {
    int64_t weight, bias;
    int64_t in, out;
    bool is_out_in; /* stored (out, in) as Llama does, else (in, out) as GPT-2 does */
    const struct tern_lora_linear *lora; /* adapters (lora.h), NULL: none */
};

struct tern_layer_map {
    int64_t norm1_weight, norm1_bias, norm2_weight, norm2_bias;       /* bias -1: none */
    int64_t post1_weight, post2_weight, q_norm_weight, k_norm_weight; /* -1: none */
    struct tern_linear qkv, out, up, down; /* with experts no up and down */
    int64_t window;                        /* 0: sees all before it */
    int bucket;
};

struct tern_model {
    struct tern_model_config config;
    struct tern_params params;
    enum tern_dtype dtype; /* of weights and activations */
    struct tern_layer_map *layers;
    int64_t token_embedding, position_embedding; /* position -1: rotary */
    int64_t final_norm_weight, final_norm_bias;
    int64_t head; /* (V, C); the token embedding when tied */
    int first_bucket, last_bucket;
};

/* Owns its tables: fini. The config must have passed tern_model_config_check. */
TERN_MUST_CHECK tern_status tern_model_init(struct tern_model *model,
                                            const struct tern_model_config *config,
                                            enum tern_dtype dtype);
void tern_model_fini(struct tern_model *model);
/* TERN_ERR_UNSUPPORTED names the first feature that the training pass lacks. */
TERN_MUST_CHECK tern_status tern_model_trainable_check(const struct tern_model_config *config);
/* 6 N_matmul + attention (causal, forward + backward = 6 H D T per token and layer): FLOPs to train
 * on one token. */
double tern_model_products_per_token(const struct tern_model *model); /* N_matmul */
double tern_model_train_flops_per_token(const struct tern_model *model, int64_t sequence);

/* Cosines and sines, f32 (positions, rope_width / 2), host memory, of positions [first, first +
 * positions) in a sequence of `length` tokens; is_local: those of windowed layers. */
void tern_rope_tables(const struct tern_model_config *config,
                      bool is_local,
                      int64_t length,
                      int64_t first,
                      int64_t positions,
                      float *cos_out,
                      float *sin_out);
/* What cosines and sines are multiplied by, so that scores of long contexts keep their spread. */
double tern_rope_attention_factor(const struct tern_model_config *config);
/* Whether the frequencies depend on how long the sequence is. */
bool tern_rope_follows_length(const struct tern_model_config *config);

/* Logits at once on a GPU: enough rows to fill it, and to touch the head's gradient rarely. */
enum {
    TERN_LOGITS_BYTES_GPU = 1 << 30
};

struct tern_pass_options {
    int64_t batch, sequence;
    enum tern_recompute recompute;
    int64_t
        logits_bytes; /* of f32 logits that may be there at once; 0: what suits a CPU's caches and memory */
    bool backward;                /* false: evaluation only, no activations are kept */
    const struct tern_lora *lora; /* what is trained, the model itself being frozen; NULL: all */
};

/* What a pass tells its caller on the way; either may be NULL. */
struct tern_pass_hooks {
    /* Before the weights of a bucket are first read: buckets come first to last. */
    tern_status (*need)(void *context, int bucket);
    /* When all gradients of a bucket are complete: buckets come last to first. */
    tern_status (*ready)(void *context, int bucket);
    void *context;
};

struct tern_pass; /* the activations of one micro-batch */

/* Device memory that create will take; pure. */
size_t tern_pass_bytes(const struct tern_model *model, const struct tern_pass_options *options);
/* The op limits this pass needs (for tern_device_prepare). */
struct tern_op_limits tern_pass_limits(const struct tern_model *model,
                                       const struct tern_pass_options *options);
TERN_MUST_CHECK tern_status tern_pass_create(const struct tern_model *model,
                                             struct tern_device *device,
                                             const struct tern_pass_options *options,
                                             struct tern_pass **out);
void tern_pass_destroy(struct tern_pass *pass);
/* With options.lora: the model's weights, before the first pass. What the functions below call
 * weights, gradients and buckets are those of the adapters then. */
void tern_pass_freeze(struct tern_pass *pass, struct tern_dptr weights);
/* starts i32 (B, T), read by every pass from now on: documents packed into sequences (kernels/ops.h); null: none.
 * TERN_ERR_UNSUPPORTED: the device cannot. */
TERN_MUST_CHECK tern_status tern_pass_pack(struct tern_pass *pass, struct tern_dptr starts);
/* nll (B, T) f32 of targets given ids; both i32 (B, T). rows <= batch sequences are used. */
TERN_MUST_CHECK tern_status tern_pass_eval(struct tern_pass *pass,
                                           struct tern_dptr weights,
                                           struct tern_dptr ids,
                                           struct tern_dptr targets,
                                           struct tern_dptr nll);
/* As eval, and gradients of the *sum* of nll over target tokens into grads (flat, f32):
 * overwritten, or added to when accumulate. hooks may be NULL. */
TERN_MUST_CHECK tern_status tern_pass_train(struct tern_pass *pass,
                                            struct tern_dptr weights,
                                            struct tern_dptr grads,
                                            struct tern_dptr ids,
                                            struct tern_dptr targets,
                                            struct tern_dptr nll,
                                            bool accumulate,
                                            const struct tern_pass_hooks *hooks);
/* Logits f32 (N, V) of the last forward, host memory: for tests and scoring. Recomputed from the
 * final norm. */
TERN_MUST_CHECK tern_status tern_pass_logits(struct tern_pass *pass,
                                             struct tern_dptr weights,
                                             int64_t first_row,
                                             int64_t rows,
                                             float *logits_out);

#endif
