/* jinja_method.c - the methods of strings: case, stripping, searching, what characters they have. */
#include "runtime/chat/jinja_method.h"

#include <string.h>

tern_status tern_jinja_part(struct jinja_run *run,
                            struct jinja_value self,
                            size_t begin,
                            size_t end,
                            struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_borrow(run, self.string->data + begin, end - begin, out));
    out->is_safe = self.is_safe;
    return TERN_OK;
}

tern_status tern_jinja_need_string(struct jinja_run *run,
                                   const char *what,
                                   struct jinja_value value)
{
    return value.kind == JINJA_STRING
               ? TERN_OK
               : tern_jinja_fail(run, "%s: found a value of type %s; expected a string", what,
                                 tern_jinja_type(value));
}

static tern_status no_arguments(struct jinja_run *run,
                                const char *what,
                                const struct jinja_call *call)
{
    return tern_jinja_arguments(run, what, call, NULL, 0, 0, NULL);
}

tern_status tern_jinja_positional(struct jinja_run *run,
                                  const char *what,
                                  const struct jinja_call *call,
                                  int64_t least,
                                  int64_t most)
{
    return call->keyword_count == 0 && call->count >= least && call->count <= most
               ? TERN_OK
               : tern_jinja_fail(run, "%s: found %lld arguments; expected %lld to %lld", what,
                                 (long long)(call->count + call->keyword_count), (long long)least,
                                 (long long)most);
}

/* ---- case ---- */

static tern_status string_upper(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, "upper", call));
    return tern_jinja_upper(run, self, out);
}

static tern_status string_lower(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, "lower", call));
    return tern_jinja_lower(run, self, out);
}

static tern_status string_title(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, "title", call));
    return tern_jinja_title(run, self, false, out);
}

static tern_status string_capitalize(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, "capitalize", call));
    return tern_jinja_title(run, self, true, out);
}

/* ---- stripping ---- */

static bool strips(struct jinja_value set, const char *at, int bytes, uint32_t code)
{
    return set.kind == JINJA_NONE
               ? tern_jinja_is_space(code)
               : memmem(set.string->data, set.string->bytes, at, (size_t)bytes) != NULL;
}

static tern_status strip(struct jinja_run *run,
                         const char *what,
                         struct jinja_value self,
                         const struct jinja_call *call,
                         bool at_begin,
                         bool at_end,
                         struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, what, call, 0, 1));
    struct jinja_value set = call->count == 1 ? call->items[0] : tern_jinja_none();
    if (set.kind != JINJA_NONE) {
        TERN_RETURN_IF_ERR(tern_jinja_need_string(run, what, set));
    }
    size_t begin = 0, end = self.string->bytes;
    const char *data = self.string->data;
    int bytes;
    while (at_begin && begin < end) {
        uint32_t code = tern_jinja_code(data + begin, &bytes);
        if (!strips(set, data + begin, bytes, code)) {
            break;
        }
        begin += (size_t)bytes;
    }
    while (at_end && end > begin) {
        size_t last = end - 1;
        while (last > begin && (data[last] & 0xC0) == 0x80) {
            last--;
        }
        uint32_t code = tern_jinja_code(data + last, &bytes);
        if (!strips(set, data + last, bytes, code)) {
            break;
        }
        end = last;
    }
    int64_t width = set.kind == JINJA_NONE ? 1 : 1 + (int64_t)set.string->bytes / 16;
    TERN_RETURN_IF_ERR(
        tern_jinja_spend(run, (int64_t)(self.string->bytes - (end - begin)) / 16 * width));
    return tern_jinja_part(run, self, begin, end, out);
}

static tern_status string_strip(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return strip(run, "strip", self, call, true, true, out);
}

static tern_status string_lstrip(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    return strip(run, "lstrip", self, call, true, false, out);
}

static tern_status string_rstrip(struct jinja_run *run,
                                 struct jinja_value self,
                                 const struct jinja_call *call,
                                 struct jinja_value *out)
{
    return strip(run, "rstrip", self, call, false, true, out);
}

/* ---- begins and ends ---- */

static bool has_affix(const struct jinja_string *s, const struct jinja_string *affix, bool at_end)
{
    return affix->bytes <= s->bytes && memcmp(at_end ? s->data + s->bytes - affix->bytes : s->data,
                                              affix->data, affix->bytes) == 0;
}

