/* export_test.c - what is exported is what was there: every family to a folder and to GGUF and back, block
 * types within their error, and nothing left behind when it fails. */
#include "io/file.h"
#include "io/gguf_write.h"
#include "io/safetensors_write.h"
#include "runtime/base/fault.h"
#include "runtime/export/export.h"
#include "runtime/generate/weights.h"
#include "tests/base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char g_folder[] = "/tmp/tern-export-XXXXXX";

static const char *path_of(const char *name)
{
    static char paths[4][TERN_PATH_BYTES];
    static int next;
    next = (next + 1) % 4;
    snprintf(paths[next], TERN_PATH_BYTES, "%s/%s", g_folder, name);
    return paths[next];
}

static tern_status export_as(const char *model,
                             const char *out,
                             enum tern_export_format format,
                             enum tern_export_weights weights)
{
    struct tern_export_options options = {model, path_of(out), format, weights, NULL};
    return tern_export(&options, NULL);
}

/* All values of a parameter. */
static float *values_of(struct tern_weights *weights, const struct tern_param *param)
{
    float *values = tern_alloc("test", (size_t)param->size * sizeof *values);
    assert_int_equal(tern_weights_read(weights, param, 0, param->shape[0], values), TERN_OK);
    return values;
}

/* The largest difference of any value, divided by the largest value of its tensor. */
static double compare(const char *first, const char *second)
{
    struct tern_weights *a, *b;
    struct tern_params params;
    double worst = 0;
    assert_int_equal(tern_weights_open(first, &a), TERN_OK);
    if (tern_weights_open(second, &b) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    assert_int_equal(tern_params_init(&params, tern_weights_config(a)), TERN_OK);
    assert_int_equal(tern_weights_check(b, &params), TERN_OK);
    for (int i = 0; i < params.count; i++) {
        float *x = values_of(a, &params.items[i]), *y = values_of(b, &params.items[i]);
        double peak = 0, error = 0;
        for (int64_t k = 0; k < params.items[i].size; k++) {
            peak = fmax(peak, fabs((double)x[k]));
            error = fmax(error, fabs((double)x[k] - (double)y[k]));
        }
        worst = fmax(worst, error / peak);
        tern_free(x);
        tern_free(y);
    }
    tern_params_fini(&params);
    tern_weights_close(a);
    tern_weights_close(b);
    return worst;
}

static const struct {
    const char *name;
    const char *refused; /* by GGUF, in these words; NULL: it is not */
} g_families[] = {
    {"gpt2_untied", NULL},
    {"llama_biased", NULL},
    {"llama_dynamic", "rotary positions of type dynamic"},
    {"llama_longrope", NULL},
    {"llama_yarn_mscale", "yarn with truncate = false"},
    {"mistral", NULL},
    {"qwen2_windowed", "a sliding window in some of the layers"},
    {"qwen3_biased", "biases at the end of attention"},
    {"gemma", NULL},
    {"gemma2", "this query_pre_attn_scalar"},
    {"gemma3_pattern", "biases at the end of attention"},
    {"phi3_longrope_long", NULL},
    {"mixtral", NULL},
    {"qwen3_moe_raw", "shares are not made to sum to 1"},
};

static void test_every_family(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_families / sizeof *g_families; i++) {
        char source[TERN_PATH_BYTES];
        snprintf(source, sizeof source, "%s/families/%s", TERN_GOLDEN, g_families[i].name);
        assert_int_equal(export_as(source, "f32", TERN_EXPORT_HF, TERN_EXPORT_F32), TERN_OK);
        assert_true(compare(source, path_of("f32")) == 0);
        assert_int_equal(export_as(source, "bf16", TERN_EXPORT_HF, TERN_EXPORT_BF16), TERN_OK);
        double error = compare(source, path_of("bf16"));
        assert_true(error > 0 && error <= 0x1p-8);
        tern_status status = export_as(source, "m.gguf", TERN_EXPORT_GGUF, TERN_EXPORT_F32);
        if (g_families[i].refused != NULL) {
            assert_int_equal(status, TERN_ERR_UNSUPPORTED);
            assert_contains(tern_detail(), g_families[i].refused);
            assert_false(tern_file_exists(path_of("m.gguf")));
            assert_false(tern_file_exists(path_of("m.gguf.partial")));
        } else {
            assert_int_equal(status, TERN_OK);
            error = compare(source, path_of("m.gguf"));
            assert_true(error < 2e-7); /* norms are stored plus one */
            assert_int_equal(export_as(path_of("m.gguf"), "back", TERN_EXPORT_HF, TERN_EXPORT_AUTO),
                             TERN_OK);
            assert_true(compare(path_of("m.gguf"), path_of("back")) < 2e-7);
        }
        static const char *const names[] = {"f32", "bf16", "m.gguf", "back"};
        for (int k = 0; k < 4; k++) {
            assert_int_equal(tern_file_remove_tree(path_of(names[k])), TERN_OK);
        }
    }
}

