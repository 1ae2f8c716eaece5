/* jinja_parse_expr.c - expressions, with Jinja's precedences: from "a if b else c" down to names and literals. */
#include "runtime/chat/jinja_internal.h"

#include <string.h>

enum {
    DEPTH_MAX = 200
};

/* ---- tokens ---- */

bool tern_jinja_at(const struct jinja_parser *parser, enum jinja_token_kind kind, const char *text)
{
    const struct jinja_token *token = parser->token;
    return token->kind == kind && (text == NULL || strcmp(token->text, text) == 0);
}

bool tern_jinja_skip(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text)
{
    bool is_there = tern_jinja_at(parser, kind, text);
    parser->token += is_there;
    return is_there;
}

tern_status tern_jinja_unexpected(const struct jinja_parser *parser, const char *expected)
{
    const struct jinja_token *token = parser->token;
    static const char *const kinds[] = {[TOKEN_END] = "the end of the template",
                                        [TOKEN_DATA] = "text",
                                        [TOKEN_VARIABLE_BEGIN] = "{{",
                                        [TOKEN_VARIABLE_END] = "}}",
                                        [TOKEN_BLOCK_BEGIN] = "{%",
                                        [TOKEN_BLOCK_END] = "%}",
                                        [TOKEN_STRING] = "a string",
                                        [TOKEN_INT] = "a number",
                                        [TOKEN_FLOAT] = "a number"};
    bool has_text = token->kind == TOKEN_NAME || token->kind == TOKEN_OPERATOR;
    return tern_jinja_fail_at(parser->jinja, TERN_ERR_INPUT, token->at,
                              "found %s%.64s%s; expected %s", has_text ? "'" : "",
                              has_text ? token->text : kinds[token->kind], has_text ? "'" : "",
                              expected);
}

tern_status tern_jinja_expect(struct jinja_parser *parser,
                              enum jinja_token_kind kind,
                              const char *text)
{
    if (tern_jinja_skip(parser, kind, text)) {
        return TERN_OK;
    }
    const char *expected = kind == TOKEN_BLOCK_END      ? "%}"
                           : kind == TOKEN_VARIABLE_END ? "}}"
                                                        : text;
    return tern_jinja_unexpected(parser, expected);
}

tern_status tern_jinja_expect_name(struct jinja_parser *parser, const char **name_out)
{
    *name_out = parser->token->text;
    if (!tern_jinja_at(parser, TOKEN_NAME, NULL)) {
        return tern_jinja_unexpected(parser, "a name");
    }
    parser->token++;
    return TERN_OK;
}

tern_status tern_jinja_deeper(struct jinja_parser *parser)
{
    if (++parser->depth > DEPTH_MAX) {
        return tern_jinja_fail_at(parser->jinja, TERN_ERR_INPUT, parser->token->at,
                                  "nested more than %d deep", DEPTH_MAX);
    }
    return TERN_OK;
}

tern_status tern_jinja_node(struct jinja_parser *parser,
                            enum jinja_node_kind kind,
                            struct jinja_node **out)
{
    struct jinja_node *node = tern_jinja_pool_alloc(&parser->jinja->pool, sizeof *node);
    *out = node;
    if (node == NULL) {
        return tern_jinja_fail_at(parser->jinja, TERN_ERR_INPUT, parser->token->at,
                                  "the template is too large");
    }
    node->kind = (uint8_t)kind;
    node->at = parser->token->at;
    return TERN_OK;
}

static bool at_name(const struct jinja_parser *parser, const char *name)
{
    return tern_jinja_at(parser, TOKEN_NAME, name);
}

static bool at_operator(const struct jinja_parser *parser, const char *text)
{
    return tern_jinja_at(parser, TOKEN_OPERATOR, text);
}

static bool skip_operator(struct jinja_parser *parser, const char *text)
{
    return tern_jinja_skip(parser, TOKEN_OPERATOR, text);
}

static tern_status expect_operator(struct jinja_parser *parser, const char *text)
{
    return tern_jinja_expect(parser, TOKEN_OPERATOR, text);
}

/* The node of an operator that stands at the current token, with its left side. */
static tern_status node_with(struct jinja_parser *parser,
                             enum jinja_node_kind kind,
                             struct jinja_node *a,
                             struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, kind, out));
    (*out)->a = a;
    return TERN_OK;
}

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
    while (!at_operator(parser, close)) {
        if ((*out)->list != NULL) {
            TERN_RETURN_IF_ERR(expect_operator(parser, ","));
            if (at_operator(parser, close)) {
                break;
            }
        }
        TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, end));
        end = &(*end)->next;
        if (kind == NODE_DICT) {
            TERN_RETURN_IF_ERR(expect_operator(parser, ":"));
            TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, end));
            end = &(*end)->next;
        }
    }
    return expect_operator(parser, close);
}

