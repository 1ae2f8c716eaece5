/* engine_test.c - who runs when: chunks, cancels in every phase, full queues, deadlines, failures,
 * shutdowns; step by step. */
#include "runtime/base/clock.h"
#include "tests/runtime/serve/fake_grammar.h"
#include "tests/runtime/serve/gate.h"
#include "tests/runtime/serve/hearing.h"

#include <math.h>

enum {
    CONTEXT = 320,
    HEARINGS = 12
};

/* An engine at a gate, and requests. */
struct scene {
    struct fake fake;
    struct gate gate;
    struct tern_engine *engine;
    struct hearing hearings[HEARINGS];
};

static int32_t g_ids[HEARINGS][CONTEXT];

static struct scene *begin(struct tern_engine_options options, int64_t blocks)
{
    static struct scene scene;
    memset(&scene, 0, sizeof scene);
    gate_init(&scene.gate, &scene.fake);
    expect_ok(tern_engine_fill(&options, CONTEXT));
    scene.engine = fake_engine(&scene.fake, &options, blocks);
    return &scene;
}

static void end(struct scene *scene)
{
    struct tern_engine_stats stats;
    gate_open(&scene->gate);
    wait_for(scene->engine);
    tern_engine_stats(scene->engine, &stats);
    assert_int_equal(stats.blocks_used, 0);
    assert_int_equal(stats.running + stats.waiting, 0);
    tern_engine_destroy(scene->engine);
    fake_fini(&scene->fake);
    for (int i = 0; i < HEARINGS; i++) {
        assert_int_equal(scene->hearings[i].events_late, 0);
        assert_in_range(atomic_load(&scene->hearings[i].releases), 0, 1);
    }
}

static struct tern_engine_request ask(struct scene *scene, int i, int64_t count)
{
    for (int64_t p = 0; p < count && p < CONTEXT; p++) {
        g_ids[i][p] = (int32_t)((p * 7 + i * 31) % 60 + 20);
    }
    struct tern_engine_request request = plain_request(&scene->hearings[i], g_ids[i], count);
    request.ignore_end = true;
    return request;
}

static void submit(struct scene *scene, int i, const struct tern_engine_request *request)
{
    expect_ok(tern_engine_submit(scene->engine, request, &scene->hearings[i].handle));
}

static void submit_plain(struct scene *scene, int i, int64_t count)
{
    struct tern_engine_request request = ask(scene, i, count);
    submit(scene, i, &request);
}

/* The i-th request's part of the step at the gate; NULL: none. */
static const struct tern_infer_part *part_of(const struct scene *scene, int i)
{
    for (int64_t p = 0; p < scene->gate.count; p++) {
        const struct tern_infer_part *part = &scene->gate.parts[p];
        const int32_t *first = part->ids - part->position;
        if (first[0] == g_ids[i][0]) {
            return part;
        }
    }
    return NULL;
}

static void test_long_prompt_delays_nobody(void **state)
{
    (void)state;
    struct scene *scene = begin((struct tern_engine_options){.chunk = 32}, 100);
    submit_plain(scene, 0, 5);
    gate_await(&scene->gate, 1);
    submit_plain(scene, 1, 300);
    submit_plain(scene, 2, 200);
    for (int step = 0; step < 17; step++) {
        gate_pass(&scene->gate, TERN_OK, true);
        int64_t prompts = 0;
        assert_int_equal(part_of(scene, 0)->count, 1); /* a token in every step */
        assert_int_equal(part_of(scene, 0)->logits, 1);
        for (int i = 1; i <= 2; i++) {
            const struct tern_infer_part *part = part_of(scene, i);
            prompts += part != NULL && part->count > 1 ? part->count : 0;
        }
        assert_int_equal(prompts, step < 15 ? 32 : 20); /* 500 tokens in all */
        if (step == 9) {                                /* the older prompt first */
            assert_int_equal(part_of(scene, 1)->count, 300 - 9 * 32);
            assert_int_equal(part_of(scene, 2)->position, 0);
        }
        if (step == 15) {
            break;
        }
    }
    end(scene);
}

