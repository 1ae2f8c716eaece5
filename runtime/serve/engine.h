/* engine.h - many texts from one model at once: one thread owns the model, everybody else submits.
 *
 * Each step computes one token of every running sequence and at most `chunk` tokens of prompts: a
 * long prompt never delays another's token by more than one chunk. Keys and values lie in blocks of
 * 16 tokens; whole blocks are found again by a keyed hash of all tokens up to their end, so that
 * prompts that begin alike are computed once. A request's tokens and log-probabilities depend on
 * its own input and seed only: not on who else runs, how its prompt was cut, what the cache held,
 * whether it was preempted, or whether tokens were guessed ahead.
 *
 * When blocks run out, the youngest request (by submission) gives its blocks back and later
 * computes its tokens anew; the oldest is never the one. Each sequence fits into the cache alone
 * (submit refuses others), so the oldest makes progress at every step and ends: no livelock.
 *
 * All functions may be called from any thread, nothing after destroy. From within deliver and
 * release: submit, cancel, drain and abort. */
#ifndef TERN_RUNTIME_SERVE_ENGINE_H
#define TERN_RUNTIME_SERVE_ENGINE_H

#include "runtime/generate/loaded.h"
#include "runtime/generate/sampler.h"
#include "runtime/generate/stream.h"

struct tern_engine;
struct tern_grammar; /* runtime/serve/grammar.h */

enum {
    TERN_ENGINE_CHOICES_MAX = 128, /* n */
    TERN_ENGINE_TOPS_MAX = 20,     /* alternatives beside a token */
    TERN_ENGINE_BIAS_MAX = 4096,
    TERN_ENGINE_STOP_IDS_MAX = 64,
    TERN_ENGINE_BUCKETS_MAX = 24
};

struct tern_engine_options {
    int64_t max_seqs;  /* sequences that run at once; 0: 16 */
    int64_t max_queue; /* requests that wait; 0: 256 */
    /* Of keys and values; 0: what max_seqs sequences of `context` need, at most 1 GiB, but always
     * one sequence of `context`. */
    size_t kv_bytes;
    int64_t chunk;            /* prompt tokens a step, all requests together; 0: 256 */
    int64_t context;          /* longest sequence; 0 or more than the model's: the model's */
    enum tern_dtype kv_dtype; /* TERN_F32 (exact), TERN_BF16, TERN_I8 */
    bool prefix_cache;        /* blocks of earlier requests are used again */
    int64_t speculate;        /* tokens guessed ahead by prompt lookup; 0: none, at most 15 */
    double stall_seconds;     /* a step that takes longer is a dead engine; 0: 60 */
    /* A request that would have to wait longer, by how fast requests were begun lately, is refused
     * as by a full queue; one may always wait. 0: only max_queue counts. */
    double max_wait_seconds;
};

enum tern_engine_event_kind {
    TERN_ENGINE_START, /* first, once a request: it left the queue. prompt_tokens, cached_tokens */
    /* With prompt_logprobs >= 0: one for each token of the prompt, in order, before any TOKEN: id,
     * logprob (NAN of the first), tops (of this position; none of the first). */
    TERN_ENGINE_PROMPT,
    TERN_ENGINE_TOKEN,     /* id, text, logprob, tops. An end token or stop id makes none */
    TERN_ENGINE_FINISH,    /* once a choice: text that was held back, finish_reason, counts */
    TERN_ENGINE_EMBEDDING, /* instead of TOKEN and FINISH: embedding, prompt_tokens */
    TERN_ENGINE_FAIL       /* once a request, nothing else follows: status, message */
};

struct tern_engine_top {
    int32_t id;
    float logprob;
};

/* What a request hears. Pointers are valid during the call. */
struct tern_engine_event {
    enum tern_engine_event_kind kind;
    int choice; /* from 0; 0 in START, PROMPT, EMBEDDING, FAIL */
    int32_t id; /* TOKEN, PROMPT */
    /* TOKEN, FINISH: what is decided now: whole UTF-8 characters, never a part of a stop string,
     * often nothing. */
    const char *text;
    size_t text_bytes;
    /* TOKEN with logprobs >= 0, PROMPT: natural logarithm of the model's own probability (before
     * penalties, bias, grammar and temperature), and the most likely ones, most likely first. */
    float logprob;
    const struct tern_engine_top *tops;
    int top_count;
    const char *finish_reason; /* FINISH: "stop" (end token, stop id or stop string) or "length" */
    int64_t prompt_tokens;     /* START, FINISH, EMBEDDING */
    int64_t cached_tokens;     /* of the prompt, found in the cache; START, FINISH */
    int64_t completion_tokens; /* of this choice so far, one that ends it included; TOKEN, FINISH */
    /* FAIL: TERN_ERR_TIMEOUT its deadline passed; TERN_ERR_CANCELLED the server shuts down;
     * TERN_ERR_DEVICE the engine is gone; else what a step said. */
    tern_status status;
    const char *message;
    /* EMBEDDING: (C), the mean over the prompt's tokens of the last norm's output, of length 1. */
    const float *embedding;
    int64_t width; /* C */
};

