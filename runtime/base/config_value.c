/* config_value.c - one configuration value: text to field, field to text, and what is expected
 * in words. */
#include "runtime/base/config_value.h"

#include "runtime/base/mem.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *field_of(const struct tern_config_row *row, void *target)
{
    return (char *)target + row->offset;
}

static const void *const_field_of(const struct tern_config_row *row, const void *target)
{
    return (const char *)target + row->offset;
}

static bool has_limits(const struct tern_config_row *row)
{
    return row->min != 0 || row->max != 0;
}

/* The fewest digits that read back to the same bits; with a point before an exponent, as YAML
 * 1.1 readers want. */
static void print_f64(double value, bool is_f32, char out[TERN_CONFIG_F64_BYTES])
{
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(out, TERN_CONFIG_F64_BYTES, "%.*g", digits, value);
        if (is_f32 ? strtof(out, NULL) == (float)value : strtod(out, NULL) == value) {
            break;
        }
    }
    char *exponent = strchr(out, 'e');
    if (exponent != NULL && strchr(out, '.') == NULL) {
        memmove(exponent + 2, exponent, strlen(exponent) + 1);
        memcpy(exponent, ".0", 2);
    }
}

const char *tern_config_f64_text(double value, char out[TERN_CONFIG_F64_BYTES])
{
    print_f64(value, false, out);
    return out;
}

static void print_limit(const struct tern_config_row *row, double limit, char out[40])
{
    if (row->type == TERN_CONFIG_I64 || (limit == floor(limit) && fabs(limit) < 1e7)) {
        snprintf(out, 40, "%.0f", limit);
    } else {
        print_f64(limit, false, out);
    }
}

static tern_status expected_number(const struct tern_config_row *row,
                                   const char *kind,
                                   struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", kind));
    if (!has_limits(row)) {
        return TERN_OK;
    }
    char low[40];
    char high[40];
    print_limit(row, row->min, low);
    print_limit(row, row->max, high);
    bool is_above_0 = row->min == TERN_CONFIG_ABOVE_0;
    if (row->max >= TERN_CONFIG_NO_MAX) {
        return is_above_0 ? tern_text_printf(out, " above 0")
                          : tern_text_printf(out, " of at least %s", low);
    }
    return is_above_0 ? tern_text_printf(out, " above 0 and at most %s", high)
                      : tern_text_printf(out, " from %s to %s", low, high);
}

static tern_status expected_choice(const struct tern_config_row *row, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "one of "));
    for (int i = 0; row->choices[i] != NULL; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s%s", i > 0 ? ", " : "", row->choices[i]));
    }
    return TERN_OK;
}

tern_status tern_config_value_expected(const struct tern_config_row *row, struct tern_text *out)
{
    switch (row->type) {
    case TERN_CONFIG_I64:
        return expected_number(row, "a whole number", out);
    case TERN_CONFIG_F64:
    case TERN_CONFIG_F32:
        return expected_number(row, "a number", out);
    case TERN_CONFIG_BOOL:
        return tern_text_printf(out, "true or false");
    case TERN_CONFIG_ENUM:
        return expected_choice(row, out);
    case TERN_CONFIG_STRING:
        return tern_text_printf(out, "text or null");
    case TERN_CONFIG_CHARS:
        return tern_text_printf(out, "text of at most %zu bytes or null", row->size - 1);
    case TERN_CONFIG_STRINGS:
        return tern_text_printf(out, "a list of texts, [a, b]");
    case TERN_CONFIG_DOUBLES:
        TERN_RETURN_IF_ERR(tern_text_printf(out, "a list, [a, b], each "));
        return expected_number(row, "a number", out);
    case TERN_CONFIG_CUSTOM:
        break;
    }
    return tern_text_printf(out, "%s",
                            row->unit != NULL && row->unit[0] != '\0' ? row->unit : "text");
}

static const char *found_kind(const struct tern_config_value *value, int index, char out[96])
{
    if (value->is_sequence && index < 0) {
        snprintf(out, 96, "a list of %d", value->count);
        return out;
    }
    const char *item = value->items[index < 0 ? 0 : index];
    bool is_long = strlen(item) > 60;
    int shown = is_long ? 60 : (int)strlen(item);
    while (is_long && shown > 0 && ((unsigned char)item[shown] & 0xC0u) == 0x80u) {
        shown--; /* not in the middle of a character */
    }
    if (item[0] == '\0' && !value->is_quoted) {
        snprintf(out, 96, "nothing");
    } else {
        snprintf(out, 96, "%s'%.*s%s'", value->is_quoted ? "the quoted text " : "", shown, item,
                 is_long ? "..." : "");
    }
    return out;
}

