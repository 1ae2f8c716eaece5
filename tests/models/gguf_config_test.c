/* gguf_config_test.c - GGUF metadata to a config: what is read, and what is refused by name. */
#include "io/file.h"
#include "io/gguf_write.h"
#include "models/pretrained.h"
#include "tests/base/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* One key of a small file: a number, or a text. */
struct key {
    const char *name;
    double value;
    const char *text;
    char kind; /* u, f, s; l: a list of bools, a digit each in text; x: left out */
};

static const struct key g_base[] = {
    {"general.architecture", 0, "llama", 's'},
    {"llama.block_count", 2, NULL, 'u'},
    {"llama.embedding_length", 16, NULL, 'u'},
    {"llama.context_length", 64, NULL, 'u'},
    {"llama.attention.head_count", 4, NULL, 'u'},
    {"llama.attention.head_count_kv", 2, NULL, 'u'},
    {"llama.feed_forward_length", 24, NULL, 'u'},
    {"llama.attention.layer_norm_rms_epsilon", 1e-5, NULL, 'f'},
};
enum {
    BASE_COUNT = sizeof g_base / sizeof g_base[0],
    MORE_MAX = 4
};

static char g_folder[] = "/tmp/tern-gguf-config-XXXXXX";

static void put(struct tern_gguf_writer *writer, const struct key *key)
{
    if (key->kind == 'u') {
        tern_gguf_put_u32(writer, key->name, (uint32_t)key->value);
    } else if (key->kind == 'f') {
        tern_gguf_put_f32(writer, key->name, (float)key->value);
    } else if (key->kind == 's') {
        tern_gguf_put_string(writer, key->name, key->text, strlen(key->text));
    } else if (key->kind == 'l') {
        tern_gguf_put_array(writer, key->name, TERN_GGUF_BOOL, (int64_t)strlen(key->text));
        for (const char *at = key->text; *at != '\0'; at++) {
            tern_gguf_put_element_bool(writer, *at == '1');
        }
    }
}

/* The base with keys replaced or added, and one tensor, the embedding (rank dimensions of vocab, 16). */
static void write_file(const char *path, const struct key *more, int rank, int64_t vocab)
{
    struct tern_gguf_writer *writer;
    struct tern_stored_tensor tensor = {
        .name = "token_embd.weight",
        .dtype = TERN_F32,
        .rank = rank,
        .shape = {rank == 2 ? vocab : 16 * vocab, rank == 2 ? 16 : 1, 1, 1}};
    assert_int_equal(tern_gguf_create(&writer), TERN_OK);
    for (int i = 0; i < BASE_COUNT; i++) {
        bool is_replaced = false;
        for (int k = 0; k < MORE_MAX && more[k].name != NULL; k++) {
            is_replaced = is_replaced || strcmp(more[k].name, g_base[i].name) == 0;
        }
        if (!is_replaced) {
            put(writer, &g_base[i]);
        }
    }
    for (int k = 0; k < MORE_MAX && more[k].name != NULL; k++) {
        put(writer, &more[k]);
    }
    tern_gguf_put_tensor(writer, &tensor);
    assert_int_equal(tern_gguf_begin(writer, path), TERN_OK);
    float *zeros = tern_alloc_zero("test", (size_t)(16 * vocab), sizeof *zeros);
    assert_non_null(zeros);
    assert_int_equal(tern_gguf_append(writer, zeros, (size_t)(16 * vocab) * sizeof *zeros),
                     TERN_OK);
    tern_free(zeros);
    assert_int_equal(tern_gguf_finish(writer), TERN_OK);
}

static tern_status read_file(const struct key *more, int rank, struct tern_model_config *config)
{
    char path[128];
    struct tern_gguf *gguf;
    struct tern_model_ids ids = {.bos = -1};
    snprintf(path, sizeof path, "%s/a.gguf", g_folder);
    unlink(path);
    write_file(path, more, rank, 32);
    assert_int_equal(tern_gguf_open(path, &gguf), TERN_OK);
    tern_status status = tern_gguf_config_read(gguf, config, &ids);
    tern_gguf_close(gguf);
    return status;
}

struct refusal {
    struct key more[MORE_MAX];
    tern_status status;
    const char *words[3];
    int rank; /* of the embedding; 0: 2 */
};

