/* schedule.c - who computes what in the next step: the oldest first, one token of each that
 * writes, prompts by the chunk; who gives way when blocks run out; who comes in. */
#include "runtime/base/check.h"
#include "runtime/base/clock.h"
#include "runtime/serve/engine_impl.h"

#include <string.h>

/* What a step has left. */
struct budget {
    int64_t prompt_rows; /* tokens of prompts */
    int64_t extra_rows;  /* logits beside one a choice */
};

void tern_schedule_wait(struct tern_engine *engine, struct tern_choice *choice)
{
    struct tern_choice **link = &engine->waiting;
    if (engine->waiting != NULL && tern_choice_is_older(engine->last_waiting, choice)) {
        link = &engine->last_waiting->next_waiting; /* as new ones are */
    }
    while (*link != NULL && tern_choice_is_older(*link, choice)) {
        link = &(*link)->next_waiting;
    }
    choice->next_waiting = *link;
    *link = choice;
    if (choice->next_waiting == NULL) {
        engine->last_waiting = choice;
    }
    choice->state = TERN_CHOICE_WAITING;
    engine->waiting_count++;
}

void tern_schedule_run(struct tern_engine *engine, struct tern_choice *choice)
{
    TERN_CHECK(engine->running_count < engine->options.max_seqs);
    int64_t at = engine->running_count++;
    for (; at > 0 && tern_choice_is_older(choice, engine->running[at - 1]); at--) {
        engine->running[at] = engine->running[at - 1];
    }
    engine->running[at] = choice;
    choice->state = TERN_CHOICE_RUNNING;
}

static void stop_running(struct tern_engine *engine, const struct tern_choice *choice)
{
    int64_t at = 0;
    while (engine->running[at] != choice) {
        at++;
    }
    engine->running_count--;
    memmove(engine->running + at, engine->running + at + 1,
            (size_t)(engine->running_count - at) * sizeof(struct tern_choice *));
}

static void stop_waiting(struct tern_engine *engine, const struct tern_choice *choice)
{
    struct tern_choice **link = &engine->waiting;
    struct tern_choice *before = NULL;
    while (*link != choice) {
        before = *link;
        link = &before->next_waiting;
    }
    *link = choice->next_waiting;
    if (engine->last_waiting == choice) {
        engine->last_waiting = before;
    }
    engine->waiting_count--;
}

void tern_schedule_leave(struct tern_engine *engine, struct tern_choice *choice)
{
    if (choice->state == TERN_CHOICE_RUNNING) {
        stop_running(engine, choice);
    } else if (choice->state == TERN_CHOICE_WAITING) {
        stop_waiting(engine, choice);
    }
    tern_kv_table_truncate(&choice->table, engine->pool, 0);
    choice->computed = 0;
    choice->state = TERN_CHOICE_DONE;
}

/* The sequence's blocks go to others; later it computes its tokens anew. */
static void preempt(struct tern_engine *engine, struct tern_choice *choice)
{
    tern_schedule_leave(engine, choice);
    if (choice->job->pooled != NULL) {
        memset(choice->job->pooled, 0, (size_t)engine->pass.width * sizeof *choice->job->pooled);
    }
    tern_schedule_wait(engine, choice);
    engine->totals.preemptions++;
}

static bool reserve(struct tern_engine *engine, struct tern_choice *choice, int64_t rows)
{
    struct tern_kv_copy made;
    bool is_done = tern_kv_table_reserve(&choice->table, engine->pool, choice->computed,
                                         choice->computed + rows, &made);
    if (made.to >= 0) {
        engine->copies[engine->copy_count++] = made;
    }
    return is_done;
}

/* Blocks for the next rows of a choice that runs, from the youngest of those that are younger,
 * if need be. */
static bool make_room(struct tern_engine *engine, struct tern_choice *choice, int64_t rows)
{
    while (!reserve(engine, choice, rows)) {
        struct tern_choice *youngest = engine->running[engine->running_count - 1];
        if (youngest == choice) {
            return false; /* until an older one ends, or takes what it has */
        }
        preempt(engine, youngest);
    }
    return true;
}

static bool is_scored(const struct tern_job *job)
{
    return job->request.prompt_logprobs >= 0 && job->told < job->request.count;
}

/* Guesses behind the last token, where a right one would be of use. */
static int64_t guess(struct tern_engine *engine, struct tern_choice *choice, int64_t most)
{
    const struct tern_engine_request *request = &choice->job->request;
    int64_t left = request->max_tokens - (choice->count - request->count) - 1;
    most = most < left ? most : left;
    most = most < engine->options.speculate ? most : engine->options.speculate;
    if (most < 1 || tern_choice_grow(choice, most) != TERN_OK) {
        return 0;
    }
    most = tern_speculator_next(&choice->speculator, most);
    int64_t count =
        tern_speculate_lookup(choice->ids, choice->count, most, choice->ids + choice->count);
    return count > 0 && reserve(engine, choice, 1 + count) ? count : 0;
}

