/* jinja_parse.c - statements: text, {{ }} and the tags, to a tree. */
#include "runtime/base/mem.h"
#include "runtime/chat/jinja_parser.h"

#include <string.h>

enum {
    TREE_BYTES_MAX = 64 << 20 /* a node is about a hundred bytes, and a byte of source may be one */
};

static size_t bucket_of(const char *text, size_t bytes)
{
    uint32_t hash = 2166136261U;
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ (unsigned char)text[i]) * 16777619U;
    }
    return (hash ^ hash >> 8 ^ hash >> 16) % JINJA_NAME_BUCKETS;
}

const char *tern_jinja_find_name(const struct tern_jinja *jinja, const char *text, size_t bytes)
{
    const struct jinja_name *name = jinja->names[bucket_of(text, bytes)];
    for (; name != NULL; name = name->next) {
        if (strncmp(name->text, text, bytes) == 0 && name->text[bytes] == '\0') {
            return name->text;
        }
    }
    return NULL;
}

const char *tern_jinja_intern(struct tern_jinja *jinja, const char *text, size_t bytes)
{
    const char *known = tern_jinja_find_name(jinja, text, bytes);
    if (known != NULL) {
        return known;
    }
    struct jinja_name **first = &jinja->names[bucket_of(text, bytes)];
    struct jinja_name *name = tern_jinja_pool_alloc(&jinja->pool, sizeof *name + bytes + 1);
    if (name == NULL) {
        return NULL;
    }
    memcpy(name->text, text, bytes);
    name->next = *first;
    *first = name;
    return name->text;
}

static tern_status parse_body(struct jinja_parser *parser,
                              const char *const *ends,
                              struct jinja_node **out);

/* Ends the tag, then its body up to one of `ends` (NULL-terminated), whose name is the current token then. */
static tern_status parse_block(struct jinja_parser *parser,
                               const char *const *ends,
                               struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_BLOCK_END, NULL));
    return parse_body(parser, ends, out);
}

/* The body up to its only end, passed; the tag's %} is left. */
static tern_status parse_block_to(struct jinja_parser *parser,
                                  const char *end,
                                  struct jinja_node **out)
{
    const char *const ends[] = {end, NULL};
    TERN_RETURN_IF_ERR(parse_block(parser, ends, out));
    parser->token++;
    return TERN_OK;
}

static tern_status parse_if(struct jinja_parser *parser, struct jinja_node **out)
{
    static const char *const ends[] = {"elif", "else", "endif", NULL};
    static const char *const last[] = {"endif", NULL};
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_IF, out));
    struct jinja_node **end = &(*out)->list;
    for (bool is_else = false;; end = &(*end)->next) {
        TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_BRANCH, end));
        parser->token++;
        if (!is_else) {
            TERN_RETURN_IF_ERR(tern_jinja_parse_tuple(parser, false, NULL, false, &(*end)->a));
        }
        TERN_RETURN_IF_ERR(parse_block(parser, is_else ? last : ends, &(*end)->body));
        if (tern_jinja_skip(parser, TOKEN_NAME, "endif")) {
            return TERN_OK;
        }
        is_else = tern_jinja_at(parser, TOKEN_NAME, "else");
    }
}

static tern_status parse_for(struct jinja_parser *parser, struct jinja_node **out)
{
    static const char *const ends[] = {"else", "endfor", NULL};
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_FOR, out));
    parser->token++;
    TERN_RETURN_IF_ERR(tern_jinja_parse_target(parser, true, false, &(*out)->a));
    TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_NAME, "in"));
    TERN_RETURN_IF_ERR(tern_jinja_parse_tuple(parser, false, "recursive", false, &(*out)->b));
    if (tern_jinja_skip(parser, TOKEN_NAME, "if")) {
        TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &(*out)->c));
    }
    (*out)->is_recursive = tern_jinja_skip(parser, TOKEN_NAME, "recursive");
    parser->loops++;
    TERN_RETURN_IF_ERR(parse_block(parser, ends, &(*out)->body));
    parser->loops--;
    if (tern_jinja_skip(parser, TOKEN_NAME, "endfor")) {
        return TERN_OK;
    }
    parser->token++;
    return parse_block_to(parser, "endfor", &(*out)->other);
}

