/* fixture.h - what the tests of runtime/ share: a folder that goes away, faults, ranks as threads,
 * a tiny model. */
#ifndef TERN_TESTS_RUNTIME_FIXTURE_H
#define TERN_TESTS_RUNTIME_FIXTURE_H

#include "comm/inproc/inproc.h"
#include "io/file.h"
#include "models/transformer.h"
#include "tests/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define expect_ok(expression) \
    do { \
        tern_status expect_ok_ = (expression); \
        if (expect_ok_ != TERN_OK) { \
            fail_msg("%s: %s: %s", #expression, tern_status_name(expect_ok_), tern_detail()); \
        } \
    } while (0)

/* On a thread of tern_inproc_run a test cannot jump out: it returns a status with a sentence
 * instead. */
#define MUST(condition, ...) \
    do { \
        if (!(condition)) { \
            return tern_fail(TERN_ERR_STATE, __VA_ARGS__); \
        } \
    } while (0)

static inline void make_folder(char out[TERN_PATH_BYTES])
{
    const char *root = getenv("TMPDIR");
    snprintf(out, TERN_PATH_BYTES, "%s/tern-test.XXXXXX", root != NULL ? root : "/tmp");
    assert_non_null(mkdtemp(out));
}

static inline void remove_folder(const char *path)
{
    expect_ok(tern_file_remove_tree(path));
}

/* "ckpt.shard@2:enospc"; NULL: none. Whole processes only: here all ranks are one. */
static inline void arm(const char *fault)
{
    if (fault == NULL) {
        unsetenv("TERN_FAULT");
        tern_fault_armed = 0;
        return;
    }
    setenv("TERN_FAULT", fault, 1);
    expect_ok(tern_fault_init());
}

/* Runs main on `ranks` threads and expects every one of them to end well. */
static inline void run_ranks(int ranks,
                             tern_status (*main)(struct tern_comm *comm, void *arg),
                             void *arg)
{
    struct tern_inproc_options options = {
        .ranks = ranks, .seed = (uint64_t)ranks, .delay_ns_max = 20000, .timeout_seconds = 30};
    tern_status status = tern_inproc_run(&options, main, arg, NULL);
    if (status != TERN_OK) {
        fail_msg("%d ranks: %s: %s", ranks, tern_status_name(status), tern_detail());
    }
}

/* Some blocks of rows, odd sizes, all roles. */
static inline struct tern_model_config tiny_config(enum tern_family family)
{
    struct tern_model_config config = {.family = family,
                                       .layers = 2,
                                       .width = 40,
                                       .heads = 4,
                                       .ff_width = 56,
                                       .context = 24,
                                       .vocab_size = 1003,
                                       .tied_embeddings = family == TERN_FAMILY_GPT2};
    config.kv_heads = family == TERN_FAMILY_GPT2 ? 4 : 2;
    if (tern_family_row(family)->defaults.experts > 0) {
        config.experts = 4;
        config.experts_used = 2;
    }
    tern_model_config_defaults(&config);
    return config;
}

#endif
