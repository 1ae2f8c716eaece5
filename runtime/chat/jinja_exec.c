/* jinja_exec.c - statements: what a template writes and assigns. */
#include "runtime/base/check.h"
#include "runtime/base/mem.h"
#include "runtime/chat/jinja_internal.h"

#include <string.h>

/* ---- scopes ---- */

tern_status tern_jinja_bind(struct jinja_run *run,
                            struct jinja_scope *scope,
                            const char *name,
                            struct jinja_value value)
{
    struct jinja_binding *binding = scope->bindings;
    int64_t walked = 0;
    for (; binding != NULL && binding->name != name; binding = binding->next) {
        walked++;
    }
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, walked / 16));
    if (binding == NULL) {
        TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *binding, &binding));
        *binding = (struct jinja_binding){.next = scope->bindings, .name = name};
        scope->bindings = binding;
    }
    binding->value = value;
    return TERN_OK;
}

static tern_status new_scope(struct jinja_run *run, struct jinja_scope *parent)
{
    struct jinja_scope *scope;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *scope, &scope));
    scope->parent = parent;
    run->scope = scope;
    return TERN_OK;
}

/* What changes while a body of its own runs, to be put back. */
struct frame {
    struct jinja_scope *scope;
    struct jinja_text *out;
};

static struct frame frame_of(const struct jinja_run *run)
{
    return (struct frame){run->scope, run->out};
}

static void restore(struct jinja_run *run, struct frame frame)
{
    run->scope = frame.scope;
    run->out = frame.out;
}

/* ---- assignment ---- */

static tern_status set_attribute(struct jinja_run *run,
                                 const struct jinja_node *target,
                                 struct jinja_value value)
{
    const char *attribute = target->value.missing;
    struct jinja_node name = {.kind = NODE_NAME, .at = target->at, .name = target->name};
    struct jinja_value space, key;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, &name, &space));
    if (space.kind != JINJA_NAMESPACE) {
        return tern_jinja_fail(
            run, "found '%.64s' of type %s; expected a namespace to assign '%.64s' in",
            target->name, tern_jinja_type(space), attribute);
    }
    if (attribute[0] == '_') {
        return tern_jinja_fail(
            run, "found '%.64s'; expected an attribute without an underscore before it", attribute);
    }
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, attribute, strlen(attribute), &key));
    return tern_jinja_dict_set(run, space.dict, key, value);
}

/* A name, a namespace's attribute, or a tuple of them: as many as the value has items. */
static tern_status assign(struct jinja_run *run,
                          const struct jinja_node *target,
                          struct jinja_value value)
{
    run->at = target->at;
    if (target->kind == NODE_NAME) {
        return tern_jinja_bind(run, run->scope, target->name, value);
    }
    if (target->kind == NODE_NAMESPACE_ATTRIBUTE) {
        return set_attribute(run, target, value);
    }
    struct jinja_value *items;
    int64_t count, wanted = 0;
    if (value.kind == JINJA_UNDEFINED) {
        return tern_jinja_fail(run, "found an undefined value to unpack");
    }
    TERN_RETURN_IF_ERR(tern_jinja_items(run, value, &items, &count));
    for (const struct jinja_node *item = target->list; item != NULL; item = item->next) {
        wanted++;
    }
    if (count != wanted) {
        return tern_jinja_fail(run, "found %lld values to unpack; expected %lld", (long long)count,
                               (long long)wanted);
    }
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    for (const struct jinja_node *item = target->list; item != NULL; item = item->next) {
        TERN_RETURN_IF_ERR(assign(run, item, *items++));
    }
    run->depth--;
    return TERN_OK;
}

/* ---- bodies that are caught ---- */

/* The body's text as a string; the caller has made a scope if it needs one. */
static tern_status capture(struct jinja_run *run,
                           const struct jinja_node *body,
                           struct jinja_value *out)
{
    struct jinja_text text = {0};
    struct frame frame = frame_of(run);
    run->out = &text;
    TERN_RETURN_IF_ERR(tern_jinja_exec(run, body));
    restore(run, frame);
    return tern_jinja_finish_text(run, &text, out);
}