/* "found X, expected Y"; index < 0: the value as a whole. */
static tern_status refuse(const struct tern_config_row *row,
                          const struct tern_config_value *value,
                          int index)
{
    char found[96];
    struct tern_text expected;
    tern_text_init(&expected);
    tern_status status = tern_config_value_expected(row, &expected);
    if (status == TERN_OK) {
        const char *nearest = NULL;
        if (row->type == TERN_CONFIG_ENUM && !value->is_sequence) {
            size_t count = 0;
            while (row->choices[count] != NULL) {
                count++;
            }
            nearest = tern_text_nearest(value->items[0], row->choices, count);
        }
        status = tern_fail(TERN_ERR_CONFIG, "found %s, expected %s%s%s%s",
                           found_kind(value, index, found), expected.data,
                           nearest != NULL ? "; nearest is '" : "", nearest != NULL ? nearest : "",
                           nearest != NULL ? "'" : "");
    }
    tern_text_fini(&expected);
    return status;
}

static bool is_null(const struct tern_config_value *value)
{
    const char *text = value->is_sequence ? "x" : value->items[0];
    return !value->is_quoted &&
           (text[0] == '\0' || strcmp(text, "~") == 0 || strcmp(text, "null") == 0 ||
            strcmp(text, "Null") == 0 || strcmp(text, "NULL") == 0);
}

static bool in_limits(const struct tern_config_row *row, double x)
{
    return !has_limits(row) || (x >= row->min && x <= row->max);
}

static tern_status parse_number(const struct tern_config_row *row,
                                const struct tern_config_value *value,
                                void *field)
{
    int64_t whole;
    double real;
    if (value->is_sequence || value->is_quoted) {
        return refuse(row, value, -1);
    }
    if (row->type == TERN_CONFIG_I64) {
        if (!tern_text_to_i64(value->items[0], &whole) || !in_limits(row, (double)whole)) {
            return refuse(row, value, -1);
        }
        memcpy(field, &whole, sizeof whole);
        return TERN_OK;
    }
    if (!tern_text_to_f64(value->items[0], &real) || !in_limits(row, real)) {
        return refuse(row, value, -1);
    }
    if (row->type == TERN_CONFIG_F32) {
        float narrow = (float)real;
        if (!isfinite(narrow)) {
            return refuse(row, value, -1);
        }
        memcpy(field, &narrow, sizeof narrow);
    } else {
        memcpy(field, &real, sizeof real);
    }
    return TERN_OK;
}

static tern_status parse_word(const struct tern_config_row *row,
                              const struct tern_config_value *value,
                              void *field)
{
    if (value->is_sequence || (row->type == TERN_CONFIG_BOOL && value->is_quoted)) {
        return refuse(row, value, -1);
    }
    const char *text = value->items[0];
    if (row->type == TERN_CONFIG_BOOL) {
        bool is_true = strcmp(text, "true") == 0;
        if (!is_true && strcmp(text, "false") != 0) {
            return refuse(row, value, -1);
        }
        memcpy(field, &is_true, sizeof is_true);
        return TERN_OK;
    }
    for (int i = 0; row->choices[i] != NULL; i++) {
        if (strcmp(text, row->choices[i]) == 0) {
            memcpy(field, &i, sizeof i);
            return TERN_OK;
        }
    }
    return refuse(row, value, -1);
}

static tern_status parse_text(const struct tern_config_row *row,
                              const struct tern_config_value *value,
                              void *field)
{
    if (value->is_sequence) {
        return refuse(row, value, -1);
    }
    const char *text = is_null(value) ? NULL : value->items[0];
    if (row->type == TERN_CONFIG_CHARS) {
        if (text != NULL && strlen(text) >= row->size) {
            return refuse(row, value, -1);
        }
        memset(field, 0, row->size);
        if (text != NULL) {
            memcpy(field, text, strlen(text));
        }
        return TERN_OK;
    }
    char *copy = NULL;
    if (text != NULL) {
        copy = tern_strdup("config text", text);
        if (copy == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory for a text of %zu bytes", strlen(text));
        }
    }
    char **slot = field;
    tern_free(*slot);
    *slot = copy;
    return TERN_OK;
}

