/* vitals.c - one place that the trainer tells, and everybody who wants to know. */
#include "runtime/train/vitals.h"

#include "runtime/base/clock.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/observe/ledger_print.h"
#include "runtime/train/agree.h"
#include "runtime/train/job.h"

#include <string.h>

enum {
    WORD_NS = 50 * 1000 * 1000, /* a rank, before the ranks that miss rank 0 speak */
    WORD_RANKS_MAX = 20
};

static const enum tern_ledger_kind g_kinds[TERN_PHASE_COUNT] = {
    [TERN_PHASE_START] = TERN_LEDGER_LOAD,
    [TERN_PHASE_DATA] = TERN_LEDGER_DATA_WAIT,
    [TERN_PHASE_COMPUTE] = TERN_LEDGER_PRODUCTIVE,
    [TERN_PHASE_REDUCE] = TERN_LEDGER_PRODUCTIVE,
    [TERN_PHASE_CHECKPOINT] = TERN_LEDGER_CHECKPOINT_STALL,
    [TERN_PHASE_EVALUATE] = TERN_LEDGER_PRODUCTIVE,
    [TERN_PHASE_DRAIN] = TERN_LEDGER_DRAIN,
};

/* ---- open and close ---- */

void tern_vitals_start(struct tern_vitals *vitals)
{
    tern_ledger_start(&vitals->ledger);
}

static struct tern_ledger_options ledger_options(const struct tern_job *job)
{
    const struct tern_config_ledger *ledger = &job->config.ledger;
    return (struct tern_ledger_options){
        .run_dir = job->run.path,
        .launch = job->run.launch_id,
        .machines = job->vitals.machines,
        .ranks = job->comm->size,
        .price = ledger->price_per_hour > 0 ? ledger->price_per_hour : -1,
        .currency = ledger->currency,
    };
}

static tern_status open_stragglers(struct tern_job *job)
{
    struct tern_vitals *v = &job->vitals;
    size_t ranks = (size_t)job->comm->size;
    v->lane_seconds = tern_alloc_zero("vitals", ranks, sizeof *v->lane_seconds);
    v->stragglers.means = tern_alloc_zero("vitals", ranks, sizeof *v->stragglers.means);
    v->stragglers.sorted = tern_alloc_zero("vitals", ranks, sizeof *v->stragglers.sorted);
    v->stragglers.slow_steps = tern_alloc_zero("vitals", ranks, sizeof *v->stragglers.slow_steps);
    v->stragglers.size = job->comm->size;
    bool is_good = v->lane_seconds != NULL && v->stragglers.means != NULL &&
                   v->stragglers.sorted != NULL && v->stragglers.slow_steps != NULL;
    return is_good ? TERN_OK
                   : tern_fail(TERN_ERR_MEMORY, "no memory for the times of %zu ranks", ranks);
}

/* Rank 0's own: TensorBoard's events and, if asked for, /metrics. */
static tern_status open_observers(struct tern_job *job, const char *host, int port)
{
    TERN_RETURN_IF_ERR(open_stragglers(job));
    TERN_RETURN_IF_ERR(tern_tfevents_open(job->run.path, job->state.step, &job->vitals.events));
    if (port < 0) {
        return TERN_OK;
    }
    struct tern_metrics_options options = {
        .host = host,
        .port = port,
        .ledger = &job->vitals.ledger,
        .launch = job->run.launch_id,
        .steps = job->steps,
        .first_step = job->state.step,
        .ranks = job->comm->size,
        .machines = job->vitals.machines,
    };
    TERN_RETURN_IF_ERR(tern_metrics_http_open(&options, &job->vitals.metrics));
    tern_log_info("metrics on http://%s:%d/metrics", host != NULL ? host : "127.0.0.1",
                  tern_metrics_http_port(job->vitals.metrics));
    return TERN_OK;
}

/* Called by the heartbeat's thread. Who misses rank 0 misses it together with all others: they speak one after the other, and
 * only the first has something to say. */
static void say_farewell(void *context, const char *sentence)
{
    struct tern_job *job = context;
    int rank = job->comm->rank;
    tern_clock_sleep_ns((int64_t)WORD_NS * (rank < WORD_RANKS_MAX ? rank : WORD_RANKS_MAX));
    if (tern_run_dir_is_running(&job->run)) {
        tern_log_error("%s", sentence);
    }
    tern_vitals_lose_peer(job, sentence);
}

