/* gguf_config.c - GGUF metadata to a model's numbers. What metadata does not say, the tensors do
 * (biases, a head of its own, factors of rotary frequencies). */
#include "models/pretrained.h"
#include "models/transformer.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A file, and the architecture that its keys begin with. */
struct reader {
    const struct tern_gguf *gguf;
    const struct tern_tensor_file *file;
    char arch[32];
};

enum {
    KEY_BYTES = 96
};

static const char *key_of(const struct reader *r, const char *name, char key[KEY_BYTES])
{
    snprintf(key, KEY_BYTES, "%s.%s", r->arch, name);
    return key;
}

static bool has(const struct reader *r, const char *name)
{
    char key[KEY_BYTES];
    return tern_gguf_has(r->gguf, key_of(r, name, key));
}

/* Leaves *out alone when the key is missing, unless it is needed. */
static tern_status read_i64(const struct reader *r,
                            const char *name,
                            int64_t low,
                            int64_t high,
                            bool is_needed,
                            int64_t *out)
{
    char key[KEY_BYTES];
    int64_t value;
    if (!is_needed && !has(r, name)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_gguf_i64(r->gguf, key_of(r, name, key), &value));
    if (value < low || value > high) {
        return tern_fail(TERN_ERR_INPUT, "%s: key %s: found %lld, expected %lld to %lld",
                         tern_gguf_path(r->gguf), key, (long long)value, (long long)low,
                         (long long)high);
    }
    *out = value;
    return TERN_OK;
}

static tern_status read_f32(const struct reader *r,
                            const char *name,
                            double low,
                            double high,
                            float *out)
{
    char key[KEY_BYTES];
    double value;
    if (!has(r, name)) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_gguf_f64(r->gguf, key_of(r, name, key), &value));
    if (!(value >= low && value <= high)) {
        return tern_fail(TERN_ERR_INPUT, "%s: key %s: found %g, expected %g to %g",
                         tern_gguf_path(r->gguf), key, value, low, high);
    }
    *out = (float)value;
    return TERN_OK;
}

static const struct tern_stored_tensor *tensor(const struct reader *r, const char *name)
{
    return tern_tensor_file_find(r->file, name);
}

/* The first family of an architecture, except for Mixtral, which is a llama with experts. */
static tern_status find_family(const struct reader *r, enum tern_family *out)
{
    for (int i = 0; i < TERN_FAMILY_COUNT; i++) {
        if (strcmp(tern_family_row((enum tern_family)i)->gguf, r->arch) == 0) {
            int64_t experts = 0;
            *out = (enum tern_family)i;
            TERN_RETURN_IF_ERR(
                read_i64(r, "expert_count", 0, TERN_MODEL_EXPERTS_MAX, false, &experts));
            if (*out == TERN_FAMILY_LLAMA && experts > 0) {
                *out = TERN_FAMILY_MIXTRAL;
            }
            return TERN_OK;
        }
    }
    return tern_fail(
        TERN_ERR_UNSUPPORTED,
        "%s: key general.architecture: found '%s', expected gpt2, llama, qwen2, qwen3, "
        "qwen3moe, gemma, gemma2, gemma3 or phi3",
        tern_gguf_path(r->gguf), r->arch);
}

static tern_status read_sizes(const struct reader *r, struct tern_model_config *c)
{
    TERN_RETURN_IF_ERR(read_i64(r, "block_count", 1, TERN_MODEL_LAYERS_MAX, true, &c->layers));
    TERN_RETURN_IF_ERR(read_i64(r, "embedding_length", 1, 1 << 17, true, &c->width));
    TERN_RETURN_IF_ERR(read_i64(r, "context_length", 1, 1 << 22, true, &c->context));
    TERN_RETURN_IF_ERR(read_i64(r, "attention.head_count", 1, 1024, true, &c->heads));
    c->kv_heads = 0; /* as many as heads, where the key is missing */
    TERN_RETURN_IF_ERR(read_i64(r, "attention.head_count_kv", 1, 1024, false, &c->kv_heads));
    TERN_RETURN_IF_ERR(read_i64(r, "feed_forward_length", 1, 1 << 20, true, &c->ff_width));
    int64_t value_length = c->width / c->heads;
    c->head_width = value_length;
    TERN_RETURN_IF_ERR(
        read_i64(r, "attention.key_length", 1, TERN_HEAD_WIDTH_MAX, false, &c->head_width));
    value_length = c->head_width;
    TERN_RETURN_IF_ERR(
        read_i64(r, "attention.value_length", 1, TERN_HEAD_WIDTH_MAX, false, &value_length));
    if (value_length != c->head_width) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "%s: key %s.attention.value_length: found %lld, expected key_length, %lld",
                         tern_gguf_path(r->gguf), r->arch, (long long)value_length,
                         (long long)c->head_width);
    }
    const struct tern_stored_tensor *embedding = tensor(r, "token_embd.weight");
    if (embedding == NULL || embedding->rank != 2) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: tensor token_embd.weight: found %s, expected a matrix",
                         tern_gguf_path(r->gguf), embedding == NULL ? "none" : "another rank");
    }
    c->vocab_size = embedding->shape[0];
    c->tied_embeddings = tensor(r, "output.weight") == NULL;
    return read_f32(r,
                    c->features.norm == TERN_NORM_LAYER ? "attention.layer_norm_epsilon"
                                                        : "attention.layer_norm_rms_epsilon",
                    1e-30, 1, &c->norm_eps);
}

