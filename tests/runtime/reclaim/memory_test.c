/* memory_test.c - whatever moment all ranks stop at, each on its own: the newest snapshot that all had is found again,
 * whole, by any number of ranks; and what must not be taken is not. */
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/random.h"
#include "tests/runtime/reclaim/memory_fixture.h"

enum {
    RANKS_MAX = 6,
    HISTORIES = 60,
    TICKS_MAX = 40
};

static char g_folder[TERN_PATH_BYTES];
static int64_t g_looked; /* what look_main found */
static const struct tern_memory_name g_unnamed = {NULL, 7};

static struct tern_memory_run run_of(const char *launch)
{
    struct tern_memory_run run = {.key = {.run = 77}};
    snprintf(run.key.launch, sizeof run.key.launch, "%s", launch);
    snprintf(run.key.owner, sizeof run.key.owner, "%.2000s", g_folder);
    snprintf(run.trusted[0], sizeof run.trusted[0], "launch-a");
    return run;
}

static uint64_t draw(uint64_t seed, int rank, uint64_t index)
{
    return tern_random_u64(seed, tern_random_stream_id(TERN_STREAM_TEST, (uint32_t)rank), index);
}

struct history {
    uint64_t seed;
    const char *launch;
    bool has_saves;
    int64_t steps;
    int64_t common; /* newest that all ranks had; out */
    struct tern_memory_stats stats;
};

static tern_status open_memory(struct tern_comm *comm,
                               const struct tern_memory_run *run,
                               struct tern_memory **out)
{
    struct tern_ckpt_slab slabs[MEMORY_TENSORS];
    struct tern_memory_options options = {.comm = comm};
    struct tern_memory_plan plan;
    memory_layout(&run->key, comm->rank, comm->size, slabs, &options.layout);
    int64_t block = tern_segment_bytes(MEMORY_TENSORS, MEMORY_STATE_ROOM,
                                       memory_data_bytes(comm->rank, comm->size));
    TERN_RETURN_IF_ERR(tern_memory_plan_make(comm, block, 0, &plan));
    MUST(plan.is_on, "no room");
    TERN_RETURN_IF_ERR(tern_memory_create(&options, out));
    return tern_memory_connect(*out, &plan);
}

/* One snapshot, as the saver makes it. */
static tern_status snapshot(struct tern_comm *comm,
                            struct tern_memory *memory,
                            int64_t step,
                            bool is_saving,
                            bool is_save)
{
    char json[64];
    float *base;
    snprintf(json, sizeof json, "{\"step\":%lld}", (long long)step);
    tern_memory_begin(memory, step, is_saving, is_save, &base);
    if (base != NULL) {
        memory_fill(comm->rank, comm->size, step, base);
    }
    return tern_memory_commit(memory, json);
}

/* Steps with their words; saves that stay under way for a while on some rank. */
static tern_status live(struct tern_comm *comm, struct history *history, struct tern_memory *memory)
{
    struct word {
        struct tern_memory_word memory;
        int64_t is_saving;
    } words[RANKS_MAX], mine;
    int64_t saving_until = -1;
    int64_t saved = -1;
    for (int64_t step = 1; step <= history->steps; step++) {
        tern_memory_speak(memory, &mine.memory);
        mine.is_saving = step < saving_until;
        TERN_RETURN_IF_ERR(tern_comm_all_gather(comm, &mine, sizeof mine, words));
        bool is_kept = tern_memory_listen(memory, &words[0].memory, sizeof words[0]);
        bool is_saving = false;
        for (int rank = 0; rank < comm->size; rank++) {
            is_saving = is_saving || words[rank].is_saving;
        }
        if (comm->rank == 0) { /* while a checkpoint is written, its block is the one that stays */
            int64_t newest = tern_memory_stats(memory).step;
            history->common = is_saving && saved < newest ? saved : newest;
        }
        MUST(!is_kept || tern_memory_stats(memory).step > 0, "kept nothing");
        bool wants_save = history->has_saves && draw(history->seed, 99, (uint64_t)step) % 4 == 0;
        if (!tern_memory_may_begin(memory, is_saving)) {
            continue;
        }
        if (step == history->steps &&
            comm->rank % 3 != 0) { /* dies before the copy, or within it */
            float *base;
            if (comm->rank % 3 == 1) {
                tern_memory_begin(memory, step, is_saving, false, &base);
                base[0] = -1;
            }
            return TERN_OK;
        }
        bool is_save = wants_save && !is_saving;
        TERN_RETURN_IF_ERR(snapshot(comm, memory, step, is_saving, is_save));
        if (is_save) {
            saved = step;
            saving_until =
                step + 1 + (int64_t)(draw(history->seed, comm->rank, (uint64_t)step) % 9);
        }
    }
    return TERN_OK;
}

