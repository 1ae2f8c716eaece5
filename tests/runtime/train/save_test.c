/* save_test.c - many shards become one checkpoint, or none and all ranks know why; training never
 * waits for a disk. */
#include "kernels/open.h"
#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/train/save.h"
#include "tests/runtime/fixture.h"

enum {
    STEPS_MAX = 20000,
    RANKS_MAX = 5
};

struct scene {
    char run[TERN_PATH_BYTES];
    struct tern_model model;
    struct tern_train_config config;
    const char *expected_failure; /* NULL: none */
    bool fails_in_commit;         /* only rank 0 can know */
    char reasons[RANKS_MAX][TERN_STEP_NOTE_BYTES];
};

/* One rank of a scene. */
struct player {
    struct scene *scene;
    struct tern_comm *comm;
    struct tern_device *device;
    struct tern_train_state state;
    struct tern_saver *saver;
    struct tern_step_word words[RANKS_MAX];
    struct tern_saver_event event;
    int64_t events;
};

static tern_status open_player(struct player *p)
{
    TERN_RETURN_IF_ERR(tern_device_open("cpu", 1, &p->device));
    TERN_RETURN_IF_ERR(tern_train_state_plan(&p->state, &p->scene->model.params,
                                             p->scene->model.dtype, p->comm, 8, 0));
    TERN_RETURN_IF_ERR(tern_train_state_alloc(&p->state, p->device));
    TERN_RETURN_IF_ERR(tern_train_state_init(&p->state, 3, 1));
    TERN_RETURN_IF_ERR(tern_train_state_publish(&p->state));
    return tern_saver_create(&p->scene->config, p->scene->run, &p->state, NULL, &p->saver);
}

static void close_player(struct player *p)
{
    tern_saver_destroy(p->saver);
    tern_train_state_fini(&p->state);
    tern_device_close(p->device);
}

/* What a training step does for the saver. */
static tern_status step(struct player *p, bool wants_save)
{
    struct tern_step_word mine = {.wants_save = wants_save && p->comm->rank == 0};
    tern_saver_speak(p->saver, &mine);
    TERN_RETURN_IF_ERR(tern_comm_all_gather(p->comm, &mine, sizeof mine, p->words));
    tern_saver_listen(p->saver, p->words);
    p->state.step++;
    p->events += tern_saver_poll(p->saver, &p->event);
    return TERN_OK;
}

static tern_status begin(struct player *p)
{
    struct tern_text json;
    tern_text_init(&json);
    TERN_RETURN_IF_ERR(
        tern_text_printf(&json, "{\"cursor\":{\"step\":%lld}}", (long long)p->state.step));
    tern_status status = tern_saver_begin(p->saver, &json);
    tern_text_fini(&json);
    return status;
}

/* Steps until all ranks begin, then until nobody is busy; how many steps that took. A rank that is
 * busy keeps all others from beginning again. */
static tern_status save_behind_steps(struct player *p, int *steps_out)
{
    *steps_out = 0;
    do {
        TERN_RETURN_IF_ERR(step(p, true));
        MUST(++*steps_out < STEPS_MAX, "rank %d: no save can begin", p->comm->rank);
    } while (!tern_saver_should_begin(p->saver, p->words));
    TERN_RETURN_IF_ERR(begin(p));
    *steps_out = 0;
    bool is_busy = true;
    while (is_busy) {
        TERN_RETURN_IF_ERR(step(p, true));
        is_busy = false;
        for (int rank = 0; rank < p->comm->size; rank++) {
            is_busy |= p->words[rank].is_saving != 0;
        }
        MUST(tern_saver_should_begin(p->saver, p->words) == !is_busy,
             "rank %d: a save would begin while one is under way", p->comm->rank);
        MUST(++*steps_out < STEPS_MAX, "rank %d: the save never ends", p->comm->rank);
        tern_clock_sleep_ns(100000);
    }
    return TERN_OK;
}

