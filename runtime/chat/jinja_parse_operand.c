/* jinja_parse_operand.c - what operators stand between: literals and names with all that follows them, and what can be
 * assigned to. */
#include "runtime/chat/jinja_parser.h"

#include <string.h>

/* ---- literals ---- */

static tern_status constant(struct jinja_parser *parser,
                            struct jinja_value value,
                            struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_CONST, out));
    (*out)->value = value;
    parser->token++;
    return TERN_OK;
}

/* Strings side by side are one. */
static tern_status string_constant(struct jinja_parser *parser, struct jinja_node **out)
{
    struct jinja_pool *pool = &parser->jinja->pool;
    size_t bytes = 0;
    for (const struct jinja_token *token = parser->token; token->kind == TOKEN_STRING; token++) {
        bytes += token->bytes;
    }
    struct jinja_string *string = tern_jinja_pool_alloc(pool, sizeof *string);
    char *data = tern_jinja_pool_alloc(pool, bytes);
    if (string == NULL || data == NULL) {
        return tern_jinja_unexpected(parser, "a template that is not so large");
    }
    *string = (struct jinja_string){.data = data, .bytes = bytes, .characters = SIZE_MAX};
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_CONST, out));
    (*out)->value = (struct jinja_value){.kind = JINJA_STRING, .string = string};
    for (; parser->token->kind == TOKEN_STRING; parser->token++) {
        memcpy(data, parser->token->text, parser->token->bytes);
        data += parser->token->bytes;
    }
    /* counted here: a template is shared by threads, and counting later would write to it */
    tern_jinja_characters(string);
    return TERN_OK;
}

static tern_status name_or_constant(struct jinja_parser *parser, struct jinja_node **out)
{
    const char *name = parser->token->text;
    if (strcmp(name, "true") == 0 || strcmp(name, "True") == 0) {
        return constant(parser, tern_jinja_bool(true), out);
    }
    if (strcmp(name, "false") == 0 || strcmp(name, "False") == 0) {
        return constant(parser, tern_jinja_bool(false), out);
    }
    if (strcmp(name, "none") == 0 || strcmp(name, "None") == 0) {
        return constant(parser, tern_jinja_none(), out);
    }
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_NAME, out));
    (*out)->name = name;
    parser->names_caller = parser->names_caller || strcmp(name, "caller") == 0;
    parser->token++;
    return TERN_OK;
}

/* Expressions up to `close`, separated by commas, one of which may follow the last; with `colon` they are pairs. */
static tern_status parse_items(struct jinja_parser *parser,
                               enum jinja_node_kind kind,
                               const char *close,
                               struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, kind, out));
    parser->token++;
    struct jinja_node **end = &(*out)->list;
    while (!tern_jinja_at_operator(parser, close)) {
        if ((*out)->list != NULL) {
            TERN_RETURN_IF_ERR(tern_jinja_expect_operator(parser, ","));
            if (tern_jinja_at_operator(parser, close)) {
                break;
            }
        }
        TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, end));
        end = &(*end)->next;
        if (kind == NODE_DICT) {
            TERN_RETURN_IF_ERR(tern_jinja_expect_operator(parser, ":"));
            TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, end));
            end = &(*end)->next;
        }
    }
    return tern_jinja_expect_operator(parser, close);
}

tern_status tern_jinja_parse_primary(struct jinja_parser *parser, struct jinja_node **out)
{
    const struct jinja_token *token = parser->token;
    switch (token->kind) {
    case TOKEN_NAME:
        return name_or_constant(parser, out);
    case TOKEN_STRING:
        return string_constant(parser, out);
    case TOKEN_INT:
        return constant(parser, tern_jinja_int(token->integer), out);
    case TOKEN_FLOAT:
        return constant(parser, tern_jinja_float(token->real), out);
    default:
        break;
    }
    if (tern_jinja_at_operator(parser, "[")) {
        return parse_items(parser, NODE_LIST, "]", out);
    }
    if (tern_jinja_at_operator(parser, "{")) {
        return parse_items(parser, NODE_DICT, "}", out);
    }
    if (tern_jinja_skip_operator(parser, "(")) {
        TERN_RETURN_IF_ERR(tern_jinja_parse_tuple(parser, true, NULL, true, out));
        return tern_jinja_expect_operator(parser, ")");
    }
    return tern_jinja_unexpected(parser, "an expression");
}

/* ---- what follows a primary ---- */

static tern_status parse_slice_part(struct jinja_parser *parser, struct jinja_node **out)
{
    if (tern_jinja_at_operator(parser, ":") || tern_jinja_at_operator(parser, "]") ||
        tern_jinja_at_operator(parser, ",")) {
        return TERN_OK;
    }
    return tern_jinja_parse_expression(parser, true, out);
}

