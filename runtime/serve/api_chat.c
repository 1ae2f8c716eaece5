/* api_chat.c - a conversation through the model's template, and which tools the answer may call. */
#include "runtime/base/mem.h"
#include "runtime/serve/api_request.h"

#include <stdio.h>
#include <string.h>

enum {
    VARIABLES_MAX = 16,
    NAME_BYTES_MAX = 128
};

/* ---- tools ---- */

static bool is_name(const char *name)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
    size_t bytes = strlen(name);
    return bytes > 0 && bytes < TERN_TOOL_NAME_BYTES && strspn(name, letters) == bytes;
}

static tern_status check_tool(const struct tern_api_object *body,
                              int64_t index,
                              const struct tern_json *tool)
{
    char path[48];
    const struct tern_json *member;
    snprintf(path, sizeof path, "tools[%lld]", (long long)index);
    const struct tern_api_object object = {tool, path, body->error};
    const char *type = tern_json_string(tern_json_get(tool, "type"), NULL);
    if (tern_json_kind_of(tool) != TERN_JSON_OBJECT) {
        return tern_api_wrong(&object, "", tool, "an object");
    }
    if (type == NULL || strcmp(type, "function") != 0) {
        return tern_api_wrong(&object, "type", tern_json_get(tool, "type"), "\"function\"");
    }
    const struct tern_json *function = tern_json_get(tool, "function");
    if (tern_json_kind_of(function) != TERN_JSON_OBJECT) {
        return tern_api_wrong(&object, "function", function, "an object");
    }
    snprintf(path, sizeof path, "tools[%lld].function", (long long)index);
    const struct tern_api_object inner = {function, path, body->error};
    const char *name = tern_json_string(tern_json_get(function, "name"), NULL);
    if (name == NULL || !is_name(name)) {
        return tern_api_wrong(&inner, "name", tern_json_get(function, "name"),
                              "a string of 1 to 128 letters, digits, '_', '-' and '.'");
    }
    TERN_RETURN_IF_ERR(tern_api_member(&inner, "description", TERN_JSON_STRING, &member));
    return tern_api_member(&inner, "parameters", TERN_JSON_OBJECT, &member);
}

static tern_status read_tools(const struct tern_api_object *body, const struct tern_json **out)
{
    TERN_RETURN_IF_ERR(tern_api_member(body, "tools", TERN_JSON_ARRAY, out));
    int64_t count = tern_json_count(*out);
    if (count > TERN_API_TOOLS_MAX) {
        return tern_api_refuse(body->error, TERN_API_BAD, "tools",
                               "tools: found %lld, expected at most %d", (long long)count,
                               TERN_API_TOOLS_MAX);
    }
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(check_tool(body, i, tern_json_item(*out, i)));
    }
    *out = count > 0 ? *out : NULL;
    return TERN_OK;
}

struct choice {
    bool is_none, is_forced;
    const char *name; /* the one that must be called; NULL: any */
};

static tern_status read_choice_object(const struct tern_api_object *body,
                                      const struct tern_json *value,
                                      struct choice *out)
{
    const struct tern_api_object object = {value, "tool_choice", body->error};
    const struct tern_json *function;
    TERN_RETURN_IF_ERR(tern_api_member(&object, "function", TERN_JSON_OBJECT, &function));
    out->name = tern_json_string(tern_json_get(function, "name"), NULL);
    if (out->name == NULL) {
        return tern_api_wrong(&object, "function.name", tern_json_get(function, "name"),
                              "a string");
    }
    out->is_forced = true;
    return TERN_OK;
}

static tern_status read_choice(const struct tern_api_object *body,
                               const struct tern_json *tools,
                               struct choice *out)
{
    const struct tern_json *value = tern_json_get(body->json, "tool_choice");
    enum tern_json_kind kind = tern_json_kind_of(value);
    const char *word = tern_json_string(value, NULL);
    if (kind == TERN_JSON_OBJECT) {
        TERN_RETURN_IF_ERR(read_choice_object(body, value, out));
    } else if (word != NULL) {
        out->is_none = strcmp(word, "none") == 0;
        out->is_forced = strcmp(word, "required") == 0;
        if (!out->is_none && !out->is_forced && strcmp(word, "auto") != 0) {
            return tern_api_refuse(body->error, TERN_API_BAD, "tool_choice",
                                   "tool_choice: found '%.40s', expected \"none\", \"auto\", "
                                   "\"required\" or a function",
                                   word);
        }
    } else if (kind != TERN_JSON_MISSING && kind != TERN_JSON_NULL) {
        return tern_api_wrong(body, "tool_choice", value, "a string or an object");
    }
    if (out->is_forced && tools == NULL) {
        return tern_api_refuse(body->error, TERN_API_BAD, "tool_choice",
                               "tool_choice: only with \"tools\"");
    }
    return TERN_OK;
}

