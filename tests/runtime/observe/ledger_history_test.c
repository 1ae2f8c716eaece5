/* ledger_history_test.c - a hundred random histories of launches that finish, are reclaimed, lose a peer or are killed, against
 * an account that the generator keeps. Each launch is a process of its own, so that it can die. */
#include "runtime/base/random.h"
#include "tests/runtime/observe/ledger_fixture.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    HISTORIES = 100,
    LAUNCHES_MAX = 6,
    STEPS_MAX = 4000
};

/* What the generator knows, in memory that outlives its children: of each launch the time of each of its steps, and of all
 * else. */
struct truth {
    int launches;
    int64_t first[LAUNCHES_MAX], last[LAUNCHES_MAX];
    int64_t source[STEPS_MAX + 1]; /* which launch saved the state of a step; -1 none */
    double step_seconds[LAUNCHES_MAX][STEPS_MAX + 1];
    double other[TERN_LEDGER_KIND_COUNT]; /* machine-seconds that are no steps */
    double unseen; /* machine-seconds after the last row of a launch that was killed */
    int machines[LAUNCHES_MAX];
    int64_t begin_ns[LAUNCHES_MAX], seen_ns[LAUNCHES_MAX]; /* of rows */
    bool is_gap_wanted[LAUNCHES_MAX];                      /* before it */
    int64_t saved;                                         /* the newest state */
    int64_t clock_ns;
    bool is_finished, is_wanted;
};

struct player {
    struct truth *truth;
    struct tern_ledger ledger;
    uint64_t seed, drawn;
    int launch;
    double since_flush, left; /* seconds until the end comes */
};

static double uniform(struct player *p, double least, double most)
{
    double value =
        tern_random_uniform(p->seed, tern_random_stream_id(TERN_STREAM_TEST, 7), p->drawn++);
    return least + (most - least) * value;
}

/* Time passes, and the ledger's thread would write once a second. False: the end has come, before `seconds` were over;
 * *passed_out: how much of them did. */
static bool pass_time(struct player *p, double seconds, double *passed_out)
{
    bool is_over = seconds >= p->left;
    double left = is_over ? p->left : seconds;
    *passed_out = left;
    p->left -= left;
    while (left > 0) {
        double part = left < 1 - p->since_flush ? left : 1 - p->since_flush;
        advance(part);
        p->since_flush += part;
        left -= part;
        if (p->since_flush >= 1 - 1e-9) {
            tern_ledger_flush(&p->ledger);
            p->since_flush = 0;
        }
    }
    return !is_over;
}

static bool spend(struct player *p, enum tern_ledger_kind kind, double seconds)
{
    double passed;
    tern_ledger_enter(&p->ledger, kind);
    bool goes_on = pass_time(p, seconds, &passed);
    p->truth->other[kind] += passed * p->truth->machines[p->launch];
    return goes_on;
}

/* A step; false: the end came in the middle of it, and it counts as lost. */
static bool play_step(struct player *p, int64_t step, double each)
{
    double passed;
    if (!spend(p, TERN_LEDGER_DATA_WAIT, uniform(p, 0, 0.02))) {
        return false;
    }
    tern_ledger_enter(&p->ledger, TERN_LEDGER_PRODUCTIVE);
    bool goes_on = pass_time(p, each * uniform(p, 0.9, 1.2), &passed);
    if (!goes_on) {
        p->truth->other[TERN_LEDGER_LOST_STEPS] += passed * p->truth->machines[p->launch];
        return false;
    }
    tern_ledger_step(&p->ledger, step, step * 1000);
    p->truth->step_seconds[p->launch][step] = passed;
    p->truth->last[p->launch] = step;
    return true;
}

