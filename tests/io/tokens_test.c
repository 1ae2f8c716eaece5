/* tokens_test.c - which window a sample is: every one once an epoch, pure, in exact shares; and
 * the batch ahead. */
#include "io/tokens.h"
#include "tests/io/shards.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>

enum {
    T_MAX = 64,
    VOCAB = 1 << 30
};

static struct tern_tokens_options options_of(const char *const *patterns,
                                             int count,
                                             int64_t length,
                                             uint64_t seed)
{
    return (struct tern_tokens_options){
        .patterns = patterns,
        .pattern_count = count,
        .sequence_length = length,
        .vocab_size = VOCAB,
        .seed = seed,
        .shuffle = true,
    };
}

static struct tern_tokens *open_tokens(const struct tern_tokens_options *options)
{
    struct tern_tokens *tokens;
    assert_ok(tern_tokens_open(options, &tokens));
    return tokens;
}

/* First input of sample k; checks that inputs and targets are consecutive ids (the shards count
 * upwards). */
static int32_t first_of(const struct tern_tokens *tokens, int64_t k)
{
    int32_t inputs[T_MAX], targets[T_MAX];
    int64_t length = tern_tokens_sequence_length(tokens);
    assert_ok(tern_tokens_sample(tokens, k, inputs, targets, NULL));
    for (int64_t i = 0; i < length; i++) {
        assert_int_equal(inputs[i], inputs[0] + i);
        assert_int_equal(targets[i], inputs[0] + i + 1);
    }
    return inputs[0];
}

/* ---- epochs ---- */

static void test_every_window_once_an_epoch(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        int32_t length = 1 + (int32_t)(draw(seed, 0) % 9);
        int32_t count = length + 1 + (int32_t)(draw(seed, 1) % 700);
        write_counting("e", 0, count);
        const char *const patterns[] = {at("e")};
        struct tern_tokens_options options = options_of(patterns, 1, length, seed);
        struct tern_tokens *tokens = open_tokens(&options);
        int64_t samples = tern_tokens_epoch_samples(tokens);
        assert_int_equal(samples, (count - 1) / length);
        assert_int_equal(tern_tokens_count(tokens), count);
        int64_t equal_places = 0;
        int32_t *first_epoch = tern_alloc("test order", (size_t)samples * sizeof *first_epoch);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            bool *seen = tern_alloc_zero("test seen", (size_t)samples, sizeof *seen);
            for (int64_t r = 0; r < samples; r++) {
                int32_t first = first_of(tokens, epoch * samples + r);
                assert_int_equal(first % length, 0);
                assert_true(first / length < samples && !seen[first / length]);
                seen[first / length] = true;
                if (epoch == 0) {
                    first_epoch[r] = first;
                } else {
                    equal_places += first == first_epoch[r];
                }
            }
            tern_free(seen);
        }
        if (samples > 50 && equal_places > samples / 4) {
            fail_msg("seed %llu: %lld of %lld places are the same in another epoch",
                     (unsigned long long)seed, (long long)equal_places, (long long)samples * 2);
        }
        tern_free(first_epoch);
        tern_tokens_close(tokens);
    }
}

static void test_without_shuffle_in_order(void **state)
{
    (void)state;
    write_counting("o1", 0, 101);
    write_counting("o2", 1000, 51);
    const char *const patterns[] = {at("o1"), at("o2")};
    struct tern_tokens_options options = options_of(patterns, 2, 10, 1);
    options.shuffle = false;
    struct tern_tokens *tokens = open_tokens(&options);
    assert_int_equal(tern_tokens_epoch_samples(tokens), 15);
    for (int64_t k = 0; k < 30; k++) {
        int64_t r = k % 15;
        assert_int_equal(first_of(tokens, k), r < 10 ? r * 10 : 1000 + (r - 10) * 10);
    }
    tern_tokens_close(tokens);
}

/* One source over several shards, in name order, windows across their borders; other seeds give
 * other orders. */
