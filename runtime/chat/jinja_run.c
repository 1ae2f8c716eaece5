/* jinja_run.c - a template with variables: budgets, arguments, and the text it gives. */
#include "runtime/base/mem.h"
#include "runtime/chat/jinja_internal.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    DEPTH_MAX = 800, /* of nodes inside each other, macros and loops in them, and values */
    STEPS_MAX = 20 * 1000 * 1000,
    MEMORY_BYTES = 48 << 20,
    VARIABLES_BYTES = 1 << 30
};

/* ---- failing and spending ---- */

static tern_status fail_with(struct jinja_run *run,
                             tern_status status,
                             const char *format,
                             va_list args)
{
    char sentence[TERN_DETAIL_BYTES / 2];
    vsnprintf(sentence, sizeof sentence, format, args);
    return tern_jinja_fail_at(run->jinja, status, run->at, "%s", sentence);
}

tern_status tern_jinja_fail(struct jinja_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tern_status status = fail_with(run, TERN_ERR_INPUT, format, args);
    va_end(args);
    return status;
}

tern_status tern_jinja_unsupported(struct jinja_run *run, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    tern_status status = fail_with(run, TERN_ERR_UNSUPPORTED, format, args);
    va_end(args);
    return status;
}

tern_status tern_jinja_spend(struct jinja_run *run, int64_t steps)
{
    run->steps += steps;
    return run->steps <= run->steps_max
               ? TERN_OK
               : tern_jinja_fail(run, "the template's %lld steps are used up: does it end?",
                                 (long long)run->steps_max);
}

tern_status tern_jinja_enter(struct jinja_run *run)
{
    return ++run->depth <= DEPTH_MAX ? TERN_OK
                                     : tern_jinja_fail(run, "nested more than %d deep", DEPTH_MAX);
}

tern_status tern_jinja_new(struct jinja_run *run, size_t bytes, void *out)
{
    run->objects.limit_bytes = run->memory_bytes - run->characters.used_bytes;
    void *block = tern_jinja_pool_alloc(&run->objects, bytes);
    *(void **)out = block;
    return block != NULL ? TERN_OK
                         : tern_jinja_fail(run, "the template's memory, %zu MiB, is used up",
                                           run->memory_bytes >> 20);
}

tern_status tern_jinja_arguments(struct jinja_run *run,
                                 const char *what,
                                 const struct jinja_call *call,
                                 const char *const *names,
                                 int count,
                                 int required,
                                 struct jinja_value *slots)
{
    if (call->count > count) {
        return tern_jinja_fail(run, "%s: found %lld arguments; expected at most %d", what,
                               (long long)call->count, count);
    }
    unsigned given = 0;
    for (int64_t i = 0; i < call->count; i++) {
        slots[i] = call->items[i];
        given |= 1U << i;
    }
    for (int64_t i = 0; i < call->keyword_count; i++) {
        int slot = 0;
        while (slot < count && strcmp(names[slot], call->names[i]) != 0) {
            slot++;
        }
        if (slot == count || (given >> slot & 1) != 0) {
            return tern_jinja_fail(run, "%s: found argument '%.64s' %s", what, call->names[i],
                                   slot == count ? "that it does not have" : "twice");
        }
        slots[slot] = call->values[i];
        given |= 1U << slot;
    }
    for (int i = 0; i < required; i++) {
        if ((given >> i & 1) == 0) {
            return tern_jinja_fail(run, "%s: expected an argument '%s'", what, names[i]);
        }
    }
    return TERN_OK;
}

/* ---- variables ---- */

static tern_status copy_member(struct jinja_run *run,
                               struct jinja_dict *to,
                               const char *name,
                               struct jinja_value value)
{
    struct jinja_value key;
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, name, strlen(name), &key));
    return tern_jinja_dict_set(run, to, key, value);
}

/* One message: without members that are null; what it says of its reasoning under all names that templates know. */
static tern_status prepare_message(struct jinja_run *run, struct jinja_value *message)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    const struct jinja_dict *from = message->dict;
    const struct jinja_value *reasoning = NULL;
    struct jinja_value to;
    for (int i = 0; i < 3 && reasoning == NULL; i++) {
        reasoning = tern_jinja_dict_find(from, names[i], strlen(names[i]));
        reasoning = reasoning != NULL && reasoning->kind == JINJA_NONE ? NULL : reasoning;
    }
    TERN_RETURN_IF_ERR(tern_jinja_dict(run, JINJA_DICT, from->count + 2, &to));
    if (reasoning != NULL) {
        TERN_RETURN_IF_ERR(copy_member(run, to.dict, "thinking", *reasoning));
    }
    for (int64_t i = 0; i < from->count; i++) {
        if (from->entries[i].value.kind != JINJA_NONE) {
            TERN_RETURN_IF_ERR(
                tern_jinja_dict_set(run, to.dict, from->entries[i].key, from->entries[i].value));
        }
    }
    if (reasoning != NULL) {
        TERN_RETURN_IF_ERR(copy_member(run, to.dict, "reasoning_content", *reasoning));
    }
    *message = to;
    return TERN_OK;
}

