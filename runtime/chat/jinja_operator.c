/* jinja_operator.c - arithmetic, comparisons, joining and repeating, by Python's rules. */
#include "runtime/chat/jinja_internal.h"

#include <math.h>
#include <string.h>

static const char *const g_names[] = {[OP_ADD] = "+",
                                      [OP_SUBTRACT] = "-",
                                      [OP_MULTIPLY] = "*",
                                      [OP_DIVIDE] = "/",
                                      [OP_FLOOR_DIVIDE] = "//",
                                      [OP_MODULO] = "%",
                                      [OP_POWER] = "**",
                                      [OP_EQUAL] = "==",
                                      [OP_UNEQUAL] = "!=",
                                      [OP_LESS] = "<",
                                      [OP_LESS_EQUAL] = "<=",
                                      [OP_GREATER] = ">",
                                      [OP_GREATER_EQUAL] = ">=",
                                      [OP_IN] = "in",
                                      [OP_NOT_IN] = "not in"};

static tern_status undefined_operand(struct jinja_run *run, struct jinja_value value)
{
    return tern_jinja_fail(run, "'%.64s' is undefined",
                           value.missing != NULL ? value.missing : "a value");
}

static tern_status mismatch(struct jinja_run *run,
                            enum jinja_operator op,
                            struct jinja_value a,
                            struct jinja_value b)
{
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED) {
        return undefined_operand(run, a.kind == JINJA_UNDEFINED ? a : b);
    }
    return tern_jinja_fail(run, "'%s' does not take %s and %s", g_names[op], tern_jinja_type(a),
                           tern_jinja_type(b));
}

static tern_status overflow(struct jinja_run *run)
{
    return tern_jinja_unsupported(run,
                                  "a number leaves the range of 64 bits, which is not supported");
}

/* ---- numbers ---- */

static tern_status integer_divide(struct jinja_run *run,
                                  enum jinja_operator op,
                                  int64_t a,
                                  int64_t b,
                                  struct jinja_value *out)
{
    if (b == 0) {
        return tern_jinja_fail(run, "division by zero");
    }
    if (a == INT64_MIN && b == -1) {
        return op == OP_MODULO ? (*out = tern_jinja_int(0), TERN_OK) : overflow(run);
    }
    int64_t quotient = a / b, rest = a % b;
    bool is_below = rest != 0 && (rest < 0) != (b < 0); /* towards minus infinity */
    *out = tern_jinja_int(op == OP_MODULO ? rest + (is_below ? b : 0) : quotient - is_below);
    return TERN_OK;
}

static tern_status integer_power(struct jinja_run *run,
                                 int64_t a,
                                 int64_t b,
                                 struct jinja_value *out)
{
    int64_t result = 1;
    if (b < 0) {
        if (a == 0) {
            return tern_jinja_fail(run, "0 to a negative power");
        }
        *out = tern_jinja_float(pow((double)a, (double)b));
        return TERN_OK;
    }
    if (a == 0 || a == 1 || a == -1) {
        *out = tern_jinja_int(b == 0 ? 1 : a == -1 && b % 2 == 0 ? 1 : a);
        return TERN_OK;
    }
    for (int64_t i = 0; i < b; i++) { /* 63 rounds at most */
        if (__builtin_mul_overflow(result, a, &result)) {
            return overflow(run);
        }
    }
    *out = tern_jinja_int(result);
    return TERN_OK;
}

static tern_status integers(struct jinja_run *run,
                            enum jinja_operator op,
                            int64_t a,
                            int64_t b,
                            struct jinja_value *out)
{
    int64_t result;
    bool is_over;
    switch (op) {
    case OP_ADD:
        is_over = __builtin_add_overflow(a, b, &result);
        break;
    case OP_SUBTRACT:
        is_over = __builtin_sub_overflow(a, b, &result);
        break;
    case OP_MULTIPLY:
        is_over = __builtin_mul_overflow(a, b, &result);
        break;
    case OP_POWER:
        return integer_power(run, a, b, out);
    default:
        return integer_divide(run, op, a, b, out);
    }
    *out = tern_jinja_int(result);
    return is_over ? overflow(run) : TERN_OK;
}

static tern_status reals(struct jinja_run *run,
                         enum jinja_operator op,
                         double a,
                         double b,
                         struct jinja_value *out)
{
    double result;
    if (b == 0 && (op == OP_DIVIDE || op == OP_FLOOR_DIVIDE || op == OP_MODULO)) {
        return tern_jinja_fail(run, "division by zero");
    }
    switch (op) {
    case OP_ADD:
        result = a + b;
        break;
    case OP_SUBTRACT:
        result = a - b;
        break;
    case OP_MULTIPLY:
        result = a * b;
        break;
    case OP_DIVIDE:
        result = a / b;
        break;
    case OP_POWER:
        result = pow(a, b);
        if ((a == 0 && b < 0) || (isfinite(a) && isfinite(b) && !isfinite(result))) {
            return tern_jinja_fail(run, "a power that is no number");
        }
        break;
    default:
        result = fmod(a, b);
        result += result != 0 && (result < 0) != (b < 0) ? b : 0;
        if (op == OP_FLOOR_DIVIDE) {
            result = nearbyint((a - result) / b);
        }
        break;
    }
    *out = tern_jinja_float(result);
    return TERN_OK;
}

