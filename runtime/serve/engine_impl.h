/* engine_impl.h - what the engine's files share: requests in flight, their sequences, one step's
 * plan.
 *
 * Everything in struct tern_engine belongs to the engine thread, but what lies behind `lock` and
 * the atomics. */
#ifndef TERN_RUNTIME_SERVE_ENGINE_IMPL_H
#define TERN_RUNTIME_SERVE_ENGINE_IMPL_H

#include "runtime/serve/grammar.h"
#include "runtime/serve/kv_blocks.h"
#include "runtime/serve/pass.h"
#include "runtime/serve/speculate.h"
#include "runtime/serve/stats.h"

#include <pthread.h>
#include <stdatomic.h>

enum tern_choice_state {
    TERN_CHOICE_NEW, /* a choice that waits for the prompt of choice 0 */
    TERN_CHOICE_WAITING,
    TERN_CHOICE_RUNNING,
    TERN_CHOICE_DONE
};

/* One choice of a request. */
struct tern_choice {
    struct tern_job *job;
    int index; /* of the choice, from 0 */
    enum tern_choice_state state;
    bool is_open; /* what follows is allocated */
    int32_t *ids; /* the prompt and the text */
    int64_t count, capacity;
    int64_t computed; /* leading tokens whose keys and values are in the table's blocks */
    struct tern_kv_table table;
    struct tern_stream stream;
    struct tern_sampling sampling;
    struct tern_grammar_state *grammar; /* NULL: none */
    struct tern_speculator speculator;
    int64_t started_ns, first_ns, last_ns; /* left the queue; first token, latest token: 0 none */
    struct tern_choice *next_waiting;
    /* Of the step that is being planned. */
    int64_t rows;       /* tokens that go through the model, guesses included; 0: none */
    int64_t guesses;    /* of those, the last ones */
    int64_t logit_rows; /* of the last rows */
};

/* A request in flight. */
struct tern_job {
    struct tern_engine_request request; /* with memory of its own */
    int32_t *end_ids;                   /* that end its texts */
    int end_count;
    uint64_t number; /* by order of submission */
    int slot;        /* of the engine's handles */
    atomic_bool is_cancelled;
    int64_t submitted_ns, deadline_ns; /* deadline INT64_MAX: none */
    int n, open;                       /* choices; of those, not yet at their end */
    struct tern_choice *choices;       /* (n) */
    bool is_started;
    int64_t cached_tokens;
    int64_t told;   /* tokens of the prompt that were PROMPT events */
    double *pooled; /* (width) sum of hidden rows, of an embedding */
    struct tern_job *before, *next;
};

struct tern_handle_slot {
    struct tern_job *job; /* NULL: free */
    uint64_t generation;
};

struct tern_engine {
    struct tern_engine_options options;
    struct tern_engine_pass pass;
    struct tern_kv_blocks *pool;
    struct tern_sampler *sampler;
    uint32_t *mask;       /* (V + 31) / 32, for grammars */
    float *embedding;     /* (width) */
    struct tern_text out; /* text of one event */

    struct tern_job *jobs, *last_job;           /* in flight, oldest first */
    struct tern_choice *waiting, *last_waiting; /* oldest first */
    int64_t waiting_count;
    int64_t unstarted;            /* of those, requests that were never started */
    struct tern_choice **running; /* (max_seqs), oldest first */
    int64_t running_count;
    struct tern_choice **planned; /* (max_seqs), of this step */
    int64_t planned_count;
    struct tern_infer_part *parts; /* (max_seqs) */
    struct tern_kv_copy *copies;   /* (max_seqs), before this step */
    int64_t copy_count;
    struct tern_job *retired; /* released; their handles are not yet free */
    int64_t started_jobs;     /* since the last publication: left the queue */
    struct tern_engine_stats totals;
    bool is_broken; /* the device is gone */
    /* Seconds between two starts while requests wait, an average over the last dozens. */
    double start_gap;
    int64_t last_start_ns; /* 0: nothing has waited since */
    int64_t deadline_ns;   /* the earliest of requests in flight, or earlier; INT64_MAX: none */

    pthread_t thread;
    bool has_thread;
    atomic_llong beat_ns;
    atomic_bool is_busy, is_dead;
    atomic_bool has_cancels; /* since the thread last looked */

    pthread_mutex_t lock;
    pthread_cond_t work; /* something came for the thread */
    pthread_cond_t idle; /* nothing is in flight */
    struct tern_job *inbox, *inbox_last;
    struct tern_handle_slot *slots;
    int slot_count, next_slot;
    uint64_t last_number;
    int64_t in_flight, queued; /* requests; of those, not yet started */
    uint64_t accepted, refused;
    bool is_draining, is_aborting, is_stopping;
    int64_t drain_ns;     /* when those that run are cut */
    double published_gap; /* start_gap */
    struct tern_engine_stats published;
};

/* job.c: a request's memory. Create checks it too. */
TERN_MUST_CHECK tern_status tern_job_create(struct tern_engine *engine,
                                            const struct tern_engine_request *request,
                                            struct tern_job **out);
void tern_job_destroy(struct tern_job *job);
/* Gives a choice its memory, once. */
TERN_MUST_CHECK tern_status tern_choice_open(struct tern_engine *engine,
                                             struct tern_choice *choice);
/* Room for `more` tokens behind those that are there. */
TERN_MUST_CHECK tern_status tern_choice_grow(struct tern_choice *choice, int64_t more);
bool tern_choice_is_older(const struct tern_choice *a, const struct tern_choice *b);

/* schedule.c: who computes what in the next step. */
void tern_schedule_wait(struct tern_engine *engine, struct tern_choice *choice);
void tern_schedule_run(struct tern_engine *engine, struct tern_choice *choice);
/* Takes a choice out of wherever it is and gives its blocks back. */
void tern_schedule_leave(struct tern_engine *engine, struct tern_choice *choice);
void tern_schedule_plan(struct tern_engine *engine);

/* step.c: computes the plan and takes its results. */
void tern_step_run(struct tern_engine *engine);

/* deliver.c: what requests hear, and their ends. */
void tern_deliver_start(struct tern_engine *engine, struct tern_job *job);
/* Tokens of the prompt that rows of logits from position `first` on speak of. */
void tern_deliver_prompt(struct tern_engine *engine,
                         struct tern_job *job,
                         int64_t first,
                         const float *logits,
                         int64_t rows);
/* The last token of a choice; logits (V): the model's own of its position. */
TERN_MUST_CHECK tern_status tern_deliver_token(struct tern_engine *engine,
                                               struct tern_choice *choice,
                                               const float *logits);
void tern_deliver_finish(struct tern_engine *engine,
                         struct tern_choice *choice,
                         enum tern_engine_end end);
/* The mean of what was pooled; the request ends. */
void tern_deliver_embedding(struct tern_engine *engine, struct tern_job *job);
/* Ends a whole request: FAIL, or nothing more when it was cancelled (end ABORT). */
void tern_deliver_fail(struct tern_engine *engine,
                       struct tern_job *job,
                       enum tern_engine_end end,
                       tern_status status,
                       const char *message);

#endif