/* The form of a call with a given name: {"name": "f", "arguments": ... } in the family's words. */
static int64_t spell_frames(const struct tern_api_request *out,
                            const struct tern_json *tools,
                            const char *only,
                            char prefixes[][TERN_TOOL_NAME_BYTES + 64],
                            struct tern_grammar_frame *frames)
{
    int64_t count = 0;
    bool is_list = out->tools == TERN_TOOLS_LIST;
    for (int64_t i = 0; i < tern_json_count(tools); i++) {
        const struct tern_json *function = tern_json_get(tern_json_item(tools, i), "function");
        const char *name = tern_json_string(tern_json_get(function, "name"), NULL);
        const struct tern_json *schema = tern_json_get(function, "parameters");
        if (only != NULL && strcmp(only, name) != 0) {
            continue;
        }
        snprintf(prefixes[count], TERN_TOOL_NAME_BYTES + 64,
                 "%s{\"name\": \"%s\", \"%s\": ", is_list ? "[" : "", name,
                 out->tools == TERN_TOOLS_OBJECT ? "parameters" : "arguments");
        frames[count] = (struct tern_grammar_frame){
            .prefix = prefixes[count],
            .suffix = is_list ? "}]" : "}",
            .schema = tern_json_kind_of(schema) == TERN_JSON_OBJECT ? schema : NULL};
        count++;
    }
    return count;
}

static tern_status force_call(struct tern_api_model *model,
                              const struct tern_api_object *body,
                              const struct tern_json *tools,
                              const char *only,
                              struct tern_api_request *out)
{
    char prefixes[TERN_API_TOOLS_MAX][TERN_TOOL_NAME_BYTES + 64];
    struct tern_grammar_frame frames[TERN_API_TOOLS_MAX];
    struct tern_grammar_vocab *vocab;
    int64_t count = spell_frames(out, tools, only, prefixes, frames);
    if (count == 0) {
        return tern_api_refuse(body->error, TERN_API_BAD, "tool_choice",
                               "tool_choice: '%.100s' is none of the tools", only);
    }
    if (out->engine.grammar != NULL) {
        return tern_api_refuse(body->error, TERN_API_BAD, "response_format",
                               "response_format: not together with a tool that must be called");
    }
    TERN_RETURN_IF_ERR(tern_api_model_vocab(model, &vocab));
    tern_status status =
        tern_grammar_compile_frames(vocab, frames, (int)count, &out->engine.grammar);
    if (status == TERN_ERR_INPUT || status == TERN_ERR_UNSUPPORTED) {
        return tern_api_refuse(body->error, TERN_API_BAD, "tools", "tools: %s", tern_detail());
    }
    return status;
}

/* ---- the template ---- */

struct variables {
    const struct tern_api_object *body;
    struct tern_jinja_variable list[VARIABLES_MAX];
    int count;
};

static tern_status add_variable(void *context,
                                const char *key,
                                size_t key_bytes,
                                const struct tern_json *value)
{
    struct variables *variables = context;
    bool is_ours = strcmp(key, "messages") == 0 || strcmp(key, "tools") == 0;
    if (is_ours || key_bytes == 0 || key_bytes > NAME_BYTES_MAX || strlen(key) != key_bytes ||
        variables->count == VARIABLES_MAX) {
        return tern_api_refuse(variables->body->error, TERN_API_BAD, "chat_template_kwargs",
                               "chat_template_kwargs: '%.40s': expected at most %d names, none of "
                               "them \"messages\" or \"tools\"",
                               key, VARIABLES_MAX);
    }
    variables->list[variables->count++] =
        (struct tern_jinja_variable){.name = key, .kind = TERN_JINJA_JSON, .json = value};
    return TERN_OK;
}

static tern_status render(const struct tern_api_model *model,
                          const struct tern_api_object *body,
                          const struct tern_json *messages,
                          const struct tern_json *tools,
                          struct tern_text *out)
{
    const struct tern_json *more;
    struct variables variables = {.body = body};
    struct tern_jinja_output output = {0};
    TERN_RETURN_IF_ERR(tern_api_member(body, "chat_template_kwargs", TERN_JSON_OBJECT, &more));
    TERN_RETURN_IF_ERR(tern_json_each(more, add_variable, &variables));
    const struct tern_template_request request = {
        .messages = messages,
        .tools = model->takes_tools ? tools : NULL,
        .message_count = -1,
        .add_generation_prompt = true,
        .now = -1,
        .steps_max = TERN_API_TEMPLATE_STEPS,
        .variables = variables.list,
        .variable_count = variables.count,
    };
    tern_status status = tern_template_render(model->template, &request, &output);
    if (status == TERN_OK && output.text.length > 0) {
        status = tern_text_append(out, output.text.data, output.text.length);
    } else if (status == TERN_ERR_INPUT || status == TERN_ERR_UNSUPPORTED) {
        status = tern_api_refuse(body->error, TERN_API_BAD, "messages",
                                 "messages: the model's chat template refuses them: %.500s",
                                 tern_detail());
    }
    tern_jinja_output_fini(&output);
    return status;
}