tern_status tern_jinja_negate(struct jinja_run *run, struct jinja_value a, struct jinja_value *out)
{
    if (a.kind == JINJA_FLOAT) {
        *out = tern_jinja_float(-a.real);
        return TERN_OK;
    }
    if (a.kind == JINJA_UNDEFINED) {
        return undefined_operand(run, a);
    }
    if (!tern_jinja_is_integer(a)) {
        return tern_jinja_fail(run, "'-' does not take %s", tern_jinja_type(a));
    }
    return integers(run, OP_SUBTRACT, 0, tern_jinja_integer(a), out);
}

/* ---- joining and repeating ---- */

static tern_status too_much(struct jinja_run *run)
{
    return tern_jinja_fail(run, "the template's memory, %zu MiB, is used up",
                           run->memory_bytes >> 20);
}

static tern_status join_strings(struct jinja_run *run,
                                struct jinja_value a,
                                struct jinja_value b,
                                struct jinja_value *out)
{
    bool is_safe = a.is_safe || b.is_safe;
    if (is_safe) {
        TERN_RETURN_IF_ERR(tern_jinja_escape(run, a, &a));
        TERN_RETURN_IF_ERR(tern_jinja_escape(run, b, &b));
    }
    /* goes on behind a, if a is the newest string: what loops build up is not copied each time */
    size_t bytes = a.string->bytes + b.string->bytes;
    if (bytes == 0) {
        *out = a;
        return TERN_OK;
    }
    run->characters.limit_bytes = run->memory_bytes - run->objects.used_bytes;
    char *data =
        tern_jinja_pool_extend(&run->characters, a.string->data, a.string->bytes, b.string->bytes);
    if (data == NULL) {
        return too_much(run);
    }
    if (b.string->bytes > 0) {
        memcpy(data + a.string->bytes, b.string->data, b.string->bytes);
    }
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1 + (int64_t)(bytes / 256)));
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, data, bytes, out));
    out->is_safe = is_safe;
    return TERN_OK;
}

static tern_status join_lists(struct jinja_run *run,
                              struct jinja_value a,
                              struct jinja_value b,
                              struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(
        tern_jinja_list(run, (enum jinja_kind)a.kind, a.list->count + b.list->count, out));
    size_t size = sizeof *a.list->items;
    if (a.list->count > 0) {
        memcpy(out->list->items, a.list->items, (size_t)a.list->count * size);
    }
    if (b.list->count > 0) {
        memcpy(out->list->items + a.list->count, b.list->items, (size_t)b.list->count * size);
    }
    return TERN_OK;
}

static tern_status repeat(struct jinja_run *run,
                          struct jinja_value what,
                          int64_t times,
                          struct jinja_value *out)
{
    times = times < 0 ? 0 : times;
    if (what.kind == JINJA_STRING) {
        struct jinja_text text = {0};
        size_t all;
        if (__builtin_mul_overflow(what.string->bytes, (size_t)times, &all) ||
            all > run->memory_bytes) {
            return too_much(run);
        }
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)(all / 16)));
        for (int64_t i = 0; i < times && what.string->bytes > 0; i++) {
            TERN_RETURN_IF_ERR(tern_jinja_write(run, &text, what.string->data, what.string->bytes));
        }
        TERN_RETURN_IF_ERR(tern_jinja_finish_text(run, &text, out));
        out->is_safe = what.is_safe;
        return TERN_OK;
    }
    int64_t all;
    if (__builtin_mul_overflow(what.list->count, times, &all) ||
        (size_t)all > run->memory_bytes / sizeof *what.list->items) {
        return too_much(run);
    }
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, all / 16));
    TERN_RETURN_IF_ERR(tern_jinja_list(run, (enum jinja_kind)what.kind, all, out));
    for (int64_t i = 0; i < all; i++) {
        out->list->items[i] = what.list->items[i % what.list->count];
    }
    return TERN_OK;
}

static bool can_repeat(struct jinja_value value)
{
    return value.kind == JINJA_STRING || value.kind == JINJA_LIST || value.kind == JINJA_TUPLE;
}

