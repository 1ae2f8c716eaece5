/* jinja_lex.c - a template's source to tokens: text between tags, white space control, raw blocks, literals. */
#include "runtime/base/mem.h"
#include "runtime/chat/jinja_internal.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NESTING_MAX = 256
};

struct lexer {
    struct tern_jinja *jinja;
    const char *source;
    size_t bytes, at;
    bool is_line_start; /* only nothing or a newline lies before `at` since the last token */
    struct jinja_token *tokens;
    int64_t count, capacity;
    char closers[NESTING_MAX]; /* brackets that are open */
    int open;
};

tern_status tern_jinja_fail_at(const struct tern_jinja *jinja,
                               tern_status status,
                               size_t at,
                               const char *format,
                               ...)
{
    int line = 1, column = 1;
    for (size_t i = 0; i < at && i < jinja->source_bytes; i++) {
        bool is_newline = jinja->source[i] == '\n';
        line += is_newline;
        column = is_newline ? 1 : column + ((jinja->source[i] & 0xC0) != 0x80);
    }
    char sentence[TERN_DETAIL_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    return tern_fail(status, "%s: line %d, column %d: %s", jinja->name, line, column, sentence);
}

static tern_status fail(const struct lexer *lexer, size_t at, const char *sentence)
{
    return tern_jinja_fail_at(lexer->jinja, TERN_ERR_INPUT, at, "%s", sentence);
}

static tern_status add(struct lexer *lexer, struct jinja_token token)
{
    if (lexer->count == lexer->capacity) {
        int64_t capacity = lexer->capacity * 2 + 256;
        struct jinja_token *grown =
            tern_realloc("chat template", lexer->tokens, (size_t)capacity * sizeof *grown);
        if (grown == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "%s: cannot allocate its tokens", lexer->jinja->name);
        }
        lexer->tokens = grown;
        lexer->capacity = capacity;
    }
    lexer->tokens[lexer->count++] = token;
    return TERN_OK;
}

static tern_status add_kind(struct lexer *lexer, enum jinja_token_kind kind, size_t at)
{
    return add(lexer, (struct jinja_token){.kind = kind, .at = (uint32_t)at});
}

static tern_status add_data(struct lexer *lexer, size_t begin, size_t end)
{
    return end == begin ? TERN_OK
                        : add(lexer, (struct jinja_token){.kind = TOKEN_DATA,
                                                          .at = (uint32_t)begin,
                                                          .text = lexer->source + begin,
                                                          .bytes = end - begin});
}

static bool looking_at(const struct lexer *lexer, size_t at, const char *text)
{
    size_t length = strlen(text);
    return length <= lexer->bytes - at && memcmp(lexer->source + at, text, length) == 0;
}

static size_t skip_space(const struct lexer *lexer, size_t at)
{
    while (at < lexer->bytes) {
        int bytes;
        if (!tern_jinja_is_space(tern_jinja_code(lexer->source + at, &bytes))) {
            break;
        }
        at += (size_t)bytes;
    }
    return at;
}

/* Where the white space at the end of [begin, end) begins. */
static size_t space_before(const struct lexer *lexer, size_t begin, size_t end)
{
    while (end > begin) {
        size_t at = end - 1;
        while (at > begin && (lexer->source[at] & 0xC0) == 0x80) {
            at--;
        }
        int bytes;
        if (!tern_jinja_is_space(tern_jinja_code(lexer->source + at, &bytes))) {
            break;
        }
        end = at;
    }
    return end;
}

/* ---- tags ---- */

/* The end of a tag at `at`, "%}", with its sign before it: where the text goes on, 0 if it is none. */
static size_t tag_end(const struct lexer *lexer, size_t at, const char *close, bool may_trim)
{
    char sign = at < lexer->bytes ? lexer->source[at] : '\0';
    size_t after = at + (sign == '-' || (sign == '+' && may_trim));
    if (!looking_at(lexer, after, close)) {
        return 0;
    }
    after += 2;
    if (sign == '-') {
        return skip_space(lexer, after);
    }
    bool trims = may_trim && sign != '+' && after < lexer->bytes && lexer->source[after] == '\n';
    return after + trims;
}