static tern_status read_experts(const struct reader *r, struct tern_model_config *c)
{
    int64_t experts = 0;
    TERN_RETURN_IF_ERR(read_i64(r, "expert_count", 0, TERN_MODEL_EXPERTS_MAX, false, &experts));
    if (experts == 0) {
        return TERN_OK;
    }
    c->experts = experts;
    c->normalizes_experts = true; /* in both families that we know */
    TERN_RETURN_IF_ERR(read_i64(r, "expert_used_count", 1, experts, true, &c->experts_used));
    c->expert_ff_width = c->ff_width;
    return read_i64(r, "expert_feed_forward_length", 1, 1 << 20, false, &c->expert_ff_width);
}

/* Tensors say which biases there are. */
static void find_biases(const struct reader *r, struct tern_model_config *c)
{
    if (c->family == TERN_FAMILY_GPT2) {
        return;
    }
    c->features.has_qkv_bias = tensor(r, "blk.0.attn_q.bias") != NULL;
    c->features.has_out_bias = tensor(r, "blk.0.attn_output.bias") != NULL;
    c->features.has_mlp_bias = tensor(r, "blk.0.ffn_down.bias") != NULL;
}

/* Divisors of the frequencies, (rope_width / 2) f32. */
static tern_status read_factors(const struct reader *r,
                                const struct tern_stored_tensor *t,
                                int64_t pairs,
                                float *out)
{
    if (t->dtype != TERN_F32 || t->elements != pairs) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: tensor %s: found %lld values of type %s, expected %lld of f32",
                         tern_gguf_path(r->gguf), t->name, (long long)t->elements,
                         tern_dtype_name(t->dtype), (long long)pairs);
    }
    memcpy(out, t->data, (size_t)pairs * sizeof *out);
    return TERN_OK;
}

/* A factor that we know at 1 only. */
static tern_status check_one(const struct reader *r, const char *name)
{
    float value = 1;
    TERN_RETURN_IF_ERR(read_f32(r, name, -1e9, 1e9, &value));
    if (value != 1) {
        return tern_fail(TERN_ERR_UNSUPPORTED, "%s: key %s.%s: found %g, expected 1",
                         tern_gguf_path(r->gguf), r->arch, name, (double)value);
    }
    return TERN_OK;
}

/* attn_factor multiplies what the scaling itself implies. */
static tern_status read_yarn_factor(const struct reader *r, struct tern_model_config *c)
{
    float factor = 1;
    TERN_RETURN_IF_ERR(read_f32(r, "rope.scaling.attn_factor", 1e-6, 1e6, &factor));
    if (factor != 1) {
        c->rope_attention_factor = factor * (float)tern_rope_attention_factor(c);
    }
    return TERN_OK;
}