static tern_status live_main(struct tern_comm *comm, void *arg)
{
    struct history *history = arg;
    struct tern_memory_run run = run_of(history->launch);
    struct tern_memory *memory = NULL;
    tern_status status = open_memory(comm, &run, &memory);
    status = status == TERN_OK ? live(comm, history, memory) : status;
    if (comm->rank == 0) {
        history->stats = tern_memory_stats(memory);
    }
    tern_memory_destroy(memory);
    return status;
}

struct search {
    int64_t
        least; /* the newest that is known to be common: no older one may be found; -1: none at all */
    int64_t after;
    const char *source; /* NULL: either */
    const char *trusted;
    int64_t found; /* out */
};

static tern_status find_main(struct tern_comm *comm, void *arg)
{
    struct search *search = arg;
    struct tern_memory_run run = run_of("launch-b");
    struct tern_memory_found *found = NULL;
    if (search->trusted != NULL) {
        snprintf(run.trusted[0], sizeof run.trusted[0], "%s", search->trusted);
    }
    TERN_RETURN_IF_ERR(tern_memory_find(comm, &run, search->after, &found));
    if (comm->rank == 0) {
        search->found = found != NULL ? tern_memory_found_step(found) : -1;
    }
    if (found == NULL) {
        MUST(search->least < 0, "nothing found, expected step %lld", (long long)search->least);
        return TERN_OK;
    }
    struct memory_seen seen = {.step = tern_memory_found_step(found)};
    char json[64], *state = NULL;
    snprintf(json, sizeof json, "{\"step\":%lld}", (long long)seen.step);
    tern_status status = tern_memory_found_read(found, memory_sink, &seen, &state);
    if (status == TERN_OK &&
        (strcmp(state, json) != 0 || seen.elements != MEMORY_TENSORS * MEMORY_ROWS * MEMORY_WIDTH ||
         seen.step < search->least || search->least < 0)) {
        status = tern_fail(TERN_ERR_STATE, "step %lld, %lld values, state %s; expected step %lld",
                           (long long)seen.step, (long long)seen.elements, state,
                           (long long)search->least);
    }
    if (status == TERN_OK && search->source != NULL &&
        strcmp(tern_memory_found_source(found), search->source) != 0) {
        status = tern_fail(TERN_ERR_STATE, "from %s", tern_memory_found_source(found));
    }
    tern_free(state);
    tern_memory_found_close(found);
    return status;
}

static int block_count(void)
{
    char **names;
    int count;
    expect_ok(tern_file_list(g_folder, &names, &count));
    tern_free(names);
    return count;
}

static void remove_blocks(const char *part)
{
    char **names;
    int count;
    char path[TERN_PATH_BYTES];
    expect_ok(tern_file_list(g_folder, &names, &count));
    for (int i = 0; i < count; i++) {
        if (strstr(names[i], part) != NULL) {
            expect_ok(tern_path_join(path, g_folder, names[i]));
            expect_ok(tern_file_remove(path));
        }
    }
    tern_free(names);
}

static tern_status sweep_main(struct tern_comm *comm, void *arg)
{
    (void)comm;
    struct tern_memory_run run = run_of(arg);
    tern_memory_sweep(&run, NULL);
    return TERN_OK;
}

