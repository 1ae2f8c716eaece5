/* nccl_fault_test.c - a rank is killed, stopped or late at some collective between (simulated) GPUs: all others end with 34,
 * in time, and each says one sentence, the same, that names the rank and the collective.
 *
 * SWEEP_COUNT runs (12 by default), each drawn from SWEEP_SEED (1 by default) and its number. */
#include "runtime/base/clock.h"
#include "runtime/base/random.h"
#include "tests/comm/cmocka_all.h"
#include "tests/comm/spawn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    LIMIT_SECONDS = 4, /* of the watchdog; on a machine with a core a rank a tenth would do */
    COLLECTIVES = 40   /* one of so many is hit; the first is the opening */
};

static struct spawn_rank g_ranks[SPAWN_RANKS_MAX];
static double g_longest;

static uint64_t draw(uint64_t run, uint32_t what, uint64_t n)
{
    const char *text = getenv("SWEEP_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 1;
    return tern_random_u64(seed, tern_random_stream_id(TERN_STREAM_TEST, what), run) % n;
}

/* The operation that the victim was last in. */
static int last_operation(const struct spawn_rank *victim)
{
    int last = 0;
    const char *at = victim->output;
    while ((at = strstr(at, "now: operation ")) != NULL) {
        last = atoi(at + strlen("now: operation "));
        at++;
    }
    return last;
}

/* Each rank measures for itself for how long: "3.5 s" becomes "_ s". */
static void blank_seconds(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0';) {
        size_t digits = strspn(at, "0123456789.");
        if (digits > 0 && strncmp(at + digits, " s", 2) == 0) {
            *to++ = '_';
            at += digits;
        } else {
            *to++ = *at++;
        }
    }
    *to = '\0';
}

/* The line of the report, without its times; NULL unless there is exactly one. */
static const char *find_report(const struct spawn_rank *rank, char out[1024])
{
    const char *at = strstr(rank->output, "TERN_COMM_TIMEOUT)");
    if (at == NULL || strstr(at + 1, "TERN_COMM_TIMEOUT)") != NULL) {
        return NULL;
    }
    const char *begin = at;
    while (begin > rank->output && begin[-1] != '\n') {
        begin--;
    }
    begin = strstr(begin, "rank"); /* behind "tern: error: [" */
    begin = begin != NULL && begin < at ? strstr(begin, "] ") : NULL;
    if (begin == NULL) {
        return NULL;
    }
    snprintf(out, 1024, "%.*s", (int)(at - begin - 2), begin + 2);
    blank_seconds(out);
    return out;
}

struct fault {
    const char *name; /* TERN_FAULT's action */
    const char *words;
};

static const struct fault g_faults[] = {
    {"kill", "gone: the connection broke"},
    {"stop", "stopped or cut off"},
    {"delay=60", "late: the program has not"},
};

struct sweep_case {
    int ranks, victim, collective;
    const struct fault *fault;
};

/* Of a hub that died before this rank's watchdog had a line to it: nobody has told it yet of any operation. */
static bool found_nobody(const struct spawn_rank *rank, int victim)
{
    char words[128];
    snprintf(words, sizeof words, "cannot reach rank %d (host ", victim);
    return strstr(rank->output, words) != NULL;
}

/* One that dies at the opening may take the others' way to the hub with it: then they are not in it yet. One that is killed
 * may take with it that it had gone on: then the report is about the operation before, which the others wait in. */
static bool is_about(const char *report, int operation)
{
    char words[64];
    snprintf(words, sizeof words, operation > 0 ? "; operation %d, " : "operation %d", operation);
    return operation >= 0 && strstr(report, words) != NULL;
}

/* What is wrong with the outcome; NULL: nothing. */
static const char *judge(const struct sweep_case *c, bool all_ended, int files)
{
    static char words[256];
    char report[1024];
    char first[1024] = "";
    int operation = last_operation(&g_ranks[c->victim]);
    bool is_killed = strcmp(c->fault->name, "kill") == 0;
    if (!all_ended) {
        return "a rank did not end";
    }
    for (int r = 0; r < c->ranks; r++) {
        bool is_gone = r == c->victim && strncmp(c->fault->name, "delay", 5) != 0;
        if (is_gone) {
            continue;
        }
        if (g_ranks[r].exit_code != 34) {
            return "an exit code is not 34";
        }
        if (is_killed && operation == 0 && found_nobody(&g_ranks[r], c->victim)) {
            continue;
        }
        if (find_report(&g_ranks[r], report) == NULL) {
            return "a rank gives no report, or several";
        }
        if (first[0] != '\0' && strcmp(first, report) != 0) {
            return "two ranks give different reports";
        }
        memcpy(first, report, sizeof first);
        snprintf(words, sizeof words, "rank %d (host ", c->victim);
        if (strncmp(report, words, strlen(words)) != 0 || strstr(report, c->fault->words) == NULL) {
            return "the report does not name the rank, or not what it did";
        }
        if (!is_about(report, operation) && !(is_killed && is_about(report, operation - 1))) {
            snprintf(words, sizeof words, "the report is not about operation %d", operation);
            return words;
        }
    }
    /* an opening that failed may leave the file by which NCCL's stand-in connects */
    return files > 1 || (files == 1 && !is_killed && operation > 0) ? "files are left" : NULL;
}