static void test_cancel_in_every_phase(void **state)
{
    (void)state;
    struct tern_engine_stats stats;
    struct scene *scene = begin((struct tern_engine_options){.chunk = 32, .max_seqs = 3}, 100);
    submit_plain(scene, 0, 5);
    gate_await(&scene->gate, 1);
    submit_plain(scene, 1, 5);
    submit_plain(scene, 2, 300);
    submit_plain(scene, 3, 300); /* waits: three are there */
    gate_pass(&scene->gate, TERN_OK, true);
    gate_pass(&scene->gate, TERN_OK, true);
    assert_non_null(part_of(scene, 1));
    assert_true(part_of(scene, 2)->count > 1);
    assert_null(part_of(scene, 3));
    int64_t heard = scene->hearings[1].events;
    tern_engine_cancel(scene->engine, scene->hearings[1].handle); /* writes */
    tern_engine_cancel(scene->engine, scene->hearings[2].handle); /* in its prompt */
    tern_engine_cancel(scene->engine, scene->hearings[3].handle); /* queued */
    gate_pass(&scene->gate, TERN_OK, true);
    assert_non_null(part_of(scene, 0));
    for (int i = 1; i <= 3; i++) {
        assert_null(part_of(scene, i));
        assert_int_equal(atomic_load(&scene->hearings[i].releases), 1);
    }
    assert_int_equal(scene->gate.count, 1);
    /* the step that was at the gate may still have said its token, nothing after it */
    assert_in_range(scene->hearings[1].events, heard, heard + 1);
    assert_int_equal(scene->hearings[3].events, 0);
    gate_pass(&scene->gate, TERN_OK, true);
    tern_engine_stats(scene->engine, &stats);
    assert_int_equal(stats.finished[TERN_ENGINE_END_ABORT], 3);
    assert_int_equal(stats.blocks_used, 1);
    tern_engine_cancel(scene->engine, scene->hearings[2].handle); /* over: ignored */
    tern_engine_cancel(scene->engine, 12345);
    end(scene);
    assert_string_equal(scene->hearings[0].heard.choices[0].finish, "length");
}

static void test_full_queue(void **state)
{
    (void)state;
    struct tern_engine_stats stats;
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 2, .max_queue = 3}, 100);
    for (int i = 0; i < 5; i++) {
        submit_plain(scene, i, 5); /* two places, three wait */
    }
    gate_await(&scene->gate, 1);
    tern_engine_stats(scene->engine, &stats);
    struct tern_engine_request request = ask(scene, 5, 5);
    uint64_t handle;
    assert_int_equal(tern_engine_submit(scene->engine, &request, &handle), TERN_ERR_BUSY);
    assert_contains(tern_detail(), "queue is full");
    tern_engine_cancel(scene->engine, scene->hearings[4].handle);
    gate_pass(&scene->gate, TERN_OK, true);
    gate_pass(&scene->gate, TERN_OK, true);
    submit(scene, 5, &request); /* the place of the one that left */
    tern_engine_stats(scene->engine, &stats);
    assert_int_equal(stats.refused, 1);
    assert_int_equal(stats.requests, 6);
    end(scene);
}

static atomic_llong g_now_ns;

static int64_t fake_now(void);

/* One place, a token and a tenth of a second each: a queue that is longer than half a second is
 * full. */