/* Many lives of random length, with and without checkpoints under way; then found by another number of ranks. */
static void test_histories(void **state)
{
    (void)state;
    int64_t found_count = 0;
    for (uint64_t seed = 0; seed < HISTORIES; seed++) {
        struct history history = {.seed = seed,
                                  .launch = "launch-a",
                                  .has_saves = seed % 2 == 1,
                                  .steps = (int64_t)(draw(seed, 98, 0) % TICKS_MAX),
                                  .common = -1};
        int ranks = 1 + (int)(seed % RANKS_MAX);
        run_ranks(ranks, live_main, &history);
        struct search search = {.least = history.common, .after = -1, .source = "shared memory"};
        if (history.common < 0) { /* what nobody knew of may be whole all the same */
            remove_blocks("tern-");
        }
        run_ranks(1 + (int)(draw(seed, 98, 1) % RANKS_MAX), find_main, &search);
        found_count += search.found >= 0;
        run_ranks(2, sweep_main, "launch-b");
        assert_int_equal(block_count(), 0);
    }
    assert_true(found_count > HISTORIES / 2);
}

/* A history that certainly has a snapshot of all ranks. */
static void make_history(int ranks, const char *launch, struct history *history)
{
    *history = (struct history){.seed = 5, .launch = launch, .steps = TICKS_MAX, .common = -1};
    while (history->common < 0) {
        run_ranks(ranks, live_main, history);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct history history;
    make_history(3, "launch-a", &history);
    struct search search = {.least = -1, .after = 1000};
    run_ranks(2, find_main, &search); /* the checkpoint is newer */
    search = (struct search){.least = -1, .after = -1, .trusted = "launch-z"};
    run_ranks(2, find_main, &search); /* another launch's */
    search = (struct search){.least = history.common, .after = -1};
    run_ranks(2, find_main, &search);
    remove_blocks("-0001-"); /* all of rank 1 */
    search.least = -1;
    run_ranks(2, find_main, &search);
    run_ranks(1, sweep_main, "launch-b");
    assert_int_equal(block_count(), 0);
}

/* Copies: with all blocks of any one rank gone, and of all ranks. */
static void test_peers(void **state)
{
    (void)state;
    struct history history;
    setenv("TERN_MEMORY_PEER", "1", 1);
    for (int lost = -1; lost < 3; lost++) {
        char part[16] = "-0";
        make_history(3, "launch-a", &history);
        assert_true(history.stats.copy_seconds > 0);
        struct search search = {.least = history.common, .after = -1, .source = "shared memory"};
        run_ranks(2, find_main, &search);
        if (lost >= 0) {
            snprintf(part, sizeof part, "-%04d-0", lost);
            search.source = NULL;
        }
        /* the blocks themselves end in their slot, copies in -peer */
        char **names;
        int count;
        expect_ok(tern_file_list(g_folder, &names, &count));
        for (int i = 0; i < count; i++) {
            char path[TERN_PATH_BYTES];
            bool is_block = strstr(names[i], "-peer") == NULL;
            if (is_block && (lost < 0 || strstr(names[i], part) != NULL)) {
                expect_ok(tern_path_join(path, g_folder, names[i]));
                expect_ok(tern_file_remove(path));
            }
        }
        tern_free(names);
        search.source = lost < 0 ? "a peer" : NULL;
        run_ranks(4, find_main, &search);
        run_ranks(2, sweep_main, "launch-b");
        assert_int_equal(block_count(), 0);
    }
    unsetenv("TERN_MEMORY_PEER");
}

/* Words until the newest snapshot is settled. */
static tern_status settle(struct tern_comm *comm, struct tern_memory *memory)
{
    struct tern_memory_word words[RANKS_MAX], mine;
    do {
        tern_memory_speak(memory, &mine);
        TERN_RETURN_IF_ERR(tern_comm_all_gather(comm, &mine, sizeof mine, words));
        (void)tern_memory_listen(memory, words, sizeof words[0]);
    } while (!tern_memory_may_begin(memory, true));
    return TERN_OK;
}

/* A checkpoint is being written from the block of step 1 all the time; that of step 3 replaces step 2's and fails on
 * somebody. */
static tern_status save_for_long(struct tern_comm *comm, struct tern_memory *memory)
{
    for (int64_t step = 1; step <= 3; step++) {
        TERN_RETURN_IF_ERR(snapshot(comm, memory, step, step > 1, step == 1));
        TERN_RETURN_IF_ERR(settle(comm, memory));
    }
    return TERN_OK;
}

static tern_status save_main(struct tern_comm *comm, void *arg)
{
    (void)arg;
    struct tern_memory_run run = run_of("launch-a");
    struct tern_memory *memory = NULL;
    tern_status status = open_memory(comm, &run, &memory);
    status = status == TERN_OK ? save_for_long(comm, memory) : status;
    tern_memory_destroy(memory);
    return status;
}

/* The snapshot that was written over lives in its copies until all ranks have the new one. */
static void test_written_over(void **state)
{
    (void)state;
    setenv("TERN_MEMORY_PEER", "1", 1);
    arm("memory.seal@8:eio"); /* of nine: three ranks, three snapshots */
    run_ranks(3, save_main, NULL);
    arm(NULL);
    struct search search = {.least = 2, .after = -1, .source = "a peer"};
    run_ranks(2, find_main, &search);
    assert_int_equal(search.found, 2);
    run_ranks(2, sweep_main, "launch-b");
    unsetenv("TERN_MEMORY_PEER");
}

/* A rank that leaves: first its newest snapshot is with its keeper; one that is not copied yet is no reason to wait longer
 * than it was told. */
static tern_status leave_main(struct tern_comm *comm, void *arg)
{
    (void)arg;
    struct tern_memory_run run = run_of("launch-a");
    struct tern_memory *memory = NULL;
    float *base;
    TERN_RETURN_IF_ERR(open_memory(comm, &run, &memory));
    MUST(tern_memory_settle(memory, 0), "waits for no snapshot");
    tern_memory_begin(memory, 3, false, false, &base);
    memory_fill(comm->rank, comm->size, 3, base);
    bool is_early = tern_memory_settle(memory, 0.01);
    tern_status status = tern_memory_commit(memory, "{\"step\":3}");
    bool is_settled = tern_memory_settle(memory, 600);
    tern_memory_destroy(memory);
    TERN_RETURN_IF_ERR(status);
    MUST(!is_early, "settled before the copy was made");
    MUST(is_settled, "not settled");
    return TERN_OK;
}

static void test_leave(void **state)
{
    (void)state;
    setenv("TERN_MEMORY_PEER", "1", 1);
    run_ranks(4, leave_main, NULL);
    for (int rank = 0; rank < 4; rank++) {
        char own[TERN_SEGMENT_NAME_BYTES];
        struct tern_memory_run run = run_of("launch-a");
        char path[TERN_PATH_BYTES];
        for (int slot = 0; slot < 2; slot++) {
            tern_segment_name(&run.key, rank, slot, false, own);
            expect_ok(tern_path_join(path, g_folder, own));
            expect_ok(tern_file_remove(path));
        }
    }
    struct search search = {.least = 3, .after = -1, .source = "a peer"};
    run_ranks(3, find_main, &search);
    run_ranks(2, sweep_main, "launch-b");
    unsetenv("TERN_MEMORY_PEER");
}

/* Faults: a snapshot that fails on one rank is nobody's, and the one before stays. */
static void test_faults(void **state)
{
    (void)state;
    static const char *const faults[] = {"memory.copy@4:eio", "memory.copy@3:enospc",
                                         "memory.seal@5:eio", "memory.seal@2:short"};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
        struct history history;
        arm(faults[i]);
        make_history(3, "launch-a", &history);
        arm(NULL);
        struct search search = {.least = history.common, .after = -1};
        run_ranks(2, find_main, &search);
        run_ranks(2, sweep_main, "launch-b");
    }
}

