/* config_test.c - a run's configuration: defaults, presets, what must hold between keys, and the
 * way back. */
#include "runtime/train/config.h"
#include "tests/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char g_small[] = "model: {preset: llama-tiny}\n"
                              "data: {train: a.bin}\n"
                              "train: {steps: 100}\n";

static tern_status parse_with(const char *text,
                              const char *const *overrides,
                              int count,
                              struct tern_train_config *out)
{
    return tern_train_config_parse("run.yaml", text, strlen(text), overrides, count, out);
}

static void test_defaults(void **state)
{
    (void)state;
    struct tern_train_config config;
    assert_int_equal(parse_with(g_small, NULL, 0, &config), TERN_OK);
    assert_int_equal(config.train.steps, 100);
    assert_int_equal(config.train.lanes, 8);
    assert_int_equal(config.train.micro_batch, 1);
    assert_int_equal(config.train.global_batch, 8);
    assert_int_equal(config.train.sequence_length, config.model.context);
    assert_int_equal(config.train.precision, TERN_PRECISION_BF16);
    assert_true(config.train.deterministic);
    assert_int_equal(config.train.recompute, TERN_RECOMPUTE_NONE);
    assert_int_equal(config.train.seed, 1234);
    assert_int_equal(config.train.eval_every, 250);
    assert_int_equal(config.train.eval_tokens, 1048576);
    assert_int_equal(config.train.on_nonfinite, TERN_NONFINITE_STOP);
    assert_true(config.optimizer.lr == 6e-4 && config.optimizer.lr_min == 6e-4 / 10);
    assert_true(config.optimizer.beta1 == 0.9 && config.optimizer.beta2 == 0.95);
    assert_true(config.optimizer.eps == 1e-8 && config.optimizer.decay_fraction == 0.1);
    assert_int_equal(config.optimizer.warmup_steps, 10);
    assert_int_equal(config.checkpoint.keep, 3);
    assert_int_equal(config.checkpoint.every_steps, 500);
    assert_int_equal(config.checkpoint.snapshot_every_steps, -1);
    assert_int_equal(config.checkpoint.compression, TERN_COMPRESSION_AUTO);
    assert_null(config.checkpoint.remote);
    assert_int_equal(config.reclaim.notices.count, 2);
    assert_true(config.reclaim.deadline_seconds == 25);
    assert_int_equal(config.parallel.zero, 0);
    assert_int_equal(config.parallel.tensor, 1);
    assert_int_equal(config.model.vocab_size, 0);
    tern_train_config_fini(&config);
}

static void test_preset_with_overrides(void **state)
{
    (void)state;
    const char *const overrides[] = {"model.preset=gpt2-124m", "model.width=384", "model.heads=6",
                                     "model.context=256"};
    struct tern_train_config config;
    assert_int_equal(parse_with(g_small, overrides, 4, &config), TERN_OK);
    assert_int_equal(config.model.family, TERN_FAMILY_GPT2);
    assert_int_equal(config.model.layers, 12);
    assert_int_equal(config.model.width, 384);
    assert_int_equal(config.model.heads, 6);
    assert_int_equal(config.model.kv_heads, 6);
    assert_int_equal(config.model.head_width, 64);
    assert_int_equal(config.model.ff_width, 1536);
    assert_int_equal(config.model.vocab_size, 50257);
    assert_true(config.model.tied_embeddings);
    assert_int_equal(config.train.sequence_length, 256);
    tern_train_config_fini(&config);

    const char *const llama[] = {"model.preset=smollm2-135m", "model.tied_embeddings=false",
                                 "model.kv_heads=9"};
    assert_int_equal(parse_with(g_small, llama, 3, &config), TERN_OK);
    assert_int_equal(config.model.kv_heads, 9);
    assert_int_equal(config.model.head_width, 64);
    assert_int_equal(config.model.ff_width, 1536);
    assert_false(config.model.tied_embeddings);
    tern_train_config_fini(&config);
}

