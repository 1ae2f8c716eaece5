/* api_request.h - a request of OpenAI's API, checked: from a JSON body to what the engine is asked. */
#ifndef TERN_RUNTIME_SERVE_API_REQUEST_H
#define TERN_RUNTIME_SERVE_API_REQUEST_H

#include "runtime/serve/api_fields.h"
#include "runtime/serve/api_model.h"
#include "runtime/serve/engine.h"

enum tern_api_kind {
    TERN_API_CHAT,
    TERN_API_COMPLETION,
    TERN_API_EMBEDDING
};

enum {
    TERN_API_PROMPTS_MAX = 128,     /* of a completion */
    TERN_API_INPUTS_MAX = 2048,     /* of embeddings */
    TERN_API_CHOICES_MAX = 128,     /* prompts times n */
    TERN_API_STOP_BYTES_MAX = 1024, /* of a stop text */
    TERN_API_TOOLS_MAX = 128,
    TERN_API_TEMPLATE_STEPS = 2000000 /* of a conversation: tens of milliseconds */
};

struct tern_api_prompt {
    const char *text; /* as given, or rendered; NULL: it was given as ids */
    size_t text_bytes;
    int32_t *ids; /* (count), owned */
    int64_t count;
};

struct tern_api_request {
    enum tern_api_kind kind;
    struct tern_json *json;          /* the body; texts below are borrowed from it */
    struct tern_text chat;           /* the conversation by the template */
    struct tern_api_prompt *prompts; /* (prompt_count) */
    int64_t prompt_count;
    int64_t n; /* choices a prompt */
    bool is_stream, include_usage;
    bool echo;                   /* completions: the prompt comes first */
    bool is_base64;              /* embeddings */
    int64_t dimensions;          /* embeddings: the first so many, to length 1 again; 0: all */
    enum tern_tool_format tools; /* which calls the answer may hold; TERN_TOOLS_NONE: it is text */
    bool is_forced;              /* the answer is a call: its opening was given to the model */
    bool is_one_call;            /* parallel_tool_calls: false */
    /* What all prompts share; ids, count, deliver, release and context are still to be set. */
    struct tern_engine_request engine;
    struct tern_logit_bias *bias;
    const char *stops[TERN_STOPS_MAX];
    int32_t stop_ids[TERN_ENGINE_STOP_IDS_MAX];
};

/* TERN_ERR_INPUT with *error filled; another status is a failure of ours (tern_api_error_from). `out` is to be finished
 * in either case. */
TERN_MUST_CHECK tern_status tern_api_request_read(struct tern_api_model *model,
                                                  enum tern_api_kind kind,
                                                  const void *body,
                                                  size_t bytes,
                                                  struct tern_api_request *out,
                                                  struct tern_api_error *error);
void tern_api_request_fini(struct tern_api_request *request);

/* A body that is an object, names the model that is served if any, and a model that has a tokenizer; owned: close
 * (*out is NULL after a failure). */
TERN_MUST_CHECK tern_status tern_api_body_read(const struct tern_api_model *model,
                                               const void *body,
                                               size_t bytes,
                                               struct tern_json **out,
                                               struct tern_api_error *error);

/* ---- for the files of api_request ---- */

/* api_sampling.c: what chat and completions share, and response_format. */
TERN_MUST_CHECK tern_status tern_api_read_sampling(struct tern_api_model *model,
                                                   const struct tern_api_object *body,
                                                   struct tern_api_request *out);
/* 64 bits that nobody can guess: seeds of requests that name none, and ids. */
uint64_t tern_api_random(void);
/* api_prompt.c: one text or list of ids, or many, of member `name`. */
TERN_MUST_CHECK tern_status tern_api_read_prompts(const struct tern_api_model *model,
                                                  const struct tern_api_object *body,
                                                  const char *name,
                                                  int64_t prompts_max,
                                                  struct tern_api_request *out);
/* Refuses a prompt that leaves no room in the context for `answer` tokens. */
TERN_MUST_CHECK tern_status tern_api_check_length(const struct tern_api_model *model,
                                                  const char *param,
                                                  int64_t count,
                                                  int64_t answer,
                                                  struct tern_api_error *error);
/* api_chat.c: messages and tools through the template. */
TERN_MUST_CHECK tern_status tern_api_read_chat(struct tern_api_model *model,
                                               const struct tern_api_object *body,
                                               struct tern_api_request *out);
/* api_messages.c: messages as templates take them, as a JSON list: texts in parts are joined, arguments of calls are
 * objects, developers are the system. Without takes_tools, calls, answers of tools and `tools` become text. */
TERN_MUST_CHECK tern_status tern_api_messages(const struct tern_api_model *model,
                                              const struct tern_api_object *body,
                                              const struct tern_json *tools,
                                              struct tern_text *out);

#endif
