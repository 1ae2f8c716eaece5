/* params_test.c - the parameter tables against the published counts, and what the layout promises. */
#include "models/params.h"
#include "runtime/base/mem.h"
#include "tests/base/check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static void published_counts(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        int64_t count;
    } rows[] = {
        {"gpt2-124m", 124439808},     {"gpt2-355m", 354823168},    {"gpt2-774m", 774030080},
        {"gpt2-1558m", 1557611200},   {"smollm2-135m", 134515008}, {"llama-3.2-1b", 1235814400},
        {"llama-3.1-8b", 8030261248},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_model_config config;
        struct tern_params params;
        assert_true(tern_preset_find(rows[i].preset, &config));
        assert_int_equal(tern_model_config_check(&config), TERN_OK);
        assert_int_equal(tern_params_init(&params, &config), TERN_OK);
        print_message("%s: %lld parameters\n", rows[i].preset, (long long)params.parameter_count);
        assert_int_equal(params.parameter_count, rows[i].count);
        tern_params_fini(&params);
    }
}

/* The rows of every family, by what its authors say that a model of it has. */
static void published_families(void **state)
{
    (void)state;
    static const struct {
        const char *model;
        struct tern_model_config config;
        int64_t count;
    } rows[] = {
        {"Mistral-7B-v0.1",
         {.family = TERN_FAMILY_MISTRAL,
          .layers = 32,
          .width = 4096,
          .heads = 32,
          .kv_heads = 8,
          .ff_width = 14336,
          .context = 32768,
          .vocab_size = 32000},
         7241732096},
        {"Qwen2.5-0.5B",
         {.family = TERN_FAMILY_QWEN2,
          .layers = 24,
          .width = 896,
          .heads = 14,
          .kv_heads = 2,
          .ff_width = 4864,
          .context = 32768,
          .vocab_size = 151936,
          .tied_embeddings = true},
         494032768},
        {"Qwen3-0.6B",
         {.family = TERN_FAMILY_QWEN3,
          .layers = 28,
          .width = 1024,
          .heads = 16,
          .kv_heads = 8,
          .ff_width = 3072,
          .context = 40960,
          .vocab_size = 151936,
          .tied_embeddings = true},
         596049920},
        {"gemma-2-2b",
         {.family = TERN_FAMILY_GEMMA2,
          .layers = 26,
          .width = 2304,
          .heads = 8,
          .kv_heads = 4,
          .ff_width = 9216,
          .context = 8192,
          .vocab_size = 256000,
          .tied_embeddings = true},
         2614341888},
        {"gemma-3-270m",
         {.family = TERN_FAMILY_GEMMA3,
          .layers = 18,
          .width = 640,
          .heads = 4,
          .kv_heads = 1,
          .ff_width = 2048,
          .context = 32768,
          .vocab_size = 262144,
          .tied_embeddings = true},
         268098176},
        {"Phi-3-mini-4k-instruct",
         {.family = TERN_FAMILY_PHI3,
          .layers = 32,
          .width = 3072,
          .heads = 32,
          .ff_width = 8192,
          .context = 4096,
          .vocab_size = 32064},
         3821079552},
        {"Mixtral-8x7B-v0.1",
         {.family = TERN_FAMILY_MIXTRAL,
          .layers = 32,
          .width = 4096,
          .heads = 32,
          .kv_heads = 8,
          .ff_width = 14336,
          .context = 32768,
          .vocab_size = 32000},
         46702792704},
        {"Qwen3-30B-A3B",
         {.family = TERN_FAMILY_QWEN3_MOE,
          .layers = 48,
          .width = 2048,
          .heads = 32,
          .kv_heads = 4,
          .head_width = 128,
          .ff_width = 6144,
          .expert_ff_width = 768,
          .context = 40960,
          .vocab_size = 151936},
         30532122624},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_model_config config = rows[i].config;
        struct tern_params params;
        tern_model_config_defaults(&config);
        assert_int_equal(tern_model_config_check(&config), TERN_OK);
        assert_int_equal(tern_params_init(&params, &config), TERN_OK);
        print_message("%s: %lld parameters\n", rows[i].model, (long long)params.parameter_count);
        assert_int_equal(params.parameter_count, rows[i].count);
        tern_params_fini(&params);
    }
}