/* x, or x:y:z with any part left out. */
static tern_status parse_subscript_value(struct jinja_parser *parser, struct jinja_node **out)
{
    struct jinja_node *slice;
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_SLICE, &slice));
    if (!tern_jinja_at_operator(parser, ":")) {
        TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &slice->a));
        if (!tern_jinja_at_operator(parser, ":")) {
            *out = slice->a;
            return TERN_OK;
        }
    }
    parser->token++;
    TERN_RETURN_IF_ERR(parse_slice_part(parser, &slice->b));
    if (tern_jinja_skip_operator(parser, ":")) {
        TERN_RETURN_IF_ERR(parse_slice_part(parser, &slice->c));
    }
    *out = slice;
    return TERN_OK;
}

static tern_status parse_brackets(struct jinja_parser *parser,
                                  struct jinja_node *a,
                                  struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_ITEM, a, out));
    parser->token++;
    struct jinja_node *tuple;
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_TUPLE, &tuple));
    struct jinja_node **end = &tuple->list;
    int count = 0;
    while (!tern_jinja_at_operator(parser, "]")) {
        if (count++ > 0) {
            TERN_RETURN_IF_ERR(tern_jinja_expect_operator(parser, ","));
        }
        TERN_RETURN_IF_ERR(parse_subscript_value(parser, end));
        end = &(*end)->next;
    }
    parser->token++;
    (*out)->b = count == 1 ? tuple->list : tuple;
    return TERN_OK;
}

static tern_status parse_dot(struct jinja_parser *parser,
                             struct jinja_node *a,
                             struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_ATTRIBUTE, a, out));
    parser->token++;
    if (parser->token->kind == TOKEN_INT) {
        (*out)->kind = NODE_ITEM;
        return constant(parser, tern_jinja_int(parser->token->integer), &(*out)->b);
    }
    return tern_jinja_expect_name(parser, &(*out)->name);
}

/* (a, b, name=c): positional ones first. */
static tern_status parse_arguments(struct jinja_parser *parser, struct jinja_node **list)
{
    struct jinja_node **end = list;
    bool has_names = false;
    TERN_RETURN_IF_ERR(tern_jinja_expect_operator(parser, "("));
    while (!tern_jinja_at_operator(parser, ")")) {
        if (*list != NULL) {
            TERN_RETURN_IF_ERR(tern_jinja_expect_operator(parser, ","));
            if (tern_jinja_at_operator(parser, ")")) {
                break;
            }
        }
        if (tern_jinja_at_operator(parser, "*") || tern_jinja_at_operator(parser, "**")) {
            return tern_jinja_fail_at(parser->jinja, TERN_ERR_UNSUPPORTED, parser->token->at,
                                      "'%s' before an argument is not supported",
                                      parser->token->text);
        }
        bool is_named = tern_jinja_at_name(parser, NULL) &&
                        parser->token[1].kind == TOKEN_OPERATOR &&
                        strcmp(parser->token[1].text, "=") == 0;
        if (!is_named && has_names) {
            return tern_jinja_unexpected(parser, "name=value after the first of them");
        }
        if (is_named) {
            has_names = true;
            TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_KEYWORD, end));
            (*end)->name = parser->token->text;
            parser->token += 2;
            TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &(*end)->a));
        } else {
            TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, end));
        }
        end = &(*end)->next;
    }
    return tern_jinja_expect_operator(parser, ")");
}

static tern_status parse_call(struct jinja_parser *parser,
                              struct jinja_node *a,
                              struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_CALL, a, out));
    return parse_arguments(parser, &(*out)->list);
}

tern_status tern_jinja_parse_postfix(struct jinja_parser *parser, struct jinja_node **node)
{
    for (;;) {
        if (tern_jinja_at_operator(parser, ".")) {
            TERN_RETURN_IF_ERR(parse_dot(parser, *node, node));
        } else if (tern_jinja_at_operator(parser, "[")) {
            TERN_RETURN_IF_ERR(parse_brackets(parser, *node, node));
        } else if (tern_jinja_at_operator(parser, "(")) {
            TERN_RETURN_IF_ERR(parse_call(parser, *node, node));
        } else {
            return TERN_OK;
        }
    }
}

static tern_status parse_filter(struct jinja_parser *parser,
                                struct jinja_node *a,
                                struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_FILTER, a, out));
    TERN_RETURN_IF_ERR(tern_jinja_expect_name(parser, &(*out)->name));
    return tern_jinja_at_operator(parser, "(") ? parse_arguments(parser, &(*out)->list) : TERN_OK;
}

