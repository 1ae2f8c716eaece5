/* xml.c - one pass over a document, a stack of names. */
#include "io/xml.h"

#include <string.h>

struct parser {
    const char *start, *at, *end;
    tern_xml_visit visit;
    void *context;
    int depth;
    bool had_root;
    char names[TERN_XML_DEPTH_MAX][TERN_XML_NAME_BYTES];
    struct tern_text text;
};

static tern_status wrong(const struct parser *parser, const char *what)
{
    return tern_fail(TERN_ERR_INPUT, "byte %zu of the XML: %s",
                     (size_t)(parser->at - parser->start), what);
}

static bool starts(const struct parser *parser, const char *with)
{
    size_t bytes = strlen(with);
    return (size_t)(parser->end - parser->at) >= bytes && memcmp(parser->at, with, bytes) == 0;
}

static const char *find(const struct parser *parser, const char *what)
{
    return memmem(parser->at, (size_t)(parser->end - parser->at), what, strlen(what));
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* Passes over everything up to and with `mark`. */
static tern_status skip_past(struct parser *parser, const char *mark)
{
    const char *found = find(parser, mark);
    if (found == NULL) {
        return wrong(parser, "begins something that does not end");
    }
    parser->at = found + strlen(mark);
    return TERN_OK;
}

/* ---- text ---- */

static size_t encode_utf8(uint32_t code, char out[4])
{
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t count = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned char leads[] = {0, 0, 0xC0, 0xE0, 0xF0};
    for (size_t i = count; i-- > 1; code >>= 6) {
        out[i] = (char)(0x80 | (code & 0x3F));
    }
    out[0] = (char)(leads[count] | code);
    return count;
}

/* "#38" or "#x26" */
static bool parse_code(const char *name, size_t bytes, uint32_t *out)
{
    bool is_hex = bytes > 1 && name[1] == 'x';
    uint32_t code = 0;
    size_t first = is_hex ? 2 : 1;
    for (size_t i = first; i < bytes; i++) {
        char c = name[i];
        uint32_t digit = c >= '0' && c <= '9'             ? (uint32_t)(c - '0')
                         : is_hex && c >= 'a' && c <= 'f' ? (uint32_t)(c - 'a') + 10
                         : is_hex && c >= 'A' && c <= 'F' ? (uint32_t)(c - 'A') + 10
                                                          : 99;
        if (digit == 99 || code > 0x10FFFF) {
            return false;
        }
        code = code * (is_hex ? 16 : 10) + digit;
    }
    *out = code;
    return bytes > first && code > 0 && code <= 0x10FFFF && (code < 0xD800 || code > 0xDFFF);
}

static tern_status take_entity(struct parser *parser)
{
    static const struct {
        const char *name;
        char is;
    } known[] = {{"lt", '<'}, {"gt", '>'}, {"amp", '&'}, {"quot", '"'}, {"apos", '\''}};
    const char *name = parser->at + 1;
    size_t left = (size_t)(parser->end - name);
    const char *mark = memchr(name, ';', left < 10 ? left : 10);
    size_t bytes = mark != NULL ? (size_t)(mark - name) : 0;
    uint32_t code = 0;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (bytes == strlen(known[i].name) && memcmp(name, known[i].name, bytes) == 0) {
            code = (uint32_t)known[i].is;
        }
    }
    if (code == 0 && (bytes < 2 || name[0] != '#' || !parse_code(name, bytes, &code))) {
        return wrong(parser, "an entity that is not known");
    }
    char utf8[4];
    parser->at = mark + 1;
    return tern_text_append(&parser->text, utf8, encode_utf8(code, utf8));
}

static tern_status take_text(struct parser *parser)
{
    while (parser->at < parser->end && *parser->at != '<') {
        if (*parser->at == '&') {
            TERN_RETURN_IF_ERR(take_entity(parser));
            continue;
        }
        const char *from = parser->at;
        while (parser->at < parser->end && *parser->at != '<' && *parser->at != '&') {
            if (*parser->at == '\0' || (parser->depth == 0 && !is_space(*parser->at))) {
                return wrong(parser, "found what is no XML");
            }
            parser->at++;
        }
        TERN_RETURN_IF_ERR(tern_text_append(&parser->text, from, (size_t)(parser->at - from)));
    }
    return TERN_OK;
}

static tern_status take_cdata(struct parser *parser)
{
    parser->at += 9;
    const char *end = find(parser, "]]>");
    if (end == NULL || parser->depth == 0) {
        return wrong(parser, "a CDATA section that is not closed or stands alone");
    }
    TERN_RETURN_IF_ERR(tern_text_append(&parser->text, parser->at, (size_t)(end - parser->at)));
    parser->at = end + 3;
    return TERN_OK;
}

/* ---- elements ---- */