/* A llama whose rows are whole blocks, as a folder. */
static void make_wide(const char *folder)
{
    struct tern_model_config config = {.family = TERN_FAMILY_LLAMA,
                                       .layers = 4,
                                       .width = 256,
                                       .heads = 4,
                                       .kv_heads = 2,
                                       .ff_width = 512,
                                       .context = 64,
                                       .vocab_size = 96,
                                       .tied_embeddings = true,
                                       .rope_theta = 1e4f};
    struct tern_params params;
    struct tern_text text;
    struct tern_safetensors_writer *writer;
    char path[TERN_PATH_BYTES];
    tern_model_config_defaults(&config);
    assert_int_equal(tern_model_config_check(&config), TERN_OK);
    assert_int_equal(tern_params_init(&params, &config), TERN_OK);
    assert_int_equal(tern_file_make_folder(folder), TERN_OK);
    tern_text_init(&text);
    assert_int_equal(tern_hf_config_print(&config, NULL, TERN_F32, &text), TERN_OK);
    assert_int_equal(tern_path_join(path, folder, "config.json"), TERN_OK);
    assert_int_equal(tern_file_replace(path, text.data, text.length), TERN_OK);
    tern_text_fini(&text);
    struct tern_stored_tensor *stored =
        tern_alloc_zero("test", (size_t)params.count, sizeof *stored);
    for (int i = 0; i < params.count; i++) {
        const struct tern_param *p = &params.items[i];
        stored[i] = (struct tern_stored_tensor){
            .name = p->name, .rank = p->rank, .shape = {p->shape[0], p->shape[1]}};
    }
    assert_int_equal(tern_safetensors_create(folder, stored, params.count,
                                             TERN_SAFETENSORS_SHARD_BYTES, &writer),
                     TERN_OK);
    for (int i = 0; i < params.count; i++) {
        const struct tern_param *p = &params.items[i];
        float *values = tern_alloc("test", (size_t)p->size * sizeof *values);
        tern_param_initial(&params, p, config.layers, 3, 0, p->size, values);
        assert_int_equal(tern_safetensors_append(writer, values, (size_t)p->size * sizeof *values),
                         TERN_OK);
        tern_free(values);
    }
    assert_int_equal(tern_safetensors_finish(writer), TERN_OK);
    tern_free(stored);
    tern_params_fini(&params);
}

static enum tern_dtype type_in(const struct tern_gguf *gguf, const char *name)
{
    return tern_tensor_file_find(tern_gguf_tensors(gguf), name)->dtype;
}