static void test_shards_are_one_source(void **state)
{
    (void)state;
    static const int32_t sizes[] = {7, 1, 2, 30, 61};
    int32_t first = 0;
    for (int i = 0; i < 5; i++) {
        char name[32];
        snprintf(name, sizeof name, "part_%d", i);
        write_counting(name, first, sizes[i]);
        first += sizes[i];
    }
    const char *const by_bin[] = {at("part_*.bin")};
    const char *const by_both[] = {at("part_*")};
    const char *const by_index[] = {at("part_*.idx")};
    const char *const *const ways[] = {by_bin, by_both, by_index};
    int64_t sums[3] = {0};
    for (int way = 0; way < 3; way++) {
        struct tern_tokens_options options = options_of(ways[way], 1, 4, 7);
        struct tern_tokens *tokens = open_tokens(&options);
        assert_int_equal(tern_tokens_count(tokens), 101);
        assert_int_equal(tern_tokens_epoch_samples(tokens), 25);
        for (int64_t k = 0; k < 25; k++) {
            sums[way] += first_of(tokens, k) * (k + 1);
        }
        tern_tokens_close(tokens);
    }
    assert_int_equal(sums[0], sums[1]);
    assert_int_equal(sums[0], sums[2]);
    struct tern_tokens_options options = options_of(by_bin, 1, 4, 8);
    struct tern_tokens *tokens = open_tokens(&options);
    int64_t other = 0;
    for (int64_t k = 0; k < 25; k++) {
        other += first_of(tokens, k) * (k + 1);
    }
    assert_int_not_equal(other, sums[0]);
    tern_tokens_close(tokens);
}

struct reader {
    const struct tern_tokens *tokens;
    const int32_t *expected;
    int64_t count;
    uint64_t seed;
    int64_t wrong;
};

static void *read_at_random(void *argument)
{
    struct reader *reader = argument;
    int32_t inputs[T_MAX], targets[T_MAX];
    for (uint64_t i = 0; i < 4000; i++) {
        int64_t k = (int64_t)(draw(reader->seed, i) % (uint64_t)reader->count);
        bool is_right = tern_tokens_sample(reader->tokens, k, inputs, targets, NULL) == TERN_OK &&
                        inputs[0] == reader->expected[k];
        reader->wrong += !is_right;
    }
    return NULL;
}

/* The same k is the same window for another instance, in any order, from several threads at
 * once. */
static void test_samples_are_pure(void **state)
{
    (void)state;
    enum {
        COUNT = 500
    };
    write_counting("p1", 0, 400);
    write_counting("p2", 5000, 300);
    const char *const patterns[] = {at("p1"), at("p2")};
    static const double weights[] = {3, 1};
    for (int weighted = 0; weighted < 2; weighted++) {
        struct tern_tokens_options options = options_of(patterns, 2, 8, 99);
        options.weights = weighted ? weights : NULL;
        int32_t expected[COUNT];
        struct tern_tokens *tokens = open_tokens(&options);
        for (int64_t k = 0; k < COUNT; k++) {
            expected[k] = first_of(tokens, k);
        }
        tern_tokens_close(tokens);
        tokens = open_tokens(&options);
        struct reader readers[3];
        pthread_t threads[3];
        for (int i = 0; i < 3; i++) {
            readers[i] = (struct reader){tokens, expected, COUNT, (uint64_t)i, 0};
            assert_int_equal(pthread_create(&threads[i], NULL, read_at_random, &readers[i]), 0);
        }
        for (int i = 0; i < 3; i++) {
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(readers[i].wrong, 0);
        }
        tern_tokens_close(tokens);
    }
}

/* ---- mixtures ---- */

/* Every block of B samples holds exactly q_i of source i, and each source's windows come once
 * each pass. */
