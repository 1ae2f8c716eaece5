/* families_test.c - small models of every family, as Hugging Face folders, against Transformers' logits (made by
 * tests/oracles/make_families.py); and their configs through print and parse. */
#include "io/file.h"
#include "models/sequence.h"
#include "tests/models/families.h"

#include <string.h>

/* What bf16 arithmetic keeps (8 bits, some layers). */
#define RELATIVE_BF16 0.2

static const char *const g_backends[] = {"ref", "cpu"};

/* The relative error that no more than `outliers` positions exceed, `chunk` tokens at a time. */
static double worst_of(struct bench *b, int64_t chunk, int64_t outliers)
{
    struct tern_sequence *infer;
    struct tern_sequence_options options = {.positions = b->t, .chunk = chunk};
    float *logits = tern_alloc("test", (size_t)(b->t * b->v) * sizeof *logits);
    double errors[TOKENS_MAX];
    assert_non_null(logits);
    OK(tern_sequence_create(&b->model, b->device, &b->placed, &options, &infer));
    tern_sequence_expect(infer, b->t);
    for (int64_t at = 0; at < b->t; at += chunk) {
        int64_t n = b->t - at < chunk ? b->t - at : chunk;
        OK(tern_sequence_append(infer, b->ids + at, n, true, logits + at * b->v));
    }
    for (int64_t at = 0; at < b->t; at++) {
        double error = relative_error(logits + at * b->v, b->logits + at * b->v, b->v);
        int64_t k = at;
        for (; k > 0 && errors[k - 1] < error; k--) {
            errors[k] = errors[k - 1];
        }
        errors[k] = error;
    }
    tern_sequence_destroy(infer);
    tern_free(logits);
    return errors[outliers];
}

static void against_transformers(void **state)
{
    (void)state;
    static const int64_t chunks[] = {1, 7, 1000};
    for (int m = 0; m < MODEL_COUNT; m++) {
        for (size_t k = 0; k < 2; k++) {
            struct bench b;
            open_bench(&b, g_models[m], g_backends[k], TERN_F32);
            for (size_t c = 0; c < 3; c++) {
                double worst = worst_of(&b, chunks[c] < b.t ? chunks[c] : b.t, 0);
                print_message("%s on %s by %lld: %.2e\n", g_models[m], g_backends[k],
                              (long long)chunks[c], worst);
                if (!(worst <= RELATIVE)) {
                    fail_msg("%s: relative error %.3e, at most %.0e", g_models[m], worst, RELATIVE);
                }
            }
            close_bench(&b);
        }
    }
}

/* All arithmetic in bf16, weights converted: nothing in the wiring depends on the dtype. Where two experts are about as
 * good rounding may choose another, so a few positions of such a model may be far off. */
static void in_bf16(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        struct bench b;
        open_bench(&b, g_models[m], "cpu", TERN_BF16);
        double worst = worst_of(&b, b.t, b.model.config.experts > 0 ? b.t / 4 : 0);
        print_message("%s in bf16: %.2e\n", g_models[m], worst);
        close_bench(&b);
        assert_true(worst <= RELATIVE_BF16);
    }
}

/* Packed weights: their values with the bound of what is stored; in bf16 and in codes of 8 bits with that of bf16. */
static void packed(void **state)
{
    (void)state;
    static const struct {
        const char *backend;
        enum tern_placed_mode mode;
        enum tern_dtype dtype;
        double bound;
    } runs[] = {
        {"ref", TERN_PLACED_EXACT, TERN_F32, RELATIVE},
        {"cpu", TERN_PLACED_EXACT, TERN_F32, RELATIVE},
        {"cpu", TERN_PLACED_AUTO, TERN_F32, RELATIVE}, /* files in f32 stay so */
        {"cpu", TERN_PLACED_BF16, TERN_F32, RELATIVE_BF16},
        {"cpu", TERN_PLACED_BF16, TERN_BF16, RELATIVE_BF16},
        {"cpu", TERN_PLACED_Q8, TERN_F32, RELATIVE_BF16},
    };
    for (size_t i = 0; i < (size_t)MODEL_COUNT * (sizeof runs / sizeof runs[0]); i++) {
        const char *model = g_models[i % MODEL_COUNT];
        size_t run = i / MODEL_COUNT;
        struct bench b;
        open_bench_as(&b, model, runs[run].backend, runs[run].dtype, runs[run].mode);
        assert_int_not_equal(b.placed.items[0].packed, TERN_PACKED_NONE);
        bool is_rounded = runs[run].bound > RELATIVE;
        int64_t outliers = is_rounded && b.model.config.experts > 0 ? b.t / 4 : 0;
        for (int64_t chunk = 5; chunk <= b.t; chunk += b.t - 5) {
            double worst = worst_of(&b, chunk, outliers);
            print_message("%s, %s, %s, %s by %lld: %.2e\n", model, runs[run].backend,
                          tern_placed_mode_names[runs[run].mode], tern_dtype_name(runs[run].dtype),
                          (long long)chunk, worst);
            if (!(worst <= runs[run].bound)) {
                fail_msg("%s: relative error %.3e, at most %.0e", model, worst, runs[run].bound);
            }
        }
        close_bench(&b);
    }
}