static tern_status parse_primary(struct jinja_parser *parser, struct jinja_node **out)
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
    if (at_operator(parser, "[")) {
        return parse_items(parser, NODE_LIST, "]", out);
    }
    if (at_operator(parser, "{")) {
        return parse_items(parser, NODE_DICT, "}", out);
    }
    if (skip_operator(parser, "(")) {
        TERN_RETURN_IF_ERR(tern_jinja_parse_tuple(parser, true, NULL, true, out));
        return expect_operator(parser, ")");
    }
    return tern_jinja_unexpected(parser, "an expression");
}

/* ---- what follows a primary ---- */

static tern_status parse_slice_part(struct jinja_parser *parser, struct jinja_node **out)
{
    if (at_operator(parser, ":") || at_operator(parser, "]") || at_operator(parser, ",")) {
        return TERN_OK;
    }
    return tern_jinja_parse_expression(parser, true, out);
}

/* x, or x:y:z with any part left out. */
static tern_status parse_subscript_value(struct jinja_parser *parser, struct jinja_node **out)
{
    struct jinja_node *slice;
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_SLICE, &slice));
    if (!at_operator(parser, ":")) {
        TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &slice->a));
        if (!at_operator(parser, ":")) {
            *out = slice->a;
            return TERN_OK;
        }
    }
    parser->token++;
    TERN_RETURN_IF_ERR(parse_slice_part(parser, &slice->b));
    if (skip_operator(parser, ":")) {
        TERN_RETURN_IF_ERR(parse_slice_part(parser, &slice->c));
    }
    *out = slice;
    return TERN_OK;
}

