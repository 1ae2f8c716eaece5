/* engine_storm_test.c - clients that come, leave at every stage and come again, from many threads,
 * over a cache that is too small: nothing is leaked, nobody hears anything after the end.
 *
 *   engine_storm_test [REQUESTS]      default 6000 */
#include "tests/runtime/serve/fake_grammar.h"
#include "tests/runtime/serve/hearing.h"

#include <sched.h>

enum {
    CLIENTS = 4,
    VISITORS = 24, /* of one client at once */
    CONTEXT = 160,
    BLOCKS = 13,
    SEQS = 6
};

static int64_t g_requests = 6000;

struct visitor {
    struct tern_engine *engine;
    atomic_ullong handle;
    atomic_bool is_free;
    int leaves_at; /* cancels at that event, on the engine thread; -1: does not */
    int events, open, late;
    bool has_ended;
};

struct client {
    struct tern_engine *engine;
    int number;
    struct visitor visitors[VISITORS];
    int64_t accepted, refused, late;
    pthread_t thread;
};

static void visit(void *context, const struct tern_engine_event *event)
{
    struct visitor *visitor = context;
    visitor->late += visitor->has_ended;
    if (visitor->events++ == visitor->leaves_at) {
        tern_engine_cancel(visitor->engine, atomic_load(&visitor->handle));
    }
    visitor->open -= event->kind == TERN_ENGINE_FINISH || event->kind == TERN_ENGINE_EMBEDDING;
    visitor->has_ended = visitor->open == 0 || event->kind == TERN_ENGINE_FAIL;
}

static void leave(void *context)
{
    struct visitor *visitor = context;
    atomic_store(&visitor->is_free, true);
}

static uint64_t dice(const struct client *client, int64_t i, int what, uint64_t below)
{
    uint64_t index = (uint64_t)i * 64 + (uint64_t)what;
    return tern_random_u64((uint64_t)client->number, TERN_STREAM_TEST, index) % below;
}

static struct tern_engine_request make_visit(const struct client *client, int64_t i, int32_t *ids)
{
    int64_t count = 1 + (int64_t)dice(client, i, 0, 90);
    for (int64_t p = 0; p < count; p++) {
        ids[p] = (int32_t)(20 + (p < 48 ? i % 3 : p * i % 50));
    }
    struct tern_engine_request request = {
        .ids = ids,
        .count = count,
        .max_tokens = (int64_t)dice(client, i, 1, 40),
        .n = dice(client, i, 2, 6) == 0 ? 1 + (int)dice(client, i, 3, 8) : 1,
        .sampling = {.temperature = (double)dice(client, i, 4, 2), .top_p = 1},
        .logprobs = dice(client, i, 5, 5) == 0 ? 2 : -1,
        .prompt_logprobs = dice(client, i, 6, 9) == 0 ? 1 : -1,
        .is_embedding = dice(client, i, 7, 12) == 0,
        .deadline_seconds = dice(client, i, 8, 10) == 0 ? 1e-4 * (double)dice(client, i, 9, 30) : 0,
        .deliver = visit,
        .release = leave,
    };
    request.n = request.is_embedding ? 1 : request.n;
    return request;
}

static struct visitor *free_visitor(struct client *client)
{
    for (;;) {
        for (int i = 0; i < VISITORS; i++) {
            if (atomic_load(&client->visitors[i].is_free)) {
                return &client->visitors[i];
            }
        }
        sched_yield();
    }
}