static tern_status capture_in_scope(struct jinja_run *run,
                                    const struct jinja_node *body,
                                    struct jinja_value *out)
{
    struct frame frame = frame_of(run);
    TERN_RETURN_IF_ERR(new_scope(run, run->scope));
    TERN_RETURN_IF_ERR(capture(run, body, out));
    restore(run, frame);
    return TERN_OK;
}

static tern_status write_out(struct jinja_run *run, struct jinja_value value)
{
    return tern_jinja_write_value(run, run->out, value);
}

static tern_status exec_set_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value;
    TERN_RETURN_IF_ERR(capture_in_scope(run, node->body, &value));
    TERN_RETURN_IF_ERR(tern_jinja_eval_filters(run, node->b, value, &value));
    return assign(run, node->a, value);
}

static tern_status exec_filter_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value;
    TERN_RETURN_IF_ERR(capture_in_scope(run, node->body, &value));
    TERN_RETURN_IF_ERR(tern_jinja_eval_filters(run, node->a, value, &value));
    return write_out(run, value);
}

static tern_status exec_with(struct jinja_run *run, const struct jinja_node *node)
{
    struct frame frame = frame_of(run);
    struct jinja_scope *inner;
    TERN_RETURN_IF_ERR(new_scope(run, run->scope));
    inner = run->scope;
    for (const struct jinja_node *set = node->list; set != NULL; set = set->next) {
        struct jinja_value value;
        run->scope = frame.scope; /* values do not see each other */
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, set->b, &value));
        run->scope = inner;
        TERN_RETURN_IF_ERR(assign(run, set->a, value));
    }
    run->scope = inner;
    TERN_RETURN_IF_ERR(tern_jinja_exec(run, node->body));
    restore(run, frame);
    return TERN_OK;
}

/* The text goes where it is; outermost, its place is noted. */
static tern_status exec_generation(struct jinja_run *run, const struct jinja_node *node)
{
    struct frame frame = frame_of(run);
    struct tern_jinja_output *output = run->output;
    size_t start = run->text.length;
    TERN_RETURN_IF_ERR(new_scope(run, run->scope));
    TERN_RETURN_IF_ERR(tern_jinja_exec(run, node->body));
    restore(run, frame);
    if (run->out != &run->text) {
        return tern_jinja_unsupported(
            run, "{%% generation %%} inside of a macro or of text that is kept is not supported");
    }
    if (output->span_count == run->span_capacity) {
        int64_t capacity = run->span_capacity * 2 + 16;
        struct tern_jinja_span *grown =
            tern_realloc("chat template", output->spans, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "cannot allocate %lld spans", (long long)capacity);
        }
        output->spans = grown;
        run->span_capacity = capacity;
    }
    output->spans[output->span_count++] = (struct tern_jinja_span){start, run->text.length};
    return TERN_OK;
}

/* ---- macros ---- */

static tern_status define_macro(struct jinja_run *run,
                                const struct jinja_node *node,
                                struct jinja_value *out)
{
    struct jinja_macro *macro;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *macro, &macro));
    *macro = (struct jinja_macro){.node = node, .scope = run->scope};
    *out = (struct jinja_value){.kind = JINJA_MACRO, .macro = macro};
    return TERN_OK;
}

/* The value that a call gives a parameter; *found_out false: none. */
static struct jinja_value argument_of(const struct jinja_call *call,
                                      const char *name,
                                      int64_t position,
                                      bool *found_out)
{
    *found_out = true;
    if (position < call->count) {
        return call->items[position];
    }
    for (int64_t i = 0; i < call->keyword_count; i++) {
        if (call->names[i] == name) {
            return call->values[i];
        }
    }
    *found_out = false;
    return tern_jinja_undefined(name);
}

/* A keyword that is no parameter: `caller` goes to the body, another one is an error. */
static tern_status bind_keywords(struct jinja_run *run,
                                 const struct jinja_node *node,
                                 const struct jinja_call *call)
{
    for (int64_t i = 0; i < call->keyword_count; i++) {
        int64_t position = 0;
        const struct jinja_node *parameter = node->list;
        for (; parameter != NULL && parameter->name != call->names[i]; position++) {
            parameter = parameter->next;
        }
        if (parameter == NULL && node->takes_caller && strcmp(call->names[i], "caller") == 0) {
            TERN_RETURN_IF_ERR(tern_jinja_bind(run, run->scope, call->names[i], call->values[i]));
        } else if (parameter == NULL || position < call->count) {
            return tern_jinja_fail(run, "macro '%.64s': found argument '%.64s' %s", node->name,
                                   call->names[i],
                                   parameter == NULL ? "that it does not have" : "twice");
        }
    }
    return TERN_OK;
}