static tern_status forget_main(struct tern_comm *comm, void *arg)
{
    (void)arg;
    struct tern_memory_run run = run_of("launch-a");
    struct tern_memory *memory = NULL;
    tern_status status = open_memory(comm, &run, &memory);
    status = status == TERN_OK ? snapshot(comm, memory, 3, false, false) : status;
    if (status == TERN_OK) { /* and one that comes to nothing */
        float *base;
        tern_memory_begin(memory, 4, false, false, &base);
    }
    tern_memory_forget(memory);
    MUST(tern_memory_settle(memory, 0), "waits for what is forgotten");
    tern_memory_destroy(memory);
    return status;
}

static void test_forget(void **state)
{
    (void)state;
    for (int peers = 0; peers < 2; peers++) {
        setenv("TERN_MEMORY_PEER", peers ? "1" : "0", 1);
        run_ranks(4, forget_main, NULL);
        assert_int_equal(block_count(), 0);
    }
    unsetenv("TERN_MEMORY_PEER");
}

/* Runs whose directory is gone, or is another run's now, leave nothing; others keep theirs. */
static void test_orphans(void **state)
{
    (void)state;
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    struct tern_memory_run old, fresh, other = run_of("launch-z");
    struct tern_ckpt_slab slabs[MEMORY_TENSORS];
    struct tern_segment_layout layout;
    struct tern_segment segment;
    char name[TERN_SEGMENT_NAME_BYTES];
    make_folder(folder);
    expect_ok(tern_memory_run_open(folder, "launch-1", &g_unnamed, &old));
    expect_ok(tern_memory_run_open(folder, "launch-2", &g_unnamed, &fresh));
    assert_true(old.key.run == fresh.key.run);
    memory_layout(&old.key, 0, 1, slabs, &layout);
    tern_segment_name(&old.key, 0, 0, false, name);
    expect_ok(tern_segment_create(name, &layout, &segment));
    tern_memory_sweep(&other, NULL);
    assert_int_equal(block_count(), 1); /* open, and its run is there */
    tern_segment_close(&segment);
    tern_memory_sweep(&other, NULL);
    assert_int_equal(block_count(), 1); /* its run is there */
    expect_ok(tern_path_join(path, folder, "id"));
    expect_ok(tern_file_replace(path, "0123456789abcdef\n", 17));
    tern_memory_sweep(&other, NULL);
    assert_int_equal(block_count(), 0); /* another run is there */
    expect_ok(tern_segment_create(name, &layout, &segment));
    remove_folder(folder);
    tern_memory_sweep(&other, NULL);
    assert_int_equal(block_count(), 1); /* open */
    tern_segment_close(&segment);
    tern_memory_sweep(&other, NULL);
    assert_int_equal(block_count(), 0);
    static const char *const headless[] = {"tern-0123456789abcdef-01234567-0002-1-peer",
                                           "tern-0123456789abcdef-01234567-0000-0"};
    static const char *const strangers[] = {"tern-notes",
                                            "tern-0123456789abcdef-01234567-0002-1.txt"};
    for (int i = 0; i < 2; i++) {
        expect_ok(tern_path_join(path, g_folder, headless[i]));
        expect_ok(tern_file_replace(path, "", 0));
        expect_ok(tern_path_join(path, g_folder, strangers[i]));
        expect_ok(tern_file_replace(path, "", 0));
    }
    tern_memory_sweep(&other, NULL);
    assert_int_equal(block_count(), 2); /* what is no block */
    remove_blocks("tern-");
}

