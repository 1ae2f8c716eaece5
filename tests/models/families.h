/* families.h - the small models of tests/golden/families, each opened on a device with what Transformers says of it. */
#ifndef TERN_TESTS_MODELS_FAMILIES_H
#define TERN_TESTS_MODELS_FAMILIES_H

#include "io/safetensors.h"
#include "kernels/open.h"
#include "models/placed.h"
#include "models/pretrained.h"
#include "tests/base/check.h"

#include <math.h>
#include <stdio.h>

/* What fp32 must keep of fp32. */
#define RELATIVE 1e-4

static const char *const g_models[] = {
    "gpt2_untied",    "llama_biased",  "llama_dynamic",  "llama_yarn_mscale",
    "llama_longrope", "mistral",       "qwen2_windowed", "qwen3_biased",
    "gemma",          "gemma2",        "gemma3_pattern", "phi3_longrope_long",
    "mixtral",        "qwen3_moe_raw",
};
enum {
    TOKENS_MAX = 64,
    MODEL_COUNT = sizeof g_models / sizeof g_models[0]
};

struct bench {
    struct tern_pretrained pretrained;
    struct tern_tensor_file *expected;
    struct tern_device *device;
    struct tern_model model;
    struct tern_placed placed;
    const int32_t *ids;
    const float *logits; /* (t, v) */
    int64_t t, v;
};

#define OK(expr) \
    do { \
        tern_status status_ = (expr); \
        if (status_ != TERN_OK) { \
            fail_msg("%s: %s", #expr, tern_detail()); \
        } \
    } while (0)

static inline void open_bench_as(struct bench *b,
                                 const char *name,
                                 const char *backend,
                                 enum tern_dtype dtype,
                                 enum tern_placed_mode mode)
{
    char path[512];
    *b = (struct bench){0};
    snprintf(path, sizeof path, "%s/%s", TERN_FAMILIES_DIR, name);
    assert_true(tern_pretrained_is(path));
    OK(tern_pretrained_open(path, &b->pretrained));
    snprintf(path, sizeof path, "%s/%s/expected.safetensors", TERN_FAMILIES_DIR, name);
    OK(tern_safetensors_open(path, &b->expected));
    const struct tern_stored_tensor *ids = tern_tensor_file_find(b->expected, "ids");
    const struct tern_stored_tensor *logits = tern_tensor_file_find(b->expected, "logits");
    assert_true(ids != NULL && logits != NULL && logits->rank == 2);
    b->ids = ids->data;
    b->logits = logits->data;
    b->t = logits->shape[0];
    b->v = logits->shape[1];
    assert_int_equal(b->v, b->pretrained.config.vocab_size);
    assert_true(b->t <= TOKENS_MAX);
    OK(tern_device_open(backend, 2, &b->device));
    OK(tern_model_init(&b->model, &b->pretrained.config, dtype));
    OK(tern_placed_load(&b->model, b->device, &b->pretrained, mode, &b->placed));
}

static inline void open_bench(struct bench *b,
                              const char *name,
                              const char *backend,
                              enum tern_dtype dtype)
{
    open_bench_as(b, name, backend, dtype, TERN_PLACED_STORED);
}

static inline void close_bench(struct bench *b)
{
    tern_placed_fini(&b->placed);
    tern_model_fini(&b->model);
    tern_device_close(b->device);
    tern_tensor_file_close(b->expected);
    tern_pretrained_close(&b->pretrained);
}

/* ||x - y|| / ||y||; infinite when any value is not a number. */
static inline double relative_error(const float *x, const float *y, int64_t n)
{
    double difference = 0;
    double norm = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            return INFINITY;
        }
        difference += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        norm += (double)y[i] * y[i];
    }
    return sqrt(difference / norm);
}

#endif