static tern_status bind_parameters(struct jinja_run *run,
                                   const struct jinja_node *node,
                                   const struct jinja_call *call)
{
    int64_t position = 0;
    for (const struct jinja_node *p = node->list; p != NULL; p = p->next) {
        bool is_given;
        struct jinja_value value = argument_of(call, p->name, position++, &is_given);
        if (!is_given && p->a != NULL) {
            TERN_RETURN_IF_ERR(tern_jinja_eval(run, p->a, &value)); /* sees those before it */
        }
        TERN_RETURN_IF_ERR(tern_jinja_bind(run, run->scope, p->name, value));
    }
    if (call->count > position) {
        return tern_jinja_fail(run, "macro '%.64s': found %lld arguments; expected at most %lld",
                               node->name, (long long)call->count, (long long)position);
    }
    return bind_keywords(run, node, call);
}

tern_status tern_jinja_call_macro(struct jinja_run *run,
                                  const struct jinja_macro *macro,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    struct frame frame = frame_of(run);
    size_t at = run->at;
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    TERN_RETURN_IF_ERR(new_scope(run, macro->scope));
    TERN_RETURN_IF_ERR(bind_parameters(run, macro->node, call));
    TERN_RETURN_IF_ERR(capture(run, macro->node->body, out));
    restore(run, frame);
    run->depth--;
    run->at = at;
    return TERN_OK;
}

static tern_status exec_macro(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value macro;
    TERN_RETURN_IF_ERR(define_macro(run, node, &macro));
    return tern_jinja_bind(run, run->scope, node->name, macro);
}

/* {% call f(...) %}body{% endcall %}: f with one more argument, caller, which writes the body. */
static tern_status exec_call_block(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value callee, value;
    struct jinja_call call;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a->a, &callee));
    TERN_RETURN_IF_ERR(tern_jinja_eval_arguments(run, node->a->list, &call));
    struct jinja_call more = {.items = call.items, .count = call.count};
    size_t keywords = (size_t)call.keyword_count + 1;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, keywords * sizeof *more.names, &more.names));
    TERN_RETURN_IF_ERR(tern_jinja_new(run, keywords * sizeof *more.values, &more.values));
    for (int64_t i = 0; i < call.keyword_count; i++) {
        more.names[i] = call.names[i];
        more.values[i] = call.values[i];
    }
    more.keyword_count = call.keyword_count + 1;
    more.names[call.keyword_count] = node->name;
    TERN_RETURN_IF_ERR(define_macro(run, node, &more.values[call.keyword_count]));
    run->at = node->at;
    TERN_RETURN_IF_ERR(tern_jinja_call_value(run, callee, &more, &value));
    return write_out(run, value);
}

/* ---- loops ---- */

/* The items for which the loop's condition holds. */
static tern_status select_items(struct jinja_run *run,
                                const struct jinja_node *node,
                                struct jinja_loop *loop)
{
    struct frame frame = frame_of(run);
    struct jinja_value *kept;
    int64_t count = 0;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, (size_t)loop->count * sizeof *kept, &kept));
    for (int64_t i = 0; i < loop->count; i++) {
        struct jinja_value holds;
        TERN_RETURN_IF_ERR(new_scope(run, frame.scope));
        TERN_RETURN_IF_ERR(assign(run, node->a, loop->items[i]));
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->c, &holds));
        if (tern_jinja_truth(holds)) {
            kept[count++] = loop->items[i];
        }
    }
    restore(run, frame);
    loop->items = kept;
    loop->count = count;
    return TERN_OK;
}

