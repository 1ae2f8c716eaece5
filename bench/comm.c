/* comm.c - what communication costs: latency and bandwidth of exchange, and the gradient and weight
 * exchange of a training step while each rank computes. Two ranks are what the numbers mean:
 *     mpirun -n 2 --bind-to none build/bin/bench_comm [MEGABYTES] [LANES]
 *
 * Processor time counts, not wall time: the progress thread competes with the thread that computes. */
#include "comm/lane_tree.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    BUCKET_FLOATS = 7 * 1000 * 1000,
    STEPS = 5
};

static struct tern_dptr at(const void *p)
{
    return (struct tern_dptr){(uint64_t)(uintptr_t)p};
}

static void must(tern_status status)
{
    if (status != TERN_OK) {
        fprintf(stderr, "bench_comm: %s\n", tern_detail());
        exit(1);
    }
}

static float *floats_new(int64_t n)
{
    float *block = tern_alloc("bench", (size_t)n * sizeof *block);
    if (block == NULL) {
        fprintf(stderr, "bench_comm: no memory for %lld floats\n", (long long)n);
        exit(1);
    }
    for (int64_t i = 0; i < n; i++) {
        block[i] = (float)(i % 1000);
    }
    return block;
}

/* Both ways at once, as every collective does it. */
static void bench_exchange(struct tern_comm *comm, size_t bytes, int rounds)
{
    int peer = comm->rank ^ 1;
    float *out = floats_new((int64_t)(bytes / sizeof(float)) + 1);
    float *in = floats_new((int64_t)(bytes / sizeof(float)) + 1);
    struct tern_comm_message both[2] = {{peer, true, at(out), bytes}, {peer, false, at(in), bytes}};
    double best = 1e9;
    for (int trial = 0; trial < 5; trial++) {
        must(tern_comm_barrier(comm));
        double begin = tern_clock_seconds();
        for (int i = 0; i < rounds; i++) {
            must(tern_comm_exchange(comm, both, 2));
        }
        double seconds = (tern_clock_seconds() - begin) / rounds;
        best = seconds < best ? seconds : best;
    }
    if (comm->rank == 0) {
        printf("exchange %10zu bytes: %9.1f us  %7.2f GB/s each way\n", bytes, best * 1e6,
               (double)bytes / best * 1e-9);
    }
    tern_free(out);
    tern_free(in);
}

static tern_status add(void *context, struct tern_dptr dst, struct tern_dptr src, int64_t n)
{
    float *restrict into = (float *)(uintptr_t)dst.addr;
    const float *restrict from = (const float *)(uintptr_t)src.addr;
    (void)context;
    for (int64_t i = 0; i < n; i++) {
        into[i] += from[i];
    }
    return TERN_OK;
}

/* A thread that computes out of its cache, and counts how far it gets. */
struct burner {
    pthread_t thread;
    _Atomic bool ends;
    _Atomic int64_t rounds;
};

static void *burn(void *arg)
{
    struct burner *burner = arg;
    float x[1024];
    memset(x, 0, sizeof x);
    while (!burner->ends) {
        for (int k = 0; k < 100; k++) {
            for (int i = 0; i < 1024; i++) {
                x[i] = x[i] * 0.999f + 1.0f;
            }
        }
        atomic_fetch_add(&burner->rounds, 1);
    }
    return (void *)(intptr_t)(x[7] > 1e30f);
}

struct step {
    struct tern_comm *comm;
    struct tern_lane_plan plan;
    int buckets;
    float *gradient; /* (buckets, BUCKET_FLOATS) */
    float *scratch;
    struct tern_range ranges[TERN_LANES_MAX], byte_ranges[TERN_LANES_MAX];
    struct tern_lane_reduce *reduces; /* (buckets) */
};

static tern_status gather_job(struct tern_comm *comm, void *arg)
{
    struct step *s = arg;
    for (int b = 0; b < s->buckets; b++) {
        TERN_RETURN_IF_ERR(tern_comm_all_gatherv(comm, at(s->gradient + (int64_t)b * BUCKET_FLOATS),
                                                 s->byte_ranges));
    }
    return TERN_OK;
}