static void test_block_types(void **state)
{
    (void)state;
    static const struct {
        enum tern_export_weights weights;
        double error; /* of the largest value */
    } rows[] = {{TERN_EXPORT_F16, 0x1p-11},
                {TERN_EXPORT_Q8_0, 0.01},
                {TERN_EXPORT_Q4_0, 0.2},
                {TERN_EXPORT_Q4_K_M, 0.15}};
    struct tern_gguf *gguf;
    int64_t type;
    make_wide(path_of("wide"));
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(export_as(path_of("wide"), "b.gguf", TERN_EXPORT_GGUF, rows[i].weights),
                         TERN_OK);
        double error = compare(path_of("wide"), path_of("b.gguf"));
        assert_true(error > rows[i].error / 10 && error < rows[i].error);
        assert_int_equal(tern_file_remove_tree(path_of("b.gguf")), TERN_OK);
    }
    assert_int_equal(export_as(path_of("wide"), "b.gguf", TERN_EXPORT_GGUF, TERN_EXPORT_Q4_K_M),
                     TERN_OK);
    assert_int_equal(tern_gguf_open(path_of("b.gguf"), &gguf), TERN_OK);
    assert_int_equal(tern_gguf_i64(gguf, "general.file_type", &type), TERN_OK);
    assert_int_equal(type, 15);
    assert_int_equal(type_in(gguf, "token_embd.weight"), TERN_Q6_K);
    assert_int_equal(type_in(gguf, "blk.0.attn_q.weight"), TERN_Q4_K);
    assert_int_equal(type_in(gguf, "blk.0.attn_v.weight"), TERN_Q4_K);
    assert_int_equal(type_in(gguf, "blk.2.ffn_down.weight"), TERN_Q6_K);
    assert_int_equal(type_in(gguf, "blk.3.attn_v.weight"), TERN_Q6_K);
    assert_int_equal(type_in(gguf, "blk.0.attn_norm.weight"), TERN_F32);
    tern_gguf_close(gguf);
    assert_int_equal(tern_file_remove_tree(path_of("b.gguf")), TERN_OK);
}

/* Importances for one matrix: its first 4 columns count a hundred times. */
static void make_imatrix(const char *path, const char *type, int64_t width, float value)
{
    struct tern_gguf_writer *writer;
    float *sums = tern_alloc("test", (size_t)width * sizeof *sums), count = 10;
    struct tern_stored_tensor tensors[2] = {
        {.name = "blk.0.ffn_up.weight.in_sum2", .rank = 2, .shape = {1, width}},
        {.name = "blk.0.ffn_up.weight.counts", .rank = 2, .shape = {1, 1}}};
    for (int64_t i = 0; i < width; i++) {
        sums[i] = i < 4 ? 100 * value : value;
    }
    assert_int_equal(tern_gguf_create(&writer), TERN_OK);
    tern_gguf_put_string(writer, "general.type", type, strlen(type));
    tern_gguf_put_tensor(writer, &tensors[0]);
    tern_gguf_put_tensor(writer, &tensors[1]);
    assert_int_equal(tern_gguf_begin(writer, path), TERN_OK);
    assert_int_equal(tern_gguf_append(writer, sums, (size_t)width * sizeof *sums), TERN_OK);
    assert_int_equal(tern_gguf_append(writer, &count, sizeof count), TERN_OK);
    assert_int_equal(tern_gguf_finish(writer), TERN_OK);
    tern_free(sums);
}

static double error_of_important(const char *file)
{
    struct tern_weights *a, *b;
    struct tern_params params;
    double error = 0;
    assert_int_equal(tern_weights_open(path_of("wide"), &a), TERN_OK);
    assert_int_equal(tern_weights_open(path_of(file), &b), TERN_OK);
    assert_int_equal(tern_params_init(&params, tern_weights_config(a)), TERN_OK);
    const struct tern_param *param = tern_params_find(&params, TERN_ROLE_UP2_WEIGHT, 0);
    float *x = values_of(a, param), *y = values_of(b, param);
    for (int64_t i = 0; i < param->size; i++) {
        double rest = (double)x[i] - (double)y[i];
        error += i % param->shape[1] < 4 ? rest * rest : 0;
    }
    tern_free(x);
    tern_free(y);
    tern_params_fini(&params);
    tern_weights_close(a);
    tern_weights_close(b);
    return error;
}

