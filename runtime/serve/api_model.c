/* api_model.c - what requests need to know of the model, found out once. */
#include "runtime/serve/api_model.h"

#include "runtime/chat/chat.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static tern_status open_template(struct tern_api_model *model,
                                 const char *path,
                                 const char *template_file)
{
    const struct tern_tokenizer *tokenizer = model->loaded->tokenizer;
    if (tokenizer == NULL) {
        snprintf(model->no_template, sizeof model->no_template, "The model has no tokenizer.");
        return TERN_OK;
    }
    tern_status status = tern_template_open_known(path, template_file, tokenizer, &model->template);
    if (status == TERN_ERR_NOT_FOUND && template_file == NULL) {
        snprintf(model->no_template, sizeof model->no_template,
                 "This model has no chat template: use /v1/completions, or serve it with "
                 "--chat-template FILE.");
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(status);
    TERN_RETURN_IF_ERR(tern_chat_end(model->template, tokenizer, &model->turn_end));
    const char *source = tern_template_source(model->template, true);
    model->takes_tools = strstr(source, "tools") != NULL;
    model->tool_format = model->takes_tools ? tern_tool_format_of(source) : TERN_TOOLS_TAGGED;
    return TERN_OK;
}

tern_status tern_api_model_init(struct tern_api_model *model,
                                const struct tern_loaded *loaded,
                                const char *path,
                                const char *template_file,
                                int64_t context)
{
    model->loaded = loaded;
    model->context = context;
    model->turn_end = -1;
    model->created = (int64_t)time(NULL);
    model->tool_format = TERN_TOOLS_TAGGED;
    pthread_mutex_init(&model->vocab_lock, NULL);
    return open_template(model, path, template_file);
}

void tern_api_model_fini(struct tern_api_model *model)
{
    tern_template_close(model->template);
    tern_grammar_vocab_release(model->vocab);
    pthread_mutex_destroy(&model->vocab_lock);
    model->template = NULL;
    model->vocab = NULL;
}

tern_status tern_api_model_vocab(struct tern_api_model *model, struct tern_grammar_vocab **out)
{
    const struct tern_loaded *loaded = model->loaded;
    int32_t ends[TERN_EOS_MAX + 2];
    int count = 0;
    tern_status status = TERN_OK;
    pthread_mutex_lock(&model->vocab_lock);
    if (model->vocab == NULL) {
        for (; count < loaded->ids.eos_count; count++) {
            ends[count] = loaded->ids.eos[count];
        }
        if (tern_tokenizer_eos(loaded->tokenizer) >= 0) {
            ends[count++] = tern_tokenizer_eos(loaded->tokenizer);
        }
        if (model->turn_end >= 0) {
            ends[count++] = model->turn_end;
        }
        status = tern_grammar_vocab_create(loaded->tokenizer, loaded->model.config.vocab_size, ends,
                                           count, &model->vocab);
    }
    *out = model->vocab;
    pthread_mutex_unlock(&model->vocab_lock);
    return status;
}