static tern_status parse_brackets(struct jinja_parser *parser,
                                  struct jinja_node *a,
                                  struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(node_with(parser, NODE_ITEM, a, out));
    parser->token++;
    struct jinja_node *tuple;
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_TUPLE, &tuple));
    struct jinja_node **end = &tuple->list;
    int count = 0;
    while (!at_operator(parser, "]")) {
        if (count++ > 0) {
            TERN_RETURN_IF_ERR(expect_operator(parser, ","));
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
    TERN_RETURN_IF_ERR(node_with(parser, NODE_ATTRIBUTE, a, out));
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
    TERN_RETURN_IF_ERR(expect_operator(parser, "("));
    while (!at_operator(parser, ")")) {
        if (*list != NULL) {
            TERN_RETURN_IF_ERR(expect_operator(parser, ","));
            if (at_operator(parser, ")")) {
                break;
            }
        }
        if (at_operator(parser, "*") || at_operator(parser, "**")) {
            return tern_jinja_fail_at(parser->jinja, TERN_ERR_UNSUPPORTED, parser->token->at,
                                      "'%s' before an argument is not supported",
                                      parser->token->text);
        }
        bool is_named = at_name(parser, NULL) && parser->token[1].kind == TOKEN_OPERATOR &&
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
    return expect_operator(parser, ")");
}

static tern_status parse_call(struct jinja_parser *parser,
                              struct jinja_node *a,
                              struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(node_with(parser, NODE_CALL, a, out));
    return parse_arguments(parser, &(*out)->list);
}

static tern_status parse_postfix(struct jinja_parser *parser, struct jinja_node **node)
{
    for (;;) {
        if (at_operator(parser, ".")) {
            TERN_RETURN_IF_ERR(parse_dot(parser, *node, node));
        } else if (at_operator(parser, "[")) {
            TERN_RETURN_IF_ERR(parse_brackets(parser, *node, node));
        } else if (at_operator(parser, "(")) {
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
    TERN_RETURN_IF_ERR(node_with(parser, NODE_FILTER, a, out));
    TERN_RETURN_IF_ERR(tern_jinja_expect_name(parser, &(*out)->name));
    return at_operator(parser, "(") ? parse_arguments(parser, &(*out)->list) : TERN_OK;
}

tern_status tern_jinja_parse_filters(struct jinja_parser *parser,
                                     struct jinja_node *a,
                                     bool is_inline,
                                     struct jinja_node **out)
{
    *out = a;
    while (is_inline || skip_operator(parser, "|")) {
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
    TERN_RETURN_IF_ERR(node_with(parser, NODE_TEST, a, &test));
    TERN_RETURN_IF_ERR(tern_jinja_expect_name(parser, &test->name));
    enum jinja_token_kind kind = parser->token->kind;
    bool is_value = kind == TOKEN_STRING || kind == TOKEN_INT || kind == TOKEN_FLOAT ||
                    at_operator(parser, "[") || at_operator(parser, "{") ||
                    (kind == TOKEN_NAME && !at_name(parser, "else") && !at_name(parser, "or") &&
                     !at_name(parser, "and"));
    if (at_operator(parser, "(")) {
        TERN_RETURN_IF_ERR(parse_arguments(parser, &test->list));
    } else if (is_value) {
        if (at_name(parser, "is")) {
            return tern_jinja_unexpected(parser, "no second test after the first");
        }
        TERN_RETURN_IF_ERR(parse_primary(parser, &test->list));
        TERN_RETURN_IF_ERR(parse_postfix(parser, &test->list));
    }
    *out = test;
    return is_negated ? node_with(parser, NODE_NOT, test, out) : TERN_OK;
}

static tern_status parse_filters_and_tests(struct jinja_parser *parser, struct jinja_node **node)
{
    for (;;) {
        if (skip_operator(parser, "|")) {
            TERN_RETURN_IF_ERR(parse_filter(parser, *node, node));
        } else if (at_name(parser, "is")) {
            TERN_RETURN_IF_ERR(parse_test(parser, *node, node));
        } else if (at_operator(parser, "(")) {
            TERN_RETURN_IF_ERR(parse_call(parser, *node, node));
        } else {
            return TERN_OK;
        }
    }
}

/* ---- operators, the tightest first ---- */

static tern_status parse_unary(struct jinja_parser *parser,
                               bool with_filters,
                               struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_deeper(parser));
    if (at_operator(parser, "-") || at_operator(parser, "+")) {
        enum jinja_node_kind kind = at_operator(parser, "-") ? NODE_NEGATIVE : NODE_POSITIVE;
        TERN_RETURN_IF_ERR(tern_jinja_node(parser, kind, out));
        parser->token++;
        TERN_RETURN_IF_ERR(parse_unary(parser, false, &(*out)->a));
    } else {
        TERN_RETURN_IF_ERR(parse_primary(parser, out));
    }
    TERN_RETURN_IF_ERR(parse_postfix(parser, out));
    parser->depth--;
    return with_filters ? parse_filters_and_tests(parser, out) : TERN_OK;
}

/* One level of binary operators, all to the left. */
struct level {
    const char *operators[5];
    uint8_t codes[5];
};
static const struct level g_levels[] = {
    {{"+", "-"}, {OP_ADD, OP_SUBTRACT}},
    {{"~"}, {0}},
    {{"*", "/", "//", "%"}, {OP_MULTIPLY, OP_DIVIDE, OP_FLOOR_DIVIDE, OP_MODULO}},
    {{"**"}, {OP_POWER}},
};
enum {
    LEVEL_CONCAT = 1,
    LEVEL_COUNT = 4
};

static int operator_at(const struct jinja_parser *parser, int level)
{
    for (int i = 0; g_levels[level].operators[i] != NULL; i++) {
        if (at_operator(parser, g_levels[level].operators[i])) {
            return i;
        }
    }
    return -1;
}

static tern_status parse_binary(struct jinja_parser *parser, int level, struct jinja_node **out)
{
    if (level == LEVEL_COUNT) {
        return parse_unary(parser, true, out);
    }
    TERN_RETURN_IF_ERR(parse_binary(parser, level + 1, out));
    struct jinja_node **end = NULL;
    for (int op = operator_at(parser, level); op >= 0; op = operator_at(parser, level)) {
        struct jinja_node *right;
        if (level == LEVEL_CONCAT && end == NULL) {
            struct jinja_node *first = *out;
            TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_CONCAT, out));
            (*out)->list = first;
            end = &first->next;
        } else if (level != LEVEL_CONCAT) {
            TERN_RETURN_IF_ERR(node_with(parser, NODE_BINARY, *out, out));
            (*out)->op = g_levels[level].codes[op];
        }
        parser->token++;
        TERN_RETURN_IF_ERR(parse_binary(parser, level + 1, &right));
        if (level == LEVEL_CONCAT) {
            *end = right;
            end = &right->next;
        } else {
            (*out)->b = right;
        }
    }
    return TERN_OK;
}

/* The comparison at the current token, passed; -1: none. */
static int skip_comparison(struct jinja_parser *parser)
{
    static const char *const texts[] = {"==", "!=", "<", "<=", ">", ">="};
    for (int i = 0; i < 6; i++) {
        if (skip_operator(parser, texts[i])) {
            return OP_EQUAL + i;
        }
    }
    if (tern_jinja_skip(parser, TOKEN_NAME, "in")) {
        return OP_IN;
    }
    if (at_name(parser, "not") && parser->token[1].kind == TOKEN_NAME &&
        strcmp(parser->token[1].text, "in") == 0) {
        parser->token += 2;
        return OP_NOT_IN;
    }
    return -1;
}

static tern_status parse_compare(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(parse_binary(parser, 0, out));
    struct jinja_node **end = NULL;
    uint32_t at = parser->token->at;
    for (int op = skip_comparison(parser); op >= 0; op = skip_comparison(parser)) {
        struct jinja_node *operand;
        if (end == NULL) {
            TERN_RETURN_IF_ERR(node_with(parser, NODE_COMPARE, *out, out));
            (*out)->at = at;
            end = &(*out)->list;
        }
        TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_OPERAND, &operand));
        operand->op = (uint8_t)op;
        TERN_RETURN_IF_ERR(parse_binary(parser, 0, &operand->a));
        *end = operand;
        end = &operand->next;
    }
    return TERN_OK;
}

