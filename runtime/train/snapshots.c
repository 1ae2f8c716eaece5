/* snapshots.c - memory for snapshots where there is room, and one as often as pays. */
#include "runtime/train/snapshots.h"

#include "runtime/base/log.h"
#include "runtime/base/mem.h"

#include <stdio.h>

enum {
    STATE_ROOM_BYTES = 64 << 10, /* for what grows in the JSON: digits, and the path of a MODEL */
    NOWHERE = 4096               /* a base for offsets */
};

/* ---- memory ---- */

static tern_status state_room(const struct tern_job *job, int64_t *bytes_out)
{
    struct tern_text json;
    tern_text_init(&json);
    tern_status status = tern_job_progress(job, &json);
    *bytes_out = (int64_t)json.length + STATE_ROOM_BYTES;
    tern_text_fini(&json);
    return status;
}

static int64_t data_bytes(const struct tern_job *job)
{
    return tern_saver_bytes(&job->state);
}

tern_status tern_job_block_bytes(const struct tern_job *job, int64_t *bytes_out)
{
    int64_t room;
    *bytes_out = 0;
    if (job->config.checkpoint.snapshot_every_steps == 0) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(state_room(job, &room));
    *bytes_out =
        tern_segment_bytes(tern_train_state_slab_count(&job->state), room, data_bytes(job));
    return TERN_OK;
}

int64_t tern_job_staging_bytes(const struct tern_job *job)
{
    bool is_block = job->memory_plan.is_on && job->copier == NULL;
    return is_block ? 0 : tern_saver_bytes(&job->state);
}

static void say_off(const struct tern_job *job, bool fits)
{
    const struct tern_memory_plan *plan = &job->memory_plan;
    char needed[TERN_TEXT_BYTES_BYTES], left[TERN_TEXT_BYTES_BYTES], total[TERN_TEXT_BYTES_BYTES];
    if (plan->room_needed > 0) {
        tern_log_warn("snapshots in memory are off: they need %s of %s on one host, where %s of %s "
                      "are free; make it larger (mount -o remount,size=..., docker --shm-size), or "
                      "set checkpoint.snapshot_every_steps: 0",
                      tern_text_bytes(plan->room_needed, needed), tern_shm_folder(),
                      tern_text_bytes(plan->room_free, left),
                      tern_text_bytes(plan->room_total, total));
    } else {
        tern_log_warn("snapshots in memory are off: %s",
                      fits ? "a rank cannot use shared memory" : "there is too little memory");
    }
}

tern_status tern_job_plan_memory(struct tern_job *job, int64_t block_bytes, bool fits)
{
    int64_t reusable = job->memory_found != NULL ? tern_memory_found_bytes(job->memory_found) : 0;
    TERN_RETURN_IF_ERR(
        tern_memory_plan_make(job->comm, fits ? block_bytes : 0, reusable, &job->memory_plan));
    if (!job->memory_plan.is_on) {
        job->memory_plan.bytes = 0;
        if (block_bytes > 0 && job->comm->rank == 0) {
            say_off(job, fits);
        }
    }
    return TERN_OK;
}

static tern_status create_memory(struct tern_job *job)
{
    struct tern_memory_options options = {
        .comm = job->comm,
        .layout = {.key = &job->memory_run.key,
                   .rank = job->comm->rank,
                   .ranks = job->comm->size,
                   .slab_count = tern_train_state_slab_count(&job->state),
                   .base = (const void *)(uintptr_t)NOWHERE,
                   .data_bytes = data_bytes(job)},
        .is_late = job->memory_found != NULL,
    };
    TERN_RETURN_IF_ERR(state_room(job, &options.layout.state_room));
    struct tern_ckpt_slab *slabs =
        tern_alloc_zero("memory", (size_t)options.layout.slab_count + 1, sizeof *slabs);
    if (slabs == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a table of slabs");
    }
    tern_train_state_slabs(&job->state, options.layout.base, slabs);
    options.layout.slabs = slabs;
    tern_status status = tern_memory_create(&options, &job->memory);
    tern_free(slabs);
    return status;
}

tern_status tern_job_open_memory(struct tern_job *job)
{
    if (!job->memory_plan.is_on) {
        return TERN_OK;
    }
    tern_status status = create_memory(job);
    if (status != TERN_OK) {
        tern_log_warn("snapshots in memory are off: %s", tern_detail());
    }
    int64_t cannot = status != TERN_OK;
    TERN_RETURN_IF_ERR(tern_comm_all_reduce_max_i64(job->comm, &cannot, 1));
    if (cannot) {
        tern_memory_forget(job->memory);
        tern_memory_destroy(job->memory);
        job->memory = NULL;
        job->memory_plan.is_on = false;
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_memory_connect(job->memory, &job->memory_plan));
    atomic_store(&job->reclaim.memory, job->memory);
    return TERN_OK;
}

void tern_job_drop_found(struct tern_job *job)
{
    if (job->memory_found != NULL) {
        tern_memory_found_close(job->memory_found);
        job->memory_found = NULL;
        tern_memory_sweep(&job->memory_run, NULL);
    }
}

void tern_job_forget_memory(struct tern_job *job)
{
    tern_job_drop_found(job);
    tern_memory_forget(job->memory);
}

/* ---- in the loop ---- */

void tern_snapshots_init(struct tern_snapshots *snapshots, const struct tern_job *job)
{
    *snapshots = (struct tern_snapshots){
        .interval = {.every = job->config.checkpoint.snapshot_every_steps,
                     .mtbf = job->config.reclaim.mtbf_seconds,
                     .last = job->state.step},
        .failures_next = 1,
    };
}

bool tern_snapshots_want(struct tern_snapshots *snapshots, const struct tern_job *job, int64_t next)
{
    snapshots->is_due = job->memory != NULL &&
                        (snapshots->is_due || tern_interval_is_due(&snapshots->interval, next));
    return snapshots->is_due;
}

void tern_snapshots_began(struct tern_snapshots *snapshots,
                          const struct tern_job *job,
                          double stall)
{
    snapshots->stall = stall;
    snapshots->stall_total += stall;
    snapshots->is_due = false;
    tern_interval_note_snapshot(&snapshots->interval, job->state.step, 0);
}

/* What the thread worked counts: on the processor it takes that from the steps. */
static void note_cost(struct tern_snapshots *snapshots, const struct tern_memory_stats *stats)
{
    tern_interval_note_snapshot(&snapshots->interval, stats->step,
                                snapshots->stall + stats->seal_seconds);
}

void tern_snapshots_hear(struct tern_snapshots *snapshots,
                         struct tern_job *job,
                         struct tern_step_log *log)
{
    if (job->memory == NULL) {
        return;
    }
    bool is_kept = tern_saver_take_kept(job->saver);
    struct tern_memory_stats stats = tern_memory_stats(job->memory);
    if (stats.failures >= snapshots->failures_next) { /* the 1st, the 2nd, the 4th, ... */
        snapshots->failures_next = 2 * stats.failures;
        tern_log_warn("a snapshot in memory failed: %s", stats.failure);
    }
    if (!is_kept) {
        return;
    }
    tern_job_drop_found(job);
    note_cost(snapshots, &stats);
    if (log != NULL) {
        tern_step_log_event(log, "snapshot",
                            "\"step\":%lld,\"stall_seconds\":%.6f,\"seal_seconds\":%.6f,"
                            "\"copy_seconds\":%.6f",
                            (long long)stats.step, snapshots->stall, stats.seal_seconds,
                            stats.copy_seconds);
    }
}
