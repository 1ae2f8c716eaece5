/* api_messages.c - messages as clients send them to messages as chat templates take them. */
#include "runtime/serve/api_request.h"

#include <stdio.h>
#include <string.h>

struct writer {
    const struct tern_api_model *model;
    struct tern_api_error *error;
    struct tern_text *out; /* the list in the making */
    struct tern_text content;
    const struct tern_json *calls;
    const struct tern_json *tools; /* still to be described to a template that takes none */
};

/* ---- parts ---- */

static tern_status add_part(struct writer *writer,
                            const struct tern_api_object *message,
                            int64_t index,
                            const struct tern_json *part)
{
    char path[TERN_API_PATH_BYTES];
    snprintf(path, sizeof path, "%.120s.content[%lld]", message->path, (long long)index);
    const struct tern_api_object object = {part, path, message->error};
    if (tern_json_kind_of(part) != TERN_JSON_OBJECT) {
        return tern_api_wrong(&object, "", part, "an object");
    }
    const char *type = tern_json_string(tern_json_get(part, "type"), NULL);
    bool is_refusal = type != NULL && strcmp(type, "refusal") == 0;
    if (type == NULL || (strcmp(type, "text") != 0 && !is_refusal)) {
        return tern_api_refuse(message->error, TERN_API_BAD, path,
                               "%s.type: found '%.40s', expected \"text\": the model reads nothing "
                               "else",
                               path, type != NULL ? type : "");
    }
    const char *member = is_refusal ? "refusal" : "text";
    size_t bytes;
    const char *text = tern_json_string(tern_json_get(part, member), &bytes);
    if (text == NULL) {
        return tern_api_wrong(&object, member, tern_json_get(part, member), "a string");
    }
    if (index > 0) {
        TERN_RETURN_IF_ERR(tern_text_append(&writer->content, "\n", 1));
    }
    return tern_text_append(&writer->content, text, bytes);
}

/* The text of a message into writer->content. */
static tern_status read_content(struct writer *writer,
                                const struct tern_api_object *message,
                                bool may_be_null)
{
    const struct tern_json *content = tern_json_get(message->json, "content");
    size_t bytes;
    writer->content.length = 0;
    switch (tern_json_kind_of(content)) {
    case TERN_JSON_STRING: {
        const char *text = tern_json_string(content, &bytes);
        return tern_text_append(&writer->content, text, bytes);
    }
    case TERN_JSON_ARRAY:
        for (int64_t i = 0; i < tern_json_count(content); i++) {
            TERN_RETURN_IF_ERR(add_part(writer, message, i, tern_json_item(content, i)));
        }
        return TERN_OK;
    case TERN_JSON_MISSING:
    case TERN_JSON_NULL:
        if (may_be_null) {
            return TERN_OK;
        }
        break;
    default:
        break;
    }
    return tern_api_wrong(message, "content", content, "a string or a list of text parts");
}

/* ---- calls of tools ---- */

/* Arguments come as a text that holds JSON; templates take the object. */
static tern_status write_arguments(const struct tern_json *arguments, struct tern_text *out)
{
    size_t bytes;
    const char *text = tern_json_string(arguments, &bytes);
    struct tern_json *parsed = NULL;
    if (text == NULL) {
        return arguments != NULL ? tern_json_write(out, arguments) : tern_text_printf(out, "{}");
    }
    tern_status status = tern_json_parse("arguments", text, bytes, &parsed);
    if (status == TERN_OK && tern_json_kind_of(parsed) == TERN_JSON_OBJECT) {
        status = tern_json_write(out, parsed);
    } else if (status == TERN_OK || status == TERN_ERR_INPUT) {
        status = bytes == 0 ? tern_text_printf(out, "{}") : tern_json_write(out, arguments);
    }
    tern_json_close(parsed);
    return status;
}

static tern_status check_call(const struct tern_api_object *message,
                              int64_t index,
                              const struct tern_json *call,
                              const char **name_out,
                              const struct tern_json **arguments_out)
{
    char path[TERN_API_PATH_BYTES];
    snprintf(path, sizeof path, "%.110s.tool_calls[%lld]", message->path, (long long)index);
    const struct tern_api_object object = {call, path, message->error};
    const struct tern_json *function = tern_json_get(call, "function");
    if (tern_json_kind_of(call) != TERN_JSON_OBJECT) {
        return tern_api_wrong(&object, "", call, "an object");
    }
    const struct tern_json *id = tern_json_get(call, "id");
    const struct tern_json *type = tern_json_get(call, "type");
    const char *kind_name = tern_json_string(type, NULL);
    if (id != NULL && tern_json_kind_of(id) != TERN_JSON_STRING) {
        return tern_api_wrong(&object, "id", id, "a string");
    }
    if (type != NULL && (kind_name == NULL || strcmp(kind_name, "function") != 0)) {
        return tern_api_wrong(&object, "type", type, "\"function\"");
    }
    if (tern_json_kind_of(function) != TERN_JSON_OBJECT) {
        return tern_api_wrong(&object, "function", function, "an object");
    }
    *name_out = tern_json_string(tern_json_get(function, "name"), NULL);
    if (*name_out == NULL) {
        return tern_api_wrong(&object, "function.name", tern_json_get(function, "name"),
                              "a string");
    }
    *arguments_out = tern_json_get(function, "arguments");
    enum tern_json_kind kind = tern_json_kind_of(*arguments_out);
    if (kind != TERN_JSON_STRING && kind != TERN_JSON_OBJECT && kind != TERN_JSON_MISSING) {
        return tern_api_wrong(&object, "function.arguments", *arguments_out, "a string");
    }
    return TERN_OK;
}

