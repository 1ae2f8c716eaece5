/* api_job.c - prompts to the engine, its events to the answer, and the end in every case. */
#include "runtime/base/mem.h"
#include "runtime/serve/api_impl.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    PROMPTS_IN_FLIGHT = 16 /* of one request: others get their turn */
};

/* ---- life ---- */

static void destroy(void *context)
{
    struct tern_api_job *job = context;
    for (int64_t i = 0; i < job->choice_count; i++) {
        struct tern_api_choice *choice = &job->choices[i];
        for (int k = 0; k < choice->call_count; k++) {
            tern_text_fini(&choice->calls[k].arguments);
        }
        tern_free(choice->calls);
        tern_free(choice->embedding);
        tern_text_fini(&choice->text);
        tern_api_logprobs_fini(&choice->logprobs);
        tern_tool_parser_fini(&choice->parser);
    }
    for (int64_t i = 0; job->parts != NULL && i < job->request.prompt_count; i++) {
        tern_api_logprobs_fini(&job->parts[i].echoed);
    }
    tern_free(job->choices);
    tern_free(job->parts);
    tern_text_fini(&job->scratch);
    tern_api_request_fini(&job->request);
    pthread_mutex_destroy(&job->lock);
    tern_free(job);
}

void tern_api_job_retain(struct tern_api_job *job)
{
    atomic_fetch_add(&job->references, 1);
}

/* The job lives as long as its reply, and its reply as long as somebody works on the job. */
void tern_api_job_release(struct tern_api_job *job)
{
    if (atomic_fetch_sub(&job->references, 1) == 1) {
        tern_http_reply_release(job->reply);
    }
}

/* Stops what still runs. Under the lock. */
static void cancel_parts(struct tern_api_job *job)
{
    job->is_over = true;
    for (int64_t i = 0; i < job->next; i++) {
        if (job->parts[i].handle != 0) {
            tern_engine_cancel(job->api->engine, job->parts[i].handle);
        }
    }
}

/* The client left. */
static void gone(void *context)
{
    struct tern_api_job *job = context;
    pthread_mutex_lock(&job->lock);
    cancel_parts(job);
    pthread_mutex_unlock(&job->lock);
}

/* ---- what is said of a choice ---- */

static tern_status take_text(void *context, const char *bytes, size_t count)
{
    struct tern_api_choice *choice = context;
    if (choice->job->request.is_stream) {
        return tern_api_stream_text(choice, bytes, count);
    }
    choice->job->answer_bytes += count;
    return tern_text_append(&choice->text, bytes, count);
}

static tern_status take_call(void *context, int index, const char *name)
{
    struct tern_api_choice *choice = context;
    struct tern_api_call *calls =
        tern_realloc("serve", choice->calls, (size_t)(index + 1) * sizeof *choice->calls);
    if (calls == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a call of a tool");
    }
    choice->calls = calls;
    struct tern_api_call *call = &calls[choice->call_count++];
    tern_text_init(&call->arguments);
    snprintf(call->name, sizeof call->name, "%s", name);
    snprintf(call->id, sizeof call->id, "call_%016llx%08x", (unsigned long long)tern_api_random(),
             (unsigned)index);
    return choice->job->request.is_stream ? tern_api_stream_call(choice, index) : TERN_OK;
}

static tern_status take_arguments(void *context, int index, const char *bytes, size_t count)
{
    struct tern_api_choice *choice = context;
    if (choice->job->request.is_stream) {
        return tern_api_stream_arguments(choice, index, bytes, count);
    }
    choice->job->answer_bytes += count;
    return tern_text_append(&choice->calls[index].arguments, bytes, count);
}

static void init_choice(struct tern_api_job *job, int64_t index)
{
    struct tern_api_choice *choice = &job->choices[index];
    const struct tern_api_request *request = &job->request;
    choice->job = job;
    choice->index = (int)index;
    tern_text_init(&choice->text);
    tern_api_logprobs_init(&choice->logprobs, request->kind == TERN_API_CHAT);
    choice->sink = (struct tern_tool_sink){take_text, take_call, take_arguments, choice};
    tern_tool_parser_init(&choice->parser, request->tools, request->is_forced,
                          request->is_one_call ? 1 : TERN_TOOL_CALLS_MAX, &choice->sink);
}