static bool play_steps(struct player *p, int64_t first)
{
    double each = uniform(p, 0.02, 3);
    int64_t every = 5 + (int64_t)uniform(p, 0, 60);
    for (int64_t step = first + 1; step <= STEPS_MAX; step++) {
        if (!play_step(p, step, each)) {
            return false;
        }
        if (step % every == 0) {
            tern_ledger_enter(&p->ledger, TERN_LEDGER_CHECKPOINT_STALL);
            tern_ledger_cut(&p->ledger);
            if (!spend(p, TERN_LEDGER_CHECKPOINT_STALL, uniform(p, 0.01, 0.5))) {
                return false;
            }
            p->truth->saved = step;
            p->truth->source[step] = p->launch;
        }
    }
    return true;
}

/* How the launch ends that was overtaken by its end; killed: without a word. */
static void play_end(struct player *p)
{
    struct truth *t = p->truth;
    int64_t last = t->last[p->launch];
    p->left = 1e9;
    double how = uniform(p, 0, 1);
    if (how < 0.5) {
        t->unseen += p->since_flush * 5;
        t->is_wanted = true;
        t->seen_ns[p->launch] = fake_now() - (int64_t)(p->since_flush * 1e9);
        t->clock_ns = fake_now();
        _exit(0);
    }
    if (how < 0.75) {
        tern_ledger_blame(&p->ledger, TERN_LEDGER_LOST_STEPS);
        spend(p, TERN_LEDGER_DRAIN, uniform(p, 0.5, 20));
        t->saved = last;
        t->source[last] = p->launch;
        spend(p, TERN_LEDGER_IDLE_AFTER_NOTICE, uniform(p, 0, 5));
        tern_ledger_close(&p->ledger, TERN_LEDGER_RECLAIMED);
    } else {
        double passed;
        tern_ledger_enter(&p->ledger, TERN_LEDGER_PRODUCTIVE);
        tern_ledger_blame(&p->ledger, TERN_LEDGER_LOST_STEPS);
        tern_ledger_enter(&p->ledger, TERN_LEDGER_PRODUCTIVE);
        pass_time(p, uniform(p, 5, 25), &passed); /* nobody knows yet */
        t->other[TERN_LEDGER_HANG_DETECTION] += passed * t->machines[p->launch];
        tern_ledger_blame(&p->ledger, TERN_LEDGER_HANG_DETECTION);
        tern_ledger_close(&p->ledger, TERN_LEDGER_PEER_LOST);
    }
    t->is_wanted = true;
}

/* One launch, in a process of its own, so that it can die. */
static void play_launch(struct truth *t, int launch, uint64_t seed)
{
    static struct player p;
    char name[32];
    p.truth = t;
    p.launch = launch;
    p.seed = seed;
    p.left = 1e9;
    snprintf(name, sizeof name, "launch-%d", launch);
    t->machines[launch] = 1 + (int)uniform(&p, 0, 4);
    if (launch > 0) {
        double gap = uniform(&p, 0, 200);
        advance(gap);
        t->other[TERN_LEDGER_RESTART] += t->is_wanted ? gap * t->machines[launch] : 0;
        t->is_gap_wanted[launch] = t->is_wanted;
    }
    t->begin_ns[launch] = fake_now();
    start_at(&p.ledger, name, t->machines[launch]);
    t->other[TERN_LEDGER_START] += t->machines[launch];
    spend(&p, TERN_LEDGER_COMPILE, uniform(&p, 0, 3));
    spend(&p, TERN_LEDGER_LOAD, uniform(&p, 0.1, 30));
    int64_t first = t->saved;
    tern_ledger_resume(&p.ledger, first, first * 1000);
    t->first[launch] = t->last[launch] = first;
    p.left = uniform(&p, 20, 900);
    if (play_steps(&p, first)) {
        t->is_finished = true;
        t->is_wanted = false;
        tern_ledger_close(&p.ledger, TERN_LEDGER_FINISHED);
    } else {
        play_end(&p);
    }
    t->seen_ns[launch] = fake_now();
    t->clock_ns = fake_now();
    _exit(0);
}

