/* api_model.h - what requests need to know of the model that is served. */
#ifndef TERN_RUNTIME_SERVE_API_MODEL_H
#define TERN_RUNTIME_SERVE_API_MODEL_H

#include "runtime/chat/template.h"
#include "runtime/generate/loaded.h"
#include "runtime/serve/grammar.h"
#include "runtime/serve/tools.h"

#include <pthread.h>

enum {
    TERN_API_NAME_BYTES = 256
};

struct tern_api_model {
    const struct tern_loaded *loaded;
    struct tern_template *template;    /* NULL: it has none, and no_template says why */
    char no_template[512];             /* a sentence */
    int32_t turn_end;                  /* ends what the assistant says; -1: none */
    enum tern_tool_format tool_format; /* how it writes calls of tools */
    bool takes_tools;                  /* the template reads `tools` */
    int64_t context;                   /* tokens of a sequence, prompt and answer */
    int64_t created;                   /* seconds since 1970 */
    char name[TERN_API_NAME_BYTES];    /* "model" of requests and answers */
    pthread_mutex_t vocab_lock;
    struct tern_grammar_vocab *vocab; /* made when it is first needed */
};

/* loaded stays open until fini; template_file: NULL for the model's own. A model without a template is served without
 * chat. */
TERN_MUST_CHECK tern_status tern_api_model_init(struct tern_api_model *model,
                                                const struct tern_loaded *loaded,
                                                const char *path,
                                                const char *template_file,
                                                int64_t context);
void tern_api_model_fini(struct tern_api_model *model);
/* The vocabulary of grammars, borrowed; made by the first caller. */
TERN_MUST_CHECK tern_status tern_api_model_vocab(struct tern_api_model *model,
                                                 struct tern_grammar_vocab **out);

#endif