tern_status tern_jinja_parse_filters(struct jinja_parser *parser,
                                     struct jinja_node *a,
                                     bool is_inline,
                                     struct jinja_node **out)
{
    *out = a;
    while (is_inline || tern_jinja_skip_operator(parser, "|")) {
        TERN_RETURN_IF_ERR(parse_filter(parser, *out, out));
        is_inline = false;
    }
    return TERN_OK;
}

/* "is [not] name [argument]". */
static tern_status parse_test(struct jinja_parser *parser,
                              struct jinja_node *a,
                              struct jinja_node **out)
{
    struct jinja_node *test;
    parser->token++;
    bool is_negated = tern_jinja_skip(parser, TOKEN_NAME, "not");
    TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_TEST, a, &test));
    TERN_RETURN_IF_ERR(tern_jinja_expect_name(parser, &test->name));
    enum jinja_token_kind kind = parser->token->kind;
    bool is_value = kind == TOKEN_STRING || kind == TOKEN_INT || kind == TOKEN_FLOAT ||
                    tern_jinja_at_operator(parser, "[") || tern_jinja_at_operator(parser, "{") ||
                    (kind == TOKEN_NAME && !tern_jinja_at_name(parser, "else") &&
                     !tern_jinja_at_name(parser, "or") && !tern_jinja_at_name(parser, "and"));
    if (tern_jinja_at_operator(parser, "(")) {
        TERN_RETURN_IF_ERR(parse_arguments(parser, &test->list));
    } else if (is_value) {
        if (tern_jinja_at_name(parser, "is")) {
            return tern_jinja_unexpected(parser, "no second test after the first");
        }
        TERN_RETURN_IF_ERR(tern_jinja_parse_primary(parser, &test->list));
        TERN_RETURN_IF_ERR(tern_jinja_parse_postfix(parser, &test->list));
    }
    *out = test;
    return is_negated ? tern_jinja_node_with(parser, NODE_NOT, test, out) : TERN_OK;
}

tern_status tern_jinja_parse_filters_and_tests(struct jinja_parser *parser,
                                               struct jinja_node **node)
{
    for (;;) {
        if (tern_jinja_skip_operator(parser, "|")) {
            TERN_RETURN_IF_ERR(parse_filter(parser, *node, node));
        } else if (tern_jinja_at_name(parser, "is")) {
            TERN_RETURN_IF_ERR(parse_test(parser, *node, node));
        } else if (tern_jinja_at_operator(parser, "(")) {
            TERN_RETURN_IF_ERR(parse_call(parser, *node, node));
        } else {
            return TERN_OK;
        }
    }
}

/* ---- targets ---- */

static tern_status parse_one_target(struct jinja_parser *parser,
                                    bool may_be_attribute,
                                    struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_deeper(parser));
    if (tern_jinja_skip_operator(parser, "(")) {
        TERN_RETURN_IF_ERR(tern_jinja_parse_target(parser, true, may_be_attribute, out));
        parser->depth--;
        return tern_jinja_expect_operator(parser, ")");
    }
    parser->depth--;
    if (!tern_jinja_at_name(parser, NULL)) {
        return tern_jinja_unexpected(parser, "a name to assign to");
    }
    TERN_RETURN_IF_ERR(name_or_constant(parser, out));
    if ((*out)->kind == NODE_CONST) {
        parser->token--;
        return tern_jinja_unexpected(parser, "a name to assign to");
    }
    if (may_be_attribute && tern_jinja_skip_operator(parser, ".")) {
        const char *attribute;
        TERN_RETURN_IF_ERR(tern_jinja_expect_name(parser, &attribute));
        (*out)->kind = NODE_NAMESPACE_ATTRIBUTE;
        (*out)->value = tern_jinja_undefined(attribute);
    }
    return TERN_OK;
}

tern_status tern_jinja_parse_target(struct jinja_parser *parser,
                                    bool may_be_tuple,
                                    bool may_be_attribute,
                                    struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(parse_one_target(parser, may_be_attribute, out));
    if (!may_be_tuple || !tern_jinja_at_operator(parser, ",")) {
        return TERN_OK;
    }
    struct jinja_node *tuple;
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_TUPLE, &tuple));
    tuple->list = *out;
    struct jinja_node **end = &(*out)->next;
    while (tern_jinja_skip_operator(parser, ",")) {
        TERN_RETURN_IF_ERR(parse_one_target(parser, may_be_attribute, end));
        end = &(*end)->next;
    }
    *out = tuple;
    return TERN_OK;
}
