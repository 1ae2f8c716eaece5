/* compute.c - the environment, the affinity mask, and who else has the same one. */
#include "runtime/plan/compute.h"

#include "comm/lane_tree.h"
#include "io/hash.h"
#include "runtime/base/check.h"
#include "runtime/base/text.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    THREADS_MAX = 1024,
    CORES_MAX = 8192 /* Linux has no more */
};

/* Cores that a rank may use. Equal seats are the same cores of the same machine. */
struct seat {
    char machine[40];
    char mask[TERN_HASH_HEX_BYTES];
};

int tern_compute_quota(const char *text, int cores)
{
    double quota;
    double period;
    if (sscanf(text, "%lf %lf", &quota, &period) != 2 || period <= 0) { /* "max": none */
        return cores;
    }
    int whole = quota / period < cores ? (int)(quota / period) : cores;
    return whole > 1 ? whole : 1;
}

/* First line of a file, "" if it cannot be read. */
static void read_line(const char *path, char *out, int size)
{
    FILE *file = fopen(path, "re");
    if (file == NULL || fgets(out, size, file) == NULL) {
        out[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    out[strcspn(out, "\n")] = '\0';
}

/* The kernel's boot id names the machine, whatever containers and host names there are. Returns the
 * cores. */
static int take_seat(struct seat *seat)
{
    unsigned long mask[CORES_MAX / (8 * sizeof(unsigned long))] = {0};
    char quota[64];
    memset(seat, 0, sizeof *seat);
    read_line("/proc/sys/kernel/random/boot_id", seat->machine, sizeof seat->machine);
    read_line("/sys/fs/cgroup/cpu.max", quota, sizeof quota);
    int cores = 1;
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) == 0) {
        cores = CPU_COUNT_S(sizeof mask, (cpu_set_t *)mask);
    }
    tern_hash_bytes(mask, sizeof mask, seat->mask);
    return tern_compute_quota(quota, cores);
}

/* Ranks in the same seat, this one included. */
static tern_status count_sharers(struct tern_comm *comm, const struct seat *mine, int *count_out)
{
    *count_out = 1;
    if (comm == NULL || comm->size == 1) {
        return TERN_OK;
    }
    struct seat all[TERN_LANES_MAX];
    TERN_CHECK(comm->size <= TERN_LANES_MAX); /* more ranks than lanes are refused before */
    TERN_RETURN_IF_ERR(tern_comm_all_gather(comm, mine, sizeof *mine, all));
    for (int rank = 0; rank < comm->size; rank++) {
        *count_out += rank != comm->rank && memcmp(&all[rank], mine, sizeof *mine) == 0;
    }
    return TERN_OK;
}

static tern_status threads_wanted(int64_t *threads_out)
{
    const char *text = getenv("TERN_THREADS");
    *threads_out = 0;
    if (text == NULL || text[0] == '\0') {
        return TERN_OK;
    }
    if (!tern_text_to_i64(text, threads_out) || *threads_out < 1 || *threads_out > THREADS_MAX) {
        return tern_fail(TERN_ERR_USAGE,
                         "environment TERN_THREADS: found '%.80s', expected 1 to %d", text,
                         THREADS_MAX);
    }
    return TERN_OK;
}

tern_status tern_compute_choose(struct tern_comm *comm, struct tern_compute *out)
{
    const char *backend = getenv("TERN_BACKEND");
    struct seat seat;
    int64_t wanted;
    int sharers;
    int cores = take_seat(&seat);
    /* every rank takes part, also one whose own variable is set or wrong */
    TERN_RETURN_IF_ERR(count_sharers(comm, &seat, &sharers));
    TERN_RETURN_IF_ERR(threads_wanted(&wanted));
    int share = cores / sharers > 1 ? cores / sharers : 1;
    share = share < THREADS_MAX ? share : THREADS_MAX;
    *out = (struct tern_compute){
        .backend = backend != NULL && backend[0] != '\0' ? backend : "auto",
        .threads = wanted > 0 ? (int)wanted : share,
        .cores = cores,
        .sharers = sharers,
    };
    return TERN_OK;
}
