/* vitals.h - how a run is doing, for whoever looks after it: the ledger, the heartbeat between ranks, /metrics, TensorBoard's
 * events, slow ranks. The trainer says where it is (tern_vitals_enter) and what came of a step; the rest follows. */
#ifndef TERN_RUNTIME_TRAIN_VITALS_H
#define TERN_RUNTIME_TRAIN_VITALS_H

#include "runtime/observe/ledger.h"
#include "runtime/observe/metrics_http.h"
#include "runtime/observe/step_log.h"
#include "runtime/observe/tfevents.h"
#include "runtime/reclaim/heartbeat.h"
#include "runtime/train/step.h"

struct tern_job;

struct tern_vitals {
    struct tern_ledger ledger;
    struct tern_heartbeat
        *heartbeat; /* NULL: one rank, or switched off, or NCCL's watchdog does it */
    struct tern_metrics_http *metrics; /* rank 0, if asked for */
    struct tern_tfevents *events;      /* rank 0 */
    struct tern_stragglers stragglers; /* rank 0 */
    double *lane_seconds;              /* (ranks) */
    enum tern_phase phase;             /* of the training thread */
    bool
        has_kept; /* state, since the last step was reported: what is known so far should not be lost */
    int machines;
};

/* First of all, on every rank: the clock of the ledger. */
void tern_vitals_start(struct tern_vitals *vitals);
/* Once the run directory is open: ledger and heartbeat. Collective. What cannot be opened is a warning. */
TERN_MUST_CHECK tern_status tern_vitals_watch(struct tern_job *job);
/* Before the first step: the step to go on from is known. Collective. host, port: of /metrics; port -1: none. */
TERN_MUST_CHECK tern_status tern_vitals_open(struct tern_job *job, const char *host, int port);
void tern_vitals_close(struct tern_vitals *vitals);

/* Where this rank is from now on; returns where it was. Until the end a drain stays one, whatever is saved meanwhile. Costs two
 * locks and a clock. */
enum tern_phase tern_vitals_enter(struct tern_job *job, enum tern_phase phase);
/* A step's result is there, and what of it is kept is time well spent. */
void tern_vitals_settled(struct tern_job *job, int64_t step);
/* Rank 0: the numbers of that step, and the words of all ranks. */
void tern_vitals_step(struct tern_job *job,
                      struct tern_step_log *log,
                      const struct tern_step_word *words,
                      const struct tern_step_record *record);
void tern_vitals_eval(struct tern_job *job, double loss, double seconds);

/* The last row of the ledger; rank 0 says what it all came to. */
void tern_vitals_end(struct tern_job *job, struct tern_step_log *log, enum tern_ledger_state state);
/* The run fails here; is_peer: for another rank's sake. */
void tern_vitals_fail(struct tern_job *job, bool is_peer);
/* A tern_comm_farewell: record, ledger. job: a struct tern_job. On a watchdog's thread, before this process ends. */
void tern_vitals_lose_peer(void *job, const char *sentence);

#endif
