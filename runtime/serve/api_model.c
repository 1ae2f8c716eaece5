/* api_model.c - what requests need to know of the model, found out once. */
#include "runtime/serve/api_model.h"

#include "runtime/chat/chat.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* Whether a tool that is given to the template is to be seen in its text. */
static tern_status probe_tools(const struct tern_template *template, bool *out)
{
    static const char probe[] =
        "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":"
        "\"function\",\"function\":{\"name\":\"tern_probe\",\"description\":\"b\","
        "\"parameters\":{\"type\":\"object\",\"properties\":{}}}}]}";
    struct tern_json *json;
    struct tern_jinja_output output = {0};
    TERN_RETURN_IF_ERR(tern_json_parse("probe", probe, sizeof probe - 1, &json));
    const struct tern_template_request request = {
        .messages = json, .message_count = -1, .add_generation_prompt = true, .now = -1};
    tern_status status = tern_template_render(template, &request, &output);
    *out = status == TERN_OK && output.text.length > 0 &&
           memmem(output.text.data, output.text.length, "tern_probe", 10) != NULL;
    tern_jinja_output_fini(&output);
    tern_json_close(json);
    return status == TERN_ERR_INPUT || status == TERN_ERR_UNSUPPORTED ? TERN_OK : status;
}

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
    status = tern_chat_end(model->template, tokenizer, &model->turn_end);
    if (status == TERN_ERR_INPUT) { /* it refuses the shortest conversation */
        model->turn_end = -1;
        status = TERN_OK;
    }
    TERN_RETURN_IF_ERR(status);
    TERN_RETURN_IF_ERR(probe_tools(model->template, &model->takes_tools));
    if (model->takes_tools) {
        model->tool_format = tern_tool_format_of(tern_template_source(model->template, true));
    }
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
