/* template.c - a model's chat template, compiled, and what it is rendered with. */
#include "runtime/chat/template.h"

#include "io/file.h"
#include "io/hash.h"
#include "runtime/base/mem.h"
#include "runtime/chat/template_find.h"

#include <string.h>

struct tern_template {
    struct tern_template_texts texts;
    struct tern_jinja *plain, *tool_use; /* tool_use: NULL when there is no such template */
    char hash[TERN_TEMPLATE_HASH_BYTES];
};

enum {
    VARIABLES_MAX = 64
};

static tern_status take_file(struct tern_template_texts *texts, const char *file)
{
    size_t bytes;
    tern_free(texts->plain);
    tern_free(texts->tool_use);
    texts->plain = texts->tool_use = NULL;
    TERN_RETURN_IF_ERR(
        tern_file_read(file, TERN_JINJA_SOURCE_BYTES_MAX + 1, &texts->plain, &bytes));
    if (strlen(texts->plain) != bytes) {
        return tern_fail(TERN_ERR_INPUT, "%s: found a NUL byte at %zu; expected a template", file,
                         strlen(texts->plain));
    }
    tern_free(texts->plain_name);
    texts->plain_name = tern_strdup("chat template", file);
    return texts->plain_name != NULL ? TERN_OK
                                     : tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate", file);
}

static tern_status hash_texts(struct tern_template *template)
{
    const struct tern_template_texts *texts = &template->texts;
    struct tern_text all;
    tern_text_init(&all);
    tern_status status = tern_text_printf(&all, "%s%c%s", texts->plain, 0,
                                          texts->tool_use != NULL ? texts->tool_use : "");
    for (int i = 0; i < TERN_SPECIALS && status == TERN_OK; i++) {
        status =
            tern_text_printf(&all, "%c%s", 0, texts->specials[i] != NULL ? texts->specials[i] : "");
    }
    if (status == TERN_OK) {
        tern_hash_bytes(all.data, all.length, template->hash);
    }
    tern_text_fini(&all);
    return status;
}

static tern_status compile(struct tern_template *template, const char *model)
{
    const struct tern_template_texts *texts = &template->texts;
    if (texts->plain == NULL) {
        return tern_fail(TERN_ERR_NOT_FOUND,
                         "%s: has no chat template: expected chat_template.jinja or "
                         "\"chat_template\" in tokenizer_config.json beside it, or "
                         "tokenizer.chat_template in a GGUF file",
                         model);
    }
    TERN_RETURN_IF_ERR(tern_jinja_compile(texts->plain_name, texts->plain, strlen(texts->plain),
                                          &template->plain));
    if (texts->tool_use != NULL) {
        TERN_RETURN_IF_ERR(tern_jinja_compile(texts->tool_use_name, texts->tool_use,
                                              strlen(texts->tool_use), &template->tool_use));
    }
    return hash_texts(template);
}

static tern_status take_known(struct tern_template_texts *texts,
                              const struct tern_tokenizer *tokenizer)
{
    const char *known = tern_template_known(tokenizer);
    if (known == NULL) {
        return TERN_OK;
    }
    texts->plain = tern_strdup("chat template", known);
    texts->plain_name = tern_strdup("chat template", "built-in template");
    return texts->plain != NULL && texts->plain_name != NULL
               ? TERN_OK
               : tern_fail(TERN_ERR_MEMORY, "cannot allocate a chat template");
}

tern_status tern_template_open(const char *model, const char *file, struct tern_template **out)
{
    return tern_template_open_known(model, file, NULL, out);
}

tern_status tern_template_open_known(const char *model,
                                     const char *file,
                                     const struct tern_tokenizer *tokenizer,
                                     struct tern_template **out)
{
    struct tern_template *template = tern_alloc_zero("chat template", 1, sizeof *template);
    *out = NULL;
    if (template == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a chat template");
    }
    tern_status status;
    TERN_GOTO_IF_ERR(status, tern_template_find(model, &template->texts), fail);
    if (file != NULL) {
        TERN_GOTO_IF_ERR(status, take_file(&template->texts, file), fail);
    }
    if (template->texts.plain == NULL && tokenizer != NULL) {
        TERN_GOTO_IF_ERR(status, take_known(&template->texts, tokenizer), fail);
    }
    TERN_GOTO_IF_ERR(status, compile(template, model), fail);
    *out = template;
    return TERN_OK;
fail:
    tern_template_close(template);
    return status;
}