static tern_status render_messages(const struct tern_api_model *model,
                                   const struct tern_api_object *body,
                                   const struct tern_json *tools,
                                   struct tern_text *out)
{
    struct tern_text text;
    struct tern_json *messages = NULL;
    tern_text_init(&text);
    tern_status status = tern_api_messages(model, body, tools, &text);
    if (status == TERN_OK) {
        status = tern_json_parse("messages", text.data, text.length, &messages);
    }
    if (status == TERN_OK) {
        status = render(model, body, messages, tools, out);
    }
    tern_json_close(messages);
    tern_text_fini(&text);
    return status;
}

/* ---- all of it ---- */

struct chat_fields {
    bool logprobs;
    int64_t top_logprobs;
};

static tern_status read_fields(const struct tern_api_object *body, struct tern_api_request *out)
{
    static const struct tern_api_field fields[] = {
        {"logprobs", TERN_API_BOOL, 0, 0, offsetof(struct chat_fields, logprobs), NULL},
        {"top_logprobs", TERN_API_I64, 0, TERN_ENGINE_TOPS_MAX,
         offsetof(struct chat_fields, top_logprobs), NULL},
        {"reasoning_effort", TERN_API_STRING, 0, 0, 0, NULL},
        {"store", TERN_API_BOOL, 0, 0, offsetof(struct chat_fields, logprobs), NULL},
        {"functions", TERN_API_REFUSED, 0, 0, 0, "replaced by \"tools\""},
        {"audio", TERN_API_REFUSED, 0, 0, 0, "the model writes text"},
        {"web_search_options", TERN_API_REFUSED, 0, 0, 0, "there is no web search"},
    };
    struct chat_fields values = {.top_logprobs = -1}, unused;
    TERN_RETURN_IF_ERR(tern_api_fields(body, fields, 3, &values));
    TERN_RETURN_IF_ERR(
        tern_api_fields(body, fields + 3, (int)(sizeof fields / sizeof fields[0]) - 3, &unused));
    if (values.top_logprobs > 0 && !values.logprobs) {
        return tern_api_refuse(body->error, TERN_API_BAD, "top_logprobs",
                               "top_logprobs: only with \"logprobs\": true");
    }
    if (values.logprobs) {
        out->engine.logprobs = values.top_logprobs > 0 ? (int)values.top_logprobs : 0;
    }
    return TERN_OK;
}

static tern_status choose_tools(struct tern_api_model *model,
                                const struct tern_api_object *body,
                                const struct tern_json **tools,
                                struct tern_api_request *out)
{
    struct choice choice = {0};
    TERN_RETURN_IF_ERR(read_tools(body, tools));
    TERN_RETURN_IF_ERR(read_choice(body, *tools, &choice));
    if (choice.is_none || *tools == NULL) {
        *tools = NULL;
        return TERN_OK;
    }
    out->tools = model->tool_format;
    out->is_forced = choice.is_forced;
    if (choice.is_forced && out->tools == TERN_TOOLS_NONE) {
        out->tools = TERN_TOOLS_OBJECT; /* the grammar writes it, whatever the model is used to */
    }
    out->engine.skip_special = false; /* marks of calls may be special tokens */
    return choice.is_forced ? force_call(model, body, *tools, choice.name, out) : TERN_OK;
}

tern_status tern_api_read_chat(struct tern_api_model *model,
                               const struct tern_api_object *body,
                               struct tern_api_request *out)
{
    const struct tern_json *tools = NULL;
    if (model->template == NULL) {
        return tern_api_refuse(body->error, TERN_API_BAD, "messages", "%s", model->no_template);
    }
    TERN_RETURN_IF_ERR(tern_api_read_sampling(model, body, out));
    TERN_RETURN_IF_ERR(read_fields(body, out));
    if (out->engine.max_tokens == 0) {
        return tern_api_refuse(body->error, TERN_API_BAD, "max_tokens",
                               "max_tokens: found 0, expected at least 1");
    }
    TERN_RETURN_IF_ERR(choose_tools(model, body, &tools, out));
    TERN_RETURN_IF_ERR(render_messages(model, body, tools, &out->chat));
    if (out->is_forced) {
        const char *opening = tern_tool_opening(out->tools);
        TERN_RETURN_IF_ERR(tern_text_append(&out->chat, opening, strlen(opening)));
    }
    if (model->turn_end >= 0 && !out->engine.ignore_end) {
        out->stop_ids[out->engine.stop_id_count++] = model->turn_end;
    }
    out->prompts = tern_alloc_zero("serve", 1, sizeof *out->prompts);
    if (out->prompts == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a prompt");
    }
    struct tern_api_prompt *prompt = &out->prompts[out->prompt_count++];
    prompt->text = out->chat.data;
    prompt->text_bytes = out->chat.length;
    TERN_RETURN_IF_ERR(tern_loaded_encode(model->loaded, out->chat.data, out->chat.length,
                                          TERN_TEXT_RENDERED, &prompt->ids, &prompt->count));
    return tern_api_check_length(model, "messages", prompt->count, 1, body->error);
}