static tern_status parse_set(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_SET, out));
    parser->token++;
    TERN_RETURN_IF_ERR(tern_jinja_parse_target(parser, true, true, &(*out)->a));
    if (tern_jinja_skip(parser, TOKEN_OPERATOR, "=")) {
        return tern_jinja_parse_tuple(parser, true, NULL, false, &(*out)->b);
    }
    (*out)->kind = NODE_SET_BLOCK;
    TERN_RETURN_IF_ERR(tern_jinja_parse_filters(parser, NULL, false, &(*out)->b));
    return parse_block_to(parser, "endset", &(*out)->body);
}

/* "(a, b=1)". */
static tern_status parse_parameters(struct jinja_parser *parser, struct jinja_node **list)
{
    struct jinja_node **end = list;
    TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_OPERATOR, "("));
    bool has_default = false;
    while (!tern_jinja_at(parser, TOKEN_OPERATOR, ")")) {
        if (*list != NULL) {
            TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_OPERATOR, ","));
        }
        TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_PARAMETER, end));
        TERN_RETURN_IF_ERR(tern_jinja_expect_name(parser, &(*end)->name));
        if (tern_jinja_skip(parser, TOKEN_OPERATOR, "=")) {
            has_default = true;
            TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &(*end)->a));
        } else if (has_default) {
            return tern_jinja_unexpected(parser, "a default, as the parameter before has one");
        }
        end = &(*end)->next;
    }
    return tern_jinja_expect(parser, TOKEN_OPERATOR, ")");
}

/* Loops around a macro or a call are not its body's. */
static tern_status parse_own_block(struct jinja_parser *parser,
                                   const char *end,
                                   struct jinja_node **out)
{
    int loops = parser->loops;
    parser->loops = 0;
    TERN_RETURN_IF_ERR(parse_block_to(parser, end, out));
    parser->loops = loops;
    return TERN_OK;
}

static tern_status parse_macro(struct jinja_parser *parser, struct jinja_node **out)
{
    bool outer_names_caller = parser->names_caller;
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_MACRO, out));
    parser->token++;
    parser->names_caller = false;
    TERN_RETURN_IF_ERR(tern_jinja_expect_name(parser, &(*out)->name));
    TERN_RETURN_IF_ERR(parse_parameters(parser, &(*out)->list));
    TERN_RETURN_IF_ERR(parse_own_block(parser, "endmacro", &(*out)->body));
    (*out)->takes_caller = parser->names_caller;
    parser->names_caller = outer_names_caller;
    return TERN_OK;
}

static tern_status parse_call_block(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_CALL_BLOCK, out));
    (*out)->name = tern_jinja_intern(parser->jinja, "caller", 6);
    parser->token++;
    if (tern_jinja_at(parser, TOKEN_OPERATOR, "(")) {
        TERN_RETURN_IF_ERR(parse_parameters(parser, &(*out)->list));
    }
    TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &(*out)->a));
    if ((*out)->a->kind != NODE_CALL) {
        return tern_jinja_fail_at(parser->jinja, TERN_ERR_INPUT, (*out)->a->at,
                                  "found {%% call %%} of something else; expected a call");
    }
    return parse_own_block(parser, "endcall", &(*out)->body);
}

static tern_status parse_filter_block(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_FILTER_BLOCK, out));
    parser->token++;
    TERN_RETURN_IF_ERR(tern_jinja_parse_filters(parser, NULL, true, &(*out)->a));
    return parse_block_to(parser, "endfilter", &(*out)->body);
}

static tern_status parse_with(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_WITH, out));
    parser->token++;
    struct jinja_node **end = &(*out)->list;
    while (parser->token->kind != TOKEN_BLOCK_END) {
        if ((*out)->list != NULL) {
            TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_OPERATOR, ","));
        }
        TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_SET, end));
        TERN_RETURN_IF_ERR(tern_jinja_parse_target(parser, false, false, &(*end)->a));
        TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_OPERATOR, "="));
        TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &(*end)->b));
        end = &(*end)->next;
    }
    return parse_block_to(parser, "endwith", &(*out)->body);
}