static void test_mixture_has_exact_quotas(void **state)
{
    (void)state;
    static const struct {
        int sources;
        double weights[4];
        int64_t block;
        int64_t quotas[4];
    } cases[] = {
        {2, {0.5, 0.5}, 2, {1, 1}},      {2, {0.7, 0.3}, 10, {7, 3}},
        {3, {2, 2, 1}, 5, {2, 2, 1}},    {4, {0.25, 0, 0.5, 0.25}, 4, {1, 0, 2, 1}},
        {2, {1000, 1}, 1001, {1000, 1}}, {3, {1, 1, 1}, 3, {1, 1, 1}},
    };
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "mix%d", i);
        write_counting(name, i * 100000, 41 + 60 * i);
    }
    const char *const patterns[] = {at("mix0"), at("mix1"), at("mix2"), at("mix3")};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct tern_tokens_options options = options_of(patterns, cases[c].sources, 4, c);
        options.weights = cases[c].weights;
        struct tern_tokens *tokens = open_tokens(&options);
        int seen[4][64] = {{0}}; /* how often each window came */
        int64_t total[4] = {0};
        for (int64_t block = 0; block < 40; block++) {
            int64_t found[4] = {0};
            for (int64_t s = 0; s < cases[c].block; s++) {
                int32_t first = first_of(tokens, block * cases[c].block + s);
                found[first / 100000]++;
                seen[first / 100000][first % 100000 / 4]++;
            }
            for (int i = 0; i < cases[c].sources; i++) {
                assert_int_equal(found[i], cases[c].quotas[i]);
                total[i] += found[i];
            }
        }
        for (int i = 0; i < cases[c].sources; i++) {
            int64_t windows = (40 + 60 * i) / 4;
            for (int64_t w = 0; w < windows; w++) { /* whole passes, and a part of the next */
                assert_in_range(seen[i][w], total[i] / windows, total[i] / windows + 1);
            }
        }
        tern_tokens_close(tokens);
    }
}

/* A source of a mixture comes in another order each time it begins anew. */
static void test_mixture_passes_differ(void **state)
{
    (void)state;
    enum {
        WINDOWS = 50
    };
    write_counting("again", 0, 4 * WINDOWS + 1);
    const char *const patterns[] = {at("again")};
    static const double weights[] = {1};
    struct tern_tokens_options options = options_of(patterns, 1, 4, 6);
    options.weights = weights;
    struct tern_tokens *tokens = open_tokens(&options);
    for (int64_t pass = 0; pass < 5; pass++) {
        int64_t seen[WINDOWS] = {0};
        int64_t same = 0;
        for (int64_t k = 0; k < WINDOWS; k++) {
            int32_t first = first_of(tokens, pass * WINDOWS + k);
            seen[first / 4]++;
            same += first == first_of(tokens, (pass + 1) * WINDOWS + k);
        }
        for (int64_t w = 0; w < WINDOWS; w++) {
            assert_int_equal(seen[w], 1);
        }
        assert_true(same < WINDOWS / 4);
    }
    tern_tokens_close(tokens);
}

/* Shares that no small block has: 65536 samples, each quota within one of its share. */
static void test_mixture_of_odd_weights(void **state)
{
    (void)state;
    const char *const patterns[] = {at("mix0"), at("mix1"), at("mix2"), at("mix3")};
    static const double weights[] = {0.123456789, 0.3141592653, 0.000271828, 0.00014142};
    enum {
        BLOCK = 1 << 16
    };
    struct tern_tokens_options options = options_of(patterns, 4, 4, 5);
    options.weights = weights;
    struct tern_tokens *tokens = open_tokens(&options);
    double sum = weights[0] + weights[1] + weights[2] + weights[3];
    for (int64_t block = 0; block < 2; block++) {
        int64_t found[4] = {0};
        for (int64_t s = 0; s < BLOCK; s++) {
            found[first_of(tokens, block * BLOCK + s) / 100000]++;
        }
        for (int i = 0; i < 4; i++) {
            double share = BLOCK * weights[i] / sum;
            if (fabs((double)found[i] - share) > 1) {
                fail_msg("source %d: %lld of %d samples; expected %.2f", i, (long long)found[i],
                         BLOCK, share);
            }
        }
    }
    tern_tokens_close(tokens);
}

/* ---- refusals ---- */

