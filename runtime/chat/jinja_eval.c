/* jinja_eval.c - expressions: a node of the tree to its value. */
#include "runtime/chat/jinja_internal.h"

#include <string.h>

/* ---- names and literals ---- */

static tern_status eval_name(struct jinja_run *run,
                             const struct jinja_node *node,
                             struct jinja_value *out)
{
    int64_t walked = 0;
    for (const struct jinja_scope *scope = run->scope; scope != NULL; scope = scope->parent) {
        for (const struct jinja_binding *b = scope->bindings; b != NULL; b = b->next) {
            walked++;
            if (b->name == node->name) {
                *out = b->value;
                return tern_jinja_spend(run, walked / 16);
            }
        }
    }
    const struct jinja_function *function = tern_jinja_find_function(node->name);
    *out = function != NULL ? (struct jinja_value){.kind = JINJA_FUNCTION, .function = function}
                            : tern_jinja_undefined(node->name);
    return tern_jinja_spend(run, walked / 16);
}

static int64_t list_length(const struct jinja_node *list)
{
    int64_t count = 0;
    for (; list != NULL; list = list->next) {
        count++;
    }
    return count;
}

static tern_status eval_list(struct jinja_run *run,
                             const struct jinja_node *node,
                             struct jinja_value *out)
{
    enum jinja_kind kind = node->kind == NODE_LIST ? JINJA_LIST : JINJA_TUPLE;
    TERN_RETURN_IF_ERR(tern_jinja_list(run, kind, list_length(node->list), out));
    struct jinja_value *items = out->list->items;
    for (const struct jinja_node *item = node->list; item != NULL; item = item->next) {
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, item, items++));
    }
    return TERN_OK;
}

static tern_status eval_dict(struct jinja_run *run,
                             const struct jinja_node *node,
                             struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_dict(run, JINJA_DICT, list_length(node->list) / 2, out));
    for (const struct jinja_node *item = node->list; item != NULL; item = item->next->next) {
        struct jinja_value key, value;
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, item, &key));
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, item->next, &value));
        TERN_RETURN_IF_ERR(tern_jinja_dict_set(run, out->dict, key, value));
    }
    return TERN_OK;
}

/* ---- logic ---- */

static tern_status eval_condition(struct jinja_run *run,
                                  const struct jinja_node *node,
                                  struct jinja_value *out)
{
    struct jinja_value test;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->b, &test));
    if (tern_jinja_truth(test)) {
        return tern_jinja_eval(run, node->a, out);
    }
    if (node->c != NULL) {
        return tern_jinja_eval(run, node->c, out);
    }
    *out = tern_jinja_undefined("an if without else whose condition is false");
    return TERN_OK;
}

/* `and` and `or` give one of their sides, not a boolean. */
static tern_status eval_logic(struct jinja_run *run,
                              const struct jinja_node *node,
                              struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, out));
    return tern_jinja_truth(*out) == (node->kind == NODE_AND) ? tern_jinja_eval(run, node->b, out)
                                                              : TERN_OK;
}

/* a < b < c: each pair, up to the first that does not hold. */
static tern_status eval_compare(struct jinja_run *run,
                                const struct jinja_node *node,
                                struct jinja_value *out)
{
    struct jinja_value left, right;
    bool holds = true;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, &left));
    for (const struct jinja_node *item = node->list; item != NULL && holds; item = item->next) {
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, item->a, &right));
        run->at = item->at;
        TERN_RETURN_IF_ERR(
            tern_jinja_compare(run, (enum jinja_operator)item->op, left, right, &holds));
        left = right;
    }
    *out = tern_jinja_bool(holds);
    return TERN_OK;
}

static tern_status eval_concat(struct jinja_run *run,
                               const struct jinja_node *node,
                               struct jinja_value *out)
{
    struct jinja_text text = {0};
    int64_t count = list_length(node->list);
    struct jinja_value *values;
    TERN_RETURN_IF_ERR(tern_jinja_new(run, (size_t)count * sizeof *values, &values));
    struct jinja_value *end = values;
    for (const struct jinja_node *item = node->list; item != NULL; item = item->next) {
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, item, end++));
    }
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_write_value(run, &text, values[i]));
    }
    return tern_jinja_finish_text(run, &text, out);
}