static tern_status parse_generation(struct jinja_parser *parser, struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_GENERATION, out));
    parser->token++;
    parser->jinja->has_generation = true;
    return parse_own_block(parser, "endgeneration", &(*out)->body);
}

static tern_status parse_break(struct jinja_parser *parser, struct jinja_node **out)
{
    bool is_break = tern_jinja_at(parser, TOKEN_NAME, "break");
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, is_break ? NODE_BREAK : NODE_CONTINUE, out));
    if (parser->loops == 0) {
        return tern_jinja_unexpected(parser, "it inside of a for block only");
    }
    parser->token++;
    return TERN_OK;
}

/* {% print a, b %}: as {{ (a, b) }} without parentheses, one after the other. */
static tern_status parse_print(struct jinja_parser *parser, struct jinja_node **out)
{
    parser->token++;
    while (parser->token->kind != TOKEN_BLOCK_END) {
        TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_OUTPUT, out));
        TERN_RETURN_IF_ERR(tern_jinja_parse_expression(parser, true, &(*out)->a));
        out = &(*out)->next;
        if (parser->token->kind != TOKEN_BLOCK_END) {
            TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_OPERATOR, ","));
        }
    }
    return TERN_OK;
}

/* The tag whose name is the current token; its %} is left. */
static tern_status parse_statement(struct jinja_parser *parser, struct jinja_node **out)
{
    static const struct {
        const char *name;
        tern_status (*parse)(struct jinja_parser *parser, struct jinja_node **out);
    } tags[] = {
        {"if", parse_if},           {"for", parse_for},
        {"set", parse_set},         {"macro", parse_macro},
        {"call", parse_call_block}, {"filter", parse_filter_block},
        {"with", parse_with},       {"generation", parse_generation},
        {"break", parse_break},     {"continue", parse_break},
        {"print", parse_print},
    };
    static const char *const refused[] = {"block",      "extends", "include", "import", "from",
                                          "autoescape", "do",      "trans",   "debug"};
    if (!tern_jinja_at(parser, TOKEN_NAME, NULL)) {
        return tern_jinja_unexpected(parser, "the name of a tag");
    }
    for (size_t i = 0; i < sizeof tags / sizeof tags[0]; i++) {
        if (tern_jinja_at(parser, TOKEN_NAME, tags[i].name)) {
            return tags[i].parse(parser, out);
        }
    }
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
        if (tern_jinja_at(parser, TOKEN_NAME, refused[i])) {
            return tern_jinja_fail_at(parser->jinja, TERN_ERR_UNSUPPORTED, parser->token->at,
                                      "the tag {%% %s %%} is not supported", refused[i]);
        }
    }
    return tern_jinja_unexpected(parser, "a tag that is known here, or the end of an open one");
}

static tern_status add_text(struct jinja_parser *parser, struct jinja_node **out)
{
    struct jinja_string *string = tern_jinja_pool_alloc(&parser->jinja->pool, sizeof *string);
    TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_TEXT, out));
    if (string == NULL) {
        return tern_jinja_unexpected(parser, "a template that is not so large");
    }
    *string = (struct jinja_string){
        .data = parser->token->text, .bytes = parser->token->bytes, .characters = SIZE_MAX};
    (*out)->value = (struct jinja_value){.kind = JINJA_STRING, .string = string};
    parser->token++;
    return TERN_OK;
}

static bool at_one_of(const struct jinja_parser *parser, const char *const *names)
{
    for (; names != NULL && *names != NULL; names++) {
        if (tern_jinja_at(parser, TOKEN_NAME, *names)) {
            return true;
        }
    }
    return false;
}