static void test_family_decides_what_is_not_written(void **state)
{
    (void)state;
    static const char format[] =
        "model: {family: %s, layers: 2, width: 64, heads: 4, context: 32}\n"
        "data: {train: a.bin}\ntrain: {steps: 1}\n";
    char text[512];
    struct tern_train_config config;
    snprintf(text, sizeof text, format, "gpt2");
    assert_int_equal(parse_with(text, NULL, 0, &config), TERN_OK);
    assert_true(config.model.tied_embeddings);
    assert_int_equal(config.model.ff_width, 256);
    tern_train_config_fini(&config);
    snprintf(text, sizeof text, format, "llama");
    assert_int_equal(parse_with(text, NULL, 0, &config), TERN_OK);
    assert_false(config.model.tied_embeddings);
    assert_int_equal(config.model.ff_width, 192);
    tern_train_config_fini(&config);
}

static void test_words_are_the_modules_own(void **state)
{
    (void)state;
    const struct tern_config_row *row = &tern_train_schema.rows[0];
    assert_string_equal(row->key, "family");
    for (int i = 0; i < TERN_FAMILY_COUNT; i++) {
        assert_string_equal(row->choices[i], tern_family_name(i));
    }
    assert_null(row->choices[TERN_FAMILY_COUNT]);
    for (int i = 0; i < tern_train_schema.row_count; i++) {
        row = &tern_train_schema.rows[i];
        assert_true(row->help != NULL && strlen(row->help) > 5 && strchr(row->help, '\n') == NULL);
        for (int j = 0; j < i; j++) {
            const struct tern_config_row *other = &tern_train_schema.rows[j];
            assert_false(strcmp(row->section, other->section) == 0 &&
                         strcmp(row->key, other->key) == 0);
        }
    }
}

/* Equal when written: the writer prints every field, shortest digits that read back. */
static void check_round_trip(const char *const *overrides, int count)
{
    struct tern_train_config config;
    struct tern_train_config back;
    struct tern_text first;
    struct tern_text second;
    tern_text_init(&first);
    tern_text_init(&second);
    if (parse_with(g_small, overrides, count, &config) != TERN_OK) {
        fail_msg("%s", tern_detail());
    }
    assert_int_equal(tern_train_config_write(&config, &first), TERN_OK);
    if (tern_train_config_parse("out.yaml", first.data, first.length, NULL, 0, &back) != TERN_OK) {
        fail_msg("what was written is not read: %s\n%s", tern_detail(), first.data);
    }
    assert_int_equal(tern_train_config_write(&back, &second), TERN_OK);
    assert_string_equal(first.data, second.data);
    assert_memory_equal(&back.model, &config.model, sizeof config.model);
    assert_memory_equal(&back.train, &config.train, sizeof config.train);
    assert_memory_equal(&back.optimizer, &config.optimizer, sizeof config.optimizer);
    tern_train_config_fini(&config);
    tern_train_config_fini(&back);
    tern_text_fini(&first);
    tern_text_fini(&second);
}

static void test_resolved_file_reads_back(void **state)
{
    (void)state;
    for (int i = 0; tern_preset_name(i) != NULL; i++) {
        char preset[64];
        snprintf(preset, sizeof preset, "model.preset=%s", tern_preset_name(i));
        const char *const overrides[] = {preset, "train.sequence_length=128"};
        check_round_trip(overrides, 2);
    }
    const char *const rest[] = {"train.steps=0",
                                "train.tokens=10e9",
                                "optimizer.lr=1e-3",
                                "optimizer.lr_min=1e-4",
                                "optimizer.betas=[0.8, 0.999]",
                                "optimizer.schedule=wsd",
                                "checkpoint.compression=zstd:7",
                                "checkpoint.snapshot_every_steps=20",
                                "checkpoint.every_seconds=1.5",
                                "data.train=[b.bin, 'c d.bin']",
                                "data.weights=[0.3, 0.7]",
                                "data.tokenizer=t: x.json",
                                "data.val=[]",
                                "reclaim.notices=[file]",
                                "parallel.zero=1",
                                "checkpoint.remote=null"};
    check_round_trip(rest, sizeof rest / sizeof rest[0]);
    const char *const none[] = {"checkpoint.compression=none", "train.recompute=block",
                                "train.precision=fp32", "train.deterministic=false"};
    check_round_trip(none, 4);
}