static void free_strings(struct tern_config_strings *list)
{
    for (int i = 0; i < list->count; i++) {
        tern_free(list->items[i]);
    }
    tern_free(list->items);
    *list = (struct tern_config_strings){0};
}

static tern_status parse_strings(const struct tern_config_value *value, void *field)
{
    struct tern_config_strings list = {0};
    int count = is_null(value) ? 0 : value->count;
    if (count > 0) {
        list.items = tern_alloc_zero("config list", (size_t)count, sizeof *list.items);
        if (list.items == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory for a list of %d", count);
        }
    }
    for (int i = 0; i < count; i++) {
        list.items[i] = tern_strdup("config text", value->items[i]);
        if (list.items[i] == NULL) {
            free_strings(&list);
            return tern_fail(TERN_ERR_MEMORY, "no memory for a text of %zu bytes",
                             strlen(value->items[i]));
        }
        list.count = i + 1;
    }
    free_strings(field);
    memcpy(field, &list, sizeof list);
    return TERN_OK;
}

static tern_status parse_doubles(const struct tern_config_row *row,
                                 const struct tern_config_value *value,
                                 void *field)
{
    struct tern_config_doubles list = {0};
    list.count = is_null(value) ? 0 : value->count;
    if (list.count > 0) {
        list.items = tern_alloc_zero("config list", (size_t)list.count, sizeof *list.items);
        if (list.items == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory for a list of %d", list.count);
        }
    }
    for (int i = 0; i < list.count; i++) {
        if (value->is_quoted || !tern_text_to_f64(value->items[i], &list.items[i]) ||
            !in_limits(row, list.items[i])) {
            tern_free(list.items);
            return refuse(row, value, i);
        }
    }
    struct tern_config_doubles *slot = field;
    tern_free(slot->items);
    *slot = list;
    return TERN_OK;
}

/* A CUSTOM row gets one text: the scalar, or "[a, b]". */
static tern_status parse_custom(const struct tern_config_row *row,
                                const struct tern_config_value *value,
                                void *target)
{
    if (!value->is_sequence) {
        return row->parse(value->items[0], target);
    }
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = tern_text_printf(&text, "[");
    for (int i = 0; i < value->count && status == TERN_OK; i++) {
        status = tern_text_printf(&text, "%s%s", i > 0 ? ", " : "", value->items[i]);
    }
    if (status == TERN_OK) {
        status = tern_text_printf(&text, "]");
    }
    if (status == TERN_OK) {
        status = row->parse(text.data, target);
    }
    tern_text_fini(&text);
    return status;
}

tern_status tern_config_value_parse(const struct tern_config_row *row,
                                    const struct tern_config_value *value,
                                    void *target)
{
    void *field = field_of(row, target);
    switch (row->type) {
    case TERN_CONFIG_I64:
    case TERN_CONFIG_F64:
    case TERN_CONFIG_F32:
        return parse_number(row, value, field);
    case TERN_CONFIG_BOOL:
    case TERN_CONFIG_ENUM:
        return parse_word(row, value, field);
    case TERN_CONFIG_STRING:
    case TERN_CONFIG_CHARS:
        return parse_text(row, value, field);
    case TERN_CONFIG_STRINGS:
        return parse_strings(value, field);
    case TERN_CONFIG_DOUBLES:
        return parse_doubles(row, value, field);
    case TERN_CONFIG_CUSTOM:
        break;
    }
    return parse_custom(row, value, target);
}

/* Code point at *at (valid UTF-8), which moves behind it. */
static uint32_t next_code_point(const unsigned char **at)
{
    const unsigned char *c = *at;
    int more = *c < 0x80 ? 0 : *c < 0xE0 ? 1 : *c < 0xF0 ? 2 : 3;
    uint32_t code = more == 0 ? *c : *c & (0x3Fu >> more);
    for (int i = 1; i <= more; i++) {
        code = code << 6 | (c[i] & 0x3Fu);
    }
    *at = c + more + 1;
    return code;
}

