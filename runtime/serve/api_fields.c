/* api_fields.c - see api_fields.h. */
#include "runtime/serve/api_fields.h"

#include <stdio.h>
#include <string.h>

static bool is_absent(const struct tern_json *value)
{
    enum tern_json_kind kind = tern_json_kind_of(value);
    return kind == TERN_JSON_MISSING || kind == TERN_JSON_NULL;
}

void tern_api_path(const struct tern_api_object *object,
                   const char *name,
                   char out[TERN_API_PATH_BYTES])
{
    snprintf(out, TERN_API_PATH_BYTES, "%s%s%s", object->path,
             object->path[0] != '\0' && name[0] != '\0' ? "." : "", name);
}

tern_status tern_api_wrong(const struct tern_api_object *object,
                           const char *name,
                           const struct tern_json *found,
                           const char *expected)
{
    char path[TERN_API_PATH_BYTES];
    tern_api_path(object, name, path);
    return tern_api_refuse(object->error, TERN_API_BAD, path, "%s: expected %s, found %s", path,
                           expected, tern_json_kind_name(tern_json_kind_of(found)));
}

bool tern_api_whole(const struct tern_json *value, int64_t *out)
{
    double real;
    if (tern_json_i64(value, out)) {
        return true;
    }
    if (!tern_json_f64(value, &real) || !(real > -9e15 && real < 9e15) ||
        real != (double)(int64_t)real) {
        return false;
    }
    *out = (int64_t)real;
    return true;
}

tern_status tern_api_member(const struct tern_api_object *object,
                            const char *name,
                            enum tern_json_kind kind,
                            const struct tern_json **out)
{
    const struct tern_json *value = tern_json_get(object->json, name);
    *out = NULL;
    if (is_absent(value)) {
        return TERN_OK;
    }
    if (tern_json_kind_of(value) != kind) {
        return tern_api_wrong(object, name, value, tern_json_kind_name(kind));
    }
    *out = value;
    return TERN_OK;
}

static tern_status out_of_range(const struct tern_api_object *object,
                                const struct tern_api_field *field,
                                double found)
{
    char path[TERN_API_PATH_BYTES];
    tern_api_path(object, field->name, path);
    return tern_api_refuse(object->error, TERN_API_BAD, path,
                           "%s: found %.12g, expected a %s from %.12g to %.12g", path, found,
                           field->kind == TERN_API_I64 ? "whole number" : "number", field->min,
                           field->max);
}

static tern_status read_number(const struct tern_api_object *object,
                               const struct tern_api_field *field,
                               const struct tern_json *value,
                               void *out)
{
    double real;
    int64_t whole;
    if (!tern_json_f64(value, &real)) {
        return tern_api_wrong(object, field->name, value,
                              field->kind == TERN_API_I64 ? "a whole number" : "a number");
    }
    if (!(real >= field->min && real <= field->max)) {
        return out_of_range(object, field, real);
    }
    if (field->kind == TERN_API_F64) {
        memcpy(out, &real, sizeof real);
        return TERN_OK;
    }
    if (!tern_api_whole(value, &whole)) {
        return out_of_range(object, field, real);
    }
    memcpy(out, &whole, sizeof whole);
    return TERN_OK;
}

static bool is_empty(const struct tern_json *value)
{
    size_t bytes = 0;
    switch (tern_json_kind_of(value)) {
    case TERN_JSON_BOOL:
        return !tern_json_bool(value, true);
    case TERN_JSON_STRING:
        tern_json_string(value, &bytes);
        return bytes == 0;
    case TERN_JSON_ARRAY:
    case TERN_JSON_OBJECT:
        return tern_json_count(value) == 0;
    default:
        return false;
    }
}

static tern_status refuse_field(const struct tern_api_object *object,
                                const struct tern_api_field *field)
{
    char path[TERN_API_PATH_BYTES];
    tern_api_path(object, field->name, path);
    return tern_api_refuse(object->error, TERN_API_BAD, path, "%s: %s", path, field->note);
}

static tern_status read_field(const struct tern_api_object *object,
                              const struct tern_api_field *field,
                              void *out)
{
    const struct tern_json *value = tern_json_get(object->json, field->name);
    const struct tern_json *member;
    if (is_absent(value)) {
        return TERN_OK;
    }
    switch (field->kind) {
    case TERN_API_BOOL:
        TERN_RETURN_IF_ERR(tern_api_member(object, field->name, TERN_JSON_BOOL, &member));
        *(bool *)out = tern_json_bool(value, false);
        return TERN_OK;
    case TERN_API_STRING:
        return tern_api_member(object, field->name, TERN_JSON_STRING, &member);
    case TERN_API_OBJECT:
        return tern_api_member(object, field->name, TERN_JSON_OBJECT, &member);
    case TERN_API_REFUSED:
        return is_empty(value) ? TERN_OK : refuse_field(object, field);
    default:
        return read_number(object, field, value, out);
    }
}

tern_status tern_api_fields(const struct tern_api_object *object,
                            const struct tern_api_field *fields,
                            int count,
                            void *out)
{
    for (int i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(read_field(object, &fields[i], (char *)out + fields[i].offset));
    }
    return TERN_OK;
}