/* ---- calls ---- */

tern_status tern_jinja_eval_arguments(struct jinja_run *run,
                                      const struct jinja_node *list,
                                      struct jinja_call *call)
{
    size_t all = (size_t)list_length(list);
    *call = (struct jinja_call){0};
    TERN_RETURN_IF_ERR(tern_jinja_new(run, all * sizeof *call->items, &call->items));
    TERN_RETURN_IF_ERR(tern_jinja_new(run, all * sizeof *call->values, &call->values));
    TERN_RETURN_IF_ERR(tern_jinja_new(run, all * sizeof *call->names, &call->names));
    for (; list != NULL; list = list->next) {
        if (list->kind == NODE_KEYWORD) {
            call->names[call->keyword_count] = list->name;
            TERN_RETURN_IF_ERR(tern_jinja_eval(run, list->a, &call->values[call->keyword_count++]));
        } else {
            TERN_RETURN_IF_ERR(tern_jinja_eval(run, list, &call->items[call->count++]));
        }
    }
    return TERN_OK;
}

static tern_status call_method(struct jinja_run *run,
                               const struct jinja_method *method,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    jinja_builtin builtin = tern_jinja_find_method(method->self, method->name);
    if (builtin == NULL) {
        return tern_jinja_fail(run, "%s has no method '%.64s'", tern_jinja_type(method->self),
                               method->name);
    }
    return builtin(run, method->self, call, out);
}

tern_status tern_jinja_call_value(struct jinja_run *run,
                                  struct jinja_value callee,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    switch (callee.kind) {
    case JINJA_MACRO:
        return tern_jinja_call_macro(run, callee.macro, call, out);
    case JINJA_FUNCTION:
        return callee.function->call(run, tern_jinja_none(), call, out);
    case JINJA_METHOD:
        return call_method(run, callee.method, call, out);
    case JINJA_LOOP:
        if (call->count != 1 || call->keyword_count > 0) {
            return tern_jinja_fail(run, "loop(): expected one argument, what to loop over");
        }
        return tern_jinja_call_loop(run, callee.loop, call->items[0], out);
    case JINJA_UNDEFINED:
        return tern_jinja_fail(run, "'%.64s' is undefined, and is called",
                               callee.missing != NULL ? callee.missing : "a value");
    default:
        return tern_jinja_fail(run, "found a call of a value of type %s; expected a function",
                               tern_jinja_type(callee));
    }
}

static tern_status eval_call(struct jinja_run *run,
                             const struct jinja_node *node,
                             struct jinja_value *out)
{
    struct jinja_value callee;
    struct jinja_call call;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, &callee));
    TERN_RETURN_IF_ERR(tern_jinja_eval_arguments(run, node->list, &call));
    run->at = node->at;
    return tern_jinja_call_value(run, callee, &call, out);
}

tern_status tern_jinja_eval_filters(struct jinja_run *run,
                                    const struct jinja_node *node,
                                    struct jinja_value text,
                                    struct jinja_value *out)
{
    struct jinja_call call;
    struct jinja_value value = text;
    if (node == NULL) {
        *out = text;
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    if (node->kind != NODE_FILTER) {
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, node, out));
        run->depth--;
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_jinja_eval_filters(run, node->a, text, &value));
    TERN_RETURN_IF_ERR(tern_jinja_eval_arguments(run, node->list, &call));
    run->at = node->at;
    TERN_RETURN_IF_ERR(tern_jinja_apply_filter(run, node->name, value, &call, out));
    run->depth--;
    return TERN_OK;
}