static tern_status parse_body(struct jinja_parser *parser,
                              const char *const *ends,
                              struct jinja_node **out)
{
    TERN_RETURN_IF_ERR(tern_jinja_deeper(parser));
    for (;;) {
        switch (parser->token->kind) {
        case TOKEN_DATA:
            TERN_RETURN_IF_ERR(add_text(parser, out));
            break;
        case TOKEN_VARIABLE_BEGIN:
            TERN_RETURN_IF_ERR(tern_jinja_node(parser, NODE_OUTPUT, out));
            parser->token++;
            TERN_RETURN_IF_ERR(tern_jinja_parse_tuple(parser, true, NULL, false, &(*out)->a));
            TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_VARIABLE_END, NULL));
            break;
        case TOKEN_BLOCK_BEGIN:
            parser->token++;
            if (at_one_of(parser, ends)) {
                parser->depth--;
                return TERN_OK;
            }
            TERN_RETURN_IF_ERR(parse_statement(parser, out));
            TERN_RETURN_IF_ERR(tern_jinja_expect(parser, TOKEN_BLOCK_END, NULL));
            break;
        default: /* the end */
            if (ends != NULL) {
                return tern_jinja_fail_at(parser->jinja, TERN_ERR_INPUT, parser->token->at,
                                          "found the end of the template; expected {%% %s %%}",
                                          ends[0]);
            }
            parser->depth--;
            return TERN_OK;
        }
        while (*out != NULL) {
            out = &(*out)->next;
        }
    }
}

tern_status tern_jinja_parse(struct tern_jinja *jinja)
{
    struct jinja_token *tokens;
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_lex(jinja, &tokens, &count));
    struct jinja_parser parser = {.jinja = jinja, .token = tokens};
    tern_status status = parse_body(&parser, NULL, &jinja->body);
    tern_free(tokens);
    return status;
}

/* ---- the template ---- */

/* A copy with \r\n and \r made \n, and without a newline at its end. */
static tern_status copy_source(struct tern_jinja *jinja, const char *text, size_t bytes)
{
    jinja->source = tern_alloc("chat template", bytes + 1);
    if (jinja->source == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate %zu bytes", jinja->name, bytes);
    }
    size_t length = 0;
    for (size_t i = 0; i < bytes; i++) {
        char c = text[i];
        if (c == '\r') {
            i += i + 1 < bytes && text[i + 1] == '\n';
            c = '\n';
        }
        jinja->source[length++] = c;
    }
    length -= length > 0 && jinja->source[length - 1] == '\n';
    jinja->source[length] = '\0';
    jinja->source_bytes = length;
    for (size_t at = 0; at < length;) {
        enum tern_utf8 kind;
        size_t size = tern_utf8_next(jinja->source + at, length - at, &kind);
        if (kind != TERN_UTF8_WHOLE) {
            return tern_jinja_fail_at(
                jinja, TERN_ERR_INPUT, at,
                "found a byte 0x%02x that begins no character; expected UTF-8",
                (unsigned)(unsigned char)jinja->source[at]);
        }
        at += size;
    }
    return TERN_OK;
}

tern_status tern_jinja_compile(const char *name,
                               const char *text,
                               size_t bytes,
                               struct tern_jinja **out)
{
    *out = NULL;
    if (bytes > TERN_JINJA_SOURCE_BYTES_MAX) {
        return tern_fail(TERN_ERR_INPUT, "%s: found a template of %zu bytes; expected at most %d",
                         name, bytes, TERN_JINJA_SOURCE_BYTES_MAX);
    }
    struct tern_jinja *jinja = tern_alloc_zero("chat template", 1, sizeof *jinja);
    if (jinja == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate a template", name);
    }
    tern_status status;
    jinja->pool.limit_bytes = TREE_BYTES_MAX;
    jinja->name = tern_strdup("chat template", name);
    if (jinja->name == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate a template", name);
        goto fail;
    }
    jinja->loop_name = tern_jinja_intern(jinja, "loop", 4);
    if (jinja->loop_name == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate a template", name);
        goto fail;
    }
    TERN_GOTO_IF_ERR(status, copy_source(jinja, text, bytes), fail);
    TERN_GOTO_IF_ERR(status, tern_jinja_parse(jinja), fail);
    *out = jinja;
    return TERN_OK;
fail:
    tern_jinja_destroy(jinja);
    return status;
}

void tern_jinja_destroy(struct tern_jinja *jinja)
{
    if (jinja == NULL) {
        return;
    }
    tern_jinja_pool_fini(&jinja->pool);
    tern_free(jinja->source);
    tern_free(jinja->name);
    tern_free(jinja);
}

bool tern_jinja_has_generation(const struct tern_jinja *jinja)
{
    return jinja->has_generation;
}
