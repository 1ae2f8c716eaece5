/* grammar_pattern.c - reads the subset of ECMA-262's regular expressions that says which characters follow which. */
#include "runtime/base/mem.h"
#include "runtime/base/text.h"
#include "runtime/serve/grammar_nfa.h"
#include "runtime/serve/grammar_regex.h"

#include <stdlib.h>
#include <string.h>

static const char no_memory[] = "no memory";

bool tern_char_set_add(struct tern_char_set *set, uint32_t lo, uint32_t hi)
{
    if (!tern_grammar_grow((void **)&set->ranges, &set->capacity, set->count,
                           sizeof *set->ranges)) {
        return false;
    }
    set->ranges[set->count++] = (struct tern_char_range){lo, hi};
    return true;
}

static int compare_ranges(const void *a, const void *b)
{
    const struct tern_char_range *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

bool tern_char_set_finish(struct tern_char_set *set, bool is_negated)
{
    size_t kept = 0;
    if (set->count > 0) {
        qsort(set->ranges, set->count, sizeof *set->ranges, compare_ranges);
    }
    for (size_t i = 0; i < set->count; i++) {
        struct tern_char_range range = set->ranges[i];
        if (kept > 0 && range.lo <= set->ranges[kept - 1].hi + 1) {
            uint32_t *hi = &set->ranges[kept - 1].hi;
            *hi = range.hi > *hi ? range.hi : *hi;
        } else {
            set->ranges[kept++] = range;
        }
    }
    set->count = kept;
    if (!is_negated) {
        return true;
    }
    struct tern_char_set rest = {0};
    uint32_t from = 0;
    bool is_ok = true;
    for (size_t i = 0; i < set->count; i++) {
        if (set->ranges[i].lo > from) {
            is_ok = is_ok && tern_char_set_add(&rest, from, set->ranges[i].lo - 1);
        }
        from = set->ranges[i].hi + 1;
    }
    is_ok = is_ok &&
            (from > TERN_REGEX_LAST_CHAR || tern_char_set_add(&rest, from, TERN_REGEX_LAST_CHAR));
    tern_free(set->ranges);
    *set = rest;
    return is_ok;
}

struct reader {
    struct tern_regex *regex;
    const char *text;
    size_t bytes, at;
    int depth;
    const char *error;
};

static int32_t fail(struct reader *reader, const char *error)
{
    reader->error = reader->error != NULL ? reader->error : error;
    return -1;
}

static int32_t new_node(struct reader *reader, enum tern_regex_kind kind)
{
    struct tern_regex *regex = reader->regex;
    if (!tern_grammar_grow((void **)&regex->nodes, &regex->node_capacity, regex->node_count,
                           sizeof *regex->nodes)) {
        return fail(reader, no_memory);
    }
    regex->nodes[regex->node_count] =
        (struct tern_regex_node){.kind = kind, .child = -1, .next = -1, .set = -1};
    return (int32_t)regex->node_count++;
}

/* A node for one character of the set, which it takes over. */
static int32_t set_node(struct reader *reader, struct tern_char_set *set)
{
    struct tern_regex *regex = reader->regex;
    int32_t node = new_node(reader, TERN_REGEX_SET);
    if (node < 0 || !tern_grammar_grow((void **)&regex->sets, &regex->set_capacity,
                                       regex->set_count, sizeof *regex->sets)) {
        tern_free(set->ranges);
        return fail(reader, no_memory);
    }
    regex->nodes[node].set = (int32_t)regex->set_count;
    regex->sets[regex->set_count++] = *set;
    return node;
}

static int32_t range_node(struct reader *reader, uint32_t lo, uint32_t hi)
{
    struct tern_char_set set = {0};
    return tern_char_set_add(&set, lo, hi) ? set_node(reader, &set) : fail(reader, no_memory);
}

static int32_t repeat_node(struct reader *reader, int32_t child, int32_t min, int32_t max)
{
    int32_t node = new_node(reader, TERN_REGEX_REPEAT);
    if (node >= 0) {
        struct tern_regex_node *repeat = &reader->regex->nodes[node];
        repeat->child = child;
        repeat->min = min;
        repeat->max = max;
    }
    return node;
}

static bool is_next(const struct reader *reader, const char *text)
{
    size_t length = strlen(text);
    return reader->bytes - reader->at >= length &&
           memcmp(reader->text + reader->at, text, length) == 0;
}

static bool take(struct reader *reader, const char *text)
{
    bool is_there = is_next(reader, text);
    reader->at += is_there ? strlen(text) : 0;
    return is_there;
}

static uint32_t next_char(struct reader *reader)
{
    const unsigned char *text = (const unsigned char *)reader->text + reader->at;
    size_t left = reader->bytes - reader->at;
    if (left == 0) {
        fail(reader, "it ends too early");
        return 0;
    }
    enum tern_utf8 kind;
    size_t length = tern_utf8_next((const char *)text, left, &kind);
    reader->at += length;
    if (kind != TERN_UTF8_WHOLE) {
        fail(reader, "it is no UTF-8");
        return 0;
    }
    static const uint32_t masks[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t code = text[0] & masks[length];
    for (size_t i = 1; i < length; i++) {
        code = code << 6 | (text[i] & 0x3F);
    }
    return code;
}

static uint32_t hex(struct reader *reader, int digits)
{
    uint32_t code = 0;
    for (int i = 0; i < digits; i++) {
        uint32_t c = next_char(reader);
        uint32_t value = c >= '0' && c <= '9'   ? c - '0'
                         : c >= 'a' && c <= 'f' ? c - 'a' + 10
                         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                                : 16;
        if (value == 16) {
            fail(reader, "hexadecimal digits are missing behind \\x or \\u");
            return 0;
        }
        code = code * 16 + value;
    }
    return code;
}

/* \uXXXX, two of them for what is above U+FFFF; behind the u. */
static uint32_t unicode_escape(struct reader *reader)
{
    uint32_t code = hex(reader, 4);
    if (code >= 0xD800 && code < 0xDC00 && take(reader, "\\u")) {
        uint32_t low = hex(reader, 4);
        if (low >= 0xDC00 && low < 0xE000) {
            return 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00));
        }
    }
    if (code >= 0xD800 && code < 0xE000) {
        fail(reader, "half a surrogate pair is no character");
    }
    return code;
}

