/* doctor_peers.c - tern doctor --peer-check: opens what the trainer would, measures, gathers what each host found. */
#include "comm/lane_tree.h"
#include "kernels/open.h"
#include "launch/doctor.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/plan/bill.h"
#include "runtime/plan/compute.h"
#include "runtime/train/agree.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    PAIR_BYTES_HOST = 8 << 20,
    PAIR_BYTES_GPU = 128 << 20
};

/* Below this share of what others reach a pair counts as slow. GPUs have their links for themselves; ranks in host memory
 * share cores with whatever else runs. */
static const double g_slow_share_gpu = 0.9;
static const double g_slow_share_host = 0.5;

/* All that one check holds. */
struct check {
    struct tern_comm *comm; /* in host memory */
    struct tern_compute_devices devices;
    struct doctor_peers found;
    bool is_agreed; /* the failure is known to all ranks */
};

static void close_all(struct check *check)
{
    tern_peers_fini(&check->found.peers);
    tern_free(check->found.hosts);
    tern_free(check->found.host_findings);
    tern_free(check->found.host_of);
    tern_compute_close(&check->devices);
    tern_comm_close(check->comm);
}

/* ---- measuring ---- */

/* A half of the GPU's free memory; of the host's a quarter, shared among its ranks. */
static int64_t memory_allowed(const struct check *check)
{
    int64_t left;
    return tern_compute_has_memory(&check->devices, &left)
               ? left / 2
               : tern_memory_available_bytes() / 4 / check->comm->local_size;
}

static tern_status measure(struct check *check, int64_t bytes_max)
{
    const struct tern_peers_group group = {
        .host = check->comm,
        .data = check->devices.data_comm != NULL ? check->devices.data_comm : check->comm,
        .device = check->devices.device,
        .queue = check->devices.comm_device,
    };
    const struct tern_peers_options options = {
        .bytes_max = bytes_max,
        .memory_bytes = memory_allowed(check),
        .pair_bytes = check->devices.data_comm != NULL ? PAIR_BYTES_GPU : PAIR_BYTES_HOST,
    };
    check->found.carrier = group.data->table->name;
    check->found.backend = check->devices.device->ops->device->name;
    return tern_peers_measure(&group, &options, &check->found.peers);
}

/* What every host is like and has found about itself. */
static tern_status gather(struct check *check, const struct doctor *doctor)
{
    struct doctor_peers *found = &check->found;
    size_t ranks = (size_t)check->comm->size;
    struct tern_peers_host mine;
    found->hosts = tern_alloc_zero("peer check", ranks, sizeof *found->hosts);
    found->host_findings = tern_alloc_zero("peer check", ranks, sizeof *found->host_findings);
    found->host_of = tern_alloc_zero("peer check", ranks, sizeof *found->host_of);
    if (found->hosts == NULL || found->host_findings == NULL || found->host_of == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate what %zu ranks say", ranks);
    }
    tern_peers_host_of(&doctor->topology, &mine);
    TERN_RETURN_IF_ERR(tern_comm_all_gather(check->comm, &mine, sizeof mine, found->hosts));
    TERN_RETURN_IF_ERR(tern_comm_all_gather(check->comm, &doctor->findings, sizeof doctor->findings,
                                            found->host_findings));
    found->host_count = tern_peers_index_hosts(found->hosts, (int)ranks, found->host_of);
    return TERN_OK;
}

static void judge(struct check *check, const struct doctor *doctor)
{
    struct doctor_peers *found = &check->found;
    struct tern_fabric_shape *shape = &found->shape;
    bool is_gpu = check->devices.data_comm != NULL;
    tern_fabric_shape_of(&doctor->topology, shape);
    shape->ranks = check->comm->size;
    shape->hosts = found->host_count;
    shape->is_gpu = is_gpu;
    for (int r = 0; r < shape->ranks; r++) { /* the slowest host sets the pace */
        double gbps = found->hosts[r].active_gbps;
        shape->rdma_gbps = gbps < shape->rdma_gbps ? gbps : shape->rdma_gbps;
    }
    tern_peers_judge(
        &(struct tern_peers_view){.peers = &found->peers,
                                  .hosts = found->hosts,
                                  .shape = *shape,
                                  .slow_share = is_gpu ? g_slow_share_gpu : g_slow_share_host},
        &found->findings);
}

static tern_status print(const struct doctor_peers *found, bool is_json)
{
    struct tern_text text;
    tern_text_init(&text);
    tern_status status =
        is_json ? doctor_print_peers_json(found, &text) : doctor_print_peers(found, &text);
    if (status == TERN_OK) {
        fputs(text.data, stdout);
    }
    tern_text_fini(&text);
    return status;
}

static tern_status run(struct check *check, struct doctor *doctor, int64_t bytes_max, bool is_json)
{
    if (check->comm->size > TERN_LANES_MAX) {
        check->is_agreed = true;
        return tern_fail(TERN_ERR_CONFIG, "--peer-check: found %d ranks, expected at most %d",
                         check->comm->size, TERN_LANES_MAX);
    }
    check->is_agreed = true;
    TERN_RETURN_IF_ERR(
        tern_compute_open(check->comm, &(struct tern_comm_farewell){0}, &check->devices));
    check->is_agreed = false;
    TERN_RETURN_IF_ERR(measure(check, bytes_max));
    TERN_RETURN_IF_ERR(gather(check, doctor));
    if (check->comm->rank != 0) {
        return TERN_OK;
    }
    judge(check, doctor);
    return print(&check->found, is_json);
}

/* No rank leaves alone: one that fails takes the others along, and says why, once. */
static void leave(struct check *check, tern_status status)
{
    bool is_mine = !check->is_agreed || check->comm->rank == 0;
    if (is_mine) {
        tern_log_error("%s", tern_detail());
    }
    if (check->is_agreed) {
        (void)!tern_comm_barrier(check->comm); /* so that rank 0 has spoken */
    }
    fflush(stdout);
    tern_comm_abort(check->comm, tern_status_exit_code(status));
}

tern_status doctor_check_peers(struct doctor *doctor, int64_t bytes_max, bool is_json)
{
    struct check check = {0};
    TERN_RETURN_IF_ERR(tern_comm_open(&check.comm));
    tern_log_set_rank(check.comm->rank, check.comm->size);
    tern_fault_set_rank(check.comm->rank);
    tern_status status;
    if (check.comm->size == 1) {
        status = tern_fail(TERN_ERR_USAGE,
                           "--peer-check: found one rank, expected two or more: mpirun -np 2 tern "
                           "doctor --peer-check");
    } else {
        status = run(&check, doctor, bytes_max, is_json);
        if (status != TERN_OK) {
            leave(&check, status);
        }
    }
    close_all(&check);
    return status;
}
