/* jinja.h - chat templates: the part of Jinja that models' templates are written in, run in a sandbox.
 *
 * The language is that of Jinja 3.1 as `transformers` sets it up: trim_blocks, lstrip_blocks, no automatic escaping, an
 * immutable sandbox, break and continue, {% generation %}, and tojson as json.dumps writes it. What is not there
 * (inheritance, includes, some filters) is refused by naming it, with line and column. A template can reach nothing
 * but its variables: it has a budget of steps, of memory and of depth, and a text that exceeds one ends with an error. */
#ifndef TERN_RUNTIME_CHAT_JINJA_H
#define TERN_RUNTIME_CHAT_JINJA_H

#include "io/json.h"
#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tern_jinja;

enum {
    TERN_JINJA_SOURCE_BYTES_MAX = 1 << 20
};

/* Parses a template (UTF-8). `name` stands in messages. TERN_ERR_INPUT: malformed; TERN_ERR_UNSUPPORTED: what we do not
 * have. Owned: destroy. */
TERN_MUST_CHECK tern_status tern_jinja_compile(const char *name,
                                               const char *text,
                                               size_t bytes,
                                               struct tern_jinja **out);
void tern_jinja_destroy(struct tern_jinja *jinja);
/* Whether the template marks what the assistant says by {% generation %}. */
bool tern_jinja_has_generation(const struct tern_jinja *jinja);

enum tern_jinja_kind {
    TERN_JINJA_NONE,
    TERN_JINJA_BOOL,
    TERN_JINJA_STRING,
    TERN_JINJA_JSON,
};

struct tern_jinja_variable {
    const char *name;
    enum tern_jinja_kind kind;
    bool truth;
    const char *string;           /* NUL-terminated UTF-8 */
    const struct tern_json *json; /* NULL: none */
    /* Messages: members that are null are left out, and reasoning_content stands under its other names too, as
     * transformers' apply_chat_template does before it renders. */
    bool is_messages;
    int64_t item_count; /* of messages: the first so many; -1: all */
    int64_t mark_item;  /* of messages: `mark` is added to the "content" of this one */
    const char *mark;   /* NULL: to none */
};

struct tern_jinja_input {
    const struct tern_jinja_variable *variables;
    int variable_count;
    int64_t now;       /* of strftime_now: seconds since 1970, local time; -1: the clock */
    int64_t steps_max; /* 0: the default, 20 million */
    size_t
        memory_bytes; /* beside the variables; 0: the default, 48 MiB and four times what they take */
};

/* Bytes [start, end) of the text. */
struct tern_jinja_span {
    size_t start, end;
};

struct tern_jinja_output {
    struct tern_text text;
    struct tern_jinja_span *spans; /* what {% generation %} blocks wrote, ascending */
    int64_t span_count;
};

/* TERN_ERR_INPUT: the template failed or raised an exception, or a budget is used up. `out` starts zeroed or used
 * before; owned: fini, also after a failure. Any number of threads may render one template. */
TERN_MUST_CHECK tern_status tern_jinja_render(const struct tern_jinja *jinja,
                                              const struct tern_jinja_input *input,
                                              struct tern_jinja_output *out);
void tern_jinja_output_fini(struct tern_jinja_output *out);

#endif