static bool add_class(struct reader *reader, struct tern_char_set *set, uint32_t letter)
{
    static const struct tern_char_range digit[] = {{'0', '9'}},
                                        word[] = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}},
                                        space[] = {{9, 13},          {' ', ' '},
                                                   {0xA0, 0xA0},     {0x1680, 0x1680},
                                                   {0x2000, 0x200A}, {0x2028, 0x2029},
                                                   {0x202F, 0x202F}, {0x205F, 0x205F},
                                                   {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
    uint32_t kind = letter | 0x20;
    const struct tern_char_range *ranges = kind == 'd' ? digit : kind == 'w' ? word : space;
    size_t count = kind == 'd' ? 1 : kind == 'w' ? 4 : sizeof space / sizeof space[0];
    struct tern_char_set own = {0};
    bool is_ok = true;
    for (size_t i = 0; i < count; i++) {
        is_ok = is_ok && tern_char_set_add(&own, ranges[i].lo, ranges[i].hi);
    }
    is_ok = is_ok && tern_char_set_finish(&own, letter < 'a');
    for (size_t i = 0; i < own.count; i++) {
        is_ok = is_ok && tern_char_set_add(set, own.ranges[i].lo, own.ranges[i].hi);
    }
    tern_free(own.ranges);
    if (!is_ok) {
        fail(reader, no_memory);
    }
    return is_ok;
}

/* Behind a backslash: true, and the character; or false, and a class was added to set. */
static bool escape(struct reader *reader, struct tern_char_set *set, bool in_class, uint32_t *out)
{
    static const char letters[] = "tnrfv0", values[] = "\t\n\r\f\v";
    uint32_t c = next_char(reader);
    *out = c;
    if (c < 0x80 && c != 0 && strchr("dDwWsS", (int)c) != NULL) {
        add_class(reader, set, c);
        return false;
    }
    const char *letter = c < 0x80 && c != 0 ? strchr(letters, (int)c) : NULL;
    if (letter != NULL) {
        *out = (uint32_t)values[letter - letters];
    } else if (c == 'x') {
        *out = hex(reader, 2);
    } else if (c == 'u') {
        *out = unicode_escape(reader);
    } else if (c == 'b' && in_class) {
        *out = 8;
    } else if (c == 'b' || c == 'B') {
        fail(reader, "\\b and \\B are not supported");
    } else if (c == 'p' || c == 'P') {
        fail(reader, "\\p is not supported");
    } else if ((c >= '1' && c <= '9') || c == 'k') {
        fail(reader, "back references are not supported");
    } else if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') {
        fail(reader, "this escape is not supported");
    }
    return true;
}

