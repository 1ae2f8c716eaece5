/* api_job.h - one request on its way: what the engine says of its prompts becomes an answer, whole or in a stream.
 *
 * Whoever works on a job (a handler, the engine's requests, the feeder) holds a reference; the last one lets go of the
 * reply, and the job is freed with it. `lock` guards all that changes. */
#ifndef TERN_RUNTIME_SERVE_API_JOB_H
#define TERN_RUNTIME_SERVE_API_JOB_H

#include "runtime/serve/api_logprobs.h"
#include "runtime/serve/api_request.h"
#include "runtime/serve/http.h"

#include <stdatomic.h>

struct tern_api;

enum {
    TERN_API_ANSWER_BYTES_MAX = 64 << 20, /* of an answer that is not streamed */
    TERN_API_ID_BYTES = 40
};

struct tern_api_call {
    char name[TERN_TOOL_NAME_BYTES];
    char id[TERN_API_ID_BYTES];
    struct tern_text arguments;
};

/* One text in the making. */
struct tern_api_choice {
    struct tern_api_job *job;
    int index;
    bool is_open; /* something was told of it */
    struct tern_text text;
    struct tern_api_logprobs logprobs;
    struct tern_tool_parser parser;
    struct tern_tool_sink sink;
    struct tern_api_call *calls; /* (call_count) */
    int call_count;
    const char *finish_reason; /* NULL: not yet */
    float *embedding;          /* (width) */
};

/* One prompt's request to the engine. */
struct tern_api_part {
    struct tern_api_job *job;
    int64_t index;
    uint64_t handle; /* 0: not submitted, or over */
    struct tern_api_logprobs echoed;
};

struct tern_api_job {
    atomic_int references;
    struct tern_api *api;
    struct tern_http_reply *reply;
    struct tern_api_request request;
    char id[TERN_API_ID_BYTES]; /* "chatcmpl-..." */
    int64_t created;
    struct tern_text scratch; /* of chunks */

    pthread_mutex_t lock;
    struct tern_api_part *parts;     /* (request.prompt_count) */
    struct tern_api_choice *choices; /* (request.prompt_count * n) */
    int64_t choice_count, choices_left;
    int64_t next;      /* the first prompt that was not yet submitted */
    int64_t in_flight; /* prompts that were, and are not over */
    int64_t prompt_tokens, cached_tokens, completion_tokens;
    int64_t width; /* of embeddings */
    size_t answer_bytes;
    bool is_begun;                 /* the stream */
    bool is_over;                  /* answered, failed, or the client left */
    struct tern_api_job *next_fed; /* in the feeder's list, which holds a reference */
};

/* Takes over *request (zeroed), also after a failure. Owned: release. */
TERN_MUST_CHECK tern_status tern_api_job_create(struct tern_api *api,
                                                struct tern_http_reply *reply,
                                                struct tern_api_request *request,
                                                struct tern_api_job **out);
void tern_api_job_retain(struct tern_api_job *job);
void tern_api_job_release(struct tern_api_job *job);
/* Submits the first prompt; what cannot be is answered with the error. */
void tern_api_job_start(struct tern_api_job *job);
/* Submits what has room; false: the engine's queue is full, try again later. */
bool tern_api_job_feed(struct tern_api_job *job);
/* No prompt is left to submit. */
bool tern_api_job_is_fed(struct tern_api_job *job);
/* On the engine thread: context is a part. */
void tern_api_job_deliver(void *context, const struct tern_engine_event *event);

/* ---- api_answer.c, under the lock ---- */

/* The whole answer of a job whose choices are all there. */
TERN_MUST_CHECK tern_status tern_api_answer_write(struct tern_api_job *job, struct tern_text *out);
TERN_MUST_CHECK tern_status tern_api_usage_write(const struct tern_api_job *job,
                                                 struct tern_text *out);
/* The finish_reason that a client is told. */
const char *tern_api_choice_reason(const struct tern_api_choice *choice);
/* The prompt's text, for echo. */
TERN_MUST_CHECK tern_status tern_api_echo(const struct tern_api_job *job,
                                          int64_t prompt,
                                          struct tern_text *out);

/* ---- api_stream.c, under the lock ---- */

/* The first chunks. */
TERN_MUST_CHECK tern_status tern_api_stream_begin(struct tern_api_job *job);
/* Text of a choice. */
TERN_MUST_CHECK tern_status tern_api_stream_text(struct tern_api_choice *choice,
                                                 const char *text,
                                                 size_t bytes);
TERN_MUST_CHECK tern_status tern_api_stream_call(struct tern_api_choice *choice, int call);
TERN_MUST_CHECK tern_status tern_api_stream_arguments(struct tern_api_choice *choice,
                                                      int call,
                                                      const char *text,
                                                      size_t bytes);
TERN_MUST_CHECK tern_status tern_api_stream_finish(struct tern_api_choice *choice);
/* Usage if it was asked for, and the end. */
TERN_MUST_CHECK tern_status tern_api_stream_end(struct tern_api_job *job);
/* An error inside of a stream, and the end. */
void tern_api_stream_fail(struct tern_api_job *job, const struct tern_api_error *error);

#endif
