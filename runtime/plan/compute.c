/* compute.c - the environment, the affinity mask, and who else has the same one; the devices. */
#include "runtime/plan/compute.h"

#include "comm/lane_tree.h"
#include "io/hash.h"
#include "kernels/open.h"
#include "runtime/base/check.h"
#include "runtime/base/text.h"
#include "runtime/train/agree.h"

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

/* ---- devices ---- */

bool tern_compute_has_memory(const struct tern_compute_devices *devices, int64_t *free_out)
{
    int64_t left;
    int64_t total;
    const struct tern_device_table *table = devices->device->ops->device;
    bool has_memory = table->memory(devices->device, &left, &total) == TERN_OK;
    if (has_memory && free_out != NULL) {
        *free_out = left;
    }
    return has_memory;
}

static tern_status open_here(struct tern_comm *comm, struct tern_compute_devices *devices)
{
    const struct tern_device_seat seat = {
        .threads = devices->compute.threads,
        .local_rank = comm->local_rank,
        .local_size = comm->local_size,
    };
    TERN_RETURN_IF_ERR(tern_device_open_at(devices->compute.backend, &seat, &devices->device));
    return devices->device->ops->device->queue(devices->device, "comm", &devices->comm_device);
}

/* Gradients go from GPU to GPU; between hosts' processors the ranks' own communicator carries them. */
static tern_status open_between(struct tern_comm *comm,
                                const struct tern_comm_farewell *farewell,
                                struct tern_compute_devices *devices)
{
    if (comm->size == 1 || !tern_compute_has_memory(devices, NULL)) {
        return TERN_OK;
    }
    tern_status status =
        tern_comm_open_device(comm, devices->device, devices->comm_device,
                              devices->device->ops->device, farewell, &devices->data_comm);
    return status == TERN_OK ? TERN_OK
                             : tern_fail_prefix(status, "between GPUs (TERN_BACKEND=cpu does "
                                                        "without them)");
}

/* 64 bits of a name. */
static uint64_t digest_of(const char *name)
{
    uint64_t digest = 0;
    memcpy(&digest, name, strnlen(name, sizeof digest));
    return digest;
}

tern_status tern_compute_open(struct tern_comm *comm,
                              const struct tern_comm_farewell *farewell,
                              struct tern_compute_devices *out)
{
    *out = (struct tern_compute_devices){0};
    TERN_RETURN_IF_ERR(tern_agree(comm, tern_compute_choose(comm, &out->compute)));
    TERN_RETURN_IF_ERR(tern_agree(comm, open_here(comm, out)));
    /* "auto" may find a GPU on one host and none on another */
    TERN_RETURN_IF_ERR(
        tern_comm_check_equal(comm, "the backend", digest_of(out->device->ops->device->name)));
    return tern_agree(comm, open_between(comm, farewell, out));
}

void tern_compute_close(struct tern_compute_devices *devices)
{
    tern_comm_close(devices->data_comm);
    tern_device_close(devices->comm_device);
    tern_device_close(devices->device);
    *devices = (struct tern_compute_devices){0};
}