static int32_t char_class(struct reader *reader)
{
    struct tern_char_set set = {0};
    bool is_negated = take(reader, "^"), is_ok = true;
    while (reader->error == NULL && is_ok && !take(reader, "]")) {
        uint32_t lo, hi;
        bool is_char =
            take(reader, "\\") ? escape(reader, &set, true, &lo) : (lo = next_char(reader), true);
        if (!is_char) {
            continue;
        }
        hi = lo;
        if (is_next(reader, "-") && !is_next(reader, "-]")) {
            reader->at++;
            if (take(reader, "\\") ? !escape(reader, &set, true, &hi)
                                   : (hi = next_char(reader), false)) {
                fail(reader, "a class cannot end a range");
            }
        }
        if (hi < lo) {
            fail(reader, "a range goes backwards");
        }
        is_ok = tern_char_set_add(&set, lo, hi);
    }
    if (!is_ok || reader->error != NULL || !tern_char_set_finish(&set, is_negated)) {
        tern_free(set.ranges);
        return fail(reader, no_memory);
    }
    return set_node(reader, &set);
}

static int32_t dot(struct reader *reader)
{
    struct tern_char_set set = {0};
    if (!tern_char_set_add(&set, '\n', '\n') || !tern_char_set_add(&set, '\r', '\r') ||
        !tern_char_set_add(&set, 0x2028, 0x2029) || !tern_char_set_finish(&set, true)) {
        tern_free(set.ranges);
        return fail(reader, no_memory);
    }
    return set_node(reader, &set);
}

static int32_t choice(struct reader *reader);

static int32_t group(struct reader *reader)
{
    if (take(reader, "?")) {
        if (is_next(reader, "=") || is_next(reader, "!") || is_next(reader, "<=") ||
            is_next(reader, "<!")) {
            return fail(reader, "look-around is not supported");
        }
        if (take(reader, "<") || take(reader, "P<")) {
            while (reader->error == NULL && next_char(reader) != '>') {
            }
        } else if (!take(reader, ":")) {
            return fail(reader, "this kind of group is not supported");
        }
    }
    if (++reader->depth > TERN_REGEX_DEPTH_MAX) {
        return fail(reader, "groups are nested too deep (64 levels)");
    }
    int32_t node = choice(reader);
    reader->depth--;
    if (!take(reader, ")")) {
        return fail(reader, "a group is not closed");
    }
    return node;
}

static int32_t atom(struct reader *reader)
{
    if (take(reader, "(")) {
        return group(reader);
    }
    if (take(reader, "[")) {
        return char_class(reader);
    }
    if (take(reader, ".")) {
        return dot(reader);
    }
    if (take(reader, "\\")) {
        struct tern_char_set set = {0};
        uint32_t code;
        if (escape(reader, &set, false, &code)) {
            return reader->error == NULL ? range_node(reader, code, code) : -1;
        }
        if (reader->error != NULL || !tern_char_set_finish(&set, false)) {
            tern_free(set.ranges);
            return fail(reader, no_memory);
        }
        return set_node(reader, &set);
    }
    if (is_next(reader, "^") || is_next(reader, "$")) {
        return fail(reader, "^ and $ are supported at the ends of the expression only");
    }
    uint32_t code = next_char(reader);
    if (code == '*' || code == '+' || code == '?') {
        return fail(reader, "there is nothing to repeat");
    }
    return reader->error == NULL ? range_node(reader, code, code) : -1;
}

static int32_t number(struct reader *reader)
{
    int32_t value = 0, digits = 0;
    for (; reader->at < reader->bytes && reader->text[reader->at] >= '0' &&
           reader->text[reader->at] <= '9';
         digits++) {
        value = value * 10 + (reader->text[reader->at++] - '0');
        if (value > TERN_REGEX_REPEAT_MAX) {
            return fail(reader, "a repetition of more than 2000 is not supported");
        }
    }
    return digits > 0 ? value : -1;
}