static tern_status count_machines(struct tern_job *job)
{
    int32_t is_first[TERN_LANES_MAX] = {0};
    int32_t mine = job->comm->local_rank == 0;
    TERN_RETURN_IF_ERR(tern_comm_all_gather(job->comm, &mine, sizeof mine, is_first));
    job->vitals.machines = 0;
    for (int r = 0; r < job->comm->size; r++) {
        job->vitals.machines += is_first[r];
    }
    return TERN_OK;
}

tern_status tern_vitals_watch(struct tern_job *job)
{
    TERN_RETURN_IF_ERR(count_machines(job));
    struct tern_ledger_options options = ledger_options(job);
    if (job->comm->rank == 0 && tern_ledger_open(&job->vitals.ledger, &options) != TERN_OK) {
        tern_log_warn("this launch keeps no ledger: %s", tern_detail());
    }
    tern_ledger_enter(&job->vitals.ledger, TERN_LEDGER_LOAD);
    if (job->devices.data_comm != NULL || job->config.reclaim.hang_seconds <= 0) {
        return TERN_OK;
    }
    const struct tern_heartbeat_options heartbeat = {
        .comm = job->comm,
        .limit_ns = (int64_t)(job->config.reclaim.hang_seconds * 1e9),
        .farewell = say_farewell,
        .context = job,
    };
    return tern_heartbeat_open(&heartbeat, &job->vitals.heartbeat);
}

tern_status tern_vitals_open(struct tern_job *job, const char *host, int port)
{
    tern_status status = job->comm->rank == 0 ? open_observers(job, host, port) : TERN_OK;
    TERN_RETURN_IF_ERR(tern_agree(job->comm, status));
    if (job->comm->rank == 0) {
        tern_ledger_resume(&job->vitals.ledger, job->state.step, job->state.tokens);
    }
    return TERN_OK;
}

void tern_vitals_close(struct tern_vitals *v)
{
    tern_heartbeat_close(v->heartbeat);
    tern_metrics_http_close(v->metrics);
    tern_tfevents_close(v->events);
    tern_ledger_fini(&v->ledger);
    tern_free(v->lane_seconds);
    tern_free(v->stragglers.means);
    tern_free(v->stragglers.sorted);
    tern_free(v->stragglers.slow_steps);
}

/* ---- what the trainer says ---- */

enum tern_phase tern_vitals_enter(struct tern_job *job, enum tern_phase phase)
{
    struct tern_vitals *v = &job->vitals;
    enum tern_phase before = v->phase;
    if (before == TERN_PHASE_DRAIN) {
        return before;
    }
    v->phase = phase;
    tern_ledger_enter(&v->ledger, g_kinds[phase]);
    if (phase == TERN_PHASE_CHECKPOINT) {
        tern_ledger_cut(&v->ledger);
        v->has_kept = true;
    }
    bool is_step = phase >= TERN_PHASE_DATA && phase <= TERN_PHASE_REDUCE;
    tern_heartbeat_mark(v->heartbeat, phase, job->state.step + is_step);
    return before;
}

void tern_vitals_settled(struct tern_job *job, int64_t step)
{
    tern_ledger_step(&job->vitals.ledger, step, job->state.tokens);
}

static void judge_speed(struct tern_job *job,
                        struct tern_step_log *log,
                        const struct tern_step_word *words)
{
    struct tern_vitals *v = &job->vitals;
    double factor = 0;
    bool is_over;
    for (int r = 0; r < job->comm->size; r++) {
        v->lane_seconds[r] = words[r].lane_seconds;
    }
    int rank = tern_stragglers_add(&v->stragglers, v->lane_seconds, &factor, &is_over);
    if (rank < 0) {
        return;
    }
    const char *host = tern_heartbeat_host(v->heartbeat, rank);
    if (is_over) {
        tern_log_info("rank %d (host %s) is as fast as the others again", rank, host);
    } else {
        tern_log_warn("rank %d (host %s) is slow: its part of a step takes %.2f times the median "
                      "of the ranks; all wait for it",
                      rank, host, factor);
    }
    tern_step_log_event(log, "warning",
                        "\"step\":%lld,\"straggler\":%d,\"factor\":%.3f,\"slow\":%s",
                        (long long)job->state.step, rank, factor, is_over ? "false" : "true");
    tern_metrics_http_straggler(v->metrics, is_over ? -1 : rank, factor);
}