/* One string or a tuple of them. */
static tern_status affix_test(struct jinja_run *run,
                              const char *what,
                              struct jinja_value self,
                              const struct jinja_call *call,
                              bool at_end,
                              struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, what, call, 1, 1));
    struct jinja_value *items = call->items;
    int64_t count = 1;
    bool holds = false;
    if (items[0].kind == JINJA_TUPLE) {
        count = items[0].list->count;
        items = items[0].list->items;
    }
    for (int64_t i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(tern_jinja_need_string(run, what, items[i]));
        holds = holds || has_affix(self.string, items[i].string, at_end);
    }
    *out = tern_jinja_bool(holds);
    return tern_jinja_spend(run, 1 + count / 16);
}

static tern_status string_startswith(struct jinja_run *run,
                                     struct jinja_value self,
                                     const struct jinja_call *call,
                                     struct jinja_value *out)
{
    return affix_test(run, "startswith", self, call, false, out);
}

static tern_status string_endswith(struct jinja_run *run,
                                   struct jinja_value self,
                                   const struct jinja_call *call,
                                   struct jinja_value *out)
{
    return affix_test(run, "endswith", self, call, true, out);
}

static tern_status string_removeprefix(struct jinja_run *run,
                                       struct jinja_value self,
                                       const struct jinja_call *call,
                                       struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, "removeprefix", call, 1, 1));
    TERN_RETURN_IF_ERR(tern_jinja_need_string(run, "removeprefix", call->items[0]));
    size_t cut =
        has_affix(self.string, call->items[0].string, false) ? call->items[0].string->bytes : 0;
    return tern_jinja_part(run, self, cut, self.string->bytes, out);
}

static tern_status string_removesuffix(struct jinja_run *run,
                                       struct jinja_value self,
                                       const struct jinja_call *call,
                                       struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, "removesuffix", call, 1, 1));
    TERN_RETURN_IF_ERR(tern_jinja_need_string(run, "removesuffix", call->items[0]));
    size_t cut =
        has_affix(self.string, call->items[0].string, true) ? call->items[0].string->bytes : 0;
    return tern_jinja_part(run, self, 0, self.string->bytes - cut, out);
}

/* ---- finding ---- */

tern_status tern_jinja_find_last(struct jinja_run *run,
                                 const struct jinja_string *s,
                                 size_t bytes,
                                 const struct jinja_string *part,
                                 const char **out)
{
    *out = NULL;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)bytes / 16));
    if (part->bytes == 0) {
        *out = s->data + bytes;
        return TERN_OK;
    }
    for (size_t left = part->bytes <= bytes ? bytes - part->bytes + 1 : 0; left > 0; left--) {
        const char *at = s->data + left - 1;
        if (*at != part->data[0]) {
            continue;
        }
        TERN_RETURN_IF_ERR(tern_jinja_spend(run, 1 + (int64_t)part->bytes / 64));
        if (memcmp(at, part->data, part->bytes) == 0) {
            *out = at;
            return TERN_OK;
        }
    }
    return TERN_OK;
}

static tern_status find(struct jinja_run *run,
                        const char *what,
                        struct jinja_value self,
                        const struct jinja_call *call,
                        bool from_end,
                        bool must_be_there,
                        struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, what, call, 1, 3));
    TERN_RETURN_IF_ERR(tern_jinja_need_string(run, what, call->items[0]));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)self.string->bytes / 64));
    struct jinja_value part = call->items[0], where = self;
    int64_t skipped = 0, all = tern_jinja_characters(self.string);
    if (call->count > 1) {
        struct jinja_value bounds[3] = {call->items[1], tern_jinja_none(), tern_jinja_none()};
        bounds[1] = call->count > 2 ? call->items[2] : bounds[1];
        TERN_RETURN_IF_ERR(tern_jinja_slice(run, self, bounds, &where));
        skipped = bounds[0].kind == JINJA_NONE ? 0 : tern_jinja_integer(bounds[0]);
        skipped += skipped < 0 ? all : 0;
        skipped = skipped < 0 ? 0 : skipped;
    }
    const struct jinja_string *s = where.string;
    const char *found = memmem(s->data, s->bytes, part.string->data, part.string->bytes);
    if (from_end) {
        TERN_RETURN_IF_ERR(tern_jinja_find_last(run, s, s->bytes, part.string, &found));
    }
    found = skipped > all ? NULL : found;
    if (found == NULL && must_be_there) {
        return tern_jinja_fail(run, "%s: the string does not have that part", what);
    }
    int64_t index = -1;
    if (found != NULL) {
        struct jinja_string before = {s->data, (size_t)(found - s->data), SIZE_MAX};
        index = skipped + tern_jinja_characters(&before);
    }
    *out = tern_jinja_int(index);
    return TERN_OK;
}