static tern_status verify_step(const struct player *p, int64_t saved_step, bool is_there)
{
    char path[TERN_PATH_BYTES];
    snprintf(path, sizeof path, "%.4000s/ckpt/step-%08lld", p->scene->run, (long long)saved_step);
    tern_status status = tern_ckpt_verify(path);
    MUST((status == TERN_OK) == is_there, "rank %d: step %lld: found %s (%s)", p->comm->rank,
         (long long)saved_step, tern_status_name(status), tern_detail());
    return TERN_OK;
}

/* A save that ends well: rank 0 hears of it, the others do not have to. */
static tern_status expect_saved(struct player *p)
{
    int steps;
    p->events = 0;
    TERN_RETURN_IF_ERR(save_behind_steps(p, &steps));
    MUST(p->events == (p->comm->rank == 0), "rank %d: %d events", p->comm->rank, (int)p->events);
    if (p->comm->rank == 0) {
        MUST(p->event.is_done, "not done: %s", p->event.reason);
        MUST(
            p->event.raw_bytes >= 12 * p->scene->model.params.parameter_count && p->event.bytes > 0,
            "%lld raw bytes, %lld bytes", (long long)p->event.raw_bytes, (long long)p->event.bytes);
        TERN_RETURN_IF_ERR(verify_step(p, p->event.step, true));
    }
    return tern_comm_barrier(p->comm);
}

static tern_status play(struct player *p)
{
    struct scene *scene = p->scene;
    bool is_first = p->comm->rank == 0;
    int steps;
    if (scene->expected_failure != NULL) {
        TERN_RETURN_IF_ERR(save_behind_steps(p, &steps));
        bool hears = is_first || !scene->fails_in_commit;
        MUST(p->events == hears, "rank %d: %d events", p->comm->rank, (int)p->events);
        if (hears) {
            MUST(!p->event.is_done, "rank %d: the save ended well", p->comm->rank);
            MUST(strstr(p->event.reason, scene->expected_failure) != NULL, "rank %d: reason '%s'",
                 p->comm->rank, p->event.reason);
            strcpy(scene->reasons[p->comm->rank], p->event.reason);
            TERN_RETURN_IF_ERR(verify_step(p, p->event.step, false));
        }
        TERN_RETURN_IF_ERR(tern_comm_barrier(p->comm));
        MUST(!hears || strcmp(scene->reasons[0], p->event.reason) == 0,
             "rank %d heard '%s', rank 0 '%s'", p->comm->rank, p->event.reason, scene->reasons[0]);
    }
    TERN_RETURN_IF_ERR(expect_saved(p));
    return expect_saved(p);
}

static tern_status play_main(struct tern_comm *comm, void *arg)
{
    static _Thread_local struct player p;
    p = (struct player){.scene = arg, .comm = comm};
    tern_status status = open_player(&p);
    status = status == TERN_OK ? play(&p) : status;
    close_player(&p);
    return status;
}

static void open_scene(struct scene *scene)
{
    struct tern_model_config config = tiny_config(TERN_FAMILY_LLAMA);
    *scene = (struct scene){0};
    scene->config.checkpoint.keep = 2;
    scene->config.checkpoint.compression = TERN_COMPRESSION_NONE;
    make_folder(scene->run);
    expect_ok(tern_model_init(&scene->model, &config, TERN_BF16));
}

static void close_scene(struct scene *scene)
{
    arm(NULL);
    tern_model_fini(&scene->model);
    remove_folder(scene->run);
}

static void test_saves(void **test)
{
    (void)test;
    static struct scene scene;
    open_scene(&scene);
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        run_ranks(ranks, play_main, &scene);
        expect_ok(tern_file_remove_tree(scene.run));
    }
    close_scene(&scene);
}