void tern_vitals_step(struct tern_job *job,
                      struct tern_step_log *log,
                      const struct tern_step_word *words,
                      const struct tern_step_record *r)
{
    const struct tern_tfevents_scalar scalars[] = {
        {"train/loss", r->loss},
        {"train/grad_norm", r->grad_norm},
        {"train/learning_rate", r->lr},
        {"speed/tokens_per_second", r->step_seconds > 0 ? (double)r->tokens / r->step_seconds : 0},
        {"speed/step_seconds", r->step_seconds},
        {"speed/data_seconds", r->data_seconds},
        {"speed/comm_seconds", r->comm_seconds},
        {"speed/checkpoint_stall_seconds", r->checkpoint_stall_seconds},
        {"speed/mfu", r->mfu},
    };
    int count = (int)(sizeof scalars / sizeof scalars[0]) - (r->mfu < 0);
    tern_metrics_http_step(job->vitals.metrics, r);
    tern_tfevents_add(job->vitals.events, r->step, scalars, count);
    if (job->vitals.has_kept) {
        tern_tfevents_flush(job->vitals.events);
        tern_ledger_hurry(&job->vitals.ledger);
        job->vitals.has_kept = false;
    }
    judge_speed(job, log, words);
}

void tern_vitals_eval(struct tern_job *job, double loss, double seconds)
{
    const struct tern_tfevents_scalar scalars[] = {{"eval/loss", loss}, {"eval/seconds", seconds}};
    tern_metrics_http_eval(job->vitals.metrics, loss);
    tern_tfevents_add(job->vitals.events, job->state.step, scalars, 2);
    /* no later launch does it again */
    tern_ledger_step(&job->vitals.ledger, job->state.step, job->state.tokens);
}

/* ---- the end ---- */

static void print_sum(struct tern_job *job, struct tern_step_log *log)
{
    struct tern_ledger_account account;
    struct tern_text line;
    tern_text_init(&line);
    tern_ledger_sum(&job->vitals.ledger, &account);
    if (tern_ledger_print_line(&account, &line) == TERN_OK) {
        tern_log_info("ledger: %s", line.data);
    }
    tern_text_fini(&line);
    tern_step_log_event(log, "ledger",
                        "\"step\":%lld,\"machine_seconds\":%.6f,\"productive_seconds\":%.6f,"
                        "\"effective_training_time\":%.6f",
                        (long long)job->state.step, account.total_seconds,
                        account.seconds[TERN_LEDGER_PRODUCTIVE], tern_ledger_ratio(&account));
}

void tern_vitals_end(struct tern_job *job, struct tern_step_log *log, enum tern_ledger_state state)
{
    if (job->comm->rank == 0 && job->vitals.ledger.has_thread) {
        print_sum(job, log);
        tern_ledger_close(&job->vitals.ledger, state);
    }
}

void tern_vitals_fail(struct tern_job *job, bool is_peer)
{
    struct tern_ledger *ledger = &job->vitals.ledger;
    tern_ledger_blame(ledger, is_peer ? TERN_LEDGER_HANG_DETECTION : TERN_LEDGER_LOST_STEPS);
    tern_ledger_close(ledger, is_peer ? TERN_LEDGER_PEER_LOST : TERN_LEDGER_FAILED);
}

/* All ranks write, none leaves before; what ended well stays as it is recorded. */
void tern_vitals_lose_peer(void *context, const char *sentence)
{
    struct tern_job *job = context;
    bool is_news = atomic_load(&job->has_record) && tern_run_dir_is_running(&job->run);
    if (is_news && tern_run_dir_record(&job->run, job->comm->rank, "peer_lost",
                                       atomic_load(&job->steps_done), sentence) != TERN_OK) {
        tern_log_warn("no record of the end: %s", tern_detail());
    }
    if (job->comm->rank == 0) {
        tern_vitals_fail(job, true);
    } else if (is_news) { /* rank 0 is lost, and its ledger with it */
        struct tern_ledger_options options = ledger_options(job);
        tern_ledger_bury(&options);
    }
}