static bool trusts(const struct tern_memory_run *run, const char *launch)
{
    struct tern_segment_head head = {.run = run->key.run};
    snprintf(head.launch, sizeof head.launch, "%s", launch);
    return tern_memory_run_trusts(run, &head);
}

static void test_trust(void **state)
{
    (void)state;
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES];
    struct tern_memory_run run;
    make_folder(folder);
    expect_ok(tern_memory_run_open(folder, "launch-1", &g_unnamed, &run));
    assert_false(trusts(&run, "launch-1"));
    assert_false(trusts(&run, ""));
    expect_ok(tern_memory_run_begin(folder, "launch-1", NULL));
    expect_ok(tern_memory_run_open(folder, "launch-2", &g_unnamed, &run));
    assert_true(trusts(&run, "launch-1"));
    expect_ok(tern_memory_run_begin(folder, "launch-2", "launch-1"));
    expect_ok(tern_memory_run_open(folder, "launch-3", &g_unnamed, &run));
    assert_true(trusts(&run, "launch-1"));
    assert_true(trusts(&run, "launch-2"));
    expect_ok(tern_memory_run_begin(folder, "launch-3", NULL));
    expect_ok(tern_memory_run_open(folder, "launch-4", &g_unnamed, &run));
    assert_false(trusts(&run, "launch-1"));
    expect_ok(tern_path_join(path, folder, "memory"));
    expect_ok(tern_file_replace(path, "\n\n\n\n\n\n", 6));
    expect_ok(tern_memory_run_open(folder, "launch-4", &g_unnamed, &run));
    assert_false(trusts(&run, ""));
    expect_ok(tern_path_join(path, folder, "id")); /* what no launch writes is made anew */
    expect_ok(tern_file_replace(path, "hello", 5));
    expect_ok(tern_memory_run_open(folder, "launch-4", &g_unnamed, &run));
    remove_folder(folder);
}