/* Buckets cover the flat block; tensors lie inside their bucket without gaps; blocks are whole rows of one tensor. */
static void layout(void **state)
{
    (void)state;
    struct tern_model_config config;
    struct tern_params p;
    assert_true(tern_preset_find("smollm2-135m", &config));
    config.layers = 3;
    config.vocab_size = 1021;
    config.tied_embeddings = false;
    assert_int_equal(tern_params_init(&p, &config), TERN_OK);
    for (int i = 0; i < p.count; i++) {
        const struct tern_param *t = &p.items[i];
        assert_true(t->offset >= p.bucket_starts[t->bucket]);
        assert_true(t->offset + t->size <= p.bucket_starts[t->bucket + 1]);
        if (i > 0 && p.items[i - 1].bucket == t->bucket) {
            assert_int_equal(p.items[i - 1].offset + p.items[i - 1].size, t->offset);
        }
    }
    for (int b = 0; b <= p.bucket_count; b++) {
        assert_int_equal(p.bucket_starts[b] % 16, 0);
        assert_int_equal(p.block_starts[p.bucket_blocks[b]], p.bucket_starts[b]);
    }
    for (int64_t i = 0; i < p.block_count; i++) {
        const struct tern_param *t = tern_params_at(&p, p.block_starts[i]);
        assert_non_null(t);
        assert_int_equal((p.block_starts[i] - t->offset) % t->shape[1], 0);
        assert_true(p.block_starts[i + 1] > p.block_starts[i]);
        int64_t next = i + 1 < p.block_count ? p.block_starts[i + 1] : t->offset + t->size;
        assert_true(next <= t->offset + t->size + 15);
    }
    tern_params_fini(&p);
    assert_int_equal(tern_mem_stats().live_blocks, 0);
}

/* Any cut of a tensor gives the same values, and they are normal numbers of the promised spread. */
static void initial_values(void **state)
{
    (void)state;
    enum {
        N = 200000
    };
    struct tern_model_config config;
    struct tern_params p;
    assert_true(tern_preset_find("gpt2-124m", &config));
    assert_int_equal(tern_params_init(&p, &config), TERN_OK);
    float *whole = tern_alloc("test", N * sizeof *whole);
    float *parts = tern_alloc("test", N * sizeof *parts);
    assert_true(whole != NULL && parts != NULL);
    tern_param_initial(&p, &p.items[0], config.layers, 7, 0, N, whole);
    for (int64_t at = 0, step = 1; at < N; at += step, step = step % 977 + 3) {
        int64_t take = N - at < step ? N - at : step;
        tern_param_initial(&p, &p.items[0], config.layers, 7, at, take, parts + at);
    }
    assert_memory_equal(whole, parts, N * sizeof *whole);
    double mean = 0;
    double square = 0;
    double fourth = 0;
    for (int i = 0; i < N; i++) {
        double x = whole[i] / 0.02;
        mean += x / N;
        square += x * x / N;
        fourth += x * x * x * x / N;
    }
    print_message("mean %g, variance %g, fourth moment %g\n", mean, square, fourth);
    assert_true(fabs(mean) < 5 / sqrt(N));
    assert_true(fabs(square - 1) < 5 * sqrt(2.0 / N));
    assert_true(fabs(fourth - 3) < 5 * sqrt(96.0 / N));
    tern_param_initial(&p, &p.items[0], config.layers, 8, 0, N, parts);
    assert_memory_not_equal(whole, parts, N * sizeof *whole);
    tern_free(whole);
    tern_free(parts);
    tern_params_fini(&p);
}

/* Philox and the polynomials give these bits on every machine and compiler. */
static void initial_bits(void **state)
{
    (void)state;
    struct tern_model_config config;
    struct tern_params p;
    float values[4];
    uint32_t bits[4];
    assert_true(tern_preset_find("gpt2-124m", &config));
    assert_int_equal(tern_params_init(&p, &config), TERN_OK);
    tern_param_initial(&p, &p.items[0], config.layers, 1234, 0, 4, values);
    memcpy(bits, values, sizeof bits);
    print_message("%08x %08x %08x %08x\n", bits[0], bits[1], bits[2], bits[3]);
    tern_params_fini(&p);
    static const uint32_t expected[4] = {0x3c1c65c7, 0xb72cad0a, 0xbca362cb, 0x3b1199bf};
    assert_memory_equal(bits, expected, sizeof bits);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_counts), cmocka_unit_test(published_families),
        cmocka_unit_test(layout),           cmocka_unit_test(initial_values),
        cmocka_unit_test(initial_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
