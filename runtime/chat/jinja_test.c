/* jinja_test.c - what "is" can ask. */
#include "runtime/chat/jinja_internal.h"

#include <string.h>

/* Each is handed its arguments in call; at most one. */
typedef tern_status (*test_function)(struct jinja_run *run,
                                     struct jinja_value value,
                                     struct jinja_value argument,
                                     bool *out);

#define KIND_TEST(name, condition) \
    static tern_status name(struct jinja_run *run, struct jinja_value v, struct jinja_value x, \
                            bool *out) \
    { \
        (void)run; \
        (void)x; \
        *out = (condition); \
        return TERN_OK; \
    }

KIND_TEST(is_defined, v.kind != JINJA_UNDEFINED)
KIND_TEST(is_undefined, v.kind == JINJA_UNDEFINED)
KIND_TEST(is_none, v.kind == JINJA_NONE)
KIND_TEST(is_boolean, v.kind == JINJA_BOOL)
KIND_TEST(is_true, v.kind == JINJA_BOOL && v.truth)
KIND_TEST(is_false, v.kind == JINJA_BOOL && !v.truth)
KIND_TEST(is_integer, v.kind == JINJA_INT)
KIND_TEST(is_float, v.kind == JINJA_FLOAT)
KIND_TEST(is_number, tern_jinja_is_number(v))
KIND_TEST(is_string, v.kind == JINJA_STRING)
KIND_TEST(is_mapping, v.kind == JINJA_DICT)
KIND_TEST(is_callable, v.kind >= JINJA_MACRO || v.kind == JINJA_UNDEFINED)
KIND_TEST(is_escaped, v.kind == JINJA_STRING && v.is_safe)
KIND_TEST(is_iterable,
          tern_jinja_is_list(v) || v.kind == JINJA_STRING || v.kind == JINJA_DICT ||
              v.kind == JINJA_LOOP || v.kind == JINJA_UNDEFINED)
/* has a length and items: an undefined value has, as jinja sees it */
KIND_TEST(is_sequence,
          v.kind == JINJA_STRING || v.kind == JINJA_LIST || v.kind == JINJA_TUPLE ||
              v.kind == JINJA_RANGE || v.kind == JINJA_DICT || v.kind == JINJA_UNDEFINED)

static tern_status is_even(struct jinja_run *run,
                           struct jinja_value v,
                           struct jinja_value x,
                           bool *out)
{
    struct jinja_value rest;
    (void)x;
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_MODULO, v, tern_jinja_int(2), &rest));
    return tern_jinja_equal(run, rest, tern_jinja_int(0), out);
}

static tern_status is_odd(struct jinja_run *run,
                          struct jinja_value v,
                          struct jinja_value x,
                          bool *out)
{
    struct jinja_value rest;
    (void)x;
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_MODULO, v, tern_jinja_int(2), &rest));
    return tern_jinja_equal(run, rest, tern_jinja_int(1), out);
}

static tern_status is_divisible(struct jinja_run *run,
                                struct jinja_value v,
                                struct jinja_value x,
                                bool *out)
{
    struct jinja_value rest;
    TERN_RETURN_IF_ERR(tern_jinja_binary(run, OP_MODULO, v, x, &rest));
    return tern_jinja_equal(run, rest, tern_jinja_int(0), out);
}

/* str.islower and isupper of str(v): some cased character, and none of the other case. */
static tern_status has_case(struct jinja_run *run,
                            struct jinja_value v,
                            enum jinja_case wanted,
                            bool *out)
{
    struct jinja_value string;
    TERN_RETURN_IF_ERR(tern_jinja_to_string(run, v, &string));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)string.string->bytes / 16));
    *out = false;
    for (size_t at = 0; at < string.string->bytes;) {
        int bytes;
        uint32_t code = tern_jinja_code(string.string->data + at, &bytes);
        enum jinja_case other = wanted == CASE_LOWER ? CASE_UPPER : CASE_LOWER;
        if (tern_jinja_has_case(code, other) || tern_jinja_has_case(code, CASE_TITLE)) {
            *out = false;
            return TERN_OK;
        }
        *out = *out || tern_jinja_has_case(code, wanted);
        at += (size_t)bytes;
    }
    return TERN_OK;
}

static tern_status is_lower(struct jinja_run *run,
                            struct jinja_value v,
                            struct jinja_value x,
                            bool *out)
{
    (void)x;
    return has_case(run, v, CASE_LOWER, out);
}