/* Where the text before a tag at `end` ends: `-` strips white space, and a block tag that is first on its line strips
 * the blanks before it, unless it has a `+`. */
static size_t text_end(const struct lexer *lexer, size_t begin, size_t end, bool is_variable)
{
    char sign = end + 2 < lexer->bytes ? lexer->source[end + 2] : '\0';
    if (sign == '-') {
        return space_before(lexer, begin, end);
    }
    if (sign == '+' || is_variable) {
        return end;
    }
    size_t line = end;
    while (line > begin && lexer->source[line - 1] != '\n') {
        line--;
    }
    bool is_first = line > begin || lexer->is_line_start;
    return is_first && space_before(lexer, line, end) == line ? line : end;
}

static bool ends_line(const struct lexer *lexer, size_t at)
{
    return at > 0 && lexer->source[at - 1] == '\n';
}

/* A "raw" or "endraw" tag at `at`: where its closing begins, 0 if it is another tag. */
static size_t raw_word(const struct lexer *lexer, size_t at, const char *word)
{
    at += 2;
    at += at < lexer->bytes && (lexer->source[at] == '-' || lexer->source[at] == '+');
    at = skip_space(lexer, at);
    return looking_at(lexer, at, word) ? skip_space(lexer, at + strlen(word)) : 0;
}

/* {% raw %} ... {% endraw %}; `at` is the first tag, `close` the place of its closing. */
static tern_status lex_raw(struct lexer *lexer, size_t at, size_t close)
{
    size_t begin = tag_end(lexer, close, "%}", false);
    lexer->is_line_start = ends_line(lexer, begin);
    for (size_t i = begin; i + 1 < lexer->bytes; i++) {
        if (!looking_at(lexer, i, "{%")) {
            continue;
        }
        size_t word = raw_word(lexer, i, "endraw");
        size_t after = word != 0 ? tag_end(lexer, word, "%}", true) : 0;
        if (after != 0) {
            TERN_RETURN_IF_ERR(add_data(lexer, begin, text_end(lexer, begin, i, false)));
            lexer->at = after;
            lexer->is_line_start = ends_line(lexer, after);
            return TERN_OK;
        }
    }
    if (begin == lexer->bytes) { /* jinja lets an empty one at the very end pass */
        lexer->at = begin;
        return TERN_OK;
    }
    return fail(lexer, at, "found {% raw %} without its end; expected {% endraw %}");
}

static tern_status lex_comment(struct lexer *lexer, size_t at)
{
    size_t begin =
        at + 2 +
        (at + 2 < lexer->bytes && (lexer->source[at + 2] == '-' || lexer->source[at + 2] == '+'));
    for (size_t i = begin; i + 1 < lexer->bytes; i++) {
        size_t after = tag_end(lexer, i, "#}", true);
        if (after != 0) {
            lexer->at = after;
            lexer->is_line_start = ends_line(lexer, after);
            return TERN_OK;
        }
    }
    return fail(lexer, at, "found a comment without its end; expected #}");
}

/* ---- literals ---- */

static bool is_name_start(char c)
{
    return isalpha((unsigned char)c) || c == '_';
}

static bool is_name_part(char c)
{
    return is_name_start(c) || isdigit((unsigned char)c);
}

/* Digits with single underscores between them. */
static size_t digits_end(const struct lexer *lexer, size_t at, int base)
{
    static const char all[] = "0123456789abcdef";
    size_t begin = at;
    for (;;) {
        size_t digit = at + (at > begin && at < lexer->bytes && lexer->source[at] == '_');
        const char *found =
            digit < lexer->bytes
                ? memchr(all, tolower((unsigned char)lexer->source[digit]), (size_t)base)
                : NULL;
        if (found == NULL) {
            return at;
        }
        at = digit + 1;
    }
}

