/* step.c - one step: the plan through the model, and from its logits to tokens. */
#include "runtime/base/clock.h"
#include "runtime/serve/engine_impl.h"

#include <stdio.h>
#include <string.h>

static tern_status run_model(struct tern_engine *engine,
                             const float **logits_out,
                             const float **hidden_out)
{
    const struct tern_engine_pass *pass = &engine->pass;
    int64_t rows = 0;
    bool wants_hidden = false;
    for (int64_t i = 0; i < engine->planned_count; i++) {
        const struct tern_choice *choice = engine->planned[i];
        engine->parts[i] = (struct tern_infer_part){
            .ids = choice->ids + choice->computed,
            .count = choice->rows,
            .position = choice->computed,
            .blocks = choice->table.blocks,
            .logits = choice->logit_rows,
            .hidden = choice->job->pooled != NULL,
        };
        rows += choice->rows;
        wants_hidden |= choice->job->pooled != NULL;
    }
    for (int64_t i = 0; i < engine->copy_count; i++) {
        TERN_RETURN_IF_ERR(
            pass->copy_block(pass->context, engine->copies[i].from, engine->copies[i].to));
    }
    engine->totals.steps++;
    engine->totals.computed_tokens += (uint64_t)rows;
    tern_engine_observe(&engine->totals.step_tokens, (double)rows);
    TERN_RETURN_IF_ERR(pass->run(pass->context, engine->parts, engine->planned_count, logits_out));
    return wants_hidden ? pass->hidden(pass->context, hidden_out) : TERN_OK;
}

/* The requests of the step end; all of them, if the device is gone. */
static void fail_step(struct tern_engine *engine, tern_status status)
{
    char message[512];
    snprintf(message, sizeof message, "%s", tern_detail());
    engine->is_broken = tern_status_blast(status) == TERN_BLAST_DEVICE;
    for (int64_t i = 0; i < engine->planned_count; i++) {
        if (engine->planned[i]->state == TERN_CHOICE_RUNNING) {
            tern_deliver_fail(engine, engine->planned[i]->job, TERN_ENGINE_END_ERROR, status,
                              message);
        }
    }
}

/* The next token of a choice from logits (V) of its last position. */
static tern_status pick(struct tern_engine *engine, struct tern_choice *choice, const float *logits)
{
    const struct tern_job *job = choice->job;
    int64_t text = choice->count - job->request.count;
    TERN_RETURN_IF_ERR(tern_choice_grow(choice, 1)); /* may move ids */
    struct tern_logit_rules rules = {
        .ids = choice->ids,
        .prompt_count = job->request.count,
        .text_count = text,
        .bias = job->request.bias,
        .bias_count = job->request.bias_count,
        .banned = job->end_ids,
        .banned_count = text < job->request.min_tokens ? job->end_count : 0,
    };
    if (choice->grammar != NULL) {
        TERN_RETURN_IF_ERR(tern_grammar_mask(choice->grammar, engine->mask));
        rules.allowed = engine->mask;
    }
    const float *adjusted = tern_sampler_adjust(engine->sampler, logits, &choice->sampling, &rules);
    int32_t id = tern_sampler_pick(engine->sampler, adjusted, &choice->sampling, text);
    if (choice->grammar != NULL && !tern_grammar_accept(choice->grammar, id)) {
        return tern_fail(TERN_ERR_UNSUPPORTED,
                         "the grammar cannot be followed: after %lld tokens the model's vocabulary "
                         "has none that may come next",
                         (long long)text);
    }
    choice->ids[choice->count++] = id;
    return TERN_OK;
}

/* Picks tokens as long as guesses turn out right; logits: rows of the last token and of each
 * guess. */
static void write(struct tern_engine *engine, struct tern_choice *choice, const float *logits)
{
    int32_t guessed[TERN_ENGINE_EXTRA_ROWS];
    int64_t guesses = choice->guesses;
    int64_t right = 0;
    memcpy(guessed, choice->ids + choice->count, (size_t)guesses * sizeof *guessed);
    for (bool goes_on = true; goes_on;) {
        const float *row = logits + right * engine->pass.vocab;
        tern_status status = pick(engine, choice, row);
        if (status == TERN_OK) {
            goes_on = right < guesses && choice->ids[choice->count - 1] == guessed[right];
            status = tern_deliver_token(engine, choice, row);
        }
        if (status != TERN_OK) {
            tern_deliver_fail(engine, choice->job, TERN_ENGINE_END_ERROR, status, tern_detail());
        }
        if (goes_on) {
            right++;
            choice->computed++; /* it went through the model as a guess */
        }
        goes_on &= choice->state == TERN_CHOICE_RUNNING;
    }
    if (guesses > 0) {
        engine->totals.draft_tokens += (uint64_t)guesses;
        engine->totals.accepted_tokens += (uint64_t)right;
        tern_speculator_learn(&choice->speculator, guesses, right);
    }
}