/* By whom each step was made that is part of the end: back from the newest state, along who saved what. */
static void find_truth(const struct truth *t, double seconds[TERN_LEDGER_KIND_COUNT])
{
    double all = 0;
    double kept = 0;
    for (int launch = 0; launch < t->launches; launch++) {
        for (int64_t step = t->first[launch] + 1; step <= t->last[launch]; step++) {
            all += t->step_seconds[launch][step] * t->machines[launch];
        }
    }
    int launch = t->launches - 1;
    int64_t at = t->last[launch];
    while (at > 0) {
        for (; at > t->first[launch]; at--) {
            kept += t->step_seconds[launch][at] * t->machines[launch];
        }
        launch = at > 0 ? (int)t->source[at] : launch;
    }
    memcpy(seconds, t->other, sizeof t->other);
    seconds[TERN_LEDGER_PRODUCTIVE] += kept;
    seconds[TERN_LEDGER_LOST_STEPS] += all - kept;
}

/* Wall time x machines: of each launch from its start to its last row, of the gap before it if somebody wanted it to run. */
static double wall_seconds(const struct truth *t)
{
    double sum = 0;
    for (int i = 0; i < t->launches; i++) {
        double gap =
            i > 0 && t->is_gap_wanted[i] ? (double)(t->begin_ns[i] - t->seen_ns[i - 1]) : 0;
        sum += ((double)(t->seen_ns[i] - t->begin_ns[i]) + gap) * 1e-9 * t->machines[i];
    }
    return sum;
}

static void play_history(struct truth *t, uint64_t seed)
{
    memset(t, 0, sizeof *t);
    t->clock_ns = 1000000000;
    (void)!unlink(ledger_path());
    while (t->launches < LAUNCHES_MAX && !t->is_finished) {
        int status;
        pid_t pid = fork();
        assert_true(pid >= 0);
        if (pid == 0) {
            atomic_store(&g_now_ns, t->clock_ns);
            play_launch(t, t->launches, seed * 100 + (uint64_t)t->launches);
        }
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
        t->launches++;
    }
}

static void test_random_histories(void **state)
{
    (void)state;
    struct truth *t =
        mmap(NULL, sizeof *t, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(t != MAP_FAILED);
    double unseen = 0;
    double total = 0;
    double worst = 0;
    for (uint64_t seed = 1; seed <= HISTORIES; seed++) {
        struct tern_ledger_account account;
        double expected[TERN_LEDGER_KIND_COUNT], columns[TERN_LEDGER_KIND_COUNT];
        play_history(t, seed);
        find_truth(t, expected);
        expect_ok(tern_ledger_read(ledger_path(), -1, &account));
        sum_columns(columns);
        assert_int_equal(account.launch_count, t->launches);
        double wall = wall_seconds(t);
        assert_near(account.total_seconds, wall, 1e-6 * wall + 1e-3);
        /* time after the last row of a killed launch is the restart's: nobody could write it down; at most 1 s a death */
        for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
            double off = fabs(account.seconds[k] - expected[k]);
            if (off > 0.001 * wall + t->unseen) {
                fail_msg("seed %llu, %s: %.3f machine-seconds, the account says %.3f of %.0f",
                         (unsigned long long)seed, tern_ledger_kind_name((enum tern_ledger_kind)k),
                         account.seconds[k], expected[k], wall);
            }
            assert_near(columns[k], account.seconds[k], 1e-3 + 0.001 * wall);
            off = off > t->unseen ? off - t->unseen : 0;
            worst = off / wall > worst ? off / wall : worst;
        }
        assert_true(account.last_step <= STEPS_MAX);
        assert_int_equal(account.tokens, account.last_step * 1000);
        unseen += t->unseen;
        total += wall;
        tern_ledger_account_fini(&account);
    }
    print_message(
        "%d histories, %.0f machine-seconds; worst kind off by %.4f %% of a history; %.4f %% "
        "after last rows\n",
        HISTORIES, total, 100 * worst, 100 * unseen / total);
    munmap(t, sizeof *t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_FOLDER(test_random_histories),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