static const struct refusal g_refusals[] = {
    {{{"general.architecture", 0, "mamba", 's'}},
     TERN_ERR_UNSUPPORTED,
     {"general.architecture", "'mamba'", "qwen3moe"},
     0},
    {{{"general.architecture", 0, "", 's'}}, TERN_ERR_UNSUPPORTED, {"general.architecture"}, 0},
    {{{"general.architecture", 7, NULL, 'u'}}, TERN_ERR_INPUT, {"general.architecture"}, 0},
    {{{"general.architecture", 0, NULL, 'x'}}, TERN_ERR_INPUT, {"general.architecture"}, 0},
    {{{"general.architecture", 0, "llama-but-with-a-name-longer-than-any", 's'}},
     TERN_ERR_UNSUPPORTED,
     {"general.architecture"},
     0},
    {{{"llama.block_count", 0, NULL, 'u'}},
     TERN_ERR_INPUT,
     {"llama.block_count", "found 0", "1 to 1024"},
     0},
    {{{"llama.block_count", 4e9, NULL, 'u'}},
     TERN_ERR_INPUT,
     {"llama.block_count", "found 4000000000"},
     0},
    {{{"llama.block_count", 0, "two", 's'}}, TERN_ERR_INPUT, {"llama.block_count"}, 0},
    {{{"llama.block_count", 0, NULL, 'x'}}, TERN_ERR_INPUT, {"llama.block_count"}, 0},
    {{{"llama.embedding_length", 0, NULL, 'u'}}, TERN_ERR_INPUT, {"llama.embedding_length"}, 0},
    {{{"llama.embedding_length", 0, NULL, 'x'}}, TERN_ERR_INPUT, {"llama.embedding_length"}, 0},
    {{{"llama.context_length", 1e9, NULL, 'u'}}, TERN_ERR_INPUT, {"llama.context_length"}, 0},
    {{{"llama.attention.head_count", 0, NULL, 'u'}}, TERN_ERR_INPUT, {"head_count", "found 0"}, 0},
    {{{"llama.attention.head_count", 0, NULL, 'x'}}, TERN_ERR_INPUT, {"head_count"}, 0},
    {{{"llama.attention.head_count_kv", 3, NULL, 'u'}},
     TERN_ERR_CONFIG,
     {"kv_heads", "found 3", "divisor"},
     0},
    {{{"llama.attention.key_length", 3, NULL, 'u'}, {"llama.attention.value_length", 3, NULL, 'u'}},
     TERN_ERR_CONFIG,
     {"head_width", "found 3", "even"},
     0},
    {{{"llama.attention.key_length", 8, NULL, 'u'}, {"llama.attention.value_length", 4, NULL, 'u'}},
     TERN_ERR_UNSUPPORTED,
     {"value_length", "found 4", "8"},
     0},
    {{{"llama.attention.key_length", 1e6, NULL, 'u'}}, TERN_ERR_INPUT, {"key_length"}, 0},
    {{{"llama.feed_forward_length", 0, NULL, 'u'}}, TERN_ERR_INPUT, {"feed_forward_length"}, 0},
    {{{"llama.attention.layer_norm_rms_epsilon", -1, NULL, 'f'}},
     TERN_ERR_INPUT,
     {"layer_norm_rms_epsilon"},
     0},
    {{{"llama.attention.layer_norm_rms_epsilon", NAN, NULL, 'f'}},
     TERN_ERR_INPUT,
     {"layer_norm_rms_epsilon"},
     0},
    {{{"llama.rope.dimension_count", 7, NULL, 'u'}}, TERN_ERR_INPUT, {"rope.dimension_count"}, 0},
    {{{"llama.rope.dimension_count", 3, NULL, 'u'}}, TERN_ERR_CONFIG, {"rope_width", "even"}, 0},
    {{{"llama.rope.freq_base", 0, NULL, 'f'}}, TERN_ERR_INPUT, {"rope.freq_base"}, 0},
    {{{"llama.rope.freq_base", INFINITY, NULL, 'f'}}, TERN_ERR_INPUT, {"rope.freq_base"}, 0},
    {{{"llama.rope.scaling.type", 0, "mrope", 's'}},
     TERN_ERR_UNSUPPORTED,
     {"rope.scaling.type", "'mrope'", "yarn"},
     0},
    {{{"llama.rope.scaling.type", 3, NULL, 'u'}}, TERN_ERR_INPUT, {"rope.scaling.type"}, 0},
    {{{"llama.rope.scaling.type", 0, "linear", 's'}},
     TERN_ERR_CONFIG,
     {"rope_factor", "linear"},
     0},
    {{{"llama.rope.scaling.type", 0, "linear", 's'}, {"llama.rope.scaling.factor", -4, NULL, 'f'}},
     TERN_ERR_INPUT,
     {"rope.scaling.factor"},
     0},
    {{{"llama.rope.scaling.type", 0, "yarn", 's'},
      {"llama.rope.scaling.factor", 4, NULL, 'f'},
      {"llama.rope.scaling.yarn_ext_factor", 0.5, NULL, 'f'}},
     TERN_ERR_UNSUPPORTED,
     {"yarn_ext_factor", "found 0.5"},
     0},
    {{{"llama.expert_count", 4, NULL, 'u'}}, TERN_ERR_INPUT, {"expert_used_count"}, 0},
    {{{"llama.expert_count", 4, NULL, 'u'}, {"llama.expert_used_count", 5, NULL, 'u'}},
     TERN_ERR_INPUT,
     {"expert_used_count", "found 5"},
     0},
    {{{"llama.expert_count", 1e6, NULL, 'u'}}, TERN_ERR_INPUT, {"expert_count"}, 0},
    {{{"llama.attention.sliding_window_pattern", 0, "010", 'l'}},
     TERN_ERR_INPUT,
     {"sliding_window_pattern", "found 3"},
     0},
    {{{"tokenizer.ggml.eos_token_id", 0, "x", 's'}}, TERN_ERR_INPUT, {"eos_token_id"}, 0},
    {{{NULL}}, TERN_ERR_INPUT, {"token_embd.weight", "another rank"}, 1},
};

