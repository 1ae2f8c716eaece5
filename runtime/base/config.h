/* config.h - YAML files read by a schema: one row a key. Unknown keys, wrong types and values out of range are all
 * reported together, each with file, line, column, what was found and what is expected. */
#ifndef TERN_RUNTIME_BASE_CONFIG_H
#define TERN_RUNTIME_BASE_CONFIG_H

#include "runtime/base/status.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum tern_config_type {
    TERN_CONFIG_I64,
    TERN_CONFIG_F64,
    TERN_CONFIG_F32,
    TERN_CONFIG_BOOL,
    TERN_CONFIG_ENUM,    /* int field; choices lists the words in enum order */
    TERN_CONFIG_STRING,  /* char *, tern_alloc'd, NULL when null */
    TERN_CONFIG_CHARS,   /* char[size] */
    TERN_CONFIG_STRINGS, /* struct tern_config_strings */
    TERN_CONFIG_DOUBLES, /* struct tern_config_doubles */
    TERN_CONFIG_CUSTOM,  /* parse and print functions of the row */
};

struct tern_config_strings {
    char **items; /* tern_alloc'd, each too */
    int count;
};

struct tern_config_doubles {
    double *items;
    int count;
};

/* Smallest normal double and largest double: limits that read "above 0" and "no upper limit". */
#define TERN_CONFIG_ABOVE_0 2.2250738585072014e-308
#define TERN_CONFIG_NO_MAX  1.7976931348623157e308

/* Files above this are refused before they are parsed. */
enum {
    TERN_CONFIG_FILE_BYTES_MAX = 1 << 20
};

struct tern_config_row {
    const char *section; /* "train" */
    const char *key;     /* "steps" */
    enum tern_config_type type;
    size_t offset;   /* of the field in the target struct */
    size_t size;     /* CHARS: of the array */
    double min, max; /* numbers; both 0: no limit; TERN_CONFIG_ABOVE_0 as min: 0 itself is out */
    const char *const *choices; /* ENUM: NULL-terminated */
    const char
        *default_text; /* YAML scalar or flow sequence, parsed like a value; NULL: left zero */
    const char *unit;  /* "" if none; of a CUSTOM row: what is expected, in words */
    const char *help;  /* one line */
    /* CUSTOM: text (a scalar, or a flow sequence as "[a, b]") into the fields of the whole struct `target`, and back as
     * YAML. The error is a sentence without the place: "found ..., expected ...". */
    tern_status (*parse)(const char *text, void *target);
    tern_status (*print)(const void *target, struct tern_text *out);
};

struct tern_config_schema {
    const struct tern_config_row *rows;
    int row_count;
};

/* Where each row's value came from, for messages about combinations. Not set by the file: the line of the row's
 * section, 0 if the file does not have that either. */
struct tern_config_place {
    bool is_set;
    bool is_bad; /* the value was refused: checks of combinations leave it out */
    int line, column;
    const char *override; /* the --set argument, or NULL */
};

enum {
    TERN_CONFIG_ROWS_MAX = 128
};

struct tern_config_source {
    const char *name; /* file, for messages */
    struct tern_config_place places[TERN_CONFIG_ROWS_MAX];
    struct tern_text problems; /* one a line; empty: none */
    int problem_count;
    bool is_broken;
};

/* Parses text into target (a struct whose fields the rows describe), defaults first, then file, then overrides.
 * Problems are collected in source; TERN_ERR_CONFIG with all of them in the sentence when there are any: the caller may
 * then add what its own checks find and end with tern_config_finish. Call tern_config_fini on target and
 * tern_config_source_fini on source in either case. */
TERN_MUST_CHECK tern_status tern_config_parse(const struct tern_config_schema *schema,
                                              const char *name,
                                              const char *text,
                                              size_t bytes,
                                              const char *const *overrides,
                                              int override_count,
                                              void *target,
                                              struct tern_config_source *source);
/* Adds a problem about a key (for checks of combinations): "FILE:LINE:COL: section.key: SENTENCE", or
 * "--set section.key=value: SENTENCE" for an override. */
void tern_config_problem(const struct tern_config_schema *schema,
                         struct tern_config_source *source,
                         const char *section,
                         const char *key,
                         const char *format,
                         ...) TERN_PRINTF(5, 6);
/* TERN_OK, or TERN_ERR_CONFIG with all problems in the sentence. */
TERN_MUST_CHECK tern_status tern_config_finish(struct tern_config_source *source);
/* The file could not be read to its end (syntax, encoding, size): nothing can be said about what it lacks. */
bool tern_config_is_broken(const struct tern_config_source *source);
/* The value of section.key, or with key NULL any of the section, was refused. */
bool tern_config_is_bad(const struct tern_config_schema *schema,
                        const struct tern_config_source *source,
                        const char *section,
                        const char *key);
bool tern_config_is_set(const struct tern_config_schema *schema,
                        const struct tern_config_source *source,
                        const char *section,
                        const char *key);
TERN_MUST_CHECK tern_status tern_config_write(const struct tern_config_schema *schema,
                                              const void *target,
                                              struct tern_text *out);
/* The fewest digits that read back to the same double, for print functions. Returns out. */
enum {
    TERN_CONFIG_F64_BYTES = 40
};
const char *tern_config_f64_text(double value, char out[TERN_CONFIG_F64_BYTES]);
/* The table for --help-config: key, type, default, range, unit, help. */
TERN_MUST_CHECK tern_status tern_config_help(const struct tern_config_schema *schema,
                                             struct tern_text *out);
void tern_config_fini(const struct tern_config_schema *schema, void *target);
void tern_config_source_fini(struct tern_config_source *source);

#endif
