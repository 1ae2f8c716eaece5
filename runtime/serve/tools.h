/* tools.h - calls of tools in what a model writes, found while it writes.
 *
 * Families write a call as a JSON object with a name and arguments, in one of few frames:
 *   TAGGED  <tool_call>{"name": ..., "arguments": {...}}</tool_call>   Hermes, Qwen; anywhere, many
 *   OBJECT  {"name": ..., "parameters": {...}}                         Llama 3; the whole answer, several joined by ;
 *   LIST    [TOOL_CALLS][{"name": ..., "arguments": {...}}, ...]       Mistral; the end of an answer; later models:
 *           [TOOL_CALLS]name[ARGS]{...}                                many
 * What is not such a call, or is none in the end, is text. A call's name is told when it is known, its arguments
 * byte by byte as they come. */
#ifndef TERN_RUNTIME_SERVE_TOOLS_H
#define TERN_RUNTIME_SERVE_TOOLS_H

#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdint.h>

enum tern_tool_format {
    TERN_TOOLS_NONE,
    TERN_TOOLS_TAGGED,
    TERN_TOOLS_OBJECT,
    TERN_TOOLS_LIST,
};

enum {
    TERN_TOOL_CALLS_MAX = 128, /* of an answer; those behind are left out */
    TERN_TOOL_NAME_BYTES = 129
};

/* By what a template writes; NONE: it knows no tools. */
enum tern_tool_format tern_tool_format_of(const char *template_source);
/* What stands before the JSON of the first call: "<tool_call>\n", "", "[TOOL_CALLS]". */
const char *tern_tool_opening(enum tern_tool_format format);

struct tern_tool_sink {
    tern_status (*text)(void *context, const char *bytes, size_t count);
    tern_status (*begin)(void *context, int call, const char *name); /* calls from 0 */
    tern_status (*arguments)(void *context, int call, const char *bytes, size_t count);
    void *context;
};

struct tern_tool_parser {
    enum tern_tool_format format;
    const struct tern_tool_sink *sink;
    int state; /* tools.c */
    int calls, calls_max;
    struct tern_text
        held;             /* not yet decided: the whole of what may be a call, in case it is none */
    struct tern_text run; /* decided and of one kind, to be told at once */
    bool run_is_arguments;
    /* The call that is being read. */
    int depth; /* of braces and brackets */
    int member, value;
    bool in_string, is_escaped;
    bool is_bare;                            /* LIST: the object is the arguments alone */
    bool has_name, has_arguments, is_filled; /* filled: with arguments */
    bool is_begun;                           /* the sink knows of it */
    struct tern_text word;                   /* a string at depth 1, raw */
    struct tern_text values;                 /* arguments that came before the name */
    char name[TERN_TOOL_NAME_BYTES];
};

/* is_forced: the opening was given to the model, the text begins behind it. The sink is borrowed. */
void tern_tool_parser_init(struct tern_tool_parser *parser,
                           enum tern_tool_format format,
                           bool is_forced,
                           int calls_max,
                           const struct tern_tool_sink *sink);
void tern_tool_parser_fini(struct tern_tool_parser *parser);
TERN_MUST_CHECK tern_status tern_tool_parser_push(struct tern_tool_parser *parser,
                                                  const char *text,
                                                  size_t bytes);
/* The end of the answer: what is undecided is told. */
TERN_MUST_CHECK tern_status tern_tool_parser_finish(struct tern_tool_parser *parser);

#endif