static void one_visit(struct client *client, int64_t i)
{
    int32_t ids[CONTEXT];
    uint64_t handle;
    struct visitor *visitor = free_visitor(client);
    struct tern_engine_request request = make_visit(client, i, ids);
    client->late += visitor->late;
    visitor->events = visitor->late = 0;
    visitor->has_ended = false;
    visitor->open = request.n;
    visitor->leaves_at = dice(client, i, 10, 3) == 0 ? (int)dice(client, i, 11, 20) : -1;
    visitor->engine = client->engine;
    atomic_store(&visitor->handle, 0);
    atomic_store(&visitor->is_free, false);
    request.context = visitor;
    if (tern_engine_submit(client->engine, &request, &handle) != TERN_OK) {
        client->refused++;
        atomic_store(&visitor->is_free, true);
        sched_yield();
        return;
    }
    client->accepted++;
    atomic_store(&visitor->handle, handle);
    if (dice(client, i, 12, 5) == 0) { /* leaves at once, or a while later */
        for (uint64_t k = dice(client, i, 13, 20); k > 0; k--) {
            sched_yield();
        }
        tern_engine_cancel(client->engine, handle);
    }
}

static void *run_client(void *arg)
{
    struct client *client = arg;
    for (int64_t i = 0; client->accepted < g_requests / CLIENTS; i++) {
        one_visit(client, i);
    }
    return NULL;
}

static void one_storm(const struct tern_engine_options *options)
{
    static struct client clients[CLIENTS];
    struct fake fake = {0};
    struct tern_engine_stats stats;
    int64_t accepted = 0;
    int64_t refused = 0;
    struct tern_engine *engine = fake_engine(&fake, options, BLOCKS);
    memset(clients, 0, sizeof clients);
    for (int c = 0; c < CLIENTS; c++) {
        clients[c].engine = engine;
        clients[c].number = c;
        for (int v = 0; v < VISITORS; v++) {
            atomic_store(&clients[c].visitors[v].is_free, true);
        }
        assert_int_equal(pthread_create(&clients[c].thread, NULL, run_client, &clients[c]), 0);
    }
    for (int c = 0; c < CLIENTS; c++) {
        pthread_join(clients[c].thread, NULL);
        accepted += clients[c].accepted;
        refused += clients[c].refused;
    }
    wait_for(engine);
    tern_engine_stats(engine, &stats);
    for (int c = 0; c < CLIENTS; c++) {
        for (int v = 0; v < VISITORS; v++) {
            assert_true(atomic_load(&clients[c].visitors[v].is_free));
            clients[c].late += clients[c].visitors[v].late;
        }
        assert_int_equal(clients[c].late, 0);
    }
    print_message("%lld requests, %lld refused; stop %llu, length %llu, abort %llu, timeout %llu, "
                  "embedding %llu; %llu preemptions, %llu of %llu guesses, %llu cached tokens\n",
                  (long long)accepted, (long long)refused, (unsigned long long)stats.finished[0],
                  (unsigned long long)stats.finished[1], (unsigned long long)stats.finished[2],
                  (unsigned long long)stats.finished[3], (unsigned long long)stats.finished[5],
                  (unsigned long long)stats.preemptions, (unsigned long long)stats.accepted_tokens,
                  (unsigned long long)stats.draft_tokens, (unsigned long long)stats.prefix_hits);
    assert_int_equal(stats.blocks_used, 0);
    assert_int_equal(stats.running + stats.waiting, 0);
    assert_int_equal(stats.requests, accepted);
    assert_int_equal(stats.refused, refused);
    assert_int_equal(stats.finished[TERN_ENGINE_END_ERROR], 0);
    assert_true(stats.finished[TERN_ENGINE_END_ABORT] > 0 && stats.preemptions > 0);
    tern_engine_destroy(engine);
    fake_fini(&fake);
}

static void test_storm(void **state)
{
    (void)state;
    for (int i = 0; i < 3; i++) {
        struct tern_engine_options options = {.max_seqs = SEQS,
                                              .max_queue = 20,
                                              .chunk = 24,
                                              .prefix_cache = i > 0,
                                              .speculate = i > 1 ? 4 : 0};
        expect_ok(tern_engine_fill(&options, CONTEXT));
        one_storm(&options);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {CHECKED(test_storm)};
    if (argc > 1) {
        g_requests = atoll(argv[1]);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
