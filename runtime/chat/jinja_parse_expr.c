/* jinja_parse_expr.c - expressions, with Jinja's precedences: from "a if b else c" down to the operands. */
#include "runtime/chat/jinja_parser.h"

#include <string.h>

/* ---- operators, the tightest first ---- */

static tern_status parse_unary(struct jinja_parser *parser,
                               bool with_filters,
                               struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_deeper(parser));
    if (tern_jinja_at_operator(parser, "-") || tern_jinja_at_operator(parser, "+")) {
        enum jinja_node_kind kind =
            tern_jinja_at_operator(parser, "-") ? NODE_NEGATIVE : NODE_POSITIVE;
        TERN_RETURN_IF_ERR(tern_jinja_node(parser, kind, out));
        parser->token++;
        TERN_RETURN_IF_ERR(parse_unary(parser, false, &(*out)->a));
    } else {
        TERN_RETURN_IF_ERR(tern_jinja_parse_primary(parser, out));
    }
    TERN_RETURN_IF_ERR(tern_jinja_parse_postfix(parser, out));
    parser->depth--;
    return with_filters ? tern_jinja_parse_filters_and_tests(parser, out) : TERN_OK;
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
        if (tern_jinja_at_operator(parser, g_levels[level].operators[i])) {
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
            TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_BINARY, *out, out));
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
        if (tern_jinja_skip_operator(parser, texts[i])) {
            return OP_EQUAL + i;
        }
    }
    if (tern_jinja_skip(parser, TOKEN_NAME, "in")) {
        return OP_IN;
    }
    if (tern_jinja_at_name(parser, "not") && parser->token[1].kind == TOKEN_NAME &&
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
            TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_COMPARE, *out, out));
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
    if (!tern_jinja_at_name(parser, "not")) {
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
    while (tern_jinja_at_name(parser, "and")) {
        TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_AND, *out, out));
        parser->token++;
        TERN_RETURN_IF_ERR(parse_not(parser, &(*out)->b));
    }
    return TERN_OK;
}

static tern_status parse_or(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(parse_and(parser, out));
    while (tern_jinja_at_name(parser, "or")) {
        TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_OR, *out, out));
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
    while (with_condition && tern_jinja_at_name(parser, "if")) {
        TERN_RETURN_IF_ERR(tern_jinja_node_with(parser, NODE_CONDITION, *out, out));
        parser->token++;
        TERN_RETURN_IF_ERR(parse_or(parser, &(*out)->b));
        if (tern_jinja_skip(parser, TOKEN_NAME, "else")) {
            TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &(*out)->c));
        }
    }
    parser->depth--;
    return TERN_OK;
}

/* ---- tuples ---- */

static bool at_tuple_end(const struct jinja_parser *parser, const char *end)
{
    return parser->token->kind == TOKEN_VARIABLE_END || parser->token->kind == TOKEN_BLOCK_END ||
           tern_jinja_at_operator(parser, ")") || (end != NULL && tern_jinja_at_name(parser, end));
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
        if (!tern_jinja_at_operator(parser, ",")) {
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