static void test_long_wait(void **state)
{
    (void)state;
    struct tern_engine_stats stats;
    atomic_store(&g_now_ns, 1);
    tern_clock_fake(fake_now);
    struct scene *scene =
        begin((struct tern_engine_options){.max_seqs = 1, .max_wait_seconds = 0.55}, 100);
    struct tern_engine_request request = ask(scene, 0, 5);
    request.max_tokens = 1;
    for (int i = 0; i < HEARINGS; i++) { /* nothing is known yet: all may wait */
        request.context = &scene->hearings[i];
        submit(scene, i, &request);
    }
    gate_await(&scene->gate, 1);
    for (int i = 0; i < 4; i++) {
        atomic_fetch_add(&g_now_ns, 100000000);
        gate_pass(&scene->gate, TERN_OK, true);
    }
    tern_engine_stats(scene->engine, &stats); /* four have ended, one is at the gate, seven wait */
    assert_int_equal(stats.running + stats.waiting, 8);
    assert_in_range(stats.wait_seconds * 1000 + 0.5, 800, 900); /* what runs was just begun */
    uint64_t handle;
    assert_int_equal(tern_engine_submit(scene->engine, &request, &handle), TERN_ERR_BUSY);
    for (int i = 0; i < 4; i++) {
        atomic_fetch_add(&g_now_ns, 100000000);
        gate_pass(&scene->gate, TERN_OK, true);
    }
    request.context = &scene->hearings[0];
    atomic_store(&scene->hearings[0].releases, 0);
    memset(&scene->hearings[0].heard, 0, sizeof scene->hearings[0].heard);
    submit(scene, 0, &request);
    end(scene);
    tern_clock_fake(NULL);
}

static int64_t fake_now(void)
{
    return atomic_load(&g_now_ns);
}

static void test_deadlines(void **state)
{
    (void)state;
    atomic_store(&g_now_ns, 1000);
    tern_clock_fake(fake_now);
    struct scene *scene = begin((struct tern_engine_options){.chunk = 32, .max_seqs = 2}, 100);
    for (int i = 0; i < 4; i++) { /* writes; in its prompt; waits; waits without a deadline */
        struct tern_engine_request request = ask(scene, i, i == 1 ? 300 : 5);
        request.deadline_seconds = i < 3 ? 2.5 : 0;
        submit(scene, i, &request);
    }
    gate_await(&scene->gate, 1);
    gate_pass(&scene->gate, TERN_OK, true);
    atomic_store(&g_now_ns, 1000 + (int64_t)2500000000 - 1);
    gate_pass(&scene->gate, TERN_OK, true);
    assert_int_equal(scene->gate.count, 2);
    atomic_store(&g_now_ns, 1000 + (int64_t)2500000000);
    gate_pass(&scene->gate, TERN_OK, true);
    assert_int_equal(scene->gate.count, 1);
    assert_non_null(part_of(scene, 3));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(scene->hearings[i].heard.fail, TERN_ERR_TIMEOUT);
        assert_contains(scene->hearings[i].message, i == 2 ? "while the request waited" : "whole");
    }
    end(scene);
    tern_clock_fake(NULL);
}

static void test_dead_engine(void **state)
{
    (void)state;
    atomic_store(&g_now_ns, 0);
    tern_clock_fake(fake_now);
    struct tern_engine_stats stats;
    struct scene *scene = begin((struct tern_engine_options){.stall_seconds = 5}, 100);
    assert_true(tern_engine_is_alive(scene->engine));
    atomic_store(&g_now_ns, (int64_t)100 * 1000000000); /* nothing to do: no harm */
    assert_true(tern_engine_is_alive(scene->engine));
    submit_plain(scene, 0, 5);
    gate_await(&scene->gate, 1);
    atomic_store(&g_now_ns, (int64_t)104 * 1000000000);
    assert_true(tern_engine_is_alive(scene->engine));
    atomic_store(&g_now_ns, (int64_t)106 * 1000000000); /* one step takes 6 s */
    assert_false(tern_engine_is_alive(scene->engine));
    tern_engine_stats(scene->engine, &stats); /* does not wait for it */
    assert_false(stats.is_alive);
    assert_true(stats.beat_age_seconds == 6);
    gate_pass(&scene->gate, TERN_OK, true);
    assert_true(tern_engine_is_alive(scene->engine));
    end(scene);
    tern_clock_fake(NULL);
}

/* A step that fails ends the requests in it, and no other. */
static void test_failed_step(void **state)
{
    (void)state;
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 2}, 100);
    for (int i = 0; i < 3; i++) {
        submit_plain(scene, i, 5);
    }
    gate_await(&scene->gate, 1);
    gate_pass(&scene->gate, TERN_OK, true);
    gate_pass(&scene->gate, TERN_ERR_MEMORY, true);
    assert_int_equal(scene->gate.count, 1);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(scene->hearings[i].heard.fail, TERN_ERR_MEMORY);
        assert_contains(scene->hearings[i].message, "made to fail");
    }
    assert_true(tern_engine_is_alive(scene->engine));
    end(scene);
    assert_int_equal(scene->hearings[2].heard.fail, TERN_OK);
    assert_string_equal(scene->hearings[2].heard.choices[0].finish, "length");
}

