/* checkpoint_remote.c - tern checkpoint list | verify | pull of an object store. */
#include "launch/checkpoint_remote.h"

#include "io/file.h"
#include "io/remote.h"
#include "launch/options.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"
#include "runtime/train/owner.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All of a store; tern_free. */
static tern_status read_list(struct tern_store *store,
                             struct tern_ckpt_entry **entries_out,
                             int *count_out)
{
    int capacity = 0, count = 0;
    struct tern_ckpt_entry *entries = NULL;
    TERN_RETURN_IF_ERR(tern_remote_list(store, NULL, 0, &capacity));
    entries = tern_alloc_zero("checkpoint list", (size_t)capacity + 1, sizeof *entries);
    if (entries == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "no memory for a list of %d checkpoints", capacity);
    }
    tern_status status = tern_remote_list(store, entries, capacity, &count);
    if (status != TERN_OK) {
        tern_free(entries);
        return status;
    }
    *entries_out = entries;
    *count_out = count < capacity ? count : capacity;
    return TERN_OK;
}

tern_status tern_checkpoint_list_remote(const char *url, bool is_json)
{
    struct tern_store *store;
    struct tern_ckpt_entry *entries = NULL;
    int count = 0;
    TERN_RETURN_IF_ERR(tern_store_open(url, NULL, &store));
    tern_status status = read_list(store, &entries, &count);
    for (int i = 0; i < count && status == TERN_OK; i++) {
        status = tern_checkpoint_print(&entries[i], is_json);
    }
    tern_free(entries);
    tern_store_close(store);
    return status;
}

/* "URL/step-00000020" to URL and 20; step -1 when it names none. */
static tern_status split_step(const char *url, char base[TERN_STORE_URL_BYTES], int64_t *step)
{
    if (strlen(url) >= TERN_STORE_URL_BYTES) {
        return tern_fail(TERN_ERR_USAGE, "a URL of more than %d characters",
                         TERN_STORE_URL_BYTES - 1);
    }
    strcpy(base, url);
    size_t length = strlen(base);
    while (length > 0 && base[length - 1] == '/') {
        base[--length] = '\0';
    }
    char *slash = strrchr(base, '/');
    *step = -1;
    if (slash != NULL && strncmp(slash, "/step-", 6) == 0) {
        char *end;
        long long value = strtoll(slash + 6, &end, 10);
        if (*end == '\0' && end != slash + 6 && value >= 0) {
            *step = value;
            *slash = '\0';
        }
    }
    return TERN_OK;
}

/* One line on stdout; *bad counts. */
static tern_status verify_one(struct tern_store *store, int64_t step, int *bad)
{
    tern_status status = tern_remote_verify(store, step);
    bool is_good = status == TERN_OK;
    if (!is_good && status != TERN_ERR_CORRUPT && status != TERN_ERR_NOT_FOUND) {
        return status;
    }
    printf("%s  %s/step-%08" PRId64 "%s%s\n", is_good ? "good" : "bad ", tern_store_url(store),
           step, is_good ? "" : ": ", is_good ? "" : tern_detail());
    fflush(stdout);
    *bad += !is_good;
    return TERN_OK;
}

static tern_status verify_all(struct tern_store *store, int *bad, int *count)
{
    struct tern_ckpt_entry *entries;
    TERN_RETURN_IF_ERR(read_list(store, &entries, count));
    tern_status status = TERN_OK;
    for (int i = 0; i < *count && status == TERN_OK; i++) {
        status = verify_one(store, entries[i].step, bad);
    }
    tern_free(entries);
    return status;
}

tern_status tern_checkpoint_verify_remote(const char *url)
{
    char base[TERN_STORE_URL_BYTES];
    struct tern_store *store;
    int64_t step;
    int bad = 0, count = 1;
    TERN_RETURN_IF_ERR(split_step(url, base, &step));
    TERN_RETURN_IF_ERR(tern_store_open(base, NULL, &store));
    tern_status status =
        step >= 0 ? verify_one(store, step, &bad) : verify_all(store, &bad, &count);
    tern_store_close(store);
    if (status == TERN_OK && count == 0) {
        return tern_fail(TERN_ERR_NOT_FOUND, "%s holds no checkpoint", base);
    }
    return status != TERN_OK || bad == 0
               ? status
               : tern_fail(TERN_ERR_CORRUPT, "%d of %d checkpoints in %s %s damaged", bad, count,
                           base, bad == 1 ? "is" : "are");
}

/* Into RUN/ckpt under the run's lock. */
static tern_status pull(struct tern_store *store, int64_t step, const char *run_dir)
{
    struct tern_lock lock;
    int64_t bytes;
    char size[TERN_TEXT_BYTES_BYTES];
    TERN_RETURN_IF_ERR(tern_file_make_folder(run_dir));
    TERN_RETURN_IF_ERR(tern_ckpt_lock(run_dir, &lock));
    tern_status status = step >= 0 ? TERN_OK : tern_remote_find(store, &step);
    if (status == TERN_OK && tern_owner_adopt(store, run_dir) != TERN_OK) {
        tern_log_warn("the run can't go on from here: %s", tern_detail());
    }
    if (status == TERN_OK) {
        status = tern_remote_pull(store, step, run_dir, &bytes);
    }
    if (status == TERN_OK && bytes == 0) {
        printf("%s/ckpt/step-%08" PRId64 " is there already\n", run_dir, step);
    } else if (status == TERN_OK) {
        printf("%s/ckpt/step-%08" PRId64 "  %s\n", run_dir, step, tern_text_bytes(bytes, size));
    }
    tern_lock_drop(&lock);
    return status;
}

tern_status tern_checkpoint_pull(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    bool is_help;
    const struct tern_command_spec spec = {
        .name = "checkpoint pull",
        .usage = "URL[/step-N] RUN",
        .summary = "Fetches a checkpoint from an object store into a run directory, the newest "
                   "good one unless a step is named, and checks every hash. 'tern train' with "
                   "checkpoint.remote does so by itself.",
        .example = "tern checkpoint pull s3://bucket/runs/bible runs/bible",
        .positional_min = 2,
        .positional_max = 2,
    };
    struct tern_positionals positionals;
    char base[TERN_STORE_URL_BYTES];
    struct tern_store *store;
    int64_t step;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(split_step(positionals.items[0], base, &step));
    TERN_RETURN_IF_ERR(tern_store_open(base, NULL, &store));
    tern_status status = pull(store, step, positionals.items[1]);
    tern_store_close(store);
    return status;
}