static void refuses(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < sizeof g_refusals / sizeof g_refusals[0]; i++) {
        const struct refusal *row = &g_refusals[i];
        struct tern_model_config config;
        tern_status status = read_file(row->more, row->rank > 0 ? row->rank : 2, &config);
        const char *found = status == TERN_OK ? "" : tern_detail();
        bool is_good = status == row->status;
        for (size_t w = 0; w < 3 && row->words[w] != NULL; w++) {
            is_good = is_good && strstr(found, row->words[w]) != NULL;
        }
        if (!is_good) {
            print_error("%zu, %s: found %s: %s; expected %s with '%s'\n", i,
                        row->more[0].name != NULL ? row->more[0].name : "the base",
                        tern_status_name(status), found, tern_status_name(row->status),
                        row->words[0]);
            bad++;
        }
    }
    print_message("%zu files refused, %d wrongly\n", sizeof g_refusals / sizeof g_refusals[0], bad);
    assert_int_equal(bad, 0);
}

static void reads(void **state)
{
    (void)state;
    struct tern_model_config c;
    const struct key none[MORE_MAX] = {{NULL}};
    assert_int_equal(read_file(none, 2, &c), TERN_OK);
    assert_true(c.family == TERN_FAMILY_LLAMA && c.layers == 2 && c.width == 16 &&
                c.head_width == 4);
    assert_true(c.vocab_size == 32 && c.tied_embeddings && c.rope_theta == 10000 && c.window == 0);
    const struct key experts[MORE_MAX] = {{"llama.expert_count", 4, NULL, 'u'},
                                          {"llama.expert_used_count", 2, NULL, 'u'}};
    assert_int_equal(read_file(experts, 2, &c), TERN_OK);
    assert_true(c.family == TERN_FAMILY_MIXTRAL && c.experts == 4 && c.expert_ff_width == 24 &&
                c.normalizes_experts);
    const struct key yarn[MORE_MAX] = {
        {"llama.rope.scaling.type", 0, "yarn", 's'},
        {"llama.rope.scaling.factor", 4, NULL, 'f'},
        {"llama.rope.scaling.original_context_length", 16, NULL, 'u'},
        {"llama.rope.scaling.attn_factor", 0.5, NULL, 'f'}};
    assert_int_equal(read_file(yarn, 2, &c), TERN_OK);
    assert_true(c.rope_scaling == TERN_ROPE_YARN && c.rope_original_context == 16);
    assert_true(fabs(c.rope_attention_factor - 0.5 * (0.1 * log(4) + 1)) < 1e-6);
    const struct key windows[MORE_MAX] = {{"llama.attention.sliding_window", 8, NULL, 'u'},
                                          {"llama.attention.sliding_window_pattern", 0, "01", 'l'}};
    assert_int_equal(read_file(windows, 2, &c), TERN_OK);
    assert_true(tern_model_window(&c, 0) == 0 && tern_model_window(&c, 1) == 8);
    const struct key all[MORE_MAX] = {{"llama.attention.sliding_window", 8, NULL, 'u'},
                                      {"llama.attention.sliding_window_pattern", 0, NULL, 'u'}};
    assert_int_equal(read_file(all, 2, &c), TERN_OK);
    assert_true(tern_model_window(&c, 0) == 8 && tern_model_window(&c, 1) == 8);
}

static int make_scratch(void **state)
{
    (void)state;
    return mkdtemp(g_folder) == NULL;
}

static int remove_scratch(void **state)
{
    (void)state;
    return tern_file_remove_tree(g_folder) != TERN_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(refuses, check_no_live_blocks),
        cmocka_unit_test_teardown(reads, check_no_live_blocks),
    };
    return cmocka_run_group_tests(tests, make_scratch, remove_scratch);
}