/* Where the fraction and exponent behind the digits that end at `at` end; `at` if there are none. */
static size_t fraction_end(const struct lexer *lexer, size_t at)
{
    size_t end = at;
    if (end < lexer->bytes && lexer->source[end] == '.') {
        size_t digits = digits_end(lexer, end + 1, 10);
        end = digits > end + 1 ? digits : end;
    }
    if (end < lexer->bytes && tolower((unsigned char)lexer->source[end]) == 'e') {
        size_t sign = end + 1;
        sign += sign < lexer->bytes && strchr("+-", lexer->source[sign]) != NULL;
        size_t digits = digits_end(lexer, sign, 10);
        end = digits > sign ? digits : end;
    }
    return end;
}

static tern_status lex_number(struct lexer *lexer)
{
    size_t at = lexer->at;
    char second = at + 1 < lexer->bytes ? (char)tolower((unsigned char)lexer->source[at + 1]) : 0;
    int base = lexer->source[at] != '0' ? 10
               : second == 'x'          ? 16
               : second == 'o'          ? 8
               : second == 'b'          ? 2
                                        : 10;
    size_t begin = base == 10 ? at : at + 2;
    size_t end = digits_end(lexer, begin, base);
    bool may_be_float = base == 10 && (at == 0 || lexer->source[at - 1] != '.');
    size_t float_end = may_be_float ? fraction_end(lexer, end) : end;
    char text[128];
    size_t length = 0;
    for (size_t i = begin; i < float_end; i++) {
        if (lexer->source[i] != '_' && length < sizeof text - 1) {
            text[length++] = lexer->source[i];
        }
    }
    text[length] = '\0';
    struct jinja_token token = {.kind = TOKEN_INT, .at = (uint32_t)at};
    errno = 0;
    if (float_end > end) {
        token.kind = TOKEN_FLOAT;
        token.real = strtod(text, NULL);
    } else {
        token.integer = strtoll(text, NULL, base);
    }
    if (length == sizeof text - 1 || (token.kind == TOKEN_INT && errno != 0) || end == begin) {
        return tern_jinja_fail_at(lexer->jinja, TERN_ERR_UNSUPPORTED, at,
                                  "found a number that 64 bits do not hold");
    }
    lexer->at = float_end;
    return add(lexer, token);
}

/* \x41 and its kin: `digits` of them at `at`. */
static tern_status escape_code(const struct lexer *lexer, size_t at, int digits, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < digits; i++) {
        unsigned char c = at + (size_t)i < lexer->bytes ? (unsigned char)lexer->source[at + i] : 0;
        if (!isxdigit(c)) {
            return fail(lexer, at, "found an escape that is cut short; expected its hex digits");
        }
        *out = *out * 16 + (uint32_t)(isdigit(c) ? c - '0' : tolower(c) - 'a' + 10);
    }
    if (*out > 0x10FFFF || (*out >= 0xD800 && *out < 0xE000)) {
        return fail(lexer, at, "found an escape that is no character");
    }
    return TERN_OK;
}

/* The escape whose backslash is at *at; appends to out (at most 4 bytes, never more than the escape is long). */
static tern_status unescape(const struct lexer *lexer, size_t *at, char *out, size_t *length)
{
    static const char letters[] = "nrtabfv\\'\"", codes[] = "\n\r\t\a\b\f\v\\'\"";
    char c = lexer->source[*at + 1];
    const char *known = c != '\0' ? strchr(letters, c) : NULL;
    uint32_t code = 0;
    if (known != NULL) {
        out[(*length)++] = codes[known - letters];
        *at += 2;
        return TERN_OK;
    }
    if (c == '\n') { /* a line that goes on */
        *at += 2;
        return TERN_OK;
    }
    int digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
        TERN_RETURN_IF_ERR(escape_code(lexer, *at + 2, digits, &code));
        *at += 2 + (size_t)digits;
    } else if (c >= '0' && c <= '7') {
        size_t end = *at + 1;
        while (end < *at + 4 && lexer->source[end] >= '0' && lexer->source[end] <= '7') {
            code = code * 8 + (uint32_t)(lexer->source[end++] - '0');
        }
        *at = end;
    } else if (c == 'N') {
        return tern_jinja_fail_at(lexer->jinja, TERN_ERR_UNSUPPORTED, *at,
                                  "\\N{...} in a string is not supported");
    } else {
        out[(*length)++] = '\\';
        *at += 1;
        return TERN_OK;
    }
    *length += (size_t)tern_jinja_encode(code, out + *length);
    return TERN_OK;
}