tern_status tern_api_job_create(struct tern_api *api,
                                struct tern_http_reply *reply,
                                struct tern_api_request *request,
                                struct tern_api_job **out)
{
    static const char *const prefixes[] = {"chatcmpl", "cmpl", "embd"};
    struct tern_api_job *job = tern_alloc_zero("serve", 1, sizeof *job);
    if (job == NULL) {
        tern_api_request_fini(request);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a request");
    }
    int64_t choices = request->prompt_count * request->n;
    job->api = api;
    job->reply = reply;
    job->request = *request;
    /* What is borrowed from inside of the request moves with it. */
    job->request.engine.stops = job->request.stops;
    job->request.engine.stop_ids = job->request.stop_ids;
    *request = (struct tern_api_request){0};
    atomic_init(&job->references, 1);
    pthread_mutex_init(&job->lock, NULL);
    tern_text_init(&job->scratch);
    job->created = (int64_t)time(NULL);
    snprintf(job->id, sizeof job->id, "%s-%016llx", prefixes[job->request.kind],
             (unsigned long long)tern_api_random());
    job->parts = tern_alloc_zero("serve", (size_t)job->request.prompt_count, sizeof *job->parts);
    job->choices = tern_alloc_zero("serve", (size_t)choices, sizeof *job->choices);
    if (job->parts == NULL || job->choices == NULL) {
        destroy(job);
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a request");
    }
    for (int64_t i = 0; i < job->request.prompt_count; i++) {
        job->parts[i].job = job;
        job->parts[i].index = i;
        tern_api_logprobs_init(&job->parts[i].echoed, false);
    }
    for (; job->choice_count < choices; job->choice_count++) {
        init_choice(job, job->choice_count);
    }
    job->choices_left = choices;
    tern_http_reply_retain(reply);
    tern_http_reply_on_gone(reply, gone, destroy, job);
    *out = job;
    return TERN_OK;
}

/* ---- the end ---- */

static void fail(struct tern_api_job *job, const struct tern_api_error *error)
{
    cancel_parts(job);
    if (job->is_begun) {
        tern_api_count(job->api, tern_api_route_of(job->request.kind), error->status);
        tern_api_stream_fail(job, error);
    } else {
        tern_api_send_error(job->api, tern_api_route_of(job->request.kind), job->reply, error);
    }
}

static void fail_from(struct tern_api_job *job, tern_status status)
{
    struct tern_api_error error = {0};
    tern_api_error_from(&error, status);
    fail(job, &error);
}

static tern_status end(struct tern_api_job *job)
{
    enum tern_api_route route = tern_api_route_of(job->request.kind);
    if (job->request.is_stream) {
        TERN_RETURN_IF_ERR(tern_api_stream_end(job));
        tern_api_count(job->api, route, 200);
        job->is_over = true;
        return TERN_OK;
    }
    struct tern_text text;
    job->is_over = true;
    tern_text_init(&text);
    tern_status status = tern_api_answer_write(job, &text);
    if (status == TERN_OK) {
        tern_api_send(job->api, route, job->reply, 200, "application/json", &text);
    } else {
        fail_from(job, status);
    }
    tern_text_fini(&text);
    return TERN_OK;
}

/* ---- events ---- */

static struct tern_api_choice *choice_of(const struct tern_api_part *part,
                                         const struct tern_engine_event *event)
{
    struct tern_api_job *job = part->job;
    return &job->choices[part->index * job->request.n + event->choice];
}

/* What comes before the first token: for echo the prompt. */
static tern_status open_choice(const struct tern_api_part *part, struct tern_api_choice *choice)
{
    struct tern_api_job *job = part->job;
    struct tern_text text;
    if (choice->is_open || !job->request.echo) {
        choice->is_open = true;
        return TERN_OK;
    }
    choice->is_open = true;
    tern_text_init(&text);
    tern_status status = tern_api_echo(job, part->index, &text);
    if (status == TERN_OK) {
        choice->logprobs.characters = tern_api_characters(text.data, text.length);
        status = tern_api_logprobs_copy(&choice->logprobs, &part->echoed);
    }
    if (status == TERN_OK && text.length > 0) {
        status = take_text(choice, text.data, text.length);
    }
    tern_text_fini(&text);
    return status;
}

static tern_status take_token(struct tern_api_part *part, const struct tern_engine_event *event)
{
    struct tern_api_job *job = part->job;
    struct tern_api_choice *choice = choice_of(part, event);
    TERN_RETURN_IF_ERR(open_choice(part, choice));
    if (event->kind == TERN_ENGINE_TOKEN && job->request.engine.logprobs >= 0) {
        size_t before = tern_api_logprobs_bytes(&choice->logprobs);
        TERN_RETURN_IF_ERR(
            tern_api_logprobs_add(&choice->logprobs, job->api->model.loaded->tokenizer, event));
        job->answer_bytes += tern_api_logprobs_bytes(&choice->logprobs) - before;
    }
    if (event->text_bytes > 0) {
        TERN_RETURN_IF_ERR(tern_tool_parser_push(&choice->parser, event->text, event->text_bytes));
    }
    if (!job->request.is_stream && job->answer_bytes > TERN_API_ANSWER_BYTES_MAX) {
        return tern_fail(TERN_ERR_MEMORY,
                         "the answer is longer than %d MiB: expected \"stream\": true for it",
                         TERN_API_ANSWER_BYTES_MAX >> 20);
    }
    return TERN_OK;
}

static tern_status take_finish(struct tern_api_part *part, const struct tern_engine_event *event)
{
    struct tern_api_job *job = part->job;
    struct tern_api_choice *choice = choice_of(part, event);
    TERN_RETURN_IF_ERR(take_token(part, event));
    TERN_RETURN_IF_ERR(tern_tool_parser_finish(&choice->parser));
    choice->finish_reason = strcmp(event->finish_reason, "length") == 0 ? "length" : "stop";
    job->completion_tokens += event->completion_tokens;
    if (job->request.is_stream) {
        TERN_RETURN_IF_ERR(tern_api_stream_finish(choice));
    }
    job->choices_left--;
    return job->choices_left == 0 ? end(job) : TERN_OK;
}