/* Every way a save can fail; the next one is as good as new. */
static void test_failures(void **test)
{
    (void)test;
    static struct scene scene;
    static const struct {
        const char *fault, *reason;
        bool in_commit;
    } rows[] = {
        {"ckpt.shard@1:enospc", "No space", false},
        {"ckpt.shard@2:eio", "Input/output", false},
        {"ckpt.shard@1:eio,ckpt.shard@2:eio", "Input/output", false},
        {"ckpt.view:enospc", "No space", true},
        {"ckpt.manifest:eio", "Input/output", true},
    };
    open_scene(&scene);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        for (int ranks = 2; ranks <= RANKS_MAX; ranks++) {
            scene.expected_failure = rows[i].reason;
            scene.fails_in_commit = rows[i].in_commit;
            arm(rows[i].fault);
            run_ranks(ranks, play_main, &scene);
            arm(NULL);
            expect_ok(tern_file_remove_tree(scene.run));
        }
    }
    close_scene(&scene);
}

/* A slow disk on one rank: steps go on meanwhile. */
static tern_status slow_main(struct tern_comm *comm, void *arg)
{
    static _Thread_local struct player p;
    int steps = 0;
    p = (struct player){.scene = arg, .comm = comm};
    tern_status status = open_player(&p);
    status = status == TERN_OK ? save_behind_steps(&p, &steps) : status;
    close_player(&p);
    MUST(status != TERN_OK || steps > 20, "rank %d: only %d steps while a disk was slow",
         comm->rank, steps);
    return status;
}

static void test_slow_disk(void **test)
{
    (void)test;
    static struct scene scene;
    open_scene(&scene);
    arm("ckpt.shard@2:delay=0.5");
    run_ranks(3, slow_main, &scene);
    close_scene(&scene);
}

/* finish: at the end of a run, whatever the save under way has come to. */
static tern_status finish_main(struct tern_comm *comm, void *arg)
{
    static _Thread_local struct player p;
    p = (struct player){.scene = arg, .comm = comm};
    tern_status status;
    TERN_GOTO_IF_ERR(status, open_player(&p), out);
    TERN_GOTO_IF_ERR(status, tern_saver_finish(p.saver), out); /* nothing under way */
    for (int steps_between = 0; steps_between < 12; steps_between++) {
        int64_t saved = p.state.step;
        p.events = 0;
        TERN_GOTO_IF_ERR(status, begin(&p), out);
        for (int i = 0; i < steps_between; i++) {
            TERN_GOTO_IF_ERR(status, step(&p, false), out);
            tern_clock_sleep_ns((int64_t)i * 200000);
        }
        TERN_GOTO_IF_ERR(status, tern_saver_finish(p.saver), out);
        TERN_GOTO_IF_ERR(status, verify_step(&p, saved, true), out);
        p.events += tern_saver_poll(p.saver, &p.event);
        if (p.events != (comm->rank == 0) || (comm->rank == 0 && !p.event.is_done)) {
            status = tern_fail(TERN_ERR_STATE, "rank %d: %d events", comm->rank, (int)p.events);
            goto out;
        }
        p.state.step = saved + 100;
    }
out:
    close_player(&p);
    return status;
}

static void test_finish(void **test)
{
    (void)test;
    static struct scene scene;
    open_scene(&scene);
    for (int ranks = 1; ranks <= RANKS_MAX; ranks++) {
        run_ranks(ranks, finish_main, &scene);
        expect_ok(tern_file_remove_tree(scene.run));
    }
    close_scene(&scene);
}

/* Destroy waits for the write under way and leaves nothing. */
static tern_status leave_main(struct tern_comm *comm, void *arg)
{
    static _Thread_local struct player p;
    p = (struct player){.scene = arg, .comm = comm};
    tern_status status = open_player(&p);
    status = status == TERN_OK ? begin(&p) : status;
    close_player(&p);
    return status;
}

static void test_leave(void **test)
{
    (void)test;
    static struct scene scene;
    open_scene(&scene);
    for (int ranks = 1; ranks <= 3; ranks++) {
        arm("ckpt.shard@1:delay=0.1");
        run_ranks(ranks, leave_main, &scene);
    }
    close_scene(&scene);
}

int main(void)
{
    setenv("TERN_LOG", "error", 1);
    (void)!tern_log_init();
    const struct CMUnitTest tests[] = {CHECKED(test_saves), CHECKED(test_failures),
                                       CHECKED(test_slow_disk), CHECKED(test_finish),
                                       CHECKED(test_leave)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
