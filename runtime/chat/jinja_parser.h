/* jinja_parser.h - the parser's files to each other: statements (jinja_parse.c), expressions (jinja_parse_expr.c), operands
 * (jinja_parse_operand.c), tokens (jinja_parse_token.c). */
#ifndef TERN_RUNTIME_CHAT_JINJA_PARSER_H
#define TERN_RUNTIME_CHAT_JINJA_PARSER_H

#include "runtime/chat/jinja_internal.h"

struct jinja_parser {
    struct tern_jinja *jinja;
    const struct jinja_token *token; /* the current one */
    int depth;
    int loops;         /* open for blocks: where break and continue may stand */
    bool names_caller; /* the macro that is open has named `caller` */
};

/* ---- expressions ---- */

TERN_MUST_CHECK tern_status tern_jinja_parse_expression(struct jinja_parser *parser,
                                                        bool with_condition,
                                                        struct jinja_node **out);
/* Expressions separated by commas: a tuple, or the one; it ends before `end`, a name, if given. */
TERN_MUST_CHECK tern_status tern_jinja_parse_tuple(struct jinja_parser *parser,
                                                   bool with_condition,
                                                   const char *end,
                                                   bool may_be_empty,
                                                   struct jinja_node **out);

/* ---- operands ---- */

/* A name, a literal, a list, a dict, or an expression in parentheses. */
TERN_MUST_CHECK tern_status tern_jinja_parse_primary(struct jinja_parser *parser,
                                                     struct jinja_node **out);
/* The attributes, subscripts and calls that follow *node, which becomes the last of them. */
TERN_MUST_CHECK tern_status tern_jinja_parse_postfix(struct jinja_parser *parser,
                                                     struct jinja_node **node);
/* The same of filters and tests. */
TERN_MUST_CHECK tern_status tern_jinja_parse_filters_and_tests(struct jinja_parser *parser,
                                                               struct jinja_node **node);
/* What = or `for` assigns to: names and tuples of them; namespace attributes with may_be_attribute. */
TERN_MUST_CHECK tern_status tern_jinja_parse_target(struct jinja_parser *parser,
                                                    bool may_be_tuple,
                                                    bool may_be_attribute,
                                                    struct jinja_node **out);
/* "name(arguments) | name ..." on a (NULL: a block's text). */
TERN_MUST_CHECK tern_status tern_jinja_parse_filters(struct jinja_parser *parser,
                                                     struct jinja_node *a,
                                                     bool is_inline,
                                                     struct jinja_node **out);

/* ---- tokens ---- */

/* A node at the current token. */
TERN_MUST_CHECK tern_status tern_jinja_node(struct jinja_parser *parser,
                                            enum jinja_node_kind kind,
                                            struct jinja_node **out);
/* The node of an operator that stands at the current token, with its left side. */
TERN_MUST_CHECK tern_status tern_jinja_node_with(struct jinja_parser *parser,
                                                 enum jinja_node_kind kind,
                                                 struct jinja_node *a,
                                                 struct jinja_node **out);
/* Whether the current token is that name or operator; with _skip it is passed. */
bool tern_jinja_at(const struct jinja_parser *parser, enum jinja_token_kind kind, const char *text);
bool tern_jinja_skip(struct jinja_parser *parser, enum jinja_token_kind kind, const char *text);
TERN_MUST_CHECK tern_status tern_jinja_expect(struct jinja_parser *parser,
                                              enum jinja_token_kind kind,
                                              const char *text);
bool tern_jinja_at_name(const struct jinja_parser *parser, const char *name);
bool tern_jinja_at_operator(const struct jinja_parser *parser, const char *text);
bool tern_jinja_skip_operator(struct jinja_parser *parser, const char *text);
TERN_MUST_CHECK tern_status tern_jinja_expect_operator(struct jinja_parser *parser,
                                                       const char *text);
TERN_MUST_CHECK tern_status tern_jinja_expect_name(struct jinja_parser *parser,
                                                   const char **name_out);
tern_status tern_jinja_unexpected(const struct jinja_parser *parser, const char *expected);
/* Deeper by one, until leave; TERN_ERR_INPUT: too deep. */
TERN_MUST_CHECK tern_status tern_jinja_deeper(struct jinja_parser *parser);

#endif