static void test_refusals(void **state)
{
    (void)state;
    write_counting("tiny", 0, 10);
    write_file("odd.dat", "x", 1);
    write_file("words.txt", "some words", 10);
    const char *const tiny[] = {at("tiny")};
    const char *const none[] = {at("none_*.bin")};
    const char *const odd[] = {at("odd.dat")};
    const char *const text[] = {at("words.txt")};
    struct tern_tokens *tokens;
    struct tern_tokens_options options = options_of(tiny, 1, 10, 0);
    assert_fails(tern_tokens_open(&options, &tokens), TERN_ERR_INPUT,
                 "tiny|10 tokens|at least 11|length 10");
    assert_null(tokens);
    options = options_of(none, 1, 4, 0);
    assert_fails(tern_tokens_open(&options, &tokens), TERN_ERR_NOT_FOUND, "none_*.bin");
    options = options_of(odd, 1, 4, 0);
    assert_fails(tern_tokens_open(&options, &tokens), TERN_ERR_INPUT,
                 "odd.dat|.bin, .idx, .txt, .jsonl");
    options = options_of(text, 1, 4, 0);
    assert_fails(tern_tokens_open(&options, &tokens), TERN_ERR_CONFIG, "words.txt|tokenizer");
    options = options_of(NULL, 0, 4, 0);
    assert_fails(tern_tokens_open(&options, &tokens), TERN_ERR_CONFIG, "no data");
    static const double negative[] = {-1};
    static const double zero[] = {0};
    options = options_of(tiny, 1, 4, 0);
    options.weights = negative;
    assert_fails(tern_tokens_open(&options, &tokens), TERN_ERR_CONFIG, "tiny|-1|0 or more");
    options.weights = zero;
    assert_fails(tern_tokens_open(&options, &tokens), TERN_ERR_CONFIG, "sum to 0");
    static const double minute[] = {1, 1e-9};
    const char *const both[] = {at("mix0"), at("mix1")};
    options = options_of(both, 2, 4, 0);
    options.weights = minute;
    assert_fails(tern_tokens_open(&options, &tokens), TERN_ERR_CONFIG, "mix1|1e-09|65536");
}

static void test_ids_beyond_the_vocabulary(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 2, 3, 500, 4, 5, -6, 1, 1};
    static const int32_t all = 9;
    write_megatron("big", 4, 4, ids, &all, 1);
    write_llmc("big2.bin", 20240520, 1, 5, ids, 2);
    const char *const patterns[] = {at("big.bin"), at("big2.bin")};
    struct tern_tokens_options options = options_of(patterns, 2, 2, 0);
    options.vocab_size = 500;
    options.shuffle = false;
    struct tern_tokens *tokens = open_tokens(&options);
    int32_t inputs[2], targets[2];
    assert_ok(tern_tokens_sample(tokens, 0, inputs, targets, NULL));
    assert_fails(tern_tokens_sample(tokens, 1, inputs, targets, NULL), TERN_ERR_INPUT,
                 "big.bin|byte 12 (token 3)|id 500|499");
    assert_fails(tern_tokens_sample(tokens, 2, inputs, targets, NULL), TERN_ERR_INPUT,
                 "big.bin|byte 24 (token 6)|id -6");
    assert_ok(tern_tokens_sample(tokens, 4, inputs, targets, NULL));
    assert_fails(tern_tokens_sample(tokens, 5, inputs, targets, NULL), TERN_ERR_INPUT,
                 "big2.bin|byte 1030 (token 3)|id 500");
    assert_fails(tern_tokens_sample(tokens, -1, inputs, targets, NULL), TERN_ERR_ARGUMENT,
                 "sample -1");
    tern_tokens_close(tokens);
}

/* ---- beyond 2 GiB ---- */

/* A sparse pair of 3 GiB tokens (6 GiB) in sequences below 2^31, and a llm.c shard whose bytes
 * pass 4 GiB. */