static tern_status take_name(struct parser *parser, char out[TERN_XML_NAME_BYTES])
{
    size_t bytes = 0;
    while (parser->at + bytes < parser->end && !is_space(parser->at[bytes]) &&
           strchr("/>=<&\"'", parser->at[bytes]) == NULL) {
        bytes++;
    }
    if (bytes == 0 || bytes >= TERN_XML_NAME_BYTES) {
        return wrong(parser, "a name of 1 to 63 bytes was expected");
    }
    memcpy(out, parser->at, bytes);
    out[bytes] = '\0';
    parser->at += bytes;
    return TERN_OK;
}

static void forget_text(struct parser *parser)
{
    parser->text.length = 0;
    if (parser->text.data != NULL) {
        parser->text.data[0] = '\0';
    }
}

static tern_status end_element(struct parser *parser)
{
    const char *text = parser->text.data != NULL ? parser->text.data : "";
    tern_status status =
        parser->visit(parser->context, parser->depth - 1, parser->names[parser->depth - 1], text);
    parser->depth--;
    forget_text(parser);
    return status;
}

/* Attributes, up to and with '>'; *is_empty_out: "/>". */
static tern_status skip_attributes(struct parser *parser, bool *is_empty_out)
{
    char quote = '\0';
    for (; parser->at < parser->end; parser->at++) {
        char c = *parser->at;
        if (quote != '\0') {
            quote = c == quote ? '\0' : quote;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '<') {
            return wrong(parser, "'<' inside a tag");
        } else if (c == '>') {
            *is_empty_out = parser->at[-1] == '/';
            parser->at++;
            return TERN_OK;
        }
    }
    return wrong(parser, "the document ends inside a tag");
}

static tern_status take_start(struct parser *parser)
{
    if (parser->depth == TERN_XML_DEPTH_MAX || (parser->depth == 0 && parser->had_root)) {
        return wrong(parser, "an element too deep, or after the root");
    }
    bool is_empty = false;
    parser->at++;
    char *name = parser->names[parser->depth];
    TERN_RETURN_IF_ERR(take_name(parser, name));
    TERN_RETURN_IF_ERR(skip_attributes(parser, &is_empty));
    parser->had_root = true;
    forget_text(parser);
    TERN_RETURN_IF_ERR(parser->visit(parser->context, parser->depth++, name, NULL));
    return is_empty ? end_element(parser) : TERN_OK;
}

static tern_status take_end(struct parser *parser)
{
    char name[TERN_XML_NAME_BYTES];
    const char *from = parser->at;
    parser->at += 2;
    TERN_RETURN_IF_ERR(take_name(parser, name));
    while (parser->at < parser->end && is_space(*parser->at)) {
        parser->at++;
    }
    if (parser->depth == 0 || strcmp(name, parser->names[parser->depth - 1]) != 0 ||
        parser->at == parser->end || *parser->at != '>') {
        parser->at = from;
        return wrong(parser, "an end of what was not begun");
    }
    parser->at++;
    return end_element(parser);
}

static tern_status take_next(struct parser *parser)
{
    if (*parser->at != '<') {
        return take_text(parser);
    }
    if (starts(parser, "<?")) {
        return skip_past(parser, "?>");
    }
    if (starts(parser, "<!--")) {
        return skip_past(parser, "-->");
    }
    if (starts(parser, "<![CDATA[")) {
        return take_cdata(parser);
    }
    if (starts(parser, "<!")) {
        return wrong(parser, "a document type, which is not read");
    }
    return starts(parser, "</") ? take_end(parser) : take_start(parser);
}

tern_status tern_xml_each(const char *document, size_t bytes, tern_xml_visit visit, void *context)
{
    struct parser parser = {.start = document,
                            .at = document,
                            .end = document + bytes,
                            .visit = visit,
                            .context = context};
    tern_status status = TERN_OK;
    if (bytes >= 3 && memcmp(document, "\xEF\xBB\xBF", 3) == 0) { /* Azure's answers begin so */
        parser.at += 3;
    }
    while (parser.at < parser.end && status == TERN_OK) {
        status = take_next(&parser);
    }
    if (status == TERN_OK && (parser.depth > 0 || !parser.had_root)) {
        status = wrong(&parser, "the document ends before its root does");
    }
    tern_text_fini(&parser.text);
    return status;
}

tern_status tern_xml_quote(struct tern_text *out, const char *text)
{
    for (const char *at = text; *at != '\0'; at++) {
        const char *as = *at == '&'   ? "&amp;"
                         : *at == '<' ? "&lt;"
                         : *at == '>' ? "&gt;"
                         : *at == '"' ? "&quot;"
                                      : NULL;
        TERN_RETURN_IF_ERR(as != NULL ? tern_text_append(out, as, strlen(as))
                                      : tern_text_append(out, at, 1));
    }
    return TERN_OK;
}