static void test_lost_device(void **state)
{
    (void)state;
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 2}, 100);
    for (int i = 0; i < 3; i++) {
        submit_plain(scene, i, 5);
    }
    gate_await(&scene->gate, 1);
    gate_pass(&scene->gate, TERN_ERR_DEVICE, false);
    wait_for(scene->engine);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(scene->hearings[i].heard.fail, TERN_ERR_DEVICE);
        assert_int_equal(atomic_load(&scene->hearings[i].releases), 1);
    }
    struct tern_engine_request request = ask(scene, 4, 5);
    assert_int_equal(tern_engine_submit(scene->engine, &request, &scene->hearings[4].handle),
                     TERN_ERR_DEVICE);
    assert_false(tern_engine_is_alive(scene->engine));
    end(scene);
}

static void test_drain(void **state)
{
    (void)state;
    atomic_store(&g_now_ns, 1);
    tern_clock_fake(fake_now);
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 2}, 100);
    for (int i = 0; i < 3; i++) {
        struct tern_engine_request request = ask(scene, i, 5);
        request.max_tokens = i == 0 ? 4 : 50;
        submit(scene, i, &request);
    }
    gate_await(&scene->gate, 1);
    gate_pass(&scene->gate, TERN_OK,
              true); /* now two are there, however fast the first step came */
    tern_engine_drain(scene->engine, 10);
    gate_pass(&scene->gate, TERN_OK, true);
    assert_int_equal(scene->hearings[2].heard.fail, TERN_ERR_CANCELLED); /* it was not begun */
    struct tern_engine_request request = ask(scene, 4, 5);
    assert_int_equal(tern_engine_submit(scene->engine, &request, &scene->hearings[4].handle),
                     TERN_ERR_CANCELLED);
    gate_pass(&scene->gate, TERN_OK, true);
    gate_pass(&scene->gate, TERN_OK, true);
    assert_string_equal(scene->hearings[0].heard.choices[0].finish, "length");
    assert_false(tern_engine_wait_idle(scene->engine, 0));
    atomic_store(&g_now_ns, (int64_t)11 * 1000000000);
    gate_pass(&scene->gate, TERN_OK, false);
    wait_for(scene->engine);
    assert_int_equal(scene->hearings[1].heard.fail, TERN_ERR_CANCELLED);
    end(scene);
    tern_clock_fake(NULL);
}

static void test_abort(void **state)
{
    (void)state;
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 2}, 100);
    for (int i = 0; i < 3; i++) {
        submit_plain(scene, i, 5);
    }
    gate_await(&scene->gate, 1);
    tern_engine_drain(scene->engine, 1e300);
    tern_engine_abort(scene->engine);
    gate_pass(&scene->gate, TERN_OK, false);
    wait_for(scene->engine);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(scene->hearings[i].heard.fail, TERN_ERR_CANCELLED);
    }
    assert_int_equal(scene->fake.runs, 1);
    end(scene);
}

/* Blocks for one text and a half: the younger one gives way, the older one never does. */
static void test_oldest_goes_on(void **state)
{
    (void)state;
    struct tern_engine_stats stats;
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 2}, 20);
    for (int i = 0; i < 2; i++) {
        struct tern_engine_request request = ask(scene, i, 60);
        request.max_tokens = 200;
        submit(scene, i, &request);
    }
    gate_await(&scene->gate, 1);
    for (int64_t step = 1; scene->hearings[0].heard.choices[0].finish[0] == '\0'; step++) {
        const struct tern_infer_part *part = part_of(scene, 0);
        assert_non_null(part);
        assert_int_equal(part->position + part->count, 59 + step); /* a token in every step */
        gate_pass(&scene->gate, TERN_OK, true);
    }
    tern_engine_stats(scene->engine, &stats);
    end(scene);
    assert_int_equal(scene->hearings[1].heard.choices[0].count, 200);
    assert_true(stats.preemptions > 0);
}