static void test_offsets_beyond_2_gib(void **state)
{
    (void)state;
    static const int64_t count = (int64_t)3 << 30;
    static const uint16_t last[] = {11, 12, 13, 14, 15};
    struct tern_text idx;
    tern_text_init(&idx);
    assert_ok(tern_text_append(&idx, "MMIDIDX\0\0", 9));
    put(&idx, 1, 8);
    put(&idx, 8, 1);
    put(&idx, 3, 8);
    put(&idx, 4, 8);
    for (int i = 0; i < 3; i++) {
        put(&idx, 1 << 30, 4);
    }
    for (int64_t i = 0; i < 3; i++) {
        put(&idx, i << 31, 8);
    }
    for (int i = 0; i <= 3; i++) {
        put(&idx, i, 8);
    }
    write_file("huge.idx", idx.data, idx.length);
    tern_text_fini(&idx);
    int fd = open(at("huge.bin"), O_RDWR | O_CREAT, 0644);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, count * 2), 0);
    assert_int_equal(pwrite(fd, last, sizeof last, count * 2 - (int64_t)sizeof last), sizeof last);
    close(fd);
    const char *const patterns[] = {at("huge.bin")};
    struct tern_tokens_options options = options_of(patterns, 1, 4, 0);
    options.shuffle = false;
    struct tern_tokens *tokens = open_tokens(&options);
    int64_t samples = tern_tokens_epoch_samples(tokens);
    assert_int_equal(tern_tokens_count(tokens), count);
    assert_int_equal(samples, (count - 1) / 4);
    int32_t inputs[4], targets[4];
    /* The last window begins at token 4 (samples - 1) = count - 8: then come three zeros and the
     * five ids. */
    assert_ok(tern_tokens_sample(tokens, samples - 1, inputs, targets, NULL));
    static const int32_t expected_inputs[] = {0, 0, 0, 11};
    static const int32_t expected_targets[] = {0, 0, 11, 12};
    assert_memory_equal(inputs, expected_inputs, sizeof inputs);
    assert_memory_equal(targets, expected_targets, sizeof targets);
    tern_tokens_close(tokens);
    options.shuffle = true;
    tokens = open_tokens(&options);
    int64_t wide = 0;
    for (int64_t k = 0; k < 64; k++) {
        assert_ok(tern_tokens_sample(tokens, samples * 5 + k, inputs, targets, NULL));
        wide += inputs[0];
    }
    assert_int_equal(wide, 0);
    tern_tokens_close(tokens);
    assert_int_equal(unlink(at("huge.bin")), 0);
}

/* ---- texts, cached ---- */

static void test_texts_are_tokenised_once(void **state)
{
    (void)state;
    struct tern_tokenizer *tokenizer = train_small(300);
    struct tern_text text;
    tern_text_init(&text);
    for (int i = 0; i < 500; i++) {
        assert_ok(tern_text_printf(&text, "the fox and the dog %d\n", i));
    }
    write_file("t.txt", text.data, text.length);
    write_file("t.jsonl", "{\"text\": \"the end of the beginning of the dog\"}\n", 48);
    const char *const patterns[] = {at("t.txt"), at("t.jsonl")};
    struct tern_tokens_options options = options_of(patterns, 2, 8, 3);
    options.tokenizer = tokenizer;
    options.vocab_size = tern_tokenizer_vocab_size(tokenizer);
    options.cache_dir = at("cache/deep");
    options.shuffle = false;
    struct tern_tokens *tokens = open_tokens(&options);
    char digest[TERN_TOKENS_DIGEST_BYTES], again[TERN_TOKENS_DIGEST_BYTES];
    tern_tokens_digest(tokens, digest);
    int32_t *ids, inputs[8], targets[8];
    int64_t count;
    assert_ok(tern_tokenizer_encode(tokenizer, text.data, text.length, true, &ids, &count));
    assert_ok(tern_tokens_sample(tokens, 2, inputs, targets, NULL));
    assert_memory_equal(inputs, ids + 16, sizeof inputs);
    tern_free(ids);
    tern_tokens_close(tokens);

    char **names;
    int name_count;
    struct stat before, after;
    assert_ok(tern_file_list(options.cache_dir, &names, &name_count));
    assert_int_equal(name_count, 4); /* two pairs, nothing else */
    char path[512];
    snprintf(path, sizeof path, "%s/%s", options.cache_dir, names[0]);
    tern_free(names);
    assert_int_equal(stat(path, &before), 0);
    tern_tokens_close(open_tokens(&options));
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);

    /* What a process killed right after publishing leaves behind goes at the next opening. */
    assert_string_equal(path + strlen(path) - 4, ".bin");
    strcpy(path + strlen(path) - 4, ".documents.tmp");
    assert_ok(tern_file_append(path, "left", 4));
    tern_tokens_close(open_tokens(&options));
    assert_false(tern_file_exists(path));

    /* Another time of change: made again, but the same data. Another text: other data. */
    const struct timespec times[2] = {{1000000, 0}, {1000000, 0}};
    assert_int_equal(utimensat(AT_FDCWD, at("t.txt"), times, 0), 0);
    tokens = open_tokens(&options);
    tern_tokens_digest(tokens, again);
    assert_string_equal(again, digest);
    tern_tokens_close(tokens);
    text.data[3] = 'X';
    write_file("t.txt", text.data, text.length);
    tokens = open_tokens(&options);
    tern_tokens_digest(tokens, again);
    assert_string_not_equal(again, digest);
    tern_tokens_close(tokens);
    tern_text_fini(&text);
    tern_tokenizer_close(tokenizer);
}