static tern_status lex_string(struct lexer *lexer)
{
    size_t begin = lexer->at + 1, end = begin;
    char quote = lexer->source[lexer->at];
    while (end < lexer->bytes && lexer->source[end] != quote) {
        end += lexer->source[end] == '\\' ? 2 : 1;
    }
    if (end >= lexer->bytes) {
        return fail(lexer, lexer->at, "found a string without its end");
    }
    struct jinja_token token = {.kind = TOKEN_STRING, .at = (uint32_t)lexer->at};
    /* a code point is never longer than its escape, \x80 and \200 are two bytes in four */
    char *out = tern_jinja_pool_alloc(&lexer->jinja->pool, end - begin + 4);
    if (out == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "%s: too large", lexer->jinja->name);
    }
    for (size_t at = begin; at < end;) {
        if (lexer->source[at] == '\\') {
            TERN_RETURN_IF_ERR(unescape(lexer, &at, out, &token.bytes));
        } else {
            out[token.bytes++] = lexer->source[at++];
        }
    }
    token.text = out;
    lexer->at = end + 1;
    return add(lexer, token);
}

static tern_status balance(struct lexer *lexer, char c)
{
    char closer = c == '(' ? ')' : c == '[' ? ']' : c == '{' ? '}' : '\0';
    if (closer != '\0') {
        if (lexer->open == NESTING_MAX) {
            return fail(lexer, lexer->at, "brackets are nested too deeply");
        }
        lexer->closers[lexer->open++] = closer;
        return TERN_OK;
    }
    if (strchr(")]}", c) == NULL) {
        return TERN_OK;
    }
    char expected = lexer->open > 0 ? lexer->closers[lexer->open - 1] : '\0';
    if (c != expected) {
        return tern_jinja_fail_at(lexer->jinja, TERN_ERR_INPUT, lexer->at,
                                  "found '%c'; expected %s", c,
                                  expected == '\0'  ? "a bracket to be open"
                                  : expected == ')' ? "')'"
                                  : expected == ']' ? "']'"
                                                    : "'}'");
    }
    lexer->open--;
    return TERN_OK;
}

static tern_status lex_operator(struct lexer *lexer)
{
    static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                            "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                            ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    for (size_t i = 0; i < sizeof operators / sizeof operators[0]; i++) {
        if (!looking_at(lexer, lexer->at, operators[i])) {
            continue;
        }
        size_t length = strlen(operators[i]);
        const char *text = tern_jinja_intern(lexer->jinja, operators[i], length);
        if (text == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "%s: too large", lexer->jinja->name);
        }
        TERN_RETURN_IF_ERR(balance(lexer, operators[i][0]));
        struct jinja_token token = {
            .kind = TOKEN_OPERATOR, .at = (uint32_t)lexer->at, .text = text, .bytes = length};
        lexer->at += length;
        return add(lexer, token);
    }
    int bytes;
    tern_jinja_code(lexer->source + lexer->at, &bytes);
    return tern_jinja_fail_at(lexer->jinja, TERN_ERR_INPUT, lexer->at,
                              "found '%.*s'; expected a name, a value or an operator", bytes,
                              lexer->source + lexer->at);
}

static tern_status lex_token(struct lexer *lexer)
{
    char c = lexer->source[lexer->at];
    if (isdigit((unsigned char)c)) {
        return lex_number(lexer);
    }
    if (c == '"' || c == '\'') {
        return lex_string(lexer);
    }
    if (!is_name_start(c)) {
        return lex_operator(lexer);
    }
    size_t end = lexer->at;
    while (end < lexer->bytes && is_name_part(lexer->source[end])) {
        end++;
    }
    size_t bytes = end - lexer->at;
    const char *text = tern_jinja_intern(lexer->jinja, lexer->source + lexer->at, bytes);
    if (text == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "%s: too large", lexer->jinja->name);
    }
    struct jinja_token token = {
        .kind = TOKEN_NAME, .at = (uint32_t)lexer->at, .text = text, .bytes = bytes};
    lexer->at = end;
    return add(lexer, token);
}

