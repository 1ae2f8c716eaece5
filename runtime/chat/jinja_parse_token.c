/* jinja_parse_token.c - what all of the parser does with the current token: look, pass, refuse, and make a node of it. */
#include "runtime/chat/jinja_parser.h"

#include <string.h>

enum {
    DEPTH_MAX = 200
};

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

bool tern_jinja_at_name(const struct jinja_parser *parser, const char *name)
{
    return tern_jinja_at(parser, TOKEN_NAME, name);
}

bool tern_jinja_at_operator(const struct jinja_parser *parser, const char *text)
{
    return tern_jinja_at(parser, TOKEN_OPERATOR, text);
}

bool tern_jinja_skip_operator(struct jinja_parser *parser, const char *text)
{
    return tern_jinja_skip(parser, TOKEN_OPERATOR, text);
}

tern_status tern_jinja_expect_operator(struct jinja_parser *parser, const char *text)
{
    return tern_jinja_expect(parser, TOKEN_OPERATOR, text);
}

tern_status tern_jinja_node_with(struct jinja_parser *parser,
                                 enum jinja_node_kind kind,
                                 struct jinja_node *a,
                                 struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, kind, out));
    (*out)->a = a;
    return TERN_OK;
}