/* Rows of a choice that runs. */
static void plan(struct tern_engine *engine, struct tern_choice *choice, struct budget *budget)
{
    const struct tern_job *job = choice->job;
    int64_t left = choice->count - choice->computed;
    int64_t rows = left;
    choice->rows = choice->guesses = choice->logit_rows = 0;
    if (left > 1) {
        rows = rows < budget->prompt_rows ? rows : budget->prompt_rows;
    }
    if (is_scored(job) && rows > budget->extra_rows + 1) {
        rows = budget->extra_rows + 1;
    }
    if (rows == 0 || !make_room(engine, choice, rows)) {
        return;
    }
    if (left > 1) {
        budget->prompt_rows -= rows;
    }
    bool writes = rows == left && job->request.max_tokens > 0 && !job->request.is_embedding;
    if (is_scored(job)) {
        choice->logit_rows = rows;
    } else if (writes) {
        choice->guesses = left == 1 ? guess(engine, choice, budget->extra_rows) : 0;
        choice->logit_rows = 1 + choice->guesses;
    }
    budget->extra_rows -= choice->logit_rows > 1 ? choice->logit_rows - 1 : 0;
    choice->rows = rows + choice->guesses;
    engine->planned[engine->planned_count++] = choice;
}

/* Blocks that the running ones will still take for the tokens that they have. */
static int64_t promised(const struct tern_engine *engine)
{
    int64_t blocks = 0;
    for (int64_t i = 0; i < engine->running_count; i++) {
        const struct tern_choice *choice = engine->running[i];
        blocks += tern_kv_table_missing(&choice->table, choice->count + 1);
    }
    return blocks;
}

/* Lets the oldest that waits hold what the cache knows of it; false, and it holds nothing, when
 * the rest would not fit beside those that run. One block for each of those is kept free, so
 * that who came in is not the next to go. */
static bool come_in(struct tern_engine *engine, struct tern_choice *choice)
{
    int64_t most = choice->count - 1; /* the last one is computed for its logits */
    bool is_looked_up =
        engine->options.prefix_cache && !is_scored(choice->job) && choice->job->pooled == NULL;
    int64_t found =
        is_looked_up ? tern_kv_table_match(&choice->table, engine->pool, choice->ids, most) : 0;
    int64_t longest =
        choice->count + 1 < engine->options.context ? choice->count + 1 : engine->options.context;
    int64_t needed = tern_kv_table_missing(&choice->table, longest);
    if (engine->running_count > 0 &&
        tern_kv_blocks_free(engine->pool) - promised(engine) - engine->running_count < needed) {
        tern_kv_table_truncate(&choice->table, engine->pool, 0);
        return false;
    }
    choice->computed = found;
    if (choice->started_ns == 0) {
        engine->totals.prefix_queries += is_looked_up ? (uint64_t)most : 0;
        engine->totals.prefix_hits += (uint64_t)found;
        choice->started_ns = tern_clock_ns();
    }
    return true;
}

/* Starts those that wait, in order, as long as there is something left for them in this step. */
static void admit(struct tern_engine *engine, struct budget *budget)
{
    while (engine->waiting != NULL && engine->running_count < engine->options.max_seqs &&
           budget->prompt_rows > 0) {
        struct tern_choice *choice = engine->waiting;
        struct tern_job *job = choice->job;
        if (tern_choice_open(engine, choice) != TERN_OK) {
            tern_deliver_fail(engine, job, TERN_ENGINE_END_ERROR, TERN_ERR_MEMORY, tern_detail());
            continue;
        }
        if (!come_in(engine, choice)) {
            return;
        }
        stop_waiting(engine, choice);
        tern_schedule_run(engine, choice);
        if (!job->is_started) {
            job->cached_tokens = choice->computed;
            tern_deliver_start(engine, job);
        }
        plan(engine, choice, budget);
    }
}

void tern_schedule_plan(struct tern_engine *engine)
{
    struct budget budget = {engine->options.chunk, TERN_ENGINE_EXTRA_ROWS};
    engine->planned_count = engine->copy_count = 0;
    for (int64_t i = 0; i < engine->running_count; i++) { /* those behind i may go */
        plan(engine, engine->running[i], &budget);
    }
    admit(engine, &budget);
}