/* The inside of {{ }} or {% %}, its end included. */
static tern_status lex_tag(struct lexer *lexer, size_t at, bool is_variable)
{
    TERN_RETURN_IF_ERR(add_kind(lexer, is_variable ? TOKEN_VARIABLE_BEGIN : TOKEN_BLOCK_BEGIN, at));
    lexer->at = at + 2;
    lexer->at += lexer->at < lexer->bytes &&
                 (lexer->source[lexer->at] == '-' || lexer->source[lexer->at] == '+');
    lexer->open = 0;
    for (;;) {
        size_t after = lexer->open > 0
                           ? 0
                           : tag_end(lexer, lexer->at, is_variable ? "}}" : "%}", !is_variable);
        if (after != 0) {
            TERN_RETURN_IF_ERR(
                add_kind(lexer, is_variable ? TOKEN_VARIABLE_END : TOKEN_BLOCK_END, lexer->at));
            lexer->at = after;
            lexer->is_line_start = ends_line(lexer, after);
            return TERN_OK;
        }
        size_t begin = skip_space(lexer, lexer->at);
        if (begin >= lexer->bytes) {
            return fail(lexer, at,
                        is_variable ? "found {{ without its end; expected }}"
                                    : "found {% without its end; expected %}");
        }
        if (begin == lexer->at) {
            TERN_RETURN_IF_ERR(lex_token(lexer));
        } else {
            lexer->at = begin;
        }
    }
}

/* ---- the whole ---- */

/* The next "{{", "{%" or "{#", the end if there is none. */
static size_t next_tag(const struct lexer *lexer)
{
    size_t at = lexer->at;
    while (at < lexer->bytes) {
        const char *brace = memchr(lexer->source + at, '{', lexer->bytes - at);
        if (brace == NULL) {
            break;
        }
        at = (size_t)(brace - lexer->source);
        if (at + 1 < lexer->bytes && strchr("{%#", brace[1]) != NULL && brace[1] != '\0') {
            return at;
        }
        at++;
    }
    return lexer->bytes;
}

static tern_status lex_all(struct lexer *lexer)
{
    while (lexer->at < lexer->bytes) {
        size_t at = next_tag(lexer);
        if (at == lexer->bytes) {
            TERN_RETURN_IF_ERR(add_data(lexer, lexer->at, at));
            break;
        }
        char kind = lexer->source[at + 1];
        TERN_RETURN_IF_ERR(add_data(lexer, lexer->at, text_end(lexer, lexer->at, at, kind == '{')));
        size_t raw = kind == '%' ? raw_word(lexer, at, "raw") : 0;
        if (raw != 0 && tag_end(lexer, raw, "%}", false) != 0) {
            TERN_RETURN_IF_ERR(lex_raw(lexer, at, raw));
        } else if (kind == '#') {
            TERN_RETURN_IF_ERR(lex_comment(lexer, at));
        } else {
            TERN_RETURN_IF_ERR(lex_tag(lexer, at, kind == '{'));
        }
    }
    return add_kind(lexer, TOKEN_END, lexer->bytes);
}

tern_status tern_jinja_lex(struct tern_jinja *jinja,
                           struct jinja_token **tokens_out,
                           int64_t *count_out)
{
    struct lexer lexer = {.jinja = jinja,
                          .source = jinja->source,
                          .bytes = jinja->source_bytes,
                          .is_line_start = true};
    tern_status status = lex_all(&lexer);
    if (status != TERN_OK) {
        tern_free(lexer.tokens);
        return status;
    }
    *tokens_out = lexer.tokens;
    *count_out = lexer.count;
    return TERN_OK;
}