static tern_status is_upper(struct jinja_run *run,
                            struct jinja_value v,
                            struct jinja_value x,
                            bool *out)
{
    (void)x;
    return has_case(run, v, CASE_UPPER, out);
}

static tern_status is_same(struct jinja_run *run,
                           struct jinja_value v,
                           struct jinja_value x,
                           bool *out)
{
    bool is_plain = v.kind <= JINJA_STRING && v.kind != JINJA_UNDEFINED;
    *out = v.kind == x.kind && !is_plain && v.list == x.list;
    return v.kind == x.kind && is_plain ? tern_jinja_equal(run, v, x, out) : TERN_OK;
}

static tern_status is_filter(struct jinja_run *run,
                             struct jinja_value v,
                             struct jinja_value x,
                             bool *out)
{
    char name[64] = "";
    (void)x;
    if (v.kind != JINJA_STRING) {
        return tern_jinja_fail(run, "found a value of type %s; expected a name",
                               tern_jinja_type(v));
    }
    if (v.string->bytes < sizeof name) {
        memcpy(name, v.string->data, v.string->bytes);
    }
    *out = name[0] != '\0' && tern_jinja_find_filter(name) != NULL;
    return TERN_OK;
}

#define COMPARE_TEST(name, op) \
    static tern_status name(struct jinja_run *run, struct jinja_value v, struct jinja_value x, \
                            bool *out) \
    { \
        return tern_jinja_compare(run, (op), v, x, out); \
    }

COMPARE_TEST(is_equal, OP_EQUAL)
COMPARE_TEST(is_unequal, OP_UNEQUAL)
COMPARE_TEST(is_less, OP_LESS)
COMPARE_TEST(is_less_equal, OP_LESS_EQUAL)
COMPARE_TEST(is_greater, OP_GREATER)
COMPARE_TEST(is_greater_equal, OP_GREATER_EQUAL)
COMPARE_TEST(is_in, OP_IN)

static const struct {
    const char *name;
    test_function function;
    bool has_argument;
} g_tests[] = {
    {"defined", is_defined, false},   {"undefined", is_undefined, false},
    {"none", is_none, false},         {"boolean", is_boolean, false},
    {"true", is_true, false},         {"false", is_false, false},
    {"integer", is_integer, false},   {"float", is_float, false},
    {"number", is_number, false},     {"string", is_string, false},
    {"mapping", is_mapping, false},   {"sequence", is_sequence, false},
    {"iterable", is_iterable, false}, {"callable", is_callable, false},
    {"escaped", is_escaped, false},   {"even", is_even, false},
    {"odd", is_odd, false},           {"divisibleby", is_divisible, true},
    {"lower", is_lower, false},       {"upper", is_upper, false},
    {"sameas", is_same, true},        {"filter", is_filter, false},
    {"eq", is_equal, true},           {"equalto", is_equal, true},
    {"==", is_equal, true},           {"ne", is_unequal, true},
    {"!=", is_unequal, true},         {"lt", is_less, true},
    {"lessthan", is_less, true},      {"<", is_less, true},
    {"le", is_less_equal, true},      {"<=", is_less_equal, true},
    {"gt", is_greater, true},         {"greaterthan", is_greater, true},
    {">", is_greater, true},          {"ge", is_greater_equal, true},
    {">=", is_greater_equal, true},   {"in", is_in, true},
};

static int find(const char *name)
{
    for (int i = 0; i < (int)(sizeof g_tests / sizeof g_tests[0]); i++) {
        if (strcmp(name, g_tests[i].name) == 0) {
            return i;
        }
    }
    return -1;
}

tern_status tern_jinja_apply_test(struct jinja_run *run,
                                  const char *name,
                                  struct jinja_value value,
                                  const struct jinja_call *call,
                                  bool *out)
{
    int test = find(name);
    if (test < 0) {
        return tern_jinja_unsupported(run, "the test '%.64s' is not supported", name);
    }
    struct jinja_value argument = tern_jinja_none();
    if (call->keyword_count > 0 || call->count != g_tests[test].has_argument) {
        return tern_jinja_fail(run, "the test '%s': found %lld arguments; expected %d", name,
                               (long long)(call->count + call->keyword_count),
                               g_tests[test].has_argument);
    }
    if (call->count == 1) {
        argument = call->items[0];
    }
    return g_tests[test].function(run, value, argument, out);
}