/* Copied by submit; the grammar is retained. Zeros mean none where not said otherwise. */
struct tern_engine_request {
    const int32_t *ids; /* the prompt: 1 token or more, all within the vocabulary */
    int64_t count;
    /* Of a choice; 0: only the prompt; -1: what the context has room for, which is the limit of
     * any other number too. */
    int64_t max_tokens;
    int64_t min_tokens; /* before that many no end token, stop id or stop string ends a text */
    int n; /* choices, 0: 1. They share the prompt's blocks; choice 0 is what n = 1 gives */
    struct tern_sampling sampling;
    const struct tern_logit_bias *bias;
    int64_t bias_count;
    const char *const *stops; /* at most TERN_STOPS_MAX, none empty */
    int stop_count;
    const int32_t *stop_ids; /* further end tokens */
    int stop_id_count;
    bool ignore_end;              /* the model's own end tokens do not end a text */
    bool skip_special;            /* special tokens add no text */
    int logprobs;                 /* of each token: -1 none, else so many alternatives */
    int prompt_logprobs;          /* of the prompt: -1 none, else so many alternatives */
    struct tern_grammar *grammar; /* NULL: none */
    double deadline_seconds;      /* from submit on; 0: none */
    bool is_embedding;            /* the prompt's vector, no text */
    /* On the engine thread, in order; must not block. */
    void (*deliver)(void *context, const struct tern_engine_event *event);
    /* Once, after the last event (a cancelled request hears no more); the engine forgets
     * `context`. */
    void (*release)(void *context);
    void *context;
};

/* counts[i]: values <= bounds[i] and > bounds[i - 1]; counts[bound_count]: the larger ones. */
struct tern_engine_histogram {
    const double *bounds;
    int bound_count;
    uint64_t counts[TERN_ENGINE_BUCKETS_MAX + 1];
    uint64_t count;
    double sum;
};

enum tern_engine_end {
    TERN_ENGINE_END_STOP,
    TERN_ENGINE_END_LENGTH,
    TERN_ENGINE_END_ABORT, /* cancelled: the client left */
    TERN_ENGINE_END_TIMEOUT,
    TERN_ENGINE_END_ERROR, /* failed, or cut by a shutdown */
    TERN_ENGINE_END_EMBEDDING,
    TERN_ENGINE_END_COUNT
};
/* "stop", "length", "abort", "timeout", "error", "embedding". */
const char *tern_engine_end_name(enum tern_engine_end end);

struct tern_engine_stats {
    /* Now. */
    int64_t running;       /* sequences with a place in the batch */
    int64_t waiting;       /* sequences without: queued, or preempted */
    int64_t blocks;        /* of 16 tokens */
    int64_t blocks_used;   /* by sequences; what only the prefix cache holds is as good as free */
    int64_t blocks_cached; /* held by the prefix cache alone */
    bool is_draining, is_alive;
    double beat_age_seconds; /* since the engine thread last showed a sign of life */
    double wait_seconds; /* how long one more request would wait; 0: not at all, or not yet known */
    /* Since the start. */
    uint64_t requests;                         /* accepted */
    uint64_t refused;                          /* the queue was full */
    uint64_t finished[TERN_ENGINE_END_COUNT];  /* choices by how they ended */
    uint64_t prompt_tokens, generation_tokens; /* prompt: of requests that left the queue */
    uint64_t computed_tokens;                  /* rows that went through the model */
    uint64_t steps;
    uint64_t preemptions;
    uint64_t prefix_queries, prefix_hits;   /* prompt tokens looked up, and found */
    uint64_t draft_tokens, accepted_tokens; /* guessed ahead, and right */
    double model_seconds, host_seconds;     /* inside the model; everything else of steps */
    struct tern_engine_histogram ttft, inter_token, queue, prefill, decode, e2e; /* seconds */
    struct tern_engine_histogram request_prompt_tokens, request_generation_tokens;
    struct tern_engine_histogram step_tokens; /* rows of a step */
};

/* The loaded model stays open, and nobody else uses its device, until destroy. Starts the
 * thread. */
TERN_MUST_CHECK tern_status tern_engine_create(struct tern_loaded *loaded,
                                               const struct tern_engine_options *options,
                                               struct tern_engine **out);
/* Cuts what still runs (FAIL), ends the thread. NULL is allowed. */
void tern_engine_destroy(struct tern_engine *engine);
/* The options with their defaults filled in; context: the longest sequence. */
const struct tern_engine_options *tern_engine_settings(const struct tern_engine *engine);

/* TERN_ERR_BUSY: the queue is full (429). TERN_ERR_CANCELLED: draining (503). TERN_ERR_DEVICE:
 * the engine is gone (503). TERN_ERR_INPUT: the request cannot be served, ever (400),
 * tern_detail() says why. On failure neither deliver nor release is called. Events may come
 * before this returns. *handle_out is never 0. */
TERN_MUST_CHECK tern_status tern_engine_submit(struct tern_engine *engine,
                                               const struct tern_engine_request *request,
                                               uint64_t *handle_out);
/* Takes effect before the next step, in whatever phase the request is: no further event, then
 * release. Handles of requests that have ended are ignored. Never waits for a step. */
void tern_engine_cancel(struct tern_engine *engine, uint64_t handle);
/* Never waits for a step. */
void tern_engine_stats(struct tern_engine *engine, struct tern_engine_stats *out);
/* False when the thread has ended or a step takes longer than stall_seconds. Lock-free. */
bool tern_engine_is_alive(struct tern_engine *engine);
/* Submit refuses from now on; requests that still wait fail at once (TERN_ERR_CANCELLED: they
 * can go elsewhere), those that were begun may go on for `seconds` and are cut then. Returns at
 * once. */
void tern_engine_drain(struct tern_engine *engine, double seconds);
/* Cuts everything before the next step and refuses more: the second signal. Returns at once. */
void tern_engine_abort(struct tern_engine *engine);
/* Waits until no request is left, at most `seconds`; whether none is. */
bool tern_engine_wait_idle(struct tern_engine *engine, double seconds);

#endif
