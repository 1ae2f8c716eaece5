/* data_fixture.h - a folder for one test program, and the files that the data tests write by
 * hand. */
#ifndef TERN_TESTS_IO_DATA_FIXTURE_H
#define TERN_TESTS_IO_DATA_FIXTURE_H

#include "io/file.h"
#include "io/tokenizer.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* clang-format off: it needs the headers above */
#include <cmocka.h>
/* clang-format on */

static char g_folder[256];

static inline int fixture_make(void **state)
{
    (void)state;
    const char *base = getenv("TMPDIR");
    snprintf(g_folder, sizeof g_folder, "%s/tern-data-XXXXXX", base != NULL ? base : "/tmp");
    return mkdtemp(g_folder) != NULL ? 0 : -1;
}

/* Also: no test may leave a block behind. */
static inline int fixture_remove(void **state)
{
    (void)state;
    assert_int_equal(tern_file_remove_tree(g_folder), TERN_OK);
    assert_int_equal(tern_mem_stats().live_blocks, 0);
    return 0;
}

/* A path in the folder; eight may be in use at a time. */
static inline const char *at(const char *name)
{
    static char paths[8][512];
    static int turn;
    char *out = paths[turn++ % 8];
    snprintf(out, 512, "%s/%s", g_folder, name);
    return out;
}

static inline void write_file(const char *name, const void *data, size_t bytes)
{
    FILE *file = fopen(at(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(data, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

static inline void assert_ok(tern_status status)
{
    if (status != TERN_OK) {
        fail_msg("%s: %s", tern_status_name(status), tern_detail());
    }
}

/* The failure has this status and its sentence all these words (separated by '|'). */
static inline void assert_fails(tern_status status, tern_status expected, const char *words)
{
    char copy[512];
    snprintf(copy, sizeof copy, "%s", words);
    if (status != expected) {
        fail_msg("status %s (%s); expected %s", tern_status_name(status),
                 status == TERN_OK ? "" : tern_detail(), tern_status_name(expected));
    }
    for (char *word = strtok(copy, "|"); word != NULL; word = strtok(NULL, "|")) {
        if (strstr(tern_detail(), word) == NULL) {
            fail_msg("sentence '%s' lacks '%s'", tern_detail(), word);
        }
    }
}

static inline uint64_t draw(uint64_t seed, uint64_t index)
{
    return tern_random_u64(seed, tern_random_stream_id(TERN_STREAM_TEST, 0), index);
}

/* Trains a small tokenizer on a few sentences: "tokenizer.json". */
static inline struct tern_tokenizer *train_small(int64_t vocab_size)
{
    static const char text[] =
        "the quick brown fox jumps over the lazy dog, and the dog doesn't mind: the fox's the "
        "quickest fox of them all. 12345 + 67890 = 80235!\n\n  In the beginning the word was with "
        "them, and they'll say it's the end of the beginning\n";
    write_file("small.txt", text, sizeof text - 1);
    const char *const paths[] = {at("small.txt")};
    const char *const specials[] = {"<|endoftext|>", "<|user|>"};
    assert_ok(tern_tokenizer_train(paths, 1, vocab_size, specials, 2, at("tokenizer.json")));
    struct tern_tokenizer *tokenizer;
    assert_ok(tern_tokenizer_open(at("tokenizer.json"), &tokenizer));
    return tokenizer;
}

#endif