static tern_status read_scaling(const struct reader *r, struct tern_model_config *c)
{
    char key[KEY_BYTES];
    const char *text;
    size_t bytes;
    key_of(r, "rope.scaling.type", key);
    if (!tern_gguf_has(r->gguf, key) || tern_gguf_string_is(r->gguf, key, "none")) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_gguf_string(r->gguf, key, &text, &bytes));
    if (tern_gguf_string_is(r->gguf, key, "linear")) {
        c->rope_scaling = TERN_ROPE_LINEAR;
        return read_f32(r, "rope.scaling.factor", 1e-3, 1e6, &c->rope_factor);
    }
    if (tern_gguf_string_is(r->gguf, key, "yarn")) {
        c->rope_scaling = TERN_ROPE_YARN;
        c->rope_original_context = c->context;
        TERN_RETURN_IF_ERR(read_i64(r, "rope.scaling.original_context_length", 1, 1 << 22, false,
                                    &c->rope_original_context));
        TERN_RETURN_IF_ERR(read_f32(r, "rope.scaling.factor", 1e-3, 1e6, &c->rope_factor));
        TERN_RETURN_IF_ERR(check_one(r, "rope.scaling.yarn_ext_factor"));
        TERN_RETURN_IF_ERR(check_one(r, "rope.scaling.yarn_attn_factor"));
        TERN_RETURN_IF_ERR(read_f32(r, "rope.scaling.yarn_beta_fast", 0, 1e6, &c->rope_beta_fast));
        TERN_RETURN_IF_ERR(read_f32(r, "rope.scaling.yarn_beta_slow", 0, 1e6, &c->rope_beta_slow));
        return read_yarn_factor(r, c);
    }
    if (tern_gguf_string_is(r->gguf, key, "longrope")) {
        return TERN_OK; /* its factors are tensors */
    }
    return tern_fail(TERN_ERR_UNSUPPORTED,
                     "%s: key %s: found '%.*s', expected none, linear, yarn or longrope",
                     tern_gguf_path(r->gguf), key, (int)(bytes < 40 ? bytes : 40), text);
}

/* Llama 3's scaling is one tensor of factors, Phi-3's are two: both are a longrope. */
static tern_status read_rope_tensors(const struct reader *r, struct tern_model_config *c)
{
    const struct tern_stored_tensor *both = tensor(r, "rope_freqs.weight");
    const struct tern_stored_tensor *near = tensor(r, "rope_factors_short.weight");
    const struct tern_stored_tensor *far = tensor(r, "rope_factors_long.weight");
    near = both != NULL ? both : near;
    far = both != NULL ? both : far;
    if (near == NULL && far == NULL) {
        return TERN_OK;
    }
    if (near == NULL || far == NULL) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: found one of rope_factors_short.weight and rope_factors_long.weight, "
                         "expected both or none",
                         tern_gguf_path(r->gguf));
    }
    c->rope_scaling = TERN_ROPE_LONGROPE;
    c->rope_original_context = c->context;
    TERN_RETURN_IF_ERR(read_i64(r, "rope.scaling.original_context_length", 1, 1 << 22, false,
                                &c->rope_original_context));
    c->rope_factor = (float)c->context / (float)c->rope_original_context;
    if (both != NULL) {
        c->rope_attention_factor = 1;
    }
    TERN_RETURN_IF_ERR(
        read_f32(r, "rope.scaling.attn_factor", 1e-6, 1e6, &c->rope_attention_factor));
    TERN_RETURN_IF_ERR(read_factors(r, near, c->rope_width / 2, c->rope_short));
    return read_factors(r, far, c->rope_width / 2, c->rope_long);
}

static tern_status read_rope(const struct reader *r, struct tern_model_config *c)
{
    c->rope_width = c->head_width;
    TERN_RETURN_IF_ERR(
        read_i64(r, "rope.dimension_count", 2, c->head_width, false, &c->rope_width));
    TERN_RETURN_IF_ERR(read_f32(r, "rope.freq_base", 1, 1e12, &c->rope_theta));
    TERN_RETURN_IF_ERR(read_f32(r, "rope.freq_base_swa", 1, 1e12, &c->rope_theta_local));
    if (c->rope_theta == 0) {
        c->rope_theta = 10000; /* what an absent key means in this format */
    }
    TERN_RETURN_IF_ERR(read_scaling(r, c));
    return read_rope_tensors(r, c);
}

static bool has_array(const struct reader *r, const char *name)
{
    char key[KEY_BYTES];
    enum tern_gguf_type type = TERN_GGUF_U32;
    key_of(r, name, key);
    for (int64_t i = 0; tern_gguf_key(r->gguf, i, &type) != NULL; i++) {
        if (strcmp(tern_gguf_key(r->gguf, i, &type), key) == 0) {
            return type == TERN_GGUF_ARRAY;
        }
    }
    return false;
}