void tern_template_close(struct tern_template *template)
{
    if (template == NULL) {
        return;
    }
    tern_jinja_destroy(template->plain);
    tern_jinja_destroy(template->tool_use);
    tern_template_texts_fini(&template->texts);
    tern_free(template);
}

const char *tern_template_hash(const struct tern_template *template)
{
    return template->hash;
}

const char *tern_template_source(const struct tern_template *template, bool has_tools)
{
    return has_tools && template->tool_use != NULL ? template->texts.tool_use
                                                   : template->texts.plain;
}

bool tern_template_has_generation(const struct tern_template *template)
{
    return tern_jinja_has_generation(template->plain);
}

const char *tern_template_special(const struct tern_template *template, const char *name)
{
    for (int i = 0; i < TERN_SPECIALS; i++) {
        if (strcmp(name, tern_special_names[i]) == 0) {
            return template->texts.specials[i];
        }
    }
    return NULL;
}

/* The list of messages, and the tools beside it if the request has none. */
static tern_status messages_of(const struct tern_template_request *request,
                               const struct tern_json **messages_out,
                               const struct tern_json **tools_out)
{
    const struct tern_json *messages = request->messages;
    const struct tern_json *tools = request->tools;
    if (tern_json_kind_of(messages) == TERN_JSON_OBJECT) {
        tools = tools != NULL ? tools : tern_json_get(messages, "tools");
        messages = tern_json_get(messages, "messages");
    }
    enum tern_json_kind kind = tern_json_kind_of(messages);
    if (kind != TERN_JSON_ARRAY) {
        return tern_fail(TERN_ERR_INPUT,
                         "messages: found %s; expected a list of objects, or an object with "
                         "\"messages\"",
                         tern_json_kind_name(kind));
    }
    kind = tern_json_kind_of(tools);
    if (kind != TERN_JSON_ARRAY && kind != TERN_JSON_MISSING && kind != TERN_JSON_NULL) {
        return tern_fail(TERN_ERR_INPUT, "tools: found %s; expected a list of objects",
                         tern_json_kind_name(kind));
    }
    *messages_out = messages;
    *tools_out = kind == TERN_JSON_ARRAY ? tools : NULL;
    return TERN_OK;
}

static void add_variable(struct tern_jinja_variable *variables,
                         int *count,
                         struct tern_jinja_variable variable)
{
    variables[(*count)++] = variable;
}

tern_status tern_template_render(const struct tern_template *template,
                                 const struct tern_template_request *request,
                                 struct tern_jinja_output *out)
{
    struct tern_jinja_variable variables[VARIABLES_MAX];
    const struct tern_json *messages = NULL, *tools = NULL;
    int count = 0;
    TERN_RETURN_IF_ERR(messages_of(request, &messages, &tools));
    for (int i = 0; i < TERN_SPECIALS; i++) {
        if (template->texts.specials[i] != NULL) {
            add_variable(variables, &count,
                         (struct tern_jinja_variable){.name = tern_special_names[i],
                                                      .kind = TERN_JINJA_STRING,
                                                      .string = template->texts.specials[i]});
        }
    }
    add_variable(variables, &count,
                 (struct tern_jinja_variable){.name = "messages",
                                              .kind = TERN_JINJA_JSON,
                                              .json = messages,
                                              .is_messages = true,
                                              .item_count = request->message_count,
                                              .mark_item = request->mark_message,
                                              .mark = request->mark});
    add_variable(
        variables, &count,
        (struct tern_jinja_variable){.name = "tools", .kind = TERN_JINJA_JSON, .json = tools});
    add_variable(variables, &count, (struct tern_jinja_variable){.name = "documents"});
    add_variable(variables, &count,
                 (struct tern_jinja_variable){.name = "add_generation_prompt",
                                              .kind = TERN_JINJA_BOOL,
                                              .truth = request->add_generation_prompt});
    if (request->variable_count > VARIABLES_MAX - count) {
        return tern_fail(TERN_ERR_USAGE, "found %d more variables; expected at most %d",
                         request->variable_count, VARIABLES_MAX - count);
    }
    for (int i = 0; i < request->variable_count; i++) {
        add_variable(variables, &count, request->variables[i]);
    }
    struct tern_jinja_input input = {.variables = variables,
                                     .variable_count = count,
                                     .now = request->now,
                                     .steps_max = request->steps_max};
    bool is_tool_use = tools != NULL && template->tool_use != NULL;
    return tern_jinja_render(is_tool_use ? template->tool_use : template->plain, &input, out);
}