/* {m}, {m,}, {m,n}: true, and passed. A brace that is none of those is a character, as in ECMA-262's annex B. */
static bool braces(struct reader *reader, int32_t *min, int32_t *max)
{
    size_t start = reader->at;
    if (!take(reader, "{")) {
        return false;
    }
    *min = *max = number(reader);
    if (*min >= 0 && take(reader, ",")) {
        *max = number(reader);
    }
    if (reader->error == NULL && (*min < 0 || !take(reader, "}"))) {
        reader->at = start;
        return false;
    }
    if (*max >= 0 && *max < *min) {
        fail(reader, "a repetition's bounds are the wrong way round");
    }
    return true;
}

static int32_t repeated(struct reader *reader)
{
    int32_t node = atom(reader);
    bool is_repeated = false;
    while (reader->error == NULL) {
        int32_t min, max;
        if (take(reader, "*")) {
            min = 0, max = -1;
        } else if (take(reader, "+")) {
            min = 1, max = -1;
        } else if (take(reader, "?")) {
            min = 0, max = 1;
        } else if (!braces(reader, &min, &max)) {
            break;
        }
        if (is_repeated) {
            return fail(reader, "a repetition of a repetition needs a group");
        }
        is_repeated = true;
        take(reader, "?"); /* lazy: the same texts */
        node = reader->error == NULL ? repeat_node(reader, node, min, max) : -1;
    }
    return node;
}

/* Appends node to the children of parent, of which *last was the last. */
static void append(struct reader *reader, int32_t parent, int32_t *last, int32_t node)
{
    if (node >= 0) {
        struct tern_regex_node *nodes = reader->regex->nodes;
        *(*last < 0 ? &nodes[parent].child : &nodes[*last].next) = node;
        *last = node;
    }
}

static bool at_end(const struct reader *reader)
{
    return reader->at == reader->bytes || (reader->depth == 0 && reader->at + 1 == reader->bytes &&
                                           reader->text[reader->at] == '$');
}

static int32_t join(struct reader *reader)
{
    int32_t node = new_node(reader, TERN_REGEX_JOIN), last = -1;
    while (reader->error == NULL && !at_end(reader) && !is_next(reader, "|") &&
           !is_next(reader, ")")) {
        int32_t child = repeated(reader);
        append(reader, node, &last, child);
    }
    return node;
}

static int32_t choice(struct reader *reader)
{
    int32_t node = new_node(reader, TERN_REGEX_CHOICE), last = -1;
    do {
        int32_t child = join(reader);
        append(reader, node, &last, child);
    } while (reader->error == NULL && take(reader, "|"));
    return node;
}

static int32_t any_text(struct reader *reader)
{
    int32_t any = range_node(reader, 0, TERN_REGEX_LAST_CHAR);
    return any >= 0 ? repeat_node(reader, any, 0, -1) : -1;
}

const char *tern_regex_parse(struct tern_regex *regex, const char *pattern, size_t bytes)
{
    struct reader reader = {.regex = regex, .text = pattern, .bytes = bytes};
    *regex = (struct tern_regex){.root = -1};
    if (bytes > TERN_REGEX_BYTES_MAX) {
        return "it is longer than 8192 bytes";
    }
    bool is_begun = take(&reader, "^");
    int32_t last = -1, root = new_node(&reader, TERN_REGEX_JOIN);
    if (!is_begun && root >= 0) {
        append(&reader, root, &last, any_text(&reader));
    }
    int32_t middle = choice(&reader);
    if (reader.error == NULL) {
        append(&reader, root, &last, middle);
        bool has_choice = regex->nodes[regex->nodes[middle].child].next >= 0;
        bool is_ended = take(&reader, "$");
        if (reader.at != bytes) {
            fail(&reader, "a ) is too many");
        } else if (has_choice && (is_begun || is_ended)) {
            /* ^a|b$ is (^a)|(b$) */
            fail(&reader, "^ and $ beside | need a group: ^(a|b)$");
        } else if (!is_ended) {
            append(&reader, root, &last, any_text(&reader));
        }
    }
    regex->root = root;
    return reader.error;
}

void tern_regex_fini(struct tern_regex *regex)
{
    for (size_t i = 0; i < regex->set_count; i++) {
        tern_free(regex->sets[i].ranges);
    }
    tern_free(regex->sets);
    tern_free(regex->nodes);
}
