/* tools.c - a scanner over the bytes of an answer: text, or the object of a call. */
#include "runtime/serve/tools.h"

#include "io/json.h"

#include <stdio.h>
#include <string.h>

enum state {
    STATE_TEXT,   /* held: what may become an opening */
    STATE_PLAIN,  /* no calls any more */
    STATE_BEFORE, /* between an opening and the object */
    STATE_NAME,   /* LIST: a name, up to [ARGS] */
    STATE_CALL,
    STATE_AFTER, /* behind an object, up to what ends or goes on */
    STATE_GAP,   /* TAGGED: behind a call, nothing but blanks yet */
    STATE_DROP   /* more calls than wanted: nothing is told any more */
};

enum member {
    MEMBER_KEY, /* the key itself is being read, or awaited */
    MEMBER_NAME,
    MEMBER_ARGUMENTS,
    MEMBER_OTHER
};

enum value {
    VALUE_AWAITED,
    VALUE_CONTAINER,
    VALUE_STRING,
    VALUE_LITERAL
};

static const struct {
    const char *mark;  /* what a template writes that wants it */
    const char *open;  /* in the text */
    const char *given; /* to a model that has to call */
} g_formats[] = {
    [TERN_TOOLS_NONE] = {"", "", ""},
    [TERN_TOOLS_TAGGED] = {"<tool_call>", "<tool_call>", "<tool_call>\n"},
    [TERN_TOOLS_OBJECT] = {"<|python_tag|>", "<|python_tag|>", ""},
    [TERN_TOOLS_LIST] = {"[TOOL_CALLS]", "[TOOL_CALLS]", "[TOOL_CALLS]"},
};

enum tern_tool_format tern_tool_format_of(const char *template_source)
{
    static const enum tern_tool_format order[] = {TERN_TOOLS_TAGGED, TERN_TOOLS_LIST,
                                                  TERN_TOOLS_OBJECT};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        if (strstr(template_source, g_formats[order[i]].mark) != NULL) {
            return order[i];
        }
    }
    /* Llama 3.2 and its kin: no mark, but an object with parameters is described. */
    bool is_object = strstr(template_source, "\"parameters\": dictionary of argument") != NULL;
    return is_object ? TERN_TOOLS_OBJECT : TERN_TOOLS_NONE;
}

const char *tern_tool_opening(enum tern_tool_format format)
{
    return g_formats[format].given;
}

void tern_tool_parser_init(struct tern_tool_parser *parser,
                           enum tern_tool_format format,
                           bool is_forced,
                           int calls_max,
                           const struct tern_tool_sink *sink)
{
    *parser = (struct tern_tool_parser){.format = format, .sink = sink, .calls_max = calls_max};
    tern_text_init(&parser->held);
    tern_text_init(&parser->run);
    tern_text_init(&parser->word);
    tern_text_init(&parser->values);
    parser->state = format == TERN_TOOLS_NONE                  ? STATE_PLAIN
                    : is_forced || format == TERN_TOOLS_OBJECT ? STATE_BEFORE
                                                               : STATE_TEXT;
}

void tern_tool_parser_fini(struct tern_tool_parser *parser)
{
    tern_text_fini(&parser->held);
    tern_text_fini(&parser->run);
    tern_text_fini(&parser->word);
    tern_text_fini(&parser->values);
}

/* ---- what is told ---- */

static tern_status flush(struct tern_tool_parser *parser)
{
    const struct tern_tool_sink *sink = parser->sink;
    size_t count = parser->run.length;
    parser->run.length = 0;
    if (count == 0) {
        return TERN_OK;
    }
    return parser->run_is_arguments
               ? sink->arguments(sink->context, parser->calls - 1, parser->run.data, count)
               : sink->text(sink->context, parser->run.data, count);
}

static tern_status put(struct tern_tool_parser *parser,
                       bool is_arguments,
                       const char *bytes,
                       size_t count)
{
    if (parser->run_is_arguments != is_arguments) {
        TERN_RETURN_IF_ERR(flush(parser));
        parser->run_is_arguments = is_arguments;
    }
    return tern_text_append(&parser->run, bytes, count);
}

/* What was held is text after all. */
static tern_status put_held(struct tern_tool_parser *parser)
{
    size_t count = parser->held.length;
    parser->held.length = 0;
    return count > 0 ? put(parser, false, parser->held.data, count) : TERN_OK;
}