/* The step that a launch of one rank finds for a run, -1 none. */
static tern_status look_main(struct tern_comm *comm, void *arg)
{
    const struct tern_memory_run *run = arg;
    struct tern_memory_found *found = NULL;
    TERN_RETURN_IF_ERR(tern_memory_find(comm, run, -1, &found));
    g_looked = found != NULL ? tern_memory_found_step(found) : -1;
    tern_memory_found_close(found);
    return TERN_OK;
}

static int64_t look(const char *folder, const char *name, uint64_t config)
{
    struct tern_memory_run run;
    const struct tern_memory_name named = {name, config};
    g_looked = -2;
    expect_ok(tern_memory_run_open(folder, "launch-2", &named, &run));
    run_ranks(1, look_main, &run);
    return g_looked;
}

/* The sealed block of a launch of one rank. */
static void leave_block(const struct tern_memory_run *run, int64_t step)
{
    struct tern_ckpt_slab slabs[MEMORY_TENSORS];
    struct tern_segment_layout layout;
    struct tern_segment segment;
    char name[TERN_SEGMENT_NAME_BYTES];
    memory_layout(&run->key, 0, 1, slabs, &layout);
    tern_segment_name(&run->key, 0, 0, false, name);
    expect_ok(tern_segment_create(name, &layout, &segment));
    memory_fill(0, 1, step, (float *)(void *)tern_segment_data(&segment));
    expect_ok(tern_segment_seal(&segment, step, "{}"));
    tern_segment_close(&segment);
}