tern_status tern_jinja_binary(struct jinja_run *run,
                              enum jinja_operator op,
                              struct jinja_value a,
                              struct jinja_value b,
                              struct jinja_value *out)
{
    if (tern_jinja_is_integer(a) && tern_jinja_is_integer(b) && op != OP_DIVIDE) {
        return integers(run, op, tern_jinja_integer(a), tern_jinja_integer(b), out);
    }
    if (tern_jinja_is_number(a) && tern_jinja_is_number(b)) {
        return reals(run, op, tern_jinja_real(a), tern_jinja_real(b), out);
    }
    if (op == OP_ADD && a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        return join_strings(run, a, b, out);
    }
    if (op == OP_ADD && a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE)) {
        return join_lists(run, a, b, out);
    }
    if (op == OP_MULTIPLY && can_repeat(a) && tern_jinja_is_integer(b)) {
        return repeat(run, a, tern_jinja_integer(b), out);
    }
    if (op == OP_MULTIPLY && can_repeat(b) && tern_jinja_is_integer(a)) {
        return repeat(run, b, tern_jinja_integer(a), out);
    }
    if (op == OP_MODULO && a.kind == JINJA_STRING && b.kind != JINJA_UNDEFINED) {
        struct jinja_call call = {.items = &b, .count = 1};
        if (b.kind == JINJA_TUPLE) {
            call.items = b.list->items;
            call.count = b.list->count;
        }
        bool may_be_left = tern_jinja_is_list(b) || b.kind == JINJA_DICT; /* as Python has it */
        return tern_jinja_format(run, a, &call, may_be_left && b.kind != JINJA_TUPLE, out);
    }
    return mismatch(run, op, a, b);
}

/* ---- comparisons ---- */

/* -1, 0, 1; or 2 when one is no number. */
static int order_numbers(struct jinja_value a, struct jinja_value b)
{
    if (tern_jinja_is_integer(a) && tern_jinja_is_integer(b)) {
        int64_t x = tern_jinja_integer(a), y = tern_jinja_integer(b);
        return (x > y) - (x < y);
    }
    double x = tern_jinja_real(a), y = tern_jinja_real(b);
    return isnan(x) || isnan(y) ? 2 : (x > y) - (x < y);
}

static int order_strings(const struct jinja_string *a, const struct jinja_string *b)
{
    size_t least = a->bytes < b->bytes ? a->bytes : b->bytes;
    int order =
        least > 0 ? memcmp(a->data, b->data, least) : 0; /* UTF-8 is ordered as its code points */
    order = order != 0 ? order : (a->bytes > b->bytes) - (a->bytes < b->bytes);
    return (order > 0) - (order < 0);
}

static bool holds(enum jinja_operator op, int order)
{
    switch (op) {
    case OP_LESS:
        return order == -1;
    case OP_LESS_EQUAL:
        return order == -1 || order == 0;
    case OP_GREATER:
        return order == 1;
    default:
        return order == 1 || order == 0;
    }
}

static tern_status order(struct jinja_run *run,
                         enum jinja_operator op,
                         struct jinja_value a,
                         struct jinja_value b,
                         bool *out)
{
    if (tern_jinja_is_number(a) && tern_jinja_is_number(b)) {
        *out = holds(op, order_numbers(a, b));
        return TERN_OK;
    }
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        *out = holds(op, order_strings(a.string, b.string));
        return tern_jinja_spend(run, (int64_t)a.string->bytes / 256);
    }
    if (a.kind != b.kind || (a.kind != JINJA_LIST && a.kind != JINJA_TUPLE)) {
        return mismatch(run, op, a, b);
    }
    TERN_RETURN_IF_ERR(tern_jinja_enter(run));
    for (int64_t i = 0; i < a.list->count && i < b.list->count; i++) {
        bool is_equal;
        TERN_RETURN_IF_ERR(tern_jinja_equal(run, a.list->items[i], b.list->items[i], &is_equal));
        if (!is_equal) {
            TERN_RETURN_IF_ERR(order(run, op, a.list->items[i], b.list->items[i], out));
            run->depth--;
            return TERN_OK;
        }
    }
    *out = holds(op, (a.list->count > b.list->count) - (a.list->count < b.list->count));
    run->depth--;
    return TERN_OK;
}

static tern_status contains(struct jinja_run *run,
                            struct jinja_value a,
                            struct jinja_value b,
                            bool *out)
{
    *out = false;
    if (b.kind == JINJA_STRING) {
        if (a.kind != JINJA_STRING) {
            return mismatch(run, OP_IN, a, b);
        }
        *out = memmem(b.string->data, b.string->bytes, a.string->data, a.string->bytes) != NULL;
        return tern_jinja_spend(run, (int64_t)b.string->bytes / 64);
    }
    if (b.kind == JINJA_DICT) {
        struct jinja_value value;
        return tern_jinja_dict_get(run, b.dict, a, out, &value);
    }
    struct jinja_value *items;
    int64_t count;
    TERN_RETURN_IF_ERR(tern_jinja_items(run, b, &items, &count));
    for (int64_t i = 0; i < count && !*out; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_equal(run, items[i], a, out));
    }
    return TERN_OK;
}

tern_status tern_jinja_compare(struct jinja_run *run,
                               enum jinja_operator op,
                               struct jinja_value a,
                               struct jinja_value b,
                               bool *out)
{
    tern_status status;
    switch (op) {
    case OP_EQUAL:
    case OP_UNEQUAL:
        status = tern_jinja_equal(run, a, b, out);
        break;
    case OP_IN:
    case OP_NOT_IN:
        status = contains(run, a, b, out);
        break;
    default:
        return order(run, op, a, b, out);
    }
    *out ^= op == OP_UNEQUAL || op == OP_NOT_IN;
    return status;
}