static tern_status loop_over(struct jinja_run *run,
                             const struct jinja_node *node,
                             struct jinja_value over,
                             int depth)
{
    struct frame frame = frame_of(run);
    struct jinja_loop *loop;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, sizeof *loop, &loop));
    loop->node = node;
    loop->depth = depth;
    loop->scope = run->scope;
    TERN_RETURN_IF_ERR(tern_jinja_items(run, over, &loop->items, &loop->count));
    if (node->c != NULL) {
        TERN_RETURN_IF_ERR(select_items(run, node, loop));
    }
    if (loop->count == 0 && node->other != NULL) {
        TERN_RETURN_IF_ERR(new_scope(run, frame.scope));
        TERN_RETURN_IF_ERR(tern_jinja_exec(run, node->other));
    }
    struct jinja_value self = {.kind = JINJA_LOOP, .loop = loop};
    for (loop->index = 0; loop->index < loop->count; loop->index++) {
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(new_scope(run, frame.scope));
        TERN_RETURN_IF_ERR(tern_jinja_bind(run, run->scope, run->jinja->loop_name, self));
        TERN_RETURN_IF_ERR(assign(run, node->a, loop->items[loop->index]));
        TERN_RETURN_IF_ERR(tern_jinja_exec(run, node->body));
        bool is_over = run->flow == FLOW_BREAK;
        run->flow = FLOW_ON;
        if (is_over) {
            break;
        }
    }
    restore(run, frame);
    return TERN_OK;
}

static tern_status exec_for(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value over;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->b, &over));
    run->at = node->b->at;
    return loop_over(run, node, over, 0);
}

tern_status tern_jinja_call_loop(struct jinja_run *run,
                                 const struct jinja_loop *loop,
                                 struct jinja_value over,
                                 struct jinja_value *out)
{
    if (!loop->node->is_recursive) {
        return tern_jinja_fail(run, "loop() in a loop that is not marked recursive");
    }
    struct frame frame = frame_of(run);
    struct jinja_text text = {0};
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    run->scope = loop->scope;
    run->out = &text;
    TERN_RETURN_IF_ERR(loop_over(run, loop->node, over, loop->depth + 1));
    restore(run, frame);
    run->depth--;
    return tern_jinja_finish_text(run, &text, out);
}

/* ---- the rest ---- */

static tern_status exec_if(struct jinja_run *run, const struct jinja_node *node)
{
    for (const struct jinja_node *branch = node->list; branch != NULL; branch = branch->next) {
        struct jinja_value holds = tern_jinja_bool(true);
        if (branch->a != NULL) {
            TERN_RETURN_IF_ERR(tern_jinja_eval(run, branch->a, &holds));
        }
        if (tern_jinja_truth(holds)) {
            return tern_jinja_exec(run, branch->body);
        }
    }
    return TERN_OK;
}

static tern_status exec_set(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->b, &value));
    return assign(run, node->a, value);
}

static tern_status exec_output(struct jinja_run *run, const struct jinja_node *node)
{
    struct jinja_value value;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, &value));
    run->at = node->at;
    return write_out(run, value);
}

static tern_status exec_one(struct jinja_run *run, const struct jinja_node *node)
{
    run->at = node->at;
    switch (node->kind) {
    case NODE_TEXT:
        return write_out(run, node->value);
    case NODE_OUTPUT:
        return exec_output(run, node);
    case NODE_IF:
        return exec_if(run, node);
    case NODE_FOR:
        return exec_for(run, node);
    case NODE_SET:
        return exec_set(run, node);
    case NODE_SET_BLOCK:
        return exec_set_block(run, node);
    case NODE_MACRO:
        return exec_macro(run, node);
    case NODE_CALL_BLOCK:
        return exec_call_block(run, node);
    case NODE_FILTER_BLOCK:
        return exec_filter_block(run, node);
    case NODE_WITH:
        return exec_with(run, node);
    case NODE_GENERATION:
        return exec_generation(run, node);
    case NODE_BREAK:
        run->flow = FLOW_BREAK;
        return TERN_OK;
    default:
        TERN_CHECK(node->kind == NODE_CONTINUE);
        run->flow = FLOW_CONTINUE;
        return TERN_OK;
    }
}

tern_status tern_jinja_exec(struct jinja_run *run, const struct jinja_node *body)
{
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    for (; body != NULL && run->flow == FLOW_ON; body = body->next) {
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
        TERN_RETURN_IF_ERR(exec_one(run, body));
    }
    run->depth--;
    return TERN_OK;
}