/* Adds a text to a message's content, if that is a string. */
static tern_status mark_message(struct jinja_run *run, struct jinja_value message, const char *mark)
{
    struct jinja_value key, content, text;
    bool is_found;
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, "content", 7, &key));
    TERN_RETURN_IF_ERR(tern_jinja_dict_get(run, message.dict, key, &is_found, &content));
    if (content.kind != JINJA_STRING) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, mark, strlen(mark), &text));
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_ADD, content, text, &content));
    return tern_jinja_dict_set(run, message.dict, key, content);
}

static tern_status prepare_messages(struct jinja_run *run,
                                    struct jinja_value messages,
                                    const struct tern_jinja_variable *variable)
{
    int64_t most = variable->item_count;
    if (messages.kind != JINJA_LIST) {
        return tern_fail(TERN_ERR_INPUT, "messages: found a %s; expected a list of objects",
                         tern_jinja_type(messages));
    }
    if (most >= 0 && most < messages.list->count) {
        messages.list->count = most;
    }
    for (int64_t i = 0; i < messages.list->count; i++) {
        if (messages.list->items[i].kind != JINJA_DICT) {
            return tern_fail(TERN_ERR_INPUT, "message %lld: found a %s; expected an object",
                             (long long)i, tern_jinja_type(messages.list->items[i]));
        }
        TERN_RETURN_IF_ERR(prepare_message(run, &messages.list->items[i]));
        if (variable->mark != NULL && variable->mark_item == i) {
            TERN_RETURN_IF_ERR(mark_message(run, messages.list->items[i], variable->mark));
        }
    }
    return TERN_OK;
}

static tern_status variable_value(struct jinja_run *run,
                                  const struct tern_jinja_variable *variable,
                                  struct jinja_value *out)
{
    switch (variable->kind) {
    case TERN_JINJA_BOOL:
        *out = tern_jinja_bool(variable->truth);
        return TERN_OK;
    case TERN_JINJA_STRING:
        return tern_jinja_copy(run, variable->string, strlen(variable->string), out);
    case TERN_JINJA_JSON:
        TERN_RETURN_IF_ERR(tern_jinja_from_json(run, variable->json, out));
        return variable->is_messages ? prepare_messages(run, *out, variable) : TERN_OK;
    default:
        *out = tern_jinja_none();
        return TERN_OK;
    }
}

/* Variables lie in a scope around the template's own: what it sets hides them. Those that it never names are left
 * out. */
static tern_status bind_variables(struct jinja_run *run, const struct tern_jinja_input *input)
{
    struct jinja_scope *scope;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *scope, &scope));
    for (int i = 0; i < input->variable_count; i++) {
        const struct tern_jinja_variable *variable = &input->variables[i];
        const char *name = tern_jinja_find_name(run->jinja, variable->name, strlen(variable->name));
        struct jinja_value value;
        if (name != NULL) {
            TERN_RETURN_IF_ERR(variable_value(run, variable, &value));
            TERN_RETURN_IF_ERR(tern_jinja_bind(run, scope, name, value));
        }
    }
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *scope, &run->scope));
    run->scope->parent = scope;
    return TERN_OK;
}

/* ---- the run ---- */

tern_status tern_jinja_render(const struct tern_jinja *jinja,
                              const struct tern_jinja_input *input,
                              struct tern_jinja_output *out)
{
    struct jinja_run run = {
        .jinja = jinja,
        .memory_bytes = VARIABLES_BYTES,
        .steps_max = input->steps_max > 0 ? input->steps_max : STEPS_MAX,
        .now = input->now >= 0 ? input->now : (int64_t)time(NULL),
        .output = out,
    };
    tern_jinja_output_fini(out);
    run.out = &run.text;
    tern_status status;
    TERN_GOTO_IF_ERR(status, bind_variables(&run, input), end);
    size_t used = run.objects.used_bytes + run.characters.used_bytes;
    run.memory_bytes =
        used + (input->memory_bytes > 0 ? input->memory_bytes : MEMORY_BYTES + 4 * used);
    TERN_GOTO_IF_ERR(status, tern_jinja_exec(&run, jinja->body), end);
    TERN_GOTO_IF_ERR(
        status,
        tern_text_append(&out->text, run.text.data != NULL ? run.text.data : "", run.text.length),
        end);
end:
    tern_jinja_pool_fini(&run.objects);
    tern_jinja_pool_fini(&run.characters);
    return status;
}

void tern_jinja_output_fini(struct tern_jinja_output *out)
{
    tern_text_fini(&out->text);
    tern_free(out->spans);
    *out = (struct tern_jinja_output){0};
}