static const struct {
    const char *overrides[3];
    const char *expected;
} g_bad[] = {
    {{"train.steps=0"}, "train.steps: found 0, expected train.steps or train.tokens above 0"},
    {{"train.tokens=1e6"}, "train.tokens: found 1000000 beside train.steps 100, expected only one"},
    {{"train.global_batch=12"}, "found 12, expected a multiple of lanes x micro_batch = 8 x 1 = 8"},
    {{"train.global_batch=12", "train.micro_batch=3"}, "8 x 3 = 24, such as 24"},
    {{"train.lanes=12"}, "train.lanes: found 12, expected a power of two"},
    {{"train.lanes=128"}, "found '128', expected a whole number from 1 to 64"},
    {{"train.sequence_length=1024"}, "found 1024, expected at most model.context (512)"},
    {{"checkpoint.keep=1"}, "checkpoint.keep: found '1', expected a whole number from 2"},
    {{"optimizer.lr_min=1"}, "optimizer.lr_min: found 1, expected at most optimizer.lr (0.0006)"},
    {{"optimizer.lr=1e-5", "optimizer.lr_min=1e-4"},
     "found 0.0001, expected at most optimizer.lr (1e-05)"},
    {{"optimizer.warmup_steps=101"}, "found 101, expected at most the 100 steps of the run"},
    {{"train.steps=0", "train.tokens=81920", "optimizer.warmup_steps=21"}, "at most the 20 steps"},
    {{"optimizer.betas=[0.9]"}, "optimizer.betas: found '[0.9]', expected [a, b]"},
    {{"optimizer.betas=[0.9, 1]"}, "expected [a, b], two numbers of at least 0 and below 1"},
    {{"optimizer.betas=[0.9, 0.9, 0.9]"}, "expected [a, b], two numbers"},
    {{"optimizer.betas=0.9"}, "found '0.9', expected [a, b]"},
    {{"optimizer.name=adam"}, "optimizer.name: found 'adam', expected adamw"},
    {{"optimizer.schedule=cosin"},
     "expected one of cosine, linear, constant, wsd; nearest is 'cosine'"},
    {{"data.weights=[1, 2]"},
     "found 2 weights, expected one for each of the 1 entries of data.train"},
    {{"data.weights=[0]"},
     "data.weights: found '0', expected a list, [a, b], each a number above 0"},
    {{"data.train=[]"}, "data.train: found no files, expected at least one"},
    {{"data.train=['']"}, "found an empty text as entry 1, expected a path or glob"},
    {{"data.format=chat", "data.tokenizer=null"}, "data.format: found chat without data.tokenizer"},
    {{"checkpoint.remote=bucket/p"},
     "found 'bucket/p', expected s3://BUCKET/PREFIX, gs://BUCKET/PREFIX"},
    {{"checkpoint.compression=zstd"}, "expected auto, none or zstd:LEVEL with LEVEL from 1 to 19"},
    {{"checkpoint.compression=zstd:20"}, "found 'zstd:20'"},
    {{"checkpoint.snapshot_every_steps=-1"},
     "found '-1', expected auto or a whole number of at least 0"},
    {{"reclaim.notices=[aws, awss]"}, "found 'awss', expected signal, file, auto, aws, azure, gcp"},
    {{"reclaim.notices=[sginal]"}, "slurm; nearest is 'signal'"},
    {{"reclaim.end_time=tomorrow"}, "found 'tomorrow', expected a moment such as 2026"},
    {{"reclaim.poll_seconds=-1"}, "reclaim.poll_seconds: found '-1'"},
    {{"parallel.zero=2"}, "parallel.zero: found 2, expected 0 or 1"},
    {{"parallel.tensor=2"},
     "parallel.tensor: found 2, expected 1: more is not supported by this build"},
    {{"parallel.pipeline=4"}, "parallel.pipeline: found 4, expected 1"},
    {{"parallel.context=2"}, "parallel.context: found 2, expected 1"},
    {{"parallel.expert=2"}, "parallel.expert: found 2, expected 1"},
    {{"model.preset=llama-tinny"},
     "found 'llama-tinny', expected a known preset; nearest is 'llama-tiny'"},
    {{"model.family=gpt2"},
     "model.family: found gpt2, expected llama as model.preset llama-tiny has it"},
    {{"model.heads=7"}, "model.width: found 320, expected a multiple of model.heads (7)"},
    {{"model.width=322"}, "model.width: found 322, expected a multiple of model.heads (5)"},
    {{"model.kv_heads=2"}, "model.kv_heads: found 2, expected a divisor of model.heads (5)"},
    {{"model.head_width=63"}, "model.head_width: found 63, expected an even number"},
    {{"model.rope_scaling=llama3"},
     "model.rope_factor: found 0, expected at least 1 with rope_scaling llama3"},
    {{"model.preset="}, "model.family: missing, expected gpt2 or llama, or a model.preset"},
    {{"model.preset=", "model.family=llama"},
     "model.layers: missing, expected a whole number above 0"},
};