/* Processes that start together: one tokenises, the others wait, all see the same. */
static void test_processes_share_the_cache(void **state)
{
    (void)state;
    enum {
        PROCESSES = 6
    };
    struct tern_tokenizer *tokenizer = train_small(300);
    struct tern_text text;
    tern_text_init(&text);
    for (int i = 0; i < 20000; i++) {
        assert_ok(tern_text_printf(&text, "the quick %d fox%s", i, i % 9 ? " " : "\n"));
    }
    write_file("shared.txt", text.data, text.length);
    tern_text_fini(&text);
    const char *const patterns[] = {at("shared.txt")};
    struct tern_tokens_options options = options_of(patterns, 1, 32, 3);
    options.tokenizer = tokenizer;
    options.vocab_size = tern_tokenizer_vocab_size(tokenizer);
    options.cache_dir = at("shared_cache");
    pid_t children[PROCESSES];
    for (int i = 0; i < PROCESSES; i++) {
        children[i] = fork();
        if (children[i] == 0) {
            struct tern_tokens *tokens;
            if (tern_tokens_open(&options, &tokens) != TERN_OK) {
                fprintf(stderr, "process %d: %s\n", i, tern_detail());
                _exit(1);
            }
            _exit(tern_tokens_count(tokens) > 60000 ? 0 : 2);
        }
    }
    for (int i = 0; i < PROCESSES; i++) {
        int status;
        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_int_equal(status, 0);
    }
    char **names;
    int count;
    assert_ok(tern_file_list(options.cache_dir, &names, &count));
    assert_int_equal(count, 2);
    tern_free(names);
    tern_tokenizer_close(tokenizer);
}

static void test_digest_knows_the_data(void **state)
{
    (void)state;
    char digests[4][TERN_TOKENS_DIGEST_BYTES];
    assert_ok(tern_file_make_folder(at("elsewhere")));
    write_counting("dig", 0, 100);
    write_counting("elsewhere/dig", 0, 100);
    write_counting("elsewhere/dig2", 0, 100);
    write_counting("elsewhere/more", 0, 101);
    const char *const paths[] = {at("dig"), at("elsewhere/dig.bin"), at("elsewhere/dig2"),
                                 at("elsewhere/more")};
    for (int i = 0; i < 4; i++) {
        struct tern_tokens_options options = options_of(&paths[i], 1, 4, 0);
        struct tern_tokens *tokens = open_tokens(&options);
        tern_tokens_digest(tokens, digests[i]);
        tern_tokens_close(tokens);
    }
    assert_string_equal(digests[0], digests[1]);
    assert_string_not_equal(digests[1], digests[2]);
    assert_string_not_equal(digests[1], digests[3]);
    assert_int_equal(strlen(digests[0]), 32);
}

/* ---- the batch ahead ---- */

