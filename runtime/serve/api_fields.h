/* api_fields.h - members of a request's objects: typed, in a range, and named when they are wrong.
 *
 * A member that is missing or null leaves the value as it is. Members that nobody asks for are ignored: clients send
 * what other servers know. */
#ifndef TERN_RUNTIME_SERVE_API_FIELDS_H
#define TERN_RUNTIME_SERVE_API_FIELDS_H

#include "io/json.h"
#include "runtime/serve/api_error.h"

struct tern_api_object {
    const struct tern_json *json;
    const char *path; /* "": the body; "messages[3]" */
    struct tern_api_error *error;
};

enum tern_api_field_kind {
    TERN_API_BOOL, /* bool */
    TERN_API_I64,  /* int64_t in [min, max] */
    TERN_API_F64,  /* double in [min, max] */
    /* Only its kind is looked at: */
    TERN_API_STRING,
    TERN_API_OBJECT,
    TERN_API_REFUSED, /* anything but null, false, "", [] and {} is refused: `note` says why */
};

struct tern_api_field {
    const char *name;
    enum tern_api_field_kind kind;
    double min, max;
    size_t offset; /* of the value in what is filled */
    const char *note;
};

/* Fields of an object by a table, into `out` at their offsets. */
TERN_MUST_CHECK tern_status tern_api_fields(const struct tern_api_object *object,
                                            const struct tern_api_field *fields,
                                            int count,
                                            void *out);
/* "PATH.NAME" or "NAME". */
void tern_api_path(const struct tern_api_object *object,
                   const char *name,
                   char out[TERN_API_PATH_BYTES]);
/* The member, NULL if missing or null; refused if it is of another kind. */
TERN_MUST_CHECK tern_status tern_api_member(const struct tern_api_object *object,
                                            const char *name,
                                            enum tern_json_kind kind,
                                            const struct tern_json **out);
/* "NAME: expected EXPECTED, found a string"; TERN_ERR_INPUT. */
tern_status tern_api_wrong(const struct tern_api_object *object,
                           const char *name,
                           const struct tern_json *found,
                           const char *expected);
/* Whole numbers, 5.0 too. */
bool tern_api_whole(const struct tern_json *value, int64_t *out);

#endif