/* A list that says of each layer whether it has a window. */
static tern_status read_window_list(const struct reader *r, struct tern_model_config *c)
{
    char key[KEY_BYTES];
    bool is_windowed[TERN_MODEL_LAYERS_MAX];
    struct tern_gguf_array list;
    TERN_RETURN_IF_ERR(tern_gguf_array(r->gguf, key_of(r, "attention.sliding_window_pattern", key),
                                       TERN_GGUF_BOOLS, &list));
    if (list.count != c->layers) {
        return tern_fail(TERN_ERR_INPUT, "%s: key %s: found %lld values, expected %lld",
                         tern_gguf_path(r->gguf), key, (long long)list.count, (long long)c->layers);
    }
    for (int64_t i = 0; i < c->layers; i++) {
        is_windowed[i] = tern_gguf_array_bool(&list, i);
    }
    return tern_model_set_windows(c, is_windowed)
               ? TERN_OK
               : tern_fail(TERN_ERR_UNSUPPORTED,
                           "%s: key %s: found no period, expected windowed layers from one on, "
                           "each n-th of them full",
                           tern_gguf_path(r->gguf), key);
}

/* A window, caps, and what the query is scaled by, which metadata leaves to the model's size. */
static tern_status read_attention(const struct reader *r, struct tern_model_config *c)
{
    c->window = 0;
    TERN_RETURN_IF_ERR(read_i64(r, "attention.sliding_window", 0, INT32_MAX, false, &c->window));
    TERN_RETURN_IF_ERR(read_f32(r, "attn_logit_softcapping", 0, 1e9, &c->attention_softcap));
    TERN_RETURN_IF_ERR(read_f32(r, "final_logit_softcapping", 0, 1e9, &c->logit_softcap));
    if (has_array(r, "attention.sliding_window_pattern")) {
        TERN_RETURN_IF_ERR(read_window_list(r, c));
    } else if (has(r, "attention.sliding_window_pattern")) {
        TERN_RETURN_IF_ERR(
            read_i64(r, "attention.sliding_window_pattern", 0, INT32_MAX, true, &c->window_period));
    }
    /* The 27B models of Gemma 2 and 3 scale by width / heads instead of the head's width. */
    bool is_27b = (c->family == TERN_FAMILY_GEMMA2 && c->layers == 46) ||
                  (c->family == TERN_FAMILY_GEMMA3 && c->layers == 62);
    double scalar = is_27b ? (double)(c->width / c->heads) : (double)c->head_width;
    c->query_scale = (float)(1 / sqrt(scalar));
    return TERN_OK;
}

static tern_status read_ids(const struct reader *r, struct tern_model_ids *ids)
{
    static const char *const ends[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    int64_t id;
    if (tern_gguf_has(r->gguf, "tokenizer.ggml.bos_token_id")) {
        TERN_RETURN_IF_ERR(tern_gguf_i64(r->gguf, "tokenizer.ggml.bos_token_id", &id));
        ids->bos = id >= 0 && id < 1 << 24 ? (int32_t)id : -1;
    }
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        if (!tern_gguf_has(r->gguf, ends[i])) {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_gguf_i64(r->gguf, ends[i], &id));
        bool is_known = id < 0 || id >= 1 << 24;
        for (int k = 0; k < ids->eos_count; k++) {
            is_known = is_known || ids->eos[k] == id;
        }
        if (!is_known) {
            ids->eos[ids->eos_count++] = (int32_t)id;
        }
    }
    return TERN_OK;
}

tern_status tern_gguf_config_read(const struct tern_gguf *gguf,
                                  struct tern_model_config *config,
                                  struct tern_model_ids *ids)
{
    struct reader r = {.gguf = gguf, .file = tern_gguf_tensors(gguf)};
    const char *arch;
    size_t bytes;
    enum tern_family family = TERN_FAMILY_GPT2;
    TERN_RETURN_IF_ERR(tern_gguf_string(gguf, "general.architecture", &arch, &bytes));
    snprintf(r.arch, sizeof r.arch, "%.*s", (int)(bytes < 31 ? bytes : 31), arch);
    TERN_RETURN_IF_ERR(find_family(&r, &family));
    *config = tern_family_row(family)->defaults;
    config->family = family;
    config->has_features = true;
    TERN_RETURN_IF_ERR(read_sizes(&r, config));
    TERN_RETURN_IF_ERR(read_experts(&r, config));
    find_biases(&r, config);
    TERN_RETURN_IF_ERR(read_attention(&r, config));
    TERN_RETURN_IF_ERR(read_rope(&r, config));
    TERN_RETURN_IF_ERR(read_ids(&r, ids));
    tern_model_config_defaults(config);
    tern_status status = tern_model_config_check(config);
    return status == TERN_OK ? TERN_OK : tern_fail_prefix(status, "%s", tern_gguf_path(gguf));
}