static tern_status put_arguments(struct tern_tool_parser *parser, const char *bytes, size_t count)
{
    parser->is_filled = parser->is_filled || count > 0;
    return parser->is_begun ? put(parser, true, bytes, count)
                            : tern_text_append(&parser->values, bytes, count);
}

static tern_status begin(struct tern_tool_parser *parser)
{
    TERN_RETURN_IF_ERR(flush(parser));
    TERN_RETURN_IF_ERR(parser->sink->begin(parser->sink->context, parser->calls, parser->name));
    parser->calls++;
    parser->is_begun = true;
    parser->held.length = 0;
    size_t count = parser->values.length;
    parser->values.length = 0;
    return count > 0 ? put(parser, true, parser->values.data, count) : TERN_OK;
}

/* ---- a call's members ---- */

/* The string in `word` as it is meant: tern_alloc'd in a document. */
static tern_status parse_word(const struct tern_tool_parser *parser, struct tern_json **out)
{
    struct tern_text quoted;
    tern_text_init(&quoted);
    tern_status status = tern_text_printf(&quoted, "\"%.*s\"", (int)parser->word.length,
                                          parser->word.length > 0 ? parser->word.data : "");
    if (status == TERN_OK) {
        status = tern_json_parse("call", quoted.data, quoted.length, out);
    }
    tern_text_fini(&quoted);
    return status;
}

static tern_status end_name(struct tern_tool_parser *parser)
{
    struct tern_json *json;
    size_t bytes;
    tern_status status = parse_word(parser, &json);
    if (status == TERN_ERR_INPUT) {
        return TERN_OK; /* no name: no call */
    }
    TERN_RETURN_IF_ERR(status);
    const char *text = tern_json_string(json, &bytes);
    if (bytes > 0 && bytes < sizeof parser->name && strlen(text) == bytes) {
        memcpy(parser->name, text, bytes + 1);
        parser->has_name = true;
    }
    tern_json_close(json);
    if (parser->has_name && parser->has_arguments && !parser->is_begun) {
        return begin(parser);
    }
    return TERN_OK;
}

static tern_status end_string(struct tern_tool_parser *parser)
{
    if (parser->member == MEMBER_NAME) {
        return end_name(parser);
    }
    if (parser->member != MEMBER_ARGUMENTS) {
        return TERN_OK;
    }
    /* Arguments as a text that holds JSON. */
    struct tern_json *json;
    tern_status status = parse_word(parser, &json);
    if (status == TERN_ERR_INPUT) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(status);
    size_t bytes;
    const char *text = tern_json_string(json, &bytes);
    status = put_arguments(parser, text, bytes);
    tern_json_close(json);
    return status;
}

static bool is_word(const struct tern_tool_parser *parser, const char *text)
{
    return parser->word.length == strlen(text) &&
           memcmp(parser->word.data, text, parser->word.length) == 0;
}

/* The colon behind a key. */
static tern_status begin_value(struct tern_tool_parser *parser)
{
    parser->member = is_word(parser, "name") ? MEMBER_NAME
                     : is_word(parser, "arguments") || is_word(parser, "parameters")
                         ? MEMBER_ARGUMENTS
                         : MEMBER_OTHER;
    parser->value = VALUE_AWAITED;
    if (parser->member == MEMBER_ARGUMENTS && !parser->has_arguments) {
        parser->has_arguments = true;
        return parser->has_name ? begin(parser) : TERN_OK;
    }
    return TERN_OK;
}

/* The closing brace of a call. */
static tern_status end_call(struct tern_tool_parser *parser)
{
    if (!parser->is_begun) {
        if (!parser->has_name || (parser->format == TERN_TOOLS_OBJECT && !parser->has_arguments)) {
            parser->state = parser->format == TERN_TOOLS_TAGGED ? STATE_TEXT : STATE_PLAIN;
            return put_held(parser);
        }
        TERN_RETURN_IF_ERR(begin(parser));
    }
    if (!parser->is_filled) {
        TERN_RETURN_IF_ERR(put(parser, true, "{}", 2));
    }
    parser->state = STATE_AFTER;
    return TERN_OK;
}

