/* checkpoint.c - how fast a checkpoint is committed and read back, beside dd on the same disk in
 * the same rounds.
 *
 *   bench_checkpoint [FOLDER [MIB [ROUNDS]]]      default: the working folder, 1536 MiB (GPT-2 124M
 * with its moments), 3
 *
 * Each round writes with dd (around the page cache, and through it), then a raw and a compressed
 * checkpoint; the best of all rounds counts, since a shared disk only ever makes them worse.
 * "stall" is the worst time that a thread beside the save needed for a copy of 4 MiB. */
#include "io/checkpoint.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    COPY_BYTES = 4 << 20,
    TILE_VALUES = 4 << 20,
    WIDTH = 768,
    TENSORS = 48
};

struct result {
    double seconds;     /* best */
    double cpu_seconds; /* of that round */
    double stall_ms;    /* worst of all rounds */
    int64_t bytes;
};

struct bench {
    const char *folder;
    char run[TERN_PATH_BYTES];
    float *values;
    int64_t bytes;
    int64_t step;
    struct tern_ckpt_slab slabs[TENSORS];
    char names[TENSORS][16];
};

/* ---- a thread that copies ---- */

static _Atomic int g_copies;
static _Atomic int64_t g_stall_ns;

static void *copy_on(void *context)
{
    char *block = context;
    while (atomic_load(&g_copies)) {
        int64_t start_ns = tern_clock_ns();
        memcpy(block, block + COPY_BYTES, COPY_BYTES);
        int64_t took_ns = tern_clock_ns() - start_ns;
        if (took_ns > atomic_load(&g_stall_ns)) {
            atomic_store(&g_stall_ns, took_ns);
        }
    }
    return NULL;
}

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* ---- what is measured ---- */

static tern_status save(struct bench *bench, enum tern_ckpt_compression kind, struct result *result)
{
    struct tern_ckpt_write write = {bench->run, ++bench->step, 0,    1, bench->slabs,
                                    TENSORS,    "{}",          kind, 1, 1};
    struct tern_ckpt_file file;
    double cpu = cpu_seconds(), start = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_ckpt_write_shard(&write, &file));
    TERN_RETURN_IF_ERR(tern_ckpt_commit(bench->run, bench->step, &file, 1, "", 2));
    double seconds = tern_clock_seconds() - start;
    result->bytes = file.bytes;
    if (result->seconds == 0 || seconds < result->seconds) {
        result->seconds = seconds;
        result->cpu_seconds = cpu_seconds() - cpu;
    }
    return TERN_OK;
}

/* The same beside a copying thread: only the worst stall counts. */
static tern_status save_beside(struct bench *bench,
                               enum tern_ckpt_compression kind,
                               char *block,
                               struct result *result)
{
    pthread_t thread;
    struct result ignored = {0};
    atomic_store(&g_stall_ns, 0);
    atomic_store(&g_copies, 1);
    if (pthread_create(&thread, NULL, copy_on, block) != 0) {
        return tern_fail(TERN_ERR_MEMORY, "cannot start a thread");
    }
    tern_status status = save(bench, kind, &ignored);
    atomic_store(&g_copies, 0);
    pthread_join(thread, NULL);
    double stall_ms = 1e-6 * (double)atomic_load(&g_stall_ns);
    result->stall_ms = stall_ms > result->stall_ms ? stall_ms : result->stall_ms;
    return status;
}

static tern_status run_dd(struct bench *bench, const char *flags, struct result *result)
{
    char command[TERN_PATH_BYTES + 160];
    snprintf(command, sizeof command,
             "dd if=/dev/zero of='%s/dd.tmp' bs=4M count=%lld %s conv=fsync status=none",
             bench->run, (long long)(bench->bytes >> 22), flags);
    double start = tern_clock_seconds();
    if (system(command) != 0) {
        return tern_fail(TERN_ERR_IO, "'%s' failed", command);
    }
    double seconds = tern_clock_seconds() - start;
    result->bytes = bench->bytes >> 22 << 22;
    result->seconds = result->seconds == 0 || seconds < result->seconds ? seconds : result->seconds;
    snprintf(command, sizeof command, "%s/dd.tmp", bench->run);
    return tern_file_remove(command);
}

static tern_status read_back(struct bench *bench, struct result *verify, struct result *read)
{
    char found[TERN_CKPT_PATH_BYTES];
    int64_t step;
    struct tern_ckpt_reader *reader;
    double start = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_ckpt_find(bench->run, found, &step));
    double middle = tern_clock_seconds();
    TERN_RETURN_IF_ERR(tern_ckpt_open(found, &reader));
    tern_status status = TERN_OK;
    for (int i = 0; i < TENSORS && status == TERN_OK; i++) {
        const struct tern_ckpt_slab *slab = &bench->slabs[i];
        status =
            tern_ckpt_read(reader, slab->group, slab->name, 0, slab->row_count, (void *)slab->data);
    }
    tern_ckpt_close(reader);
    double end = tern_clock_seconds();
    verify->bytes = read->bytes = bench->bytes;
    verify->seconds =
        verify->seconds == 0 || middle - start < verify->seconds ? middle - start : verify->seconds;
    read->seconds =
        read->seconds == 0 || end - middle < read->seconds ? end - middle : read->seconds;
    return status;
}