static void step_init(struct step *s, struct tern_comm *comm, int64_t megabytes, int lanes)
{
    s->comm = comm;
    s->buckets = (int)(megabytes * 1000000 / (BUCKET_FLOATS * (int64_t)sizeof(float)));
    must(tern_lane_plan_make(lanes, comm->size, comm->rank, &s->plan));
    int64_t cuts[1001];
    for (int i = 0; i <= 1000; i++) {
        cuts[i] = (int64_t)BUCKET_FLOATS / 1000 * i;
    }
    tern_lane_ranges(comm->size, cuts, 1001, s->ranges);
    for (int r = 0; r < comm->size; r++) {
        s->byte_ranges[r] = (struct tern_range){s->ranges[r].begin * 4, s->ranges[r].end * 4};
    }
    s->gradient = floats_new((int64_t)s->buckets * BUCKET_FLOATS);
    s->scratch = floats_new(tern_lane_scratch_floats(&s->plan, s->ranges) + 1);
    s->reduces = tern_alloc_zero("bench", (size_t)s->buckets, sizeof *s->reduces);
    for (int b = 0; b < s->buckets; b++) {
        struct tern_lane_reduce *r = &s->reduces[b];
        *r = (struct tern_lane_reduce){.plan = &s->plan, .ranges = s->ranges, .add = add};
        r->scratch = at(s->scratch);
        for (int i = 0; i < s->plan.node_count; i++) {
            r->nodes[i] = at(s->gradient + (int64_t)b * BUCKET_FLOATS);
        }
    }
}

/* Submits one job and waits while the other thread computes; seconds of wall and processor time. */
static void timed(struct step *s, bool is_reduce, double *wall, double *cpu)
{
    must(tern_comm_barrier(s->comm));
    int64_t cpu_before = atomic_load(&s->comm->counters.cpu_ns);
    double begin = tern_clock_seconds();
    uint64_t ticket = 0;
    for (int b = 0; b < (is_reduce ? s->buckets : 1); b++) {
        must(is_reduce ? tern_comm_submit(s->comm, tern_lane_reduce_job, &s->reduces[b], &ticket)
                       : tern_comm_submit(s->comm, gather_job, s, &ticket));
    }
    must(tern_comm_wait(s->comm, ticket));
    *wall = tern_clock_seconds() - begin;
    *cpu = (double)(atomic_load(&s->comm->counters.cpu_ns) - cpu_before) * 1e-9;
}

static void bench_step(struct tern_comm *comm, int64_t megabytes, int lanes, bool is_busy)
{
    struct step s = {0};
    struct burner burner = {0};
    step_init(&s, comm, megabytes, lanes);
    if (is_busy && pthread_create(&burner.thread, NULL, burn, &burner) != 0) {
        exit(1);
    }
    double best_cpu[2] = {1e9, 1e9};
    double best_wall[2] = {1e9, 1e9};
    for (int i = 0; i < STEPS; i++) {
        for (int kind = 0; kind < 2; kind++) {
            double wall, cpu;
            timed(&s, kind == 0, &wall, &cpu);
            best_wall[kind] = wall < best_wall[kind] ? wall : best_wall[kind];
            best_cpu[kind] = cpu < best_cpu[kind] ? cpu : best_cpu[kind];
        }
    }
    burner.ends = true;
    if (is_busy) {
        pthread_join(burner.thread, NULL);
    }
    double mb = (double)s.buckets * BUCKET_FLOATS * 4e-6;
    for (int r = 0; r < comm->size; r++) {
        must(tern_comm_barrier(comm));
        if (r == comm->rank) {
            printf(
                "rank %d, %s: %.0f MB in %d buckets: reduce-scatter %.3f s (%.3f s of processor), "
                "all-gather %.3f s (%.3f s); together %.1f %% of one core over 2 s\n",
                r, is_busy ? "computing" : "idle", mb, s.buckets, best_wall[0], best_cpu[0],
                best_wall[1], best_cpu[1], (best_cpu[0] + best_cpu[1]) / 2 * 100);
            fflush(stdout);
        }
    }
    tern_free(s.gradient);
    tern_free(s.scratch);
    tern_free(s.reduces);
}

int main(int argc, char **argv)
{
    struct tern_comm *comm;
    must(tern_comm_open(&comm));
    int64_t megabytes = argc > 1 ? atoll(argv[1]) : 500;
    int lanes = argc > 2 ? atoi(argv[2]) : 8;
    if (comm->size == 2) {
        bench_exchange(comm, 8, 2000);
        bench_exchange(comm, 65536, 500);
        bench_exchange(comm, 1 << 20, 100);
        bench_exchange(comm, 14000000, 10);
    }
    bench_step(comm, megabytes, lanes, false);
    bench_step(comm, megabytes, lanes, true);
    tern_comm_close(comm);
    return 0;
}