static bool is_plain_safe(const char *text)
{
    static const char *const reserved[] = {"true", "false", "null", "yes", "no", "on",
                                           "off",  "y",     "n",    "inf", "nan"};
    bool starts_well =
        (text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z') || text[0] == '/';
    if (!starts_well) {
        return false;
    }
    for (size_t i = 0; i < sizeof reserved / sizeof reserved[0]; i++) {
        if (strcasecmp(text, reserved[i]) == 0) {
            return false;
        }
    }
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./";
    return text[strspn(text, safe)] == '\0';
}

/* Plain where that is safe, else double-quoted with everything that YAML would not keep escaped. */
static tern_status print_text(const char *text, struct tern_text *out)
{
    if (text == NULL) {
        return tern_text_printf(out, "null");
    }
    if (is_plain_safe(text)) {
        return tern_text_printf(out, "%s", text);
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\""));
    const unsigned char *at = (const unsigned char *)text;
    while (*at != '\0') {
        const unsigned char *start = at;
        uint32_t code = next_code_point(&at);
        bool is_hidden = code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0x2028 ||
                         code == 0x2029 || code == 0xFEFF || (code >= 0xFFFE && code <= 0xFFFF);
        if (code == '"' || code == '\\') {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "\\%c", (int)code));
        } else if (is_hidden) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "\\u%04" PRIX32, code));
        } else {
            TERN_RETURN_IF_ERR(tern_text_append(out, start, (size_t)(at - start)));
        }
    }
    return tern_text_printf(out, "\"");
}

static tern_status print_lists(const struct tern_config_row *row,
                               const void *field,
                               struct tern_text *out)
{
    const struct tern_config_strings *strings = field;
    const struct tern_config_doubles *doubles = field;
    bool is_text = row->type == TERN_CONFIG_STRINGS;
    int count = is_text ? strings->count : doubles->count;
    TERN_RETURN_IF_ERR(tern_text_printf(out, "["));
    for (int i = 0; i < count; i++) {
        if (i > 0) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, ", "));
        }
        if (is_text) {
            TERN_RETURN_IF_ERR(print_text(strings->items[i], out));
        } else {
            char number[40];
            print_f64(doubles->items[i], false, number);
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", number));
        }
    }
    return tern_text_printf(out, "]");
}

static tern_status print_scalar(const struct tern_config_row *row,
                                const void *field,
                                struct tern_text *out)
{
    char number[40];
    if (row->type == TERN_CONFIG_I64) {
        int64_t whole;
        memcpy(&whole, field, sizeof whole);
        return tern_text_printf(out, "%" PRId64, whole);
    }
    if (row->type == TERN_CONFIG_F64) {
        double real;
        memcpy(&real, field, sizeof real);
        print_f64(real, false, number);
        return tern_text_printf(out, "%s", number);
    }
    float narrow;
    memcpy(&narrow, field, sizeof narrow);
    print_f64((double)narrow, true, number);
    return tern_text_printf(out, "%s", number);
}

tern_status tern_config_value_print(const struct tern_config_row *row,
                                    const void *target,
                                    struct tern_text *out)
{
    const void *field = const_field_of(row, target);
    const char *chars = field;
    switch (row->type) {
    case TERN_CONFIG_I64:
    case TERN_CONFIG_F64:
    case TERN_CONFIG_F32:
        return print_scalar(row, field, out);
    case TERN_CONFIG_BOOL:
        return tern_text_printf(out, "%s", *(const bool *)field ? "true" : "false");
    case TERN_CONFIG_ENUM:
        return tern_text_printf(out, "%s", row->choices[*(const int *)field]);
    case TERN_CONFIG_STRING:
        return print_text(*(char *const *)field, out);
    case TERN_CONFIG_CHARS:
        return print_text(chars[0] != '\0' ? chars : NULL, out);
    case TERN_CONFIG_STRINGS:
    case TERN_CONFIG_DOUBLES:
        return print_lists(row, field, out);
    case TERN_CONFIG_CUSTOM:
        break;
    }
    return row->print(target, out);
}

void tern_config_value_free(const struct tern_config_row *row, void *target)
{
    void *field = field_of(row, target);
    if (row->type == TERN_CONFIG_STRING) {
        char **slot = field;
        tern_free(*slot);
        *slot = NULL;
    } else if (row->type == TERN_CONFIG_STRINGS) {
        free_strings(field);
    } else if (row->type == TERN_CONFIG_DOUBLES) {
        struct tern_config_doubles *list = field;
        tern_free(list->items);
        *list = (struct tern_config_doubles){0};
    }
}

size_t tern_config_utf8_prefix(const char *text, size_t bytes)
{
    size_t at = 0;
    while (at < bytes && text[at] != '\0') {
        enum tern_utf8 kind;
        size_t size = tern_utf8_next(text + at, bytes - at, &kind);
        if (kind != TERN_UTF8_WHOLE) {
            break;
        }
        at += size;
    }
    return at;
}