/* The other choices begin where the prompt ends, with its blocks and logits; those without a
 * place wait. */
static void fork_choices(struct tern_engine *engine, struct tern_choice *first, const float *logits)
{
    struct tern_job *job = first->job;
    for (int i = 1; i < job->n && job->open > 0; i++) {
        struct tern_choice *choice = &job->choices[i];
        if (engine->running_count == engine->options.max_seqs) {
            tern_schedule_wait(engine, choice);
            continue;
        }
        tern_status status = tern_choice_open(engine, choice);
        if (status != TERN_OK) {
            tern_deliver_fail(engine, job, TERN_ENGINE_END_ERROR, status, tern_detail());
            return;
        }
        tern_kv_table_fork(&choice->table, engine->pool, &first->table, first->computed);
        choice->computed = first->computed;
        choice->started_ns = first->started_ns;
        tern_schedule_run(engine, choice);
        write(engine, choice, logits);
    }
}

static void pool_rows(struct tern_job *job, const float *hidden, int64_t rows, int64_t width)
{
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t i = 0; i < width; i++) {
            job->pooled[i] += hidden[row * width + i];
        }
    }
}

static void commit(struct tern_engine *engine, struct tern_choice *choice)
{
    if (engine->options.prefix_cache) {
        tern_kv_table_commit(&choice->table, engine->pool, choice->ids, choice->computed);
    }
}

/* A prompt is through the model. */
static void end_prompt(struct tern_engine *engine, struct tern_choice *choice)
{
    struct tern_job *job = choice->job;
    if (job->pooled != NULL) {
        tern_deliver_embedding(engine, job);
        return;
    }
    for (int i = 0; i < job->n; i++) { /* no text is wanted */
        tern_deliver_finish(engine, &job->choices[i], TERN_ENGINE_END_LENGTH);
    }
}

static void take_results(struct tern_engine *engine,
                         struct tern_choice *choice,
                         const float *logits,
                         const float *hidden)
{
    struct tern_job *job = choice->job;
    int64_t rows = choice->rows - choice->guesses;
    if (job->request.prompt_logprobs >= 0 && job->told < job->request.count) {
        tern_deliver_prompt(engine, job, choice->computed, logits, rows);
    }
    if (job->pooled != NULL) {
        pool_rows(job, hidden, rows, engine->pass.width);
    }
    choice->computed += rows;
    commit(engine, choice);
    if (choice->computed < choice->count) {
        return;
    }
    if (job->pooled != NULL || job->request.max_tokens == 0) {
        end_prompt(engine, choice);
        return;
    }
    int64_t before_last = choice->logit_rows - 1 - choice->guesses;
    const float *last = logits + before_last * engine->pass.vocab;
    if (choice->index == 0 && job->n > 1 && job->choices[1].state == TERN_CHOICE_NEW) {
        fork_choices(engine, choice, last);
    }
    if (choice->state == TERN_CHOICE_RUNNING) {
        write(engine, choice, last);
    }
    if (choice->state == TERN_CHOICE_RUNNING) {
        commit(engine, choice);
    }
}

void tern_step_run(struct tern_engine *engine)
{
    const float *logits = NULL;
    const float *hidden = NULL;
    int64_t started = tern_clock_ns();
    tern_schedule_plan(engine);
    if (engine->planned_count == 0) { /* cannot be while the oldest fits alone */
        if (engine->running_count > 0) {
            tern_deliver_fail(engine, engine->running[0]->job, TERN_ENGINE_END_ERROR,
                              TERN_ERR_MEMORY, "the key/value cache is too small for the request");
        }
        return;
    }
    int64_t before = tern_clock_ns();
    tern_status status = run_model(engine, &logits, &hidden);
    int64_t after = tern_clock_ns();
    if (status != TERN_OK) {
        fail_step(engine, status);
        return;
    }
    int64_t logit_row = 0;
    int64_t row = 0;
    for (int64_t i = 0; i < engine->planned_count; i++) {
        const struct tern_infer_part *part = &engine->parts[i];
        struct tern_choice *choice = engine->planned[i];
        if (choice->state == TERN_CHOICE_RUNNING) { /* it did not end by what another one said */
            take_results(engine, choice,
                         part->logits > 0 ? logits + logit_row * engine->pass.vocab : NULL,
                         hidden != NULL ? hidden + row * engine->pass.width : NULL);
        }
        logit_row += part->logits;
        row += part->count;
    }
    engine->totals.model_seconds += (double)(after - before) * 1e-9;
    engine->totals.host_seconds += (double)(before - started + tern_clock_ns() - after) * 1e-9;
}