static void test_imatrix(void **state)
{
    (void)state;
    struct tern_export_options options = {path_of("wide"), path_of("with.gguf"), TERN_EXPORT_GGUF,
                                          TERN_EXPORT_Q4_0, path_of("imatrix.gguf")};
    make_imatrix(path_of("imatrix.gguf"), "imatrix", 256, 1);
    assert_int_equal(export_as(path_of("wide"), "without.gguf", TERN_EXPORT_GGUF, TERN_EXPORT_Q4_0),
                     TERN_OK);
    options.model = path_of("wide");
    options.imatrix = path_of("imatrix.gguf");
    options.out = path_of("with.gguf");
    assert_int_equal(tern_export(&options, NULL), TERN_OK);
    assert_true(error_of_important("with.gguf") < 0.7 * error_of_important("without.gguf"));
    static const struct {
        const char *type;
        int64_t width;
        float value;
        const char *said;
    } bad[] = {
        {"model", 256, 1, "key 'general.type' is not 'imatrix'"},
        {"imatrix", 128, 1, "has 128 sums and 1 counts, expected 256 columns for part 0"},
        {"imatrix", 256, -1, "column 0 of 'blk.0.ffn_up.weight' has the importance -10"},
        {"imatrix", 256, NAN, "has the importance"},
    };
    options.out = path_of("bad.gguf");
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(tern_file_remove(path_of("imatrix.gguf")), TERN_OK);
        make_imatrix(path_of("imatrix.gguf"), bad[i].type, bad[i].width, bad[i].value);
        options.model = path_of("wide");
        options.imatrix = path_of("imatrix.gguf");
        options.out = path_of("bad.gguf");
        assert_int_equal(tern_export(&options, NULL), TERN_ERR_INPUT);
        assert_contains(tern_detail(), bad[i].said);
        assert_false(tern_file_exists(path_of("bad.gguf")));
        assert_false(tern_file_exists(path_of("bad.gguf.partial")));
    }
}

static void test_refusals(void **state)
{
    (void)state;
    assert_int_equal(export_as(path_of("wide"), "wide", TERN_EXPORT_HF, TERN_EXPORT_AUTO),
                     TERN_ERR_USAGE);
    assert_contains(tern_detail(), "wide is there already, expected a name that is free");
    assert_int_equal(export_as(path_of("wide"), "x", TERN_EXPORT_HF, TERN_EXPORT_Q8_0),
                     TERN_ERR_USAGE);
    assert_contains(tern_detail(), "expected f32, bf16 or f16 with --format hf");
    assert_int_equal(export_as(path_of("none"), "x", TERN_EXPORT_HF, TERN_EXPORT_AUTO),
                     TERN_ERR_NOT_FOUND);
    struct tern_export_options options = {path_of("wide"), path_of("x"), TERN_EXPORT_GGUF,
                                          TERN_EXPORT_F16, "i.gguf"};
    assert_int_equal(tern_export(&options, NULL), TERN_ERR_USAGE);
    assert_contains(tern_detail(), "--imatrix is for block types");
    assert_false(tern_file_exists(path_of("x")));
}

/* What an interrupted export left is in nobody's way; a full disk leaves nothing. */
static void test_failures_leave_nothing(void **state)
{
    (void)state;
    assert_int_equal(tern_file_make_folder(path_of("again.partial/deep")), TERN_OK);
    assert_int_equal(export_as(path_of("wide"), "again", TERN_EXPORT_HF, TERN_EXPORT_AUTO),
                     TERN_OK);
    assert_false(tern_file_exists(path_of("again.partial")));
    assert_true(compare(path_of("wide"), path_of("again")) == 0);
#if TERN_FAULTS
    static const char *const faults[] = {"file.write:enospc", "file.write@3:eio", "file.fsync:eio",
                                         "file.open:eio", "file.rename:eio"};
    for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
        for (int format = 0; format < 2; format++) {
            setenv("TERN_FAULT", faults[i], 1);
            assert_int_equal(tern_fault_init(), TERN_OK);
            tern_status status = export_as(path_of("wide"), "failed",
                                           (enum tern_export_format)format, TERN_EXPORT_F32);
            unsetenv("TERN_FAULT");
            assert_int_equal(tern_fault_init(), TERN_OK);
            if (status == TERN_OK) { /* a GGUF file takes fewer writes */
                assert_int_equal(tern_file_remove_tree(path_of("failed")), TERN_OK);
                assert_true(format == TERN_EXPORT_GGUF);
                continue;
            }
            assert_true(status == TERN_ERR_IO || status == TERN_ERR_NO_SPACE);
            assert_false(tern_file_exists(path_of("failed")));
            assert_false(tern_file_exists(path_of("failed.partial")));
        }
    }
#endif
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_every_family),
        CHECKED(test_block_types),
        CHECKED(test_imatrix),
        CHECKED(test_refusals),
        CHECKED(test_failures_leave_nothing),
    };
    if (mkdtemp(g_folder) == NULL) {
        return 1;
    }
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    return tern_file_remove_tree(g_folder) == TERN_OK ? failed : 1;
}