/* A prompt that is scored, or becomes a vector, and gives way in the middle: it is told once. */
static void hear_prompt(bool is_embedding, int others, struct heard *heard, uint64_t *preemptions)
{
    struct tern_engine_stats stats;
    struct scene *scene = begin((struct tern_engine_options){.chunk = 4, .max_seqs = 8}, 20);
    for (int i = 1; i <= others; i++) {
        struct tern_engine_request request = ask(scene, i, 4);
        request.max_tokens = 100;
        submit(scene, i, &request);
    }
    struct tern_engine_request request = ask(scene, 0, 190);
    request.is_embedding = is_embedding;
    request.prompt_logprobs = is_embedding ? -1 : 2;
    request.max_tokens = 5;
    submit(scene, 0, &request);
    gate_open(&scene->gate);
    wait_for(scene->engine);
    tern_engine_stats(scene->engine, &stats);
    *preemptions = stats.preemptions;
    *heard = scene->hearings[0].heard;
    end(scene);
}

static void test_prompt_gives_way(void **state)
{
    (void)state;
    static struct heard alone;
    static struct heard late;
    uint64_t preemptions;
    for (int is_embedding = 0; is_embedding < 2; is_embedding++) {
        hear_prompt(is_embedding == 1, 0, &alone, &preemptions);
        hear_prompt(is_embedding == 1, 3, &late, &preemptions);
        assert_true(preemptions > 0);
        assert_int_equal(late.prompt_count, is_embedding == 1 ? 0 : 190);
        assert_memory_equal(&alone, &late, sizeof alone);
    }
}

/* Four choices of a prompt of 100 tokens: its whole blocks are there once. */
static void test_choices_share(void **state)
{
    (void)state;
    struct tern_engine_stats stats;
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 8}, 100);
    struct tern_engine_request request = ask(scene, 0, 100);
    request.n = 4;
    request.sampling.temperature = 1;
    submit(scene, 0, &request);
    gate_await(&scene->gate, 1);
    gate_pass(&scene->gate, TERN_OK, true);
    gate_pass(&scene->gate, TERN_OK, true);
    tern_engine_stats(scene->engine, &stats);
    assert_int_equal(stats.blocks_used, 6 + 4);
    assert_int_equal(scene->fake.copies, 3); /* the last one writes into the block that it holds */
    assert_int_equal(scene->gate.count, 4);
    end(scene);
    assert_memory_not_equal(scene->hearings[0].heard.choices[0].tokens,
                            scene->hearings[0].heard.choices[1].tokens,
                            sizeof scene->hearings[0].heard.choices[0].tokens);
}

static void expect_refused(struct scene *scene,
                           const struct tern_engine_request *request,
                           const char *part)
{
    uint64_t handle;
    assert_int_equal(tern_engine_submit(scene->engine, request, &handle), TERN_ERR_INPUT);
    assert_contains(tern_detail(), part);
}

static void test_refused(void **state)
{
    (void)state;
    static const char *const empty_stop[] = {""};
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 2}, 100);
    struct tern_engine_request request = ask(scene, 0, 0);
    expect_refused(scene, &request, "empty");
    request = ask(scene, 0, CONTEXT);
    expect_refused(scene, &request, "at most 319");
    request.max_tokens = 0; /* without an answer it fits */
    submit(scene, 0, &request);
    request = ask(scene, 1, 3);
    g_ids[1][1] = FAKE_VOCAB;
    expect_refused(scene, &request, "token 97");
    g_ids[1][1] = -1;
    expect_refused(scene, &request, "token -1");
    request = ask(scene, 1, 3);
    request.sampling.temperature = NAN;
    expect_refused(scene, &request, "temperature");
    request = ask(scene, 1, 3);
    request.n = TERN_ENGINE_CHOICES_MAX + 1;
    expect_refused(scene, &request, "n is 129");
    request = ask(scene, 1, 3);
    request.stops = empty_stop;
    request.stop_count = 1;
    expect_refused(scene, &request, "stop string 0");
    request = ask(scene, 1, 3);
    request.stop_ids = &(int32_t){FAKE_VOCAB};
    request.stop_id_count = 1;
    expect_refused(scene, &request, "stop id");
    request = ask(scene, 1, 3);
    request.bias = &(struct tern_logit_bias){.id = 1000};
    request.bias_count = 1;
    expect_refused(scene, &request, "bias");
    end(scene);
    assert_string_equal(scene->hearings[0].heard.choices[0].finish, "length");
}