/* ---- setup and report ---- */

/* Normal values, as trained weights: a tile longer than any compressor's window here, repeated. */
static tern_status make(struct bench *bench)
{
    int64_t rows = bench->bytes / (int64_t)(TENSORS * WIDTH * sizeof(float));
    bench->bytes = rows * TENSORS * WIDTH * (int64_t)sizeof(float);
    bench->values = tern_alloc("bench", (size_t)bench->bytes);
    if (bench->values == NULL || rows == 0) {
        return tern_fail(TERN_ERR_MEMORY, "cannot hold %lld bytes of state",
                         (long long)bench->bytes);
    }
    int64_t count = bench->bytes / (int64_t)sizeof(float);
    for (int64_t i = 0; i < count; i++) {
        bench->values[i] =
            i < TILE_VALUES ? (float)(0.02 * tern_random_normal(1, TERN_STREAM_TEST, (uint64_t)i))
                            : bench->values[i - TILE_VALUES];
    }
    for (int i = 0; i < TENSORS; i++) {
        snprintf(bench->names[i], sizeof bench->names[i], "h.%d.weight", i);
        bench->slabs[i] = (struct tern_ckpt_slab){"model",       bench->names[i],
                                                  TERN_F32,      2,
                                                  {rows, WIDTH}, 0,
                                                  rows,          bench->values + i * rows * WIDTH};
    }
    return TERN_OK;
}

static void report(const char *name,
                   const struct result *result,
                   int64_t raw_bytes,
                   double peer_seconds)
{
    printf("%-26s %8.3f s  %6.2f GB/s", name, result->seconds,
           1e-9 * (double)raw_bytes / result->seconds);
    if (peer_seconds > 0) {
        printf("  %5.2fx dd direct  cpu %5.2f s  stall %6.1f ms  size %.3f",
               peer_seconds / result->seconds, result->cpu_seconds, result->stall_ms,
               (double)result->bytes / (double)raw_bytes);
    }
    printf("\n");
}

static tern_status measure(struct bench *bench, int rounds)
{
    struct result direct = {0}, buffered = {0}, raw = {0}, packed = {0}, verify = {0}, read = {0};
    char *block = tern_alloc_zero("bench", 2, COPY_BYTES);
    tern_status status = block == NULL ? tern_fail(TERN_ERR_MEMORY, "no memory to copy") : TERN_OK;
    for (int round = 0; round < rounds && status == TERN_OK; round++) {
        TERN_GOTO_IF_ERR(status, run_dd(bench, "oflag=direct", &direct), done);
        TERN_GOTO_IF_ERR(status, save(bench, TERN_CKPT_NONE, &raw), done);
        TERN_GOTO_IF_ERR(status, read_back(bench, &verify, &read), done);
        TERN_GOTO_IF_ERR(status, save_beside(bench, TERN_CKPT_NONE, block, &raw), done);
        TERN_GOTO_IF_ERR(status, save(bench, TERN_CKPT_ZSTD, &packed), done);
        TERN_GOTO_IF_ERR(status, save_beside(bench, TERN_CKPT_ZSTD, block, &packed), done);
        TERN_GOTO_IF_ERR(status, run_dd(bench, "", &buffered), done);
    }
    printf("%lld MiB of state in %d tensors, best of %d rounds\n", (long long)(bench->bytes >> 20),
           TENSORS, rounds);
    report("dd oflag=direct conv=fsync", &direct, direct.bytes, 0);
    report("dd conv=fsync", &buffered, buffered.bytes, 0);
    report("commit, raw", &raw, bench->bytes, direct.seconds);
    report("commit, zstd:1, 1 thread", &packed, bench->bytes, direct.seconds);
    report("find and verify, raw", &verify, bench->bytes, 0);
    report("read all, raw", &read, bench->bytes, 0);
done:
    tern_free(block);
    return status;
}

int main(int argc, char **argv)
{
    struct bench bench = {.folder = argc > 1 ? argv[1] : ".",
                          .bytes = (argc > 2 ? atoll(argv[2]) : 1536) << 20};
    int rounds = argc > 3 ? atoi(argv[3]) : 3;
    tern_status status = tern_log_init();
    if (status == TERN_OK) {
        status = tern_path_join(bench.run, bench.folder, "bench_checkpoint.tmp");
    }
    if (status == TERN_OK) {
        status = tern_file_make_folder(bench.run);
    }
    if (status == TERN_OK) {
        status = make(&bench);
        if (status == TERN_OK) {
            status = measure(&bench, rounds);
        }
        if (tern_file_remove_tree(bench.run) != TERN_OK) {
            tern_log_warn("%s", tern_detail());
        }
    }
    tern_free(bench.values);
    if (status != TERN_OK) {
        tern_log_error("%s", tern_detail());
    }
    return tern_status_exit_code(status);
}