static void test_prefetch_equals_direct(void **state)
{
    (void)state;
    static const struct {
        int64_t global_batch, first, count, step;
    } cases[] = {{8, 0, 8, 0}, {8, 3, 2, 0}, {12, 11, 1, 1000}, {1, 0, 1, 7}};
    write_counting("pre", 0, 2000);
    const char *const patterns[] = {at("pre")};
    struct tern_tokens_options options = options_of(patterns, 1, 16, 4);
    struct tern_tokens *tokens = open_tokens(&options);
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct tern_prefetch *prefetch;
        assert_ok(tern_prefetch_start(tokens, cases[c].global_batch, cases[c].first, cases[c].count,
                                      cases[c].step, &prefetch));
        int64_t blocks = tern_mem_stats().total_blocks;
        for (int64_t step = cases[c].step; step < cases[c].step + 50; step++) {
            const int32_t *inputs, *targets, *starts;
            assert_ok(tern_prefetch_take(prefetch, step, &inputs, &targets, &starts));
            for (int64_t i = 0; i < cases[c].count; i++) {
                int32_t expected_inputs[16], expected_targets[16];
                int64_t k = step * cases[c].global_batch + cases[c].first + i;
                assert_ok(tern_tokens_sample(tokens, k, expected_inputs, expected_targets, NULL));
                assert_memory_equal(inputs + i * 16, expected_inputs, sizeof expected_inputs);
                assert_memory_equal(targets + i * 16, expected_targets, sizeof expected_targets);
            }
        }
        assert_int_equal(tern_mem_stats().total_blocks, blocks); /* nothing allocated in a step */
        tern_prefetch_stop(prefetch);
    }
    tern_tokens_close(tokens);
}

static void test_prefetch_refusals(void **state)
{
    (void)state;
    static const int32_t ids[] = {1, 2, 3, 900, 4};
    static const int32_t all = 5;
    write_megatron("bad", 8, 2, ids, &all, 1);
    const char *const patterns[] = {at("bad")};
    struct tern_tokens_options options = options_of(patterns, 1, 1, 0);
    options.vocab_size = 10;
    options.shuffle = false;
    struct tern_tokens *tokens = open_tokens(&options);
    struct tern_prefetch *prefetch;
    const int32_t *inputs, *targets, *starts;
    assert_fails(tern_prefetch_start(tokens, 4, 2, 3, 0, &prefetch), TERN_ERR_ARGUMENT,
                 "[2, 5)|batch of 4");
    assert_null(prefetch);
    assert_ok(tern_prefetch_start(tokens, 1, 0, 1, 0, &prefetch));
    assert_fails(tern_prefetch_take(prefetch, 1, &inputs, &targets, &starts), TERN_ERR_ARGUMENT,
                 "step 1|expected step 0");
    assert_ok(tern_prefetch_take(prefetch, 0, &inputs, &targets, &starts));
    assert_fails(tern_prefetch_take(prefetch, 0, &inputs, &targets, &starts), TERN_ERR_ARGUMENT,
                 "step 0|expected step 1");
    assert_ok(tern_prefetch_take(prefetch, 1, &inputs, &targets, &starts));
    assert_fails(tern_prefetch_take(prefetch, 2, &inputs, &targets, &starts), TERN_ERR_INPUT,
                 "bad.bin|token 3|id 900|0 to 9");
    tern_prefetch_stop(prefetch);
    for (int i = 0; i < 50; i++) { /* stopped while it works, and before anything was taken */
        assert_ok(tern_prefetch_start(tokens, 1, 0, 1, 0, &prefetch));
        tern_prefetch_stop(prefetch);
    }
    tern_tokens_close(tokens);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_window_once_an_epoch),
        cmocka_unit_test(test_without_shuffle_in_order),
        cmocka_unit_test(test_shards_are_one_source),
        cmocka_unit_test(test_samples_are_pure),
        cmocka_unit_test(test_mixture_has_exact_quotas),
        cmocka_unit_test(test_mixture_passes_differ),
        cmocka_unit_test(test_mixture_of_odd_weights),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_ids_beyond_the_vocabulary),
        cmocka_unit_test(test_offsets_beyond_2_gib),
        cmocka_unit_test(test_texts_are_tokenised_once),
        cmocka_unit_test(test_processes_share_the_cache),
        cmocka_unit_test(test_digest_knows_the_data),
        cmocka_unit_test(test_prefetch_equals_direct),
        cmocka_unit_test(test_prefetch_refusals),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