static void test_grammar(void **state)
{
    (void)state;
    struct scene *scene = begin((struct tern_engine_options){.speculate = 4}, 100);
    struct tern_grammar grammar = {0};
    struct tern_grammar dead = {.dead_at = 5};
    gate_open(&scene->gate);
    for (int i = 0; i < 3; i++) {
        struct tern_engine_request request = ask(scene, i, 40);
        request.ignore_end = false;
        request.grammar = i < 2 ? &grammar : &dead;
        request.min_tokens = i == 1 ? 12 : 0; /* the end is all that may come: it comes */
        submit(scene, i, &request);
    }
    end(scene);
    for (int i = 0; i < 2; i++) {
        const struct heard_choice *choice = &scene->hearings[i].heard.choices[0];
        assert_int_equal(choice->count, FAKE_GRAMMAR_LENGTH);
        assert_string_equal(choice->finish, "stop");
        for (int64_t t = 0; t < choice->count; t++) {
            assert_int_equal(choice->tokens[t].id % 2, 0);
        }
    }
    assert_int_equal(scene->hearings[2].heard.fail, TERN_ERR_UNSUPPORTED);
    assert_int_equal(scene->hearings[2].heard.choices[0].count, 5);
    assert_int_equal(grammar.refs + dead.refs, 0);
}

/* A text that ends where the context does; and one that nobody lets end before. */
static void test_ends(void **state)
{
    (void)state;
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 4}, 100);
    gate_open(&scene->gate);
    struct tern_engine_request request = ask(scene, 0, CONTEXT - 10);
    request.max_tokens = -1;
    submit(scene, 0, &request);
    request = ask(scene, 1, 10);
    request.ignore_end = false;
    request.min_tokens = 15;
    request.max_tokens = 40;
    request.stop_ids = g_ids[0]; /* most of what the model says */
    request.stop_id_count = 60;
    submit(scene, 1, &request);
    end(scene);
    assert_int_equal(scene->hearings[0].heard.choices[0].count, 10);
    assert_string_equal(scene->hearings[0].heard.choices[0].finish, "length");
    assert_in_range(scene->hearings[1].heard.choices[0].completion_tokens, 16, 40);
    assert_string_equal(scene->hearings[1].heard.choices[0].finish, "stop");
}

/* Requests in flight when the engine is destroyed are told. */
static void test_destroyed(void **state)
{
    (void)state;
    struct scene *scene = begin((struct tern_engine_options){.max_seqs = 1}, 100);
    gate_open(&scene->gate);
    for (int i = 0; i < HEARINGS; i++) {
        struct tern_engine_request request = ask(scene, i, 100);
        request.max_tokens = 200;
        submit(scene, i, &request);
    }
    tern_engine_destroy(scene->engine);
    fake_fini(&scene->fake);
    for (int i = 0; i < HEARINGS; i++) {
        assert_int_equal(atomic_load(&scene->hearings[i].releases), 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CHECKED(test_long_prompt_delays_nobody),
        CHECKED(test_cancel_in_every_phase),
        CHECKED(test_full_queue),
        CHECKED(test_long_wait),
        CHECKED(test_deadlines),
        CHECKED(test_dead_engine),
        CHECKED(test_failed_step),
        CHECKED(test_lost_device),
        CHECKED(test_drain),
        CHECKED(test_abort),
        CHECKED(test_oldest_goes_on),
        CHECKED(test_choices_share),
        CHECKED(test_prompt_gives_way),
        CHECKED(test_refused),
        CHECKED(test_grammar),
        CHECKED(test_ends),
        CHECKED(test_destroyed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
