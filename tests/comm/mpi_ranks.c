/* mpi_ranks.c - what every rank of the tests of real processes runs: mpi_ranks CHECK. Over MPI, or, when the test says how
 * the ranks meet, over TCP. */
#include "comm/boot.h"
#include "comm/engine.h"
#include "runtime/base/clock.h"
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"
#include "tests/comm/checks.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *real_getenv(const char *name)
{
    return getenv(name);
}

/* MPI even for one rank, which tern_comm_open does without. */
static tern_status open_world(struct tern_comm **out)
{
    if (getenv("TERN_RENDEZVOUS") != NULL) {
        return tern_comm_open(out);
    }
    struct tern_launcher launcher;
    int64_t limit_ns = 0;
    TERN_RETURN_IF_ERR(tern_comm_limit(real_getenv, 600, &limit_ns));
    TERN_RETURN_IF_ERR(tern_launcher_find(real_getenv, &launcher));
    return tern_mpi_open(&launcher, limit_ns, out);
}

static int check_lanes(struct tern_comm *comm)
{
    int failures = 0;
    for (int lanes = 1; lanes <= 16; lanes *= 2) {
        if (lanes >= comm->size) {
            failures += tern_check_lanes(comm, lanes, 10007, 100, (uint64_t)lanes);
        }
    }
    /* Longer than a chunk, and a vector with nothing for some ranks. */
    failures += tern_check_lanes(comm, 8, 700001, 1, 77);
    return failures + tern_check_lanes(comm, 8, 5, 2, 78);
}

/* Exchanges until something goes wrong, which is then the last word. */
static int check_until_failure(struct tern_comm *comm)
{
    tern_status status = TERN_OK;
    for (int i = 0; status == TERN_OK; i++) {
        if (comm->rank == 0 && i == 20) {
            fprintf(stderr, "under way\n");
        }
        int64_t value = i;
        status = tern_comm_all_reduce_max_i64(comm, &value, 1);
        tern_clock_sleep_ns(1000000);
    }
    fprintf(stderr, "rank %d: %s: %s\n", comm->rank, tern_status_name(status), tern_detail());
    tern_comm_abort(comm, tern_status_exit_code(status));
    return 1;
}

/* One rank gives up alone. */
static int check_abort(struct tern_comm *comm)
{
    if (comm->rank == comm->size - 1) {
        fprintf(stderr, "under way\ntern: error: rank %d gives up\n", comm->rank);
        tern_comm_abort(comm, 7);
    }
    tern_status status = tern_comm_barrier(comm);
    fprintf(stderr, "rank %d: %s\n", comm->rank, tern_status_name(status));
    tern_clock_sleep_ns((int64_t)60 * 1000000000);
    return 1;
}

/* One rank is silent without being stopped. */
static int check_late(struct tern_comm *comm)
{
    if (comm->rank == comm->size - 1) {
        tern_clock_sleep_ns((int64_t)60 * 1000000000);
        return 1;
    }
    return check_until_failure(comm);
}

int main(int argc, char **argv)
{
    const char *check = argc > 1 ? argv[1] : "";
    struct tern_comm *comm;
    if (tern_fault_init() != TERN_OK || open_world(&comm) != TERN_OK) {
        fprintf(stderr, "open: %s\n", tern_detail());
        return 2;
    }
    tern_fault_set_rank(comm->rank);
    int failures = 1;
    if (strcmp(check, "lanes") == 0) {
        failures = check_lanes(comm);
    } else if (strcmp(check, "primitives") == 0) {
        failures = tern_check_primitives(comm);
    } else if (strcmp(check, "whole") == 0) {
        failures = tern_check_long_message(comm, ((size_t)257 << 20) + 3);
    } else if (strcmp(check, "failure") == 0) {
        failures = check_until_failure(comm);
    } else if (strcmp(check, "abort") == 0) {
        failures = check_abort(comm);
    } else if (strcmp(check, "late") == 0) {
        failures = check_late(comm);
    }
    if (failures > 0) {
        tern_comm_abort(comm, 1);
    }
    tern_comm_close(comm);
    int64_t live = tern_mem_stats().live_blocks;
    if (live != 0) {
        fprintf(stderr, "%lld blocks are still allocated\n", (long long)live);
        return 1;
    }
    return 0;
}