/* The nll of each target is the logits' log-softmax. */
static void nll_is_of_the_logits(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        struct bench b;
        float nll[TOKENS_MAX];
        open_bench(&b, g_models[m], "cpu", TERN_F32);
        struct tern_sequence *infer;
        struct tern_sequence_options options = {.positions = b.t, .chunk = b.t};
        OK(tern_sequence_create(&b.model, b.device, &b.placed, &options, &infer));
        tern_sequence_expect(infer, b.t);
        OK(tern_sequence_nll(infer, b.ids, b.ids + 1, b.t - 1, nll));
        for (int64_t at = 0; at + 1 < b.t; at++) {
            const float *row = b.logits + at * b.v;
            double sum = 0;
            for (int64_t i = 0; i < b.v; i++) {
                sum += exp(row[i]);
            }
            double expected = log(sum) - row[b.ids[at + 1]];
            assert_true(fabs(nll[at] - expected) <= 1e-3 * (1 + fabs(expected)));
        }
        tern_sequence_destroy(infer);
        close_bench(&b);
    }
}

/* A sequence that grows beyond the original context of a longrope, without being told: the answer after its last token
 * is that of a pass over the whole. After a rewind it is the short one again. */
static void longrope_crosses(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, "llama_longrope", "cpu", TERN_F32);
    b.model.config.rope_original_context = 20;
    struct tern_sequence *infer;
    struct tern_sequence_options options = {.positions = b.t, .chunk = 8};
    float *grown = tern_alloc("test", (size_t)b.v * sizeof *grown);
    float *whole = tern_alloc("test", (size_t)b.v * sizeof *whole);
    float *before = tern_alloc("test", (size_t)b.v * sizeof *before);
    assert_true(grown != NULL && whole != NULL && before != NULL);
    OK(tern_sequence_create(&b.model, b.device, &b.placed, &options, &infer));
    for (int64_t at = 0; at < 30; at++) {
        OK(tern_sequence_append(infer, b.ids + at, 1, false, at == 9 ? before : grown));
    }
    tern_sequence_rewind(infer, 9);
    float again[128];
    assert_true(b.v <= 128);
    OK(tern_sequence_append(infer, b.ids + 9, 1, false, again));
    assert_true(relative_error(again, before, b.v) <= 1e-5);
    tern_sequence_rewind(infer, 0);
    tern_sequence_expect(infer, 30);
    for (int64_t at = 0; at < 30; at += 6) {
        OK(tern_sequence_append(infer, b.ids + at, 6, false, whole));
    }
    assert_true(relative_error(grown, whole, b.v) <= 1e-5);
    tern_sequence_destroy(infer);
    tern_free(grown);
    tern_free(whole);
    tern_free(before);
    close_bench(&b);
}

/* Weights of 32 bits on a device of the host are used where the file is mapped. */
static void borrows_weights(void **state)
{
    (void)state;
    struct bench b;
    open_bench(&b, "mistral", "cpu", TERN_F32);
    for (int i = 0; i < b.model.params.count; i++) {
        bool is_matrix = b.model.params.items[i].rank == 2;
        const void *data = b.pretrained.sources[i].tensor->data;
        assert_int_equal(b.placed.items[i].data.addr == (uint64_t)(uintptr_t)data, is_matrix);
    }
    close_bench(&b);
}

/* What print writes, parse reads as the same config; and so again. */
static void configs_survive(void **state)
{
    (void)state;
    for (int m = 0; m < MODEL_COUNT; m++) {
        char path[512];
        struct tern_pretrained p;
        struct tern_model_config again;
        struct tern_model_ids ids = {.bos = -1};
        struct tern_text text;
        snprintf(path, sizeof path, "%s/%s", TERN_FAMILIES_DIR, g_models[m]);
        OK(tern_pretrained_open(path, &p));
        tern_text_init(&text);
        OK(tern_hf_config_print(&p.config, &p.ids, TERN_F32, &text));
        OK(tern_hf_config_parse("printed", text.data, text.length, &again));
        OK(tern_hf_ids_parse("printed", text.data, text.length, &ids));
        if (memcmp(&again, &p.config, sizeof again) != 0) {
            fail_msg("%s: parsed differently after print:\n%s", g_models[m], text.data);
        }
        assert_memory_equal(&ids, &p.ids, sizeof ids);
        tern_text_fini(&text);
        tern_pretrained_close(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(against_transformers, check_no_live_blocks),
        cmocka_unit_test_teardown(in_bf16, check_no_live_blocks),
        cmocka_unit_test_teardown(packed, check_no_live_blocks),
        cmocka_unit_test_teardown(nll_is_of_the_logits, check_no_live_blocks),
        cmocka_unit_test_teardown(longrope_crosses, check_no_live_blocks),
        cmocka_unit_test_teardown(borrows_weights, check_no_live_blocks),
        cmocka_unit_test_teardown(configs_survive, check_no_live_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