static tern_status string_find(struct jinja_run *run,
                               struct jinja_value self,
                               const struct jinja_call *call,
                               struct jinja_value *out)
{
    return find(run, "find", self, call, false, false, out);
}

static tern_status string_rfind(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return find(run, "rfind", self, call, true, false, out);
}

static tern_status string_index(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    return find(run, "index", self, call, false, true, out);
}

static tern_status string_count(struct jinja_run *run,
                                struct jinja_value self,
                                const struct jinja_call *call,
                                struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(tern_jinja_positional(run, "count", call, 1, 1));
    TERN_RETURN_IF_ERR(tern_jinja_need_string(run, "count", call->items[0]));
    const struct jinja_string *s = self.string, *part = call->items[0].string;
    int64_t count = 0;
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)s->bytes / 16));
    if (part->bytes == 0) {
        *out = tern_jinja_int(tern_jinja_characters(self.string) + 1);
        return TERN_OK;
    }
    for (size_t at = 0; at < s->bytes; count++) {
        const char *found = memmem(s->data + at, s->bytes - at, part->data, part->bytes);
        if (found == NULL) {
            break;
        }
        at = (size_t)(found - s->data) + part->bytes;
    }
    *out = tern_jinja_int(count);
    return TERN_OK;
}

/* ---- what characters are ---- */

static tern_status all_characters(struct jinja_run *run,
                                  const char *what,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  bool (*holds)(uint32_t code),
                                  struct jinja_value *out)
{
    TERN_RETURN_IF_ERR(no_arguments(run, what, call));
    TERN_RETURN_IF_ERR(tern_jinja_spend(run, (int64_t)self.string->bytes / 16));
    bool all = self.string->bytes > 0;
    for (size_t at = 0; at < self.string->bytes && all;) {
        int bytes;
        all = holds(tern_jinja_code(self.string->data + at, &bytes));
        at += (size_t)bytes;
    }
    *out = tern_jinja_bool(all);
    return TERN_OK;
}

static tern_status string_isdigit(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return all_characters(run, "isdigit", self, call, tern_jinja_is_digit, out);
}

static tern_status string_isalpha(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return all_characters(run, "isalpha", self, call, tern_jinja_is_alpha, out);
}

static tern_status string_isspace(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return all_characters(run, "isspace", self, call, tern_jinja_is_space, out);
}

static tern_status string_case_is(struct jinja_run *run,
                                  const char *test,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    bool holds;
    TERN_RETURN_IF_ERR(tern_jinja_apply_test(run, test, self, call, &holds));
    *out = tern_jinja_bool(holds);
    return TERN_OK;
}

static tern_status string_isupper(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return string_case_is(run, "upper", self, call, out);
}

static tern_status string_islower(struct jinja_run *run,
                                  struct jinja_value self,
                                  const struct jinja_call *call,
                                  struct jinja_value *out)
{
    return string_case_is(run, "lower", self, call, out);
}

static const struct jinja_function g_methods[] = {
    {"upper", string_upper},
    {"lower", string_lower},
    {"title", string_title},
    {"capitalize", string_capitalize},
    {"strip", string_strip},
    {"lstrip", string_lstrip},
    {"rstrip", string_rstrip},
    {"startswith", string_startswith},
    {"endswith", string_endswith},
    {"removeprefix", string_removeprefix},
    {"removesuffix", string_removesuffix},
    {"find", string_find},
    {"rfind", string_rfind},
    {"index", string_index},
    {"count", string_count},
    {"isdigit", string_isdigit},
    {"isalpha", string_isalpha},
    {"isspace", string_isspace},
    {"isupper", string_isupper},
    {"islower", string_islower},
};

jinja_builtin tern_jinja_find_string_method(const char *name)
{
    for (size_t i = 0; i < sizeof g_methods / sizeof g_methods[0]; i++) {
        if (strcmp(name, g_methods[i].name) == 0) {
            return g_methods[i].call;
        }
    }
    return tern_jinja_find_string_maker(name);
}
