/* hearing.h - all that a request hears, kept to be looked at and compared bit by bit. */
#ifndef TERN_TESTS_RUNTIME_SERVE_HEARING_H
#define TERN_TESTS_RUNTIME_SERVE_HEARING_H

#include "runtime/serve/engine.h"
#include "tests/runtime/fixture.h"

#include <pthread.h>
#include <stdatomic.h>

enum {
    HEARING_CHOICES = 4,
    HEARING_TOKENS = 256,
    HEARING_TEXT = 2048,
    HEARING_TOPS = 3
};

struct heard_token {
    int32_t id;
    float logprob;
    struct tern_engine_top tops[HEARING_TOPS];
};

struct heard_choice {
    struct heard_token tokens[HEARING_TOKENS];
    int64_t count;
    char text[HEARING_TEXT];
    size_t text_bytes;
    char finish[16]; /* "" while it goes on */
    int64_t completion_tokens;
};

/* What may be compared: the same request must hear the same, bit for bit. Zeros at first. */
struct heard {
    struct heard_choice choices[HEARING_CHOICES];
    struct heard_token prompt[HEARING_TOKENS];
    int64_t prompt_count, prompt_tokens;
    float embedding[64];
    int64_t width;
    tern_status fail;
};

struct hearing {
    struct heard heard;
    int64_t cached_tokens;
    int starts, events, events_late;
    char message[200];
    atomic_int releases;
    /* Called at each event, on the engine thread. */
    void (*at_event)(struct hearing *hearing, const struct tern_engine_event *event);
    void *context;
    uint64_t handle;
};

static inline void keep_token(struct heard_token *token, const struct tern_engine_event *event)
{
    token->id = event->id;
    token->logprob = event->logprob;
    for (int i = 0; i < event->top_count && i < HEARING_TOPS; i++) {
        token->tops[i] = event->tops[i];
    }
}

static inline void keep_text(struct heard_choice *choice, const struct tern_engine_event *event)
{
    if (event->text_bytes > 0 && choice->text_bytes + event->text_bytes < HEARING_TEXT) {
        memcpy(choice->text + choice->text_bytes, event->text, event->text_bytes);
        choice->text_bytes += event->text_bytes;
    }
}

static inline void hear(void *context, const struct tern_engine_event *event)
{
    struct hearing *hearing = context;
    struct heard *heard = &hearing->heard;
    struct heard_choice *choice = &heard->choices[event->choice % HEARING_CHOICES];
    hearing->events++;
    hearing->events_late += atomic_load(&hearing->releases) > 0 || choice->finish[0] != '\0';
    switch (event->kind) {
    case TERN_ENGINE_START:
        hearing->starts++;
        hearing->cached_tokens = event->cached_tokens;
        heard->prompt_tokens = event->prompt_tokens;
        break;
    case TERN_ENGINE_PROMPT:
        keep_token(&heard->prompt[heard->prompt_count++ % HEARING_TOKENS], event);
        break;
    case TERN_ENGINE_TOKEN:
        keep_token(&choice->tokens[choice->count++ % HEARING_TOKENS], event);
        keep_text(choice, event);
        break;
    case TERN_ENGINE_FINISH:
        keep_text(choice, event);
        snprintf(choice->finish, sizeof choice->finish, "%s", event->finish_reason);
        choice->completion_tokens = event->completion_tokens;
        break;
    case TERN_ENGINE_EMBEDDING:
        heard->width = event->width;
        memcpy(heard->embedding, event->embedding, (size_t)event->width * sizeof(float));
        break;
    case TERN_ENGINE_FAIL:
        heard->fail = event->status;
        snprintf(hearing->message, sizeof hearing->message, "%s", event->message);
        break;
    }
    if (hearing->at_event != NULL) {
        hearing->at_event(hearing, event);
    }
}

static inline void hear_release(void *context)
{
    struct hearing *hearing = context;
    atomic_fetch_add(&hearing->releases, 1);
}

/* A prompt of `count` tokens that a seed makes; greedy, 20 tokens, nothing else. */
static inline struct tern_engine_request plain_request(struct hearing *hearing,
                                                       const int32_t *ids,
                                                       int64_t count)
{
    return (struct tern_engine_request){
        .ids = ids,
        .count = count,
        .max_tokens = 20,
        .sampling = {.top_p = 1},
        .logprobs = -1,
        .prompt_logprobs = -1,
        .deliver = hear,
        .release = hear_release,
        .context = hearing,
    };
}

static inline void wait_for(struct tern_engine *engine)
{
    if (!tern_engine_wait_idle(engine, 120)) {
        fail_msg("requests are still in flight after 120 s");
    }
}

#endif