/* A byte outside of strings. */
static tern_status structure(struct tern_tool_parser *parser, char c)
{
    bool is_argument = parser->member == MEMBER_ARGUMENTS;
    if (c == '{' || c == '[') {
        if (parser->depth == 1 && is_argument && parser->value == VALUE_AWAITED) {
            parser->value = VALUE_CONTAINER;
        }
        parser->depth++;
    } else if (c == '}' || c == ']') {
        parser->depth--;
        if (parser->depth == 0) {
            return end_call(parser);
        }
        if (parser->depth == 1) { /* the value is whole */
            if (is_argument && parser->value == VALUE_CONTAINER) {
                TERN_RETURN_IF_ERR(put_arguments(parser, &c, 1));
            }
            return parser->is_bare ? end_call(parser) : TERN_OK;
        }
    } else if (parser->depth == 1 && c == ':' && parser->member == MEMBER_KEY) {
        return begin_value(parser);
    } else if (parser->depth == 1 && c == ',') {
        parser->member = MEMBER_KEY;
        return TERN_OK;
    }
    return parser->depth > 1 && is_argument && parser->value == VALUE_CONTAINER
               ? put_arguments(parser, &c, 1)
               : TERN_OK;
}

static tern_status call_byte(struct tern_tool_parser *parser, char c)
{
    bool is_streamed =
        parser->depth > 1 && parser->member == MEMBER_ARGUMENTS && parser->value == VALUE_CONTAINER;
    if (!parser->is_begun) {
        TERN_RETURN_IF_ERR(tern_text_append(&parser->held, &c, 1));
    }
    if (!parser->in_string) {
        if (c != '"') {
            return structure(parser, c);
        }
        parser->in_string = true;
        parser->word.length = 0;
        if (parser->depth == 1 && parser->member == MEMBER_ARGUMENTS) {
            parser->value = VALUE_STRING;
        }
        return is_streamed ? put_arguments(parser, &c, 1) : TERN_OK;
    }
    bool is_end = c == '"' && !parser->is_escaped;
    parser->is_escaped = c == '\\' && !parser->is_escaped;
    if (is_streamed) {
        TERN_RETURN_IF_ERR(put_arguments(parser, &c, 1));
    } else if (!is_end && parser->depth == 1) {
        TERN_RETURN_IF_ERR(tern_text_append(&parser->word, &c, 1));
    }
    if (is_end) {
        parser->in_string = false;
        return parser->depth == 1 ? end_string(parser) : TERN_OK;
    }
    return TERN_OK;
}

/* ---- around calls ---- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

static tern_status text_byte(struct tern_tool_parser *parser, char c)
{
    const char *open = g_formats[parser->format].open;
    if (parser->held.length > 0 && c != open[parser->held.length]) {
        TERN_RETURN_IF_ERR(put_held(parser));
    }
    if (c != open[parser->held.length]) {
        return put(parser, false, &c, 1);
    }
    TERN_RETURN_IF_ERR(tern_text_append(&parser->held, &c, 1));
    if (parser->held.length == strlen(open)) {
        parser->state = parser->calls < parser->calls_max ? STATE_BEFORE : STATE_DROP;
    }
    return TERN_OK;
}

static void open_call(struct tern_tool_parser *parser, bool is_bare)
{
    parser->state = parser->calls < parser->calls_max ? STATE_CALL : STATE_DROP;
    parser->depth = 1;
    parser->member = is_bare ? MEMBER_ARGUMENTS : MEMBER_KEY;
    parser->value = VALUE_AWAITED;
    parser->is_bare = is_bare;
    parser->in_string = parser->is_escaped = false;
    parser->has_name = parser->has_arguments = is_bare;
    parser->is_filled = parser->is_begun = false;
    parser->values.length = parser->word.length = 0;
}

/* A name and [ARGS]; what is too long for one, or holds what a name does not, is text. */
static tern_status name_byte(struct tern_tool_parser *parser, char c)
{
    static const char mark[] = "[ARGS]";
    const size_t mark_bytes = sizeof mark - 1;
    TERN_RETURN_IF_ERR(tern_text_append(&parser->held, &c, 1));
    TERN_RETURN_IF_ERR(tern_text_append(&parser->word, &c, 1));
    size_t bytes = parser->word.length;
    if (bytes > mark_bytes &&
        memcmp(parser->word.data + bytes - mark_bytes, mark, mark_bytes) == 0) {
        snprintf(parser->name, sizeof parser->name, "%.*s", (int)(bytes - mark_bytes),
                 parser->word.data);
        open_call(parser, true);
        return parser->state == STATE_CALL ? begin(parser) : TERN_OK;
    }
    if (is_blank(c) || c == '{' || c == '"' || bytes >= sizeof parser->name + mark_bytes - 1) {
        parser->state = STATE_PLAIN;
        return put_held(parser);
    }
    return TERN_OK;
}