static tern_status parse_not(struct jinja_parser *parser, struct jinja_node **out)
{
    if (!at_name(parser, "not")) {
        return parse_compare(parser, out);
    }
    TERN_RETURN_IF_ERR(tern_jinja_deeper(parser));
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_NOT, out));
    parser->token++;
    TERN_RETURN_IF_ERR(parse_not(parser, &(*out)->a));
    parser->depth--;
    return TERN_OK;
}

static tern_status parse_and(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(parse_not(parser, out));
    while (at_name(parser, "and")) {
        TERN_RETURN_IF_ERR(node_with(parser, NODE_AND, *out, out));
        parser->token++;
        TERN_RETURN_IF_ERR(parse_not(parser, &(*out)->b));
    }
    return TERN_OK;
}

static tern_status parse_or(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(parse_and(parser, out));
    while (at_name(parser, "or")) {
        TERN_RETURN_IF_ERR(node_with(parser, NODE_OR, *out, out));
        parser->token++;
        TERN_RETURN_IF_ERR(parse_and(parser, &(*out)->b));
    }
    return TERN_OK;
}

tern_status tern_jinja_parse_expression(struct jinja_parser *parser,
                                        bool with_condition,
                                        struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_deeper(parser));
    TERN_RETURN_IF_ERR(parse_or(parser, out));
    while (with_condition && at_name(parser, "if")) {
        TERN_RETURN_IF_ERR(node_with(parser, NODE_CONDITION, *out, out));
        parser->token++;
        TERN_RETURN_IF_ERR(parse_or(parser, &(*out)->b));
        if (tern_jinja_skip(parser, TOKEN_NAME, "else")) {
            TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &(*out)->c));
        }
    }
    parser->depth--;
    return TERN_OK;
}

/* ---- tuples and targets ---- */

static bool at_tuple_end(const struct jinja_parser *parser, const char *end)
{
    return parser->token->kind == TOKEN_VARIABLE_END || parser->token->kind == TOKEN_BLOCK_END ||
           at_operator(parser, ")") || (end != NULL && at_name(parser, end));
}

tern_status tern_jinja_parse_tuple(struct jinja_parser *parser,
                                   bool with_condition,
                                   const char *end_name,
                                   bool may_be_empty,
                                   struct jinja_node **out)
{
    struct jinja_node *tuple;
    bool is_tuple = false;
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_TUPLE, &tuple));
    struct jinja_node **end = &tuple->list;
    while (!at_tuple_end(parser, end_name)) {
        TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, with_condition, end));
        end = &(*end)->next;
        if (!at_operator(parser, ",")) {
            break;
        }
        parser->token++;
        is_tuple = true;
    }
    if (!is_tuple && tuple->list == NULL && !may_be_empty) {
        return tern_jinja_unexpected(parser, "an expression");
    }
    *out = is_tuple || tuple->list == NULL ? tuple : tuple->list;
    return TERN_OK;
}

static tern_status parse_one_target(struct jinja_parser *parser,
                                    bool may_be_attribute,
                                    struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_deeper(parser));
    if (skip_operator(parser, "(")) {
        TERN_RETURN_IF_ERR(tern_jinja_parse_target(parser, true, may_be_attribute, out));
        parser->depth--;
        return expect_operator(parser, ")");
    }
    parser->depth--;
    if (!at_name(parser, NULL)) {
        return tern_jinja_unexpected(parser, "a name to assign to");
    }
    TERN_RETURN_IF_ERR(name_or_constant(parser, out));
    if ((*out)->kind == NODE_CONST) {
        parser->token--;
        return tern_jinja_unexpected(parser, "a name to assign to");
    }
    if (may_be_attribute && skip_operator(parser, ".")) {
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
    if (!may_be_tuple || !at_operator(parser, ",")) {
        return TERN_OK;
    }
    struct jinja_node *tuple;
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_TUPLE, &tuple));
    tuple->list = *out;
    struct jinja_node **end = &(*out)->next;
    while (skip_operator(parser, ",")) {
        TERN_RETURN_IF_ERR(parse_one_target(parser, may_be_attribute, end));
        end = &(*end)->next;
    }
    *out = tuple;
    return TERN_OK;
}