static tern_status take_embedding(struct tern_api_part *part, const struct tern_engine_event *event)
{
    struct tern_api_job *job = part->job;
    struct tern_api_choice *choice = choice_of(part, event);
    choice->embedding = tern_alloc("serve", (size_t)event->width * sizeof *choice->embedding);
    if (choice->embedding == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate an embedding");
    }
    memcpy(choice->embedding, event->embedding, (size_t)event->width * sizeof *event->embedding);
    job->width = event->width;
    job->choices_left--;
    return job->choices_left == 0 ? end(job) : TERN_OK;
}

static tern_status take(struct tern_api_part *part, const struct tern_engine_event *event)
{
    struct tern_api_job *job = part->job;
    switch (event->kind) {
    case TERN_ENGINE_START:
        job->prompt_tokens += event->prompt_tokens;
        job->cached_tokens += event->cached_tokens;
        return job->request.is_stream && !job->is_begun ? tern_api_stream_begin(job) : TERN_OK;
    case TERN_ENGINE_PROMPT:
        return job->request.echo
                   ? tern_api_logprobs_add(&part->echoed, job->api->model.loaded->tokenizer, event)
                   : TERN_OK;
    case TERN_ENGINE_TOKEN:
        return take_token(part, event);
    case TERN_ENGINE_FINISH:
        return take_finish(part, event);
    case TERN_ENGINE_EMBEDDING:
        return take_embedding(part, event);
    default:
        return tern_fail(event->status, "%s",
                         event->message != NULL ? event->message : "the engine gave no reason");
    }
}

void tern_api_job_deliver(void *context, const struct tern_engine_event *event)
{
    struct tern_api_part *part = context;
    struct tern_api_job *job = part->job;
    pthread_mutex_lock(&job->lock);
    if (!job->is_over) {
        tern_status status = take(part, event);
        if (status != TERN_OK && !job->is_over) {
            fail_from(job, status);
        }
    }
    pthread_mutex_unlock(&job->lock);
}

static void release_part(void *context)
{
    struct tern_api_part *part = context;
    struct tern_api_job *job = part->job;
    pthread_mutex_lock(&job->lock);
    job->in_flight--;
    bool has_more = job->next < job->request.prompt_count;
    pthread_mutex_unlock(&job->lock);
    if (has_more) {
        tern_api_wake(job->api);
    }
    tern_api_job_release(job);
}

/* ---- submitting ---- */

static tern_status submit(struct tern_api_job *job)
{
    struct tern_engine_request request = job->request.engine;
    pthread_mutex_lock(&job->lock);
    struct tern_api_part *part = &job->parts[job->next++];
    job->in_flight++;
    pthread_mutex_unlock(&job->lock);
    tern_api_job_retain(job);
    request.ids = job->request.prompts[part->index].ids;
    request.count = job->request.prompts[part->index].count;
    request.deadline_seconds = job->api->options.request_seconds;
    request.deliver = tern_api_job_deliver;
    request.release = release_part;
    request.context = part;
    uint64_t handle = 0;
    tern_status status = tern_engine_submit(job->api->engine, &request, &handle);
    pthread_mutex_lock(&job->lock);
    if (status != TERN_OK) {
        job->next--;
        job->in_flight--;
    } else {
        part->handle = handle;
        if (job->is_over) { /* the client left meanwhile */
            tern_engine_cancel(job->api->engine, handle);
        }
    }
    pthread_mutex_unlock(&job->lock);
    if (status != TERN_OK) {
        tern_api_job_release(job);
    }
    return status;
}

static void refuse(struct tern_api_job *job, tern_status status)
{
    pthread_mutex_lock(&job->lock);
    if (!job->is_over) {
        fail_from(job, status);
    }
    pthread_mutex_unlock(&job->lock);
}

void tern_api_job_start(struct tern_api_job *job)
{
    tern_status status = submit(job);
    if (status != TERN_OK) {
        refuse(job, status);
    } else if (job->request.prompt_count > 1) {
        tern_api_feed(job->api, job);
    }
}

bool tern_api_job_feed(struct tern_api_job *job)
{
    for (;;) {
        pthread_mutex_lock(&job->lock);
        bool may = !job->is_over && job->next < job->request.prompt_count &&
                   job->in_flight < PROMPTS_IN_FLIGHT;
        pthread_mutex_unlock(&job->lock);
        if (!may) {
            return true;
        }
        tern_status status = submit(job);
        if (status == TERN_ERR_BUSY) {
            return false;
        }
        if (status != TERN_OK) {
            refuse(job, status);
            return true;
        }
    }
}

bool tern_api_job_is_fed(struct tern_api_job *job)
{
    pthread_mutex_lock(&job->lock);
    bool is_fed = job->is_over || job->next == job->request.prompt_count;
    pthread_mutex_unlock(&job->lock);
    return is_fed;
}