static void run(const struct sweep_case *c, uint64_t seed)
{
    char fault[64];
    char limit[64];
    char schedule[64];
    snprintf(fault, sizeof fault, "TERN_FAULT=comm.collective@%d#%d:%s", c->collective, c->victim,
             c->fault->name);
    snprintf(limit, sizeof limit, "TERN_COMM_TIMEOUT=%d", LIMIT_SECONDS);
    snprintf(schedule, sizeof schedule, "CUSIM_SEED=%llu", (unsigned long long)seed);
    struct spawn_job job = {
        TEST_RANKS, "failure", c->ranks, {fault, limit, schedule, NULL}, 20 * LIMIT_SECONDS};
    int files = 0;
    bool all_ended = spawn_run(&job, g_ranks, &files);
    const char *wrong = judge(c, all_ended, files);
    for (int r = 0; r < c->ranks; r++) {
        g_longest = g_ranks[r].seconds > g_longest ? g_ranks[r].seconds : g_longest;
    }
    if (wrong != NULL) {
        spawn_print(&job, g_ranks);
        fail_msg("%d ranks, %s, seed %llu: %s (%d files left)", c->ranks, fault,
                 (unsigned long long)seed, wrong, files);
    }
}

static void test_sweep(void **state)
{
    (void)state;
    const char *text = getenv("SWEEP_COUNT");
    uint64_t count = text != NULL ? strtoull(text, NULL, 10) : 12;
    for (uint64_t i = 0; i < count; i++) {
        struct sweep_case c = {.ranks = 2 + (int)draw(i, 0, 3)};
        c.victim = (int)draw(i, 1, (uint64_t)c.ranks);
        c.collective = 1 + (int)draw(i, 2, COLLECTIVES);
        c.fault = &g_faults[draw(i, 3, 3)];
        run(&c, i + 1);
        if (i % 50 == 49) {
            print_message("%llu runs, the longest %.1f s\n", (unsigned long long)i + 1, g_longest);
        }
    }
}

/* Every rank, by each fault, at the opening and at the first collective. */
static void test_first(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        struct sweep_case c = {2 + i % 2, i % 2, 1 + i / 3, &g_faults[i % 3]};
        run(&c, 1);
    }
}

static void expect(struct spawn_job *job, int rank, const char *words)
{
    int files;
    bool all_ended = spawn_run(job, g_ranks, &files);
    if (!all_ended || strstr(g_ranks[rank].output, words) == NULL) {
        spawn_print(job, g_ranks);
        fail_msg("rank %d: expected '%s'", rank, words);
    }
}

/* NCCL itself reports an error on one rank: all say so. */
static void test_library_error(void **state)
{
    (void)state;
    struct spawn_job job = {
        TEST_RANKS, "failure", 3, {"CUSIM_NCCL_FAIL=1:7", "TERN_COMM_TIMEOUT=4", NULL}, 60};
    for (int r = 0; r < 3; r++) {
        expect(&job, r, "rank 1 (host ");
        expect(&job, r, "unhandled system error: asked for by CUSIM_NCCL_FAIL");
        assert_int_equal(g_ranks[r].exit_code, 34);
    }
}

/* At the opening, too: nobody waits for a rank that gave up. */
static void test_opening_error(void **state)
{
    (void)state;
    struct spawn_job job = {
        TEST_RANKS, "failure", 3, {"CUSIM_NCCL_FAIL=2:0", "TERN_COMM_TIMEOUT=4", NULL}, 60};
    for (int r = 0; r < 3; r++) {
        expect(&job, r, "rank 2 (host ");
        expect(&job, r, "unhandled system error: asked for by CUSIM_NCCL_FAIL");
        assert_int_equal(g_ranks[r].exit_code, 34);
    }
}

/* What is refused before NCCL sees it; on every rank in the same words. */
static void test_refusals(void **state)
{
    (void)state;
    struct spawn_job one = {TEST_RANKS, "lanes", 2, {"TEST_ONE_GPU=1", NULL}, 60};
    expect(&one, 0, "ranks 0 and 1 are on the same GPU (host ");
    expect(&one, 1, "ranks 0 and 1 are on the same GPU (host ");
    struct spawn_job none = {
        TEST_RANKS, "lanes", 2, {"#1 TERN_NCCL_LIBRARY=/nowhere/libnccl.so", NULL}, 60};
    expect(&none, 0, "rank 1 (host ");
    expect(&none, 0, "NCCL can't be used: /nowhere/libnccl.so does not load");
    struct spawn_job old = {
        TEST_RANKS, "lanes", 1, {"TERN_NCCL_LIBRARY=/nowhere/libnccl.so", NULL}, 60};
    expect(&old, 0, ""); /* a single GPU needs none */
    assert_int_equal(g_ranks[0].exit_code, 0);
    struct spawn_job mismatch = {TEST_RANKS, "mismatch", 2, {"TERN_COMM_TIMEOUT=4", NULL}, 60};
    expect(&mismatch, 1, "rank 1 expects 32 elements of type 1 from rank 0");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_refusals),      cmocka_unit_test(test_library_error),
        cmocka_unit_test(test_opening_error), cmocka_unit_test(test_first),
        cmocka_unit_test(test_sweep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