/* {"id": ..., "type": "function", "function": {"name": ..., "arguments": {...}}} */
static tern_status write_call(struct tern_text *out,
                              const struct tern_json *call,
                              const char *name,
                              const struct tern_json *arguments)
{
    size_t bytes;
    const char *id = tern_json_string(tern_json_get(call, "id"), &bytes);
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"id\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, id != NULL ? id : "", id != NULL ? bytes : 0));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"type\":\"function\",\"function\":{\"name\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, name, strlen(name)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"arguments\":"));
    TERN_RETURN_IF_ERR(write_arguments(arguments, out));
    return tern_text_printf(out, "}}");
}

/* As a model without a form of its own was told to write them. */
static tern_status spell_call(struct tern_text *out,
                              const char *name,
                              const struct tern_json *arguments)
{
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "%s<tool_call>\n{\"name\": ", out->length > 0 ? "\n" : ""));
    TERN_RETURN_IF_ERR(tern_json_quote(out, name, strlen(name)));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ", \"arguments\": "));
    TERN_RETURN_IF_ERR(write_arguments(arguments, out));
    return tern_text_printf(out, "}\n</tool_call>");
}

/* Calls of a message: into `list` for templates that take them, else into its text. */
static tern_status add_calls(struct writer *writer,
                             const struct tern_api_object *message,
                             struct tern_text *list)
{
    for (int64_t i = 0; i < tern_json_count(writer->calls); i++) {
        const struct tern_json *call = tern_json_item(writer->calls, i);
        const struct tern_json *arguments = NULL;
        const char *name = NULL;
        TERN_RETURN_IF_ERR(check_call(message, i, call, &name, &arguments));
        if (!writer->model->takes_tools) {
            TERN_RETURN_IF_ERR(spell_call(&writer->content, name, arguments));
            continue;
        }
        TERN_RETURN_IF_ERR(tern_text_printf(list, "%s", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(write_call(list, call, name, arguments));
    }
    return TERN_OK;
}

/* ---- a message ---- */

static tern_status copy_member(void *context,
                               const char *key,
                               size_t key_bytes,
                               const struct tern_json *value)
{
    static const char *const own[] = {"role", "content", "tool_calls"};
    struct tern_text *out = context;
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++) {
        if (strcmp(key, own[i]) == 0) {
            return TERN_OK;
        }
    }
    TERN_RETURN_IF_ERR(tern_text_append(out, ",", 1));
    TERN_RETURN_IF_ERR(tern_json_quote(out, key, key_bytes));
    TERN_RETURN_IF_ERR(tern_text_append(out, ":", 1));
    return tern_json_write(out, value);
}

static tern_status begin_message(struct tern_text *out, const char *role)
{
    return tern_text_printf(out, "%s{\"role\":\"%s\",\"content\":", out->length > 1 ? "," : "",
                            role);
}

static tern_status describe_tools(struct writer *writer)
{
    struct tern_text *text = &writer->content;
    TERN_RETURN_IF_ERR(
        tern_text_printf(text,
                         "%sThese functions can be called, one described on each line:\n"
                         "<tools>\n",
                         text->length > 0 ? "\n\n" : ""));
    for (int64_t i = 0; i < tern_json_count(writer->tools); i++) {
        TERN_RETURN_IF_ERR(
            tern_json_write(text, tern_json_get(tern_json_item(writer->tools, i), "function")));
        TERN_RETURN_IF_ERR(tern_text_append(text, "\n", 1));
    }
    writer->tools = NULL;
    return tern_text_printf(text,
                            "</tools>\nTo call one, answer with its name and arguments as JSON, "
                            "like this:\n<tool_call>\n{\"name\": \"NAME\", \"arguments\": "
                            "{}}\n</tool_call>");
}

/* What the system says is where the tools are described, if the template does not do it. */
static tern_status describe_first(struct writer *writer, const char *role)
{
    if (writer->tools == NULL) {
        return TERN_OK;
    }
    if (strcmp(role, "system") == 0) {
        return describe_tools(writer);
    }
    struct tern_text kept = writer->content;
    tern_text_init(&writer->content);
    tern_status status = describe_tools(writer);
    if (status == TERN_OK) {
        status = begin_message(writer->out, "system");
    }
    if (status == TERN_OK) {
        status = tern_json_quote(writer->out, writer->content.data, writer->content.length);
    }
    if (status == TERN_OK) {
        status = tern_text_append(writer->out, "}", 1);
    }
    tern_text_fini(&writer->content);
    writer->content = kept;
    return status;
}

static tern_status read_role(const struct tern_api_object *message, const char **out)
{
    static const char *const roles[] = {"system", "user", "assistant", "tool", "function"};
    const struct tern_json *value = tern_json_get(message->json, "role");
    const char *role = tern_json_string(value, NULL);
    if (role == NULL) {
        return tern_api_wrong(message, "role", value, "a string");
    }
    role = strcmp(role, "developer") == 0 ? "system" : role;
    for (size_t i = 0; i < sizeof roles / sizeof roles[0]; i++) {
        if (strcmp(role, roles[i]) == 0) {
            *out = roles[i];
            return TERN_OK;
        }
    }
    char path[TERN_API_PATH_BYTES];
    tern_api_path(message, "role", path);
    return tern_api_refuse(message->error, TERN_API_BAD, path,
                           "%s: found '%.40s', expected system, developer, user, assistant or tool",
                           path, role);
}

/* An answer of a tool for templates that know none: the user reports it. */
static tern_status report_answer(struct writer *writer, const char **role)
{
    bool is_answer = strcmp(*role, "tool") == 0 || strcmp(*role, "function") == 0;
    if (!is_answer || writer->model->takes_tools) {
        return TERN_OK;
    }
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = tern_text_printf(&text, "<tool_response>\n");
    if (status == TERN_OK && writer->content.length > 0) {
        status = tern_text_append(&text, writer->content.data, writer->content.length);
    }
    if (status == TERN_OK) {
        status = tern_text_printf(&text, "\n</tool_response>");
    }
    tern_text_fini(&writer->content);
    writer->content = text;
    *role = "user";
    return status;
}

static tern_status add_message(struct writer *writer,
                               const struct tern_api_object *message,
                               struct tern_text *list)
{
    const char *role = "";
    if (tern_json_kind_of(message->json) != TERN_JSON_OBJECT) {
        return tern_api_wrong(message, "", message->json, "an object");
    }
    TERN_RETURN_IF_ERR(read_role(message, &role));
    bool is_assistant = strcmp(role, "assistant") == 0;
    const struct tern_json *label;
    TERN_RETURN_IF_ERR(tern_api_member(message, "name", TERN_JSON_STRING, &label));
    TERN_RETURN_IF_ERR(tern_api_member(message, "tool_call_id", TERN_JSON_STRING, &label));
    TERN_RETURN_IF_ERR(tern_api_member(message, "tool_calls", TERN_JSON_ARRAY, &writer->calls));
    TERN_RETURN_IF_ERR(read_content(writer, message, is_assistant));
    list->length = 0;
    if (is_assistant) {
        TERN_RETURN_IF_ERR(add_calls(writer, message, list));
    }
    TERN_RETURN_IF_ERR(report_answer(writer, &role));
    TERN_RETURN_IF_ERR(describe_first(writer, role));
    TERN_RETURN_IF_ERR(begin_message(writer->out, role));
    TERN_RETURN_IF_ERR(tern_json_quote(writer->out, writer->content.data, writer->content.length));
    if (list->length > 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(writer->out, ",\"tool_calls\":["));
        TERN_RETURN_IF_ERR(tern_text_append(writer->out, list->data, list->length));
        TERN_RETURN_IF_ERR(tern_text_append(writer->out, "]", 1));
    }
    TERN_RETURN_IF_ERR(tern_json_each(message->json, copy_member, writer->out));
    return tern_text_append(writer->out, "}", 1);
}

tern_status tern_api_messages(const struct tern_api_model *model,
                              const struct tern_api_object *body,
                              const struct tern_json *tools,
                              struct tern_text *out)
{
    const struct tern_json *messages = tern_json_get(body->json, "messages");
    struct tern_text list;
    struct writer writer = {.model = model,
                            .error = body->error,
                            .out = out,
                            .tools = model->takes_tools ? NULL : tools};
    if (tern_json_kind_of(messages) != TERN_JSON_ARRAY || tern_json_count(messages) == 0) {
        return tern_api_wrong(body, "messages", messages, "a list of at least one message");
    }
    tern_text_init(&list);
    tern_text_init(&writer.content);
    tern_status status = tern_text_append(out, "[", 1);
    for (int64_t i = 0; status == TERN_OK && i < tern_json_count(messages); i++) {
        char path[32];
        snprintf(path, sizeof path, "messages[%lld]", (long long)i);
        const struct tern_api_object message = {tern_json_item(messages, i), path, body->error};
        status = add_message(&writer, &message, &list);
    }
    if (status == TERN_OK) {
        status = tern_text_append(out, "]", 1);
    }
    tern_text_fini(&writer.content);
    tern_text_fini(&list);
    return status;
}