static void test_combinations(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof g_bad / sizeof g_bad[0]; i++) {
        int count = 0;
        while (count < 3 && g_bad[i].overrides[count] != NULL) {
            count++;
        }
        struct tern_train_config config;
        tern_status status = parse_with(g_small, g_bad[i].overrides, count, &config);
        if (status != TERN_ERR_CONFIG || strstr(tern_detail(), g_bad[i].expected) == NULL) {
            fail_msg("%s: %s\n  found    %s\n  expected %s", g_bad[i].overrides[0],
                     tern_status_name(status), status == TERN_OK ? "" : tern_detail(),
                     g_bad[i].expected);
        }
        tern_train_config_fini(&config);
    }
}

static void test_problems_come_together_with_places(void **state)
{
    (void)state;
    static const char text[] = "model:\n  family: llama\n  layers: two\n"
                               "data:\n  val: x.bin\n"
                               "train:\n  tokens: 1e9\n  steps: 5\n  lanes: 3\n  global_batch: 7\n"
                               "optimizer:\n  lr: fast\n  lr_min: 1\n";
    const char *const parts[] = {
        "run.yaml:3:11: model.layers: found 'two'",
        "run.yaml:12:7: optimizer.lr: found 'fast'",
        "run.yaml:4:1: data.train: found no files",
        "run.yaml:7:3: train.tokens: found 1000000000 beside train.steps 5",
        "run.yaml:9:3: train.lanes: found 3",
        "run.yaml:10:3: train.global_batch: found 7, expected a multiple",
        "run.yaml: 6 problems; nothing was started", /* a bad lr says nothing about lr_min */
    };
    struct tern_train_config config;
    assert_int_equal(parse_with(text, NULL, 0, &config), TERN_ERR_CONFIG);
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        assert_contains(tern_detail(), parts[i]);
    }
    tern_train_config_fini(&config);
}

static void test_files(void **state)
{
    (void)state;
    char path[] = "/tmp/tern-config-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, g_small, strlen(g_small)), strlen(g_small));
    struct tern_train_config config;
    assert_int_equal(tern_train_config_read(path, NULL, 0, &config), TERN_OK);
    tern_train_config_fini(&config);
    assert_int_equal(ftruncate(fd, TERN_CONFIG_FILE_BYTES_MAX + 1), 0);
    assert_int_equal(tern_train_config_read(path, NULL, 0, &config), TERN_ERR_CONFIG);
    assert_contains(tern_detail(), path);
    tern_train_config_fini(&config);
    close(fd);
    unlink(path);
    assert_int_equal(tern_train_config_read(path, NULL, 0, &config), TERN_ERR_CONFIG);
    assert_contains(tern_detail(), path);
    tern_train_config_fini(&config);
    assert_int_equal(tern_train_config_read("/tmp", NULL, 0, &config), TERN_ERR_CONFIG);
    assert_contains(tern_detail(), "/tmp: found a folder, expected a configuration file");
    tern_train_config_fini(&config);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_defaults),
        CHECKED(test_preset_with_overrides),
        CHECKED(test_family_decides_what_is_not_written),
        CHECKED(test_words_are_the_modules_own),
        CHECKED(test_resolved_file_reads_back),
        CHECKED(test_combinations),
        CHECKED(test_problems_come_together_with_places),
        CHECKED(test_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