/* A run with a name is known where its directory is not, by its name, path and configuration together. */
static void test_name(void **state)
{
    (void)state;
    char folder[TERN_PATH_BYTES], elsewhere[TERN_PATH_BYTES];
    struct tern_memory_run run, other = run_of("launch-z");
    const struct tern_memory_name name = {"job-7", 5};
    make_folder(folder);
    make_folder(elsewhere);
    expect_ok(tern_memory_run_open(folder, "launch-1", &name, &run));
    expect_ok(tern_memory_run_begin(folder, "launch-1", NULL));
    leave_block(&run, 12);
    assert_int_equal(look(folder, "job-7", 5), 12);
    assert_int_equal(look(folder, NULL, 5), 12);    /* the directory knows its name */
    assert_int_equal(look(folder, "job-7", 6), 12); /* and whom to trust */
    remove_folder(folder);
    tern_memory_sweep(&other, NULL);
    assert_int_equal(block_count(), 1); /* it may yet be asked for */
    for (int i = 0; i < 6; i++) {
        static const struct tern_memory_name names[] = {{NULL, 5},    {"job-8", 5}, {"job", 5},
                                                        {"job-7", 6}, {"job-7", 4}, {"job-7", 5}};
        expect_ok(tern_file_make_folder(folder));
        assert_int_equal(look(folder, names[i].name, names[i].config), i < 5 ? -1 : 12);
        assert_int_equal(look(elsewhere, names[i].name, names[i].config), -1);
        remove_folder(folder);
        remove_folder(elsewhere);
        make_folder(elsewhere);
    }
    expect_ok(tern_file_make_folder(folder)); /* a launch that took another way */
    expect_ok(tern_memory_run_open(folder, "launch-2", &name, &run));
    expect_ok(tern_memory_run_begin(folder, "launch-2", NULL));
    assert_int_equal(look(folder, "job-7", 5), -1);
    tern_memory_sweep(&run, NULL);
    assert_int_equal(block_count(), 0);
    remove_folder(folder);
    remove_folder(elsewhere);
}

static void refuse_name(const char *folder, const char *name, const char *words)
{
    struct tern_memory_run run;
    const struct tern_memory_name named = {name, 5};
    assert_int_equal(tern_memory_run_open(folder, "launch-9", &named, &run), TERN_ERR_USAGE);
    if (strstr(tern_detail(), words) == NULL) {
        fail_msg("'%s' is not in '%s'", words, tern_detail());
    }
}

static void test_names_refused(void **state)
{
    (void)state;
    char folder[TERN_PATH_BYTES], path[TERN_PATH_BYTES], longest[66];
    struct tern_memory_run run;
    const struct tern_memory_name name = {"job-7", 5};
    make_folder(folder);
    memset(longest, 'n', 65);
    longest[65] = '\0';
    static const char *const bad[] = {"", "a b", "../x", "a\n", "\xc3\xa4"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        refuse_name(folder, bad[i], "expected 1 to 64 letters");
    }
    refuse_name(folder, longest, "expected 1 to 64 letters");
    expect_ok(tern_memory_run_open(folder, "launch-1", &name, &run));
    refuse_name(folder, "job-8", "began as job-7");
    expect_ok(tern_path_join(path, folder, "name")); /* what no launch writes is nobody's name */
    static const char *const odd[] = {"", "\njob-7", "\x01"};
    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++) {
        expect_ok(tern_file_replace(path, odd[i], strlen(odd[i])));
        refuse_name(folder, "job-7", "began as");
        expect_ok(tern_memory_run_open(folder, "launch-1", &g_unnamed, &run));
    }
    expect_ok(tern_file_replace(path, longest, 65));
    refuse_name(folder, longest, "expected 1 to 64 letters");
    refuse_name(folder, "job-7", "began as ?");
    remove_folder(folder);
    expect_ok(tern_file_make_folder(folder));
    expect_ok(tern_memory_run_open(folder, "launch-1", &g_unnamed, &run));
    expect_ok(tern_memory_run_begin(folder, "launch-1", NULL));
    refuse_name(folder, "job-7", "began without one");
    remove_folder(folder);
}

int main(void)
{
    make_folder(g_folder);
    setenv("TERN_SHM_DIR", g_folder, 1);
    setenv("TERN_LOG", "error", 1);
    (void)!tern_log_init();
    const struct CMUnitTest tests[] = {
        CHECKED(test_histories), CHECKED(test_refusals),     CHECKED(test_peers),
        CHECKED(test_faults),    CHECKED(test_written_over), CHECKED(test_leave),
        CHECKED(test_forget),    CHECKED(test_orphans),      CHECKED(test_trust),
        CHECKED(test_name),      CHECKED(test_names_refused)};
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_folder(g_folder);
    return failed;
}