static tern_status eval_test(struct jinja_run *run,
                             const struct jinja_node *node,
                             struct jinja_value *out)
{
    struct jinja_value value;
    struct jinja_call call;
    bool holds;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, &value));
    TERN_RETURN_IF_ERR(tern_jinja_eval_arguments(run, node->list, &call));
    run->at = node->at;
    TERN_RETURN_IF_ERR(tern_jinja_apply_test(run, node->name, value, &call, &holds));
    *out = tern_jinja_bool(holds);
    return TERN_OK;
}

/* ---- items and operators ---- */

static tern_status eval_item(struct jinja_run *run,
                             const struct jinja_node *node,
                             struct jinja_value *out)
{
    struct jinja_value a, b;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, &a));
    if (node->b->kind != NODE_SLICE) {
        TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->b, &b));
        run->at = node->at;
        return tern_jinja_item(run, a, b, out);
    }
    const struct jinja_node *const parts[3] = {node->b->a, node->b->b, node->b->c};
    struct jinja_value bounds[3];
    for (int i = 0; i < 3; i++) {
        bounds[i] = tern_jinja_none();
        if (parts[i] != NULL) {
            TERN_RETURN_IF_ERR(tern_jinja_eval(run, parts[i], &bounds[i]));
        }
    }
    run->at = node->at;
    return tern_jinja_slice(run, a, bounds, out);
}

static tern_status eval_binary(struct jinja_run *run,
                               const struct jinja_node *node,
                               struct jinja_value *out)
{
    struct jinja_value a, b;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, &a));
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->b, &b));
    run->at = node->at;
    return tern_jinja_binary(run, (enum jinja_operator)node->op, a, b, out);
}

/* not, - and +. */
static tern_status eval_unary(struct jinja_run *run,
                              const struct jinja_node *node,
                              struct jinja_value *out)
{
    struct jinja_value a;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, &a));
    run->at = node->at;
    if (node->kind == NODE_NOT) {
        *out = tern_jinja_bool(!tern_jinja_truth(a));
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_jinja_negate(run, a, out));
    return node->kind == NODE_NEGATIVE ? TERN_OK : tern_jinja_negate(run, *out, out);
}

static tern_status eval_attribute(struct jinja_run *run,
                                  const struct jinja_node *node,
                                  struct jinja_value *out)
{
    struct jinja_value a;
    TERN_RETURN_IF_ERR(tern_jinja_eval(run, node->a, &a));
    run->at = node->at;
    return tern_jinja_attribute(run, a, node->name, out);
}

static tern_status eval_by_kind(struct jinja_run *run,
                                const struct jinja_node *node,
                                struct jinja_value *out)
{
    switch (node->kind) {
    case NODE_CONST:
        *out = node->value;
        return TERN_OK;
    case NODE_NAME:
        return eval_name(run, node, out);
    case NODE_LIST:
    case NODE_TUPLE:
        return eval_list(run, node, out);
    case NODE_DICT:
        return eval_dict(run, node, out);
    case NODE_CONDITION:
        return eval_condition(run, node, out);
    case NODE_OR:
    case NODE_AND:
        return eval_logic(run, node, out);
    case NODE_COMPARE:
        return eval_compare(run, node, out);
    case NODE_BINARY:
        return eval_binary(run, node, out);
    case NODE_CONCAT:
        return eval_concat(run, node, out);
    case NODE_NOT:
    case NODE_NEGATIVE:
    case NODE_POSITIVE:
        return eval_unary(run, node, out);
    case NODE_FILTER:
        return tern_jinja_eval_filters(run, node, tern_jinja_none(), out);
    case NODE_TEST:
        return eval_test(run, node, out);
    case NODE_ATTRIBUTE:
        return eval_attribute(run, node, out);
    case NODE_ITEM:
        return eval_item(run, node, out);
    case NODE_CALL:
        return eval_call(run, node, out);
    default:
        return tern_jinja_unsupported(run, "a slice inside of [,] is not supported");
    }
}

tern_status tern_jinja_eval(struct jinja_run *run,
                            const struct jinja_node *node,
                            struct jinja_value *out)
{
    run->at = node->at;
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1));
    TERN_RETURN_IF_ERR(eval_by_kind(run, node, out));
    run->depth--;
    return TERN_OK;
}