static tern_status before_byte(struct tern_tool_parser *parser, char c)
{
    const char *open = g_formats[parser->format].open;
    if (parser->format == TERN_TOOLS_LIST && !is_blank(c) && strchr("[,{\"", c) == NULL) {
        parser->state = STATE_NAME;
        parser->word.length = 0;
        return name_byte(parser, c);
    }
    TERN_RETURN_IF_ERR(tern_text_append(&parser->held, &c, 1));
    if (c == '{') {
        open_call(parser, false);
        return TERN_OK;
    }
    bool is_list = parser->format == TERN_TOOLS_LIST && (c == '[' || c == ',');
    bool is_tag = parser->format == TERN_TOOLS_OBJECT && parser->calls == 0 &&
                  parser->held.length <= strlen(open) &&
                  memcmp(parser->held.data, open, parser->held.length) == 0;
    if (is_blank(c) || is_list || is_tag) {
        return TERN_OK;
    }
    parser->state = parser->format == TERN_TOOLS_TAGGED ? STATE_TEXT : STATE_PLAIN;
    return put_held(parser);
}

static tern_status after_byte(struct tern_tool_parser *parser, char c)
{
    static const char close[] = "</tool_call>";
    if (parser->held.length == 0 && is_blank(c)) {
        return TERN_OK;
    }
    if (parser->format != TERN_TOOLS_TAGGED) {
        bool goes_on = c == (parser->format == TERN_TOOLS_LIST ? ',' : ';');
        if (parser->is_bare) {
            parser->state = STATE_TEXT;
            return text_byte(parser, c);
        }
        parser->state = goes_on ? STATE_BEFORE : c == ']' ? STATE_GAP : STATE_PLAIN;
        return goes_on || c == ']' ? TERN_OK : put(parser, false, &c, 1);
    }
    TERN_RETURN_IF_ERR(tern_text_append(&parser->held, &c, 1));
    if (memcmp(parser->held.data, close, parser->held.length) != 0) {
        parser->state = STATE_TEXT;
        return put_held(parser);
    }
    if (parser->held.length == strlen(close)) {
        parser->held.length = 0;
        parser->state = STATE_GAP;
    }
    return TERN_OK;
}

/* Blanks between calls are not text. */
static tern_status gap_byte(struct tern_tool_parser *parser, char c)
{
    if (is_blank(c)) {
        return tern_text_append(&parser->held, &c, 1);
    }
    if (parser->format != TERN_TOOLS_TAGGED) {
        parser->state = STATE_PLAIN;
        TERN_RETURN_IF_ERR(put_held(parser));
        return put(parser, false, &c, 1);
    }
    parser->state = STATE_TEXT;
    if (c == g_formats[parser->format].open[0]) {
        parser->held.length = 0;
    } else {
        TERN_RETURN_IF_ERR(put_held(parser));
    }
    return text_byte(parser, c);
}

static tern_status byte(struct tern_tool_parser *parser, char c)
{
    switch ((enum state)parser->state) {
    case STATE_TEXT:
        return text_byte(parser, c);
    case STATE_PLAIN:
        return put(parser, false, &c, 1);
    case STATE_BEFORE:
        return before_byte(parser, c);
    case STATE_NAME:
        return name_byte(parser, c);
    case STATE_CALL:
        return call_byte(parser, c);
    case STATE_AFTER:
        return after_byte(parser, c);
    case STATE_GAP:
        return gap_byte(parser, c);
    default:
        return TERN_OK;
    }
}

tern_status tern_tool_parser_push(struct tern_tool_parser *parser, const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        TERN_RETURN_IF_ERR(byte(parser, text[i]));
    }
    return flush(parser);
}

tern_status tern_tool_parser_finish(struct tern_tool_parser *parser)
{
    bool is_lost = parser->state == STATE_GAP || parser->state == STATE_DROP ||
                   (parser->state == STATE_CALL && parser->is_begun);
    if (!is_lost) {
        TERN_RETURN_IF_ERR(put_held(parser));
    }
    parser->state = STATE_PLAIN;
    return flush(parser);
}
