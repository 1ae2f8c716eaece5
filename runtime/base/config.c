/* config.c - YAML files read by a schema: the walk over the events, overrides, and the list of
 * problems. */
#include "runtime/base/config.h"

#include "runtime/base/check.h"
#include "runtime/base/config_value.h"
#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <yaml.h>

enum {
    KEY_BYTES = 128,
    NAMES_MAX = TERN_CONFIG_ROWS_MAX,
    DEPTH_MAX = 16,    /* libyaml's time grows with the square of the nesting */
    PROBLEMS_MAX = 40, /* more than a reader wants; a hostile file has no end of them */
};

/* The walk over one file or one override. */
struct reader {
    const struct tern_config_schema *schema;
    struct tern_config_source *source;
    void *target;
    yaml_parser_t parser;
    yaml_event_t event; /* the current one; deleted by next_event */
    bool has_event;
    int depth;
    bool is_broken;       /* a syntax error was reported: stop */
    const char *override; /* NULL when reading the file */
    const struct tern_config_row *override_row;
};

struct place {
    int line, column; /* from 1 */
};

static void add_problem(struct tern_config_source *source, const char *where, const char *sentence)
{
    source->problem_count++;
    if (source->problem_count > PROBLEMS_MAX) {
        return;
    }
    if (tern_text_printf(&source->problems, "%s: %s\n", where, sentence) != TERN_OK) {
        source->problem_count = PROBLEMS_MAX; /* out of memory: at least the count is not zero */
    }
}

/* "NAME:LINE:COL", or "--set ..." for an override. */
static void where_in(const struct tern_config_source *source,
                     const char *override,
                     struct place place,
                     char out[512])
{
    if (override != NULL) {
        snprintf(out, 512, "--set %.400s", override);
    } else if (place.line > 0) {
        snprintf(out, 512, "%.480s:%d:%d", source->name, place.line, place.column);
    } else {
        snprintf(out, 512, "%.500s", source->name);
    }
}

static void problem_at(struct reader *reader, struct place place, const char *format, ...)
    TERN_PRINTF(3, 4);

static void problem_at(struct reader *reader, struct place place, const char *format, ...)
{
    char where[512];
    char sentence[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    where_in(reader->source, reader->override, place, where);
    add_problem(reader->source, where, sentence);
}

static struct place place_of(const yaml_mark_t *mark)
{
    return (struct place){(int)mark->line + 1, (int)mark->column + 1};
}

static struct place here(const struct reader *reader)
{
    return place_of(&reader->event.start_mark);
}

/* False and a problem when lists and mappings are nested too deep to be a configuration. */
static bool count_depth(struct reader *reader)
{
    yaml_event_type_t type = reader->event.type;
    if (type == YAML_SEQUENCE_START_EVENT || type == YAML_MAPPING_START_EVENT) {
        reader->depth++;
    } else if (type == YAML_SEQUENCE_END_EVENT || type == YAML_MAPPING_END_EVENT) {
        reader->depth--;
    }
    if (reader->depth <= DEPTH_MAX) {
        return true;
    }
    problem_at(reader, here(reader), "found values nested %d deep, expected at most %d",
               reader->depth, DEPTH_MAX);
    reader->is_broken = true;
    return false;
}

/* Moves to the next event; false after a syntax error, which is reported here once. */
static bool next_event(struct reader *reader)
{
    if (reader->is_broken) {
        return false;
    }
    if (reader->has_event) {
        yaml_event_delete(&reader->event);
        reader->has_event = false;
    }
    if (yaml_parser_parse(&reader->parser, &reader->event)) {
        reader->has_event = true;
        return count_depth(reader);
    }
    reader->is_broken = true;
    const yaml_parser_t *parser = &reader->parser;
    const char *problem = parser->problem != NULL ? parser->problem : "unreadable";
    if (parser->error == YAML_MEMORY_ERROR) {
        problem = "out of memory";
    }
    struct place place =
        place_of(parser->error == YAML_READER_ERROR ? &parser->mark : &parser->problem_mark);
    problem_at(reader, place, "not valid YAML: %s%s%s", problem, parser->context != NULL ? " " : "",
               parser->context != NULL ? parser->context : "");
    return false;
}

/* Anchors, aliases and tags are refused: a configuration says each thing once, in plain sight. */
static void refuse_decoration(struct reader *reader)
{
    const yaml_event_t *event = &reader->event;
    const unsigned char *anchor = NULL;
    const unsigned char *tag = NULL;
    if (event->type == YAML_SCALAR_EVENT) {
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
    } else if (event->type == YAML_SEQUENCE_START_EVENT) {
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
    } else if (event->type == YAML_MAPPING_START_EVENT) {
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
    } else if (event->type == YAML_ALIAS_EVENT) {
        problem_at(reader, here(reader),
                   "found the alias *%s, expected the value itself written out",
                   (const char *)event->data.alias.anchor);
    }
    if (anchor != NULL) {
        problem_at(reader, here(reader),
                   "found the anchor &%s, expected a plain value: anchors are "
                   "not supported",
                   (const char *)anchor);
    }
    if (tag != NULL) {
        problem_at(reader, here(reader),
                   "found the tag %s, expected a plain value: tags are not "
                   "supported",
                   (const char *)tag);
    }
}

/* Steps over the node that begins at the current event, however deep. */
static void skip_node(struct reader *reader)
{
    int depth = 0;
    do {
        switch (reader->event.type) {
        case YAML_SEQUENCE_START_EVENT:
        case YAML_MAPPING_START_EVENT:
            depth++;
            break;
        case YAML_SEQUENCE_END_EVENT:
        case YAML_MAPPING_END_EVENT:
            depth--;
            break;
        default:
            break;
        }
    } while (depth > 0 && next_event(reader));
}

/* Row of section.key, -1 if none. */
static int find_row(const struct tern_config_schema *schema, const char *section, const char *key)
{
    for (int i = 0; i < schema->row_count; i++) {
        if (strcmp(schema->rows[i].section, section) == 0 &&
            strcmp(schema->rows[i].key, key) == 0) {
            return i;
        }
    }
    return -1;
}

/* Section that has this key, NULL if none. */
static const char *section_with(const struct tern_config_schema *schema, const char *key)
{
    for (int i = 0; i < schema->row_count; i++) {
        if (strcmp(schema->rows[i].key, key) == 0) {
            return schema->rows[i].section;
        }
    }
    return NULL;
}

static int list_sections(const struct tern_config_schema *schema, const char *names[NAMES_MAX])
{
    int count = 0;
    for (int i = 0; i < schema->row_count; i++) {
        if (count == 0 || strcmp(names[count - 1], schema->rows[i].section) != 0) {
            names[count++] = schema->rows[i].section; /* rows of a section stand together */
        }
    }
    return count;
}

static bool has_section(const struct tern_config_schema *schema, const char *name)
{
    const char *names[NAMES_MAX];
    int count = list_sections(schema, names);
    for (int i = 0; i < count; i++) {
        if (strcmp(names[i], name) == 0) {
            return true;
        }
    }
    return false;
}

static void report_section(struct reader *reader, struct place place, const char *name)
{
    const char *owner = section_with(reader->schema, name);
    if (owner != NULL) {
        problem_at(reader, place, "found the key '%s' outside a section, expected it inside '%s:'",
                   name, owner);
        return;
    }
    const char *names[NAMES_MAX];
    int count = list_sections(reader->schema, names);
    char all[512] = "";
    size_t used = 0;
    for (int i = 0; i < count && used < sizeof all; i++) {
        used +=
            (size_t)snprintf(all + used, sizeof all - used, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    problem_at(reader, place, "unknown section '%s', nearest is '%s'; expected one of %s", name,
               tern_text_nearest(name, names, (size_t)count), all);
}

static void report_key(struct reader *reader,
                       struct place place,
                       const char *section,
                       const char *key)
{
    const char *owner = section_with(reader->schema, key);
    if (owner != NULL) {
        problem_at(reader, place, "%s.%s: unknown key; '%s' belongs in section '%s'", section, key,
                   key, owner);
        return;
    }
    const char *names[NAMES_MAX];
    int count = 0;
    for (int i = 0; i < reader->schema->row_count; i++) {
        if (strcmp(reader->schema->rows[i].section, section) == 0) {
            names[count++] = reader->schema->rows[i].key;
        }
    }
    problem_at(reader, place, "%s.%s: unknown key, nearest is '%s'", section, key,
               tern_text_nearest(key, names, (size_t)count));
}

/* The current scalar as a name; false (and a problem) if it cannot be one. */
static bool take_name(struct reader *reader, const char *what, char out[KEY_BYTES])
{
    const yaml_event_t *event = &reader->event;
    refuse_decoration(reader);
    if (event->type != YAML_SCALAR_EVENT) {
        if (event->type != YAML_ALIAS_EVENT) {
            problem_at(reader, here(reader), "found a list or mapping as %s, expected a name",
                       what);
        }
        return false;
    }
    size_t length = event->data.scalar.length;
    const char *name = (const char *)event->data.scalar.value;
    if (length >= KEY_BYTES || strlen(name) != length) {
        problem_at(reader, here(reader),
                   "found '%.40s...' as %s, expected a name of at most %d bytes", name, what,
                   KEY_BYTES - 1);
        return false;
    }
    memcpy(out, name, length + 1);
    return true;
}

/* Adds the current scalar to the list of items; false and a problem when it is not one. */
static bool take_item(struct reader *reader,
                      const struct tern_config_row *row,
                      char **items,
                      int *count)
{
    const yaml_event_t *event = &reader->event;
    const char *text = (const char *)event->data.scalar.value;
    if (event->type != YAML_SCALAR_EVENT) {
        if (event->type != YAML_ALIAS_EVENT) {
            problem_at(reader, here(reader),
                       "%s.%s: found a nested list or mapping, expected plain "
                       "values",
                       row->section, row->key);
        }
        return false;
    }
    if (strlen(text) != event->data.scalar.length) {
        problem_at(reader, here(reader), "%s.%s: found a zero byte inside the text, expected none",
                   row->section, row->key);
        return false;
    }
    if (*count == TERN_CONFIG_ITEMS_MAX) {
        problem_at(reader, here(reader), "%s.%s: found more than %d values, expected fewer",
                   row->section, row->key, TERN_CONFIG_ITEMS_MAX);
        return false;
    }
    items[*count] = tern_strdup("config item", text);
    if (items[*count] == NULL) {
        problem_at(reader, here(reader), "out of memory");
        return false;
    }
    (*count)++;
    return true;
}

/* Reads the scalars of the node at the current event; on false a problem was reported and the
 * node stepped over. */
static bool read_items(struct reader *reader,
                       const struct tern_config_row *row,
                       char **items,
                       struct tern_config_value *value)
{
    bool is_good = true;
    refuse_decoration(reader);
    if (reader->event.type == YAML_SCALAR_EVENT) {
        value->is_quoted = reader->event.data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
        return take_item(reader, row, items, &value->count);
    }
    if (reader->event.type != YAML_SEQUENCE_START_EVENT) {
        if (reader->event.type == YAML_MAPPING_START_EVENT) {
            problem_at(reader, here(reader), "%s.%s: found a mapping, expected a value",
                       row->section, row->key);
        }
        skip_node(reader);
        return false;
    }
    value->is_sequence = true;
    while (next_event(reader) && reader->event.type != YAML_SEQUENCE_END_EVENT) {
        refuse_decoration(reader);
        if (!take_item(reader, row, items, &value->count)) {
            is_good = false;
            skip_node(reader);
        }
    }
    return is_good && !reader->is_broken;
}

static void mark_bad(struct reader *reader, const struct tern_config_row *row)
{
    reader->source->places[row - reader->schema->rows].is_bad = true;
}

/* Reads the node at the current event into the row's field. */
static void read_value(struct reader *reader, const struct tern_config_row *row)
{
    struct place place = here(reader);
    char **items = tern_alloc_zero("config items", TERN_CONFIG_ITEMS_MAX, sizeof *items);
    if (items == NULL) {
        problem_at(reader, place, "out of memory");
        skip_node(reader);
        return;
    }
    struct tern_config_value value = {.items = (const char *const *)items};
    if (!read_items(reader, row, items, &value)) {
        mark_bad(reader, row);
    } else if (tern_config_value_parse(row, &value, reader->target) != TERN_OK) {
        problem_at(reader, place, "%s.%s: %s", row->section, row->key, tern_detail());
        mark_bad(reader, row);
    }
    for (int i = 0; i < value.count; i++) {
        tern_free(items[i]);
    }
    tern_free(items);
}

/* A key of a section and its value; the current event is the key. */
static void read_pair(struct reader *reader, const char *section)
{
    char key[KEY_BYTES];
    struct place place = here(reader);
    bool is_named = take_name(reader, "a key", key);
    if (!is_named) {
        skip_node(reader);
    }
    int index = is_named ? find_row(reader->schema, section, key) : -1;
    if (is_named && index < 0) {
        report_key(reader, place, section, key);
    }
    if (!next_event(reader)) {
        return;
    }
    if (index < 0) {
        skip_node(reader);
        return;
    }
    struct tern_config_place *seen = &reader->source->places[index];
    if (seen->is_set) {
        problem_at(reader, place, "%s.%s: found a second time, expected once (first at line %d)",
                   section, key, seen->line);
        skip_node(reader);
        return;
    }
    *seen = (struct tern_config_place){.is_set = true, .line = place.line, .column = place.column};
    read_value(reader, &reader->schema->rows[index]);
}

/* The mapping of one section; the current event is the section's value. */
static void read_section(struct reader *reader, const char *section)
{
    refuse_decoration(reader);
    const yaml_event_t *event = &reader->event;
    if (event->type == YAML_SCALAR_EVENT && event->data.scalar.length == 0) {
        return; /* "train:" with every key commented out */
    }
    if (event->type != YAML_MAPPING_START_EVENT) {
        problem_at(reader, here(reader),
                   "%s: found %s, expected 'key: value' lines indented under it", section,
                   event->type == YAML_SCALAR_EVENT ? "a value" : "a list");
        skip_node(reader);
        return;
    }
    while (next_event(reader) && reader->event.type != YAML_MAPPING_END_EVENT) {
        read_pair(reader, section);
    }
}

/* Remembers where the section stands for messages about keys that it lacks; false when it was
 * there before. */
static bool note_section(struct reader *reader, struct place place, const char *section)
{
    bool is_first = true;
    for (int i = 0; i < reader->schema->row_count; i++) {
        struct tern_config_place *row_place = &reader->source->places[i];
        if (strcmp(reader->schema->rows[i].section, section) != 0) {
            continue;
        }
        is_first = is_first && row_place->line == 0;
        if (is_first) {
            row_place->line = place.line;
            row_place->column = place.column;
        }
    }
    return is_first;
}

static void read_root(struct reader *reader)
{
    refuse_decoration(reader);
    const yaml_event_t *event = &reader->event;
    if (event->type == YAML_SCALAR_EVENT && event->data.scalar.length == 0) {
        return;
    }
    if (event->type != YAML_MAPPING_START_EVENT) {
        problem_at(reader, here(reader),
                   "found %s, expected sections such as 'model:' and 'train:'",
                   event->type == YAML_SCALAR_EVENT ? "a bare value" : "a list");
        skip_node(reader);
        return;
    }
    while (next_event(reader) && reader->event.type != YAML_MAPPING_END_EVENT) {
        char section[KEY_BYTES];
        struct place place = here(reader);
        bool is_named = take_name(reader, "a section", section);
        bool is_known = is_named && has_section(reader->schema, section);
        if (!is_named) {
            skip_node(reader);
        } else if (!is_known) {
            report_section(reader, place, section);
        } else if (!note_section(reader, place, section)) {
            problem_at(reader, place, "section '%s': found a second time, expected once", section);
            is_known = false;
        }
        if (!next_event(reader)) {
            return;
        }
        if (is_known) {
            read_section(reader, section);
        } else {
            skip_node(reader);
        }
    }
}

/* Runs `read_node` on the only document of the text. */
static void read_document(struct reader *reader,
                          const char *text,
                          size_t bytes,
                          void (*read_node)(struct reader *reader))
{
    if (!yaml_parser_initialize(&reader->parser)) {
        problem_at(reader, (struct place){0, 0}, "out of memory");
        return;
    }
    yaml_parser_set_encoding(&reader->parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&reader->parser, (const unsigned char *)text, bytes);
    bool has_document = false;
    reader->depth = 0;
    while (next_event(reader) && reader->event.type != YAML_STREAM_END_EVENT) {
        if (reader->event.type != YAML_DOCUMENT_START_EVENT) {
            continue; /* stream start, document end */
        }
        if (has_document) {
            problem_at(reader, here(reader), "found a second document, expected one in the file");
            break;
        }
        has_document = true;
        if (next_event(reader)) {
            read_node(reader);
        }
    }
    if (reader->has_event) {
        yaml_event_delete(&reader->event);
        reader->has_event = false;
    }
    yaml_parser_delete(&reader->parser);
}

/* False and a problem for what is too large or not UTF-8. */
static bool check_text(struct reader *reader, const char *text, size_t bytes)
{
    if (bytes > TERN_CONFIG_FILE_BYTES_MAX) {
        problem_at(reader, (struct place){1, 1},
                   "found %zu bytes, expected at most %d: is this a configuration file?", bytes,
                   TERN_CONFIG_FILE_BYTES_MAX);
        return false;
    }
    size_t good = tern_config_utf8_prefix(text, bytes);
    if (good == bytes) {
        return true;
    }
    struct place place = {1, 1};
    for (size_t i = 0; i < good; i++) {
        bool is_start = ((unsigned char)text[i] & 0xC0u) != 0x80u;
        place.column += is_start;
        if (text[i] == '\n') {
            place.line++;
            place.column = 1;
        }
    }
    problem_at(reader, place, "found the byte 0x%02x, expected UTF-8 text",
               (unsigned char)text[good]);
    return false;
}

static void read_override_node(struct reader *reader)
{
    read_value(reader, reader->override_row);
}

/* Values in brackets or quotes are YAML; anything else is the text as it stands, so that 'a: b'
 * or '#1' survive. */
static void set_override(struct reader *reader, const struct tern_config_row *row, const char *text)
{
    if (text[0] == '[' || text[0] == '"' || text[0] == '\'') {
        reader->override_row = row;
        read_document(reader, text, strlen(text), read_override_node);
        return;
    }
    struct tern_config_value value = {.items = &text, .count = 1};
    if (tern_config_value_parse(row, &value, reader->target) != TERN_OK) {
        problem_at(reader, (struct place){0, 0}, "%s.%s: %s", row->section, row->key,
                   tern_detail());
        mark_bad(reader, row);
    }
}

static void read_override(struct reader *reader, const char *argument)
{
    char section[KEY_BYTES];
    char key[KEY_BYTES];
    struct place nowhere = {0, 0};
    reader->override = argument;
    reader->is_broken = false;
    const char *dot = strchr(argument, '.');
    const char *equals = strchr(argument, '=');
    if (dot == NULL || equals == NULL || dot > equals || dot == argument || equals == dot + 1 ||
        dot - argument >= KEY_BYTES || equals - dot - 1 >= KEY_BYTES) {
        problem_at(reader, nowhere, "found '%.60s', expected SECTION.KEY=VALUE", argument);
        return;
    }
    if (!check_text(reader, argument, strlen(argument))) {
        return;
    }
    snprintf(section, sizeof section, "%.*s", (int)(dot - argument), argument);
    snprintf(key, sizeof key, "%.*s", (int)(equals - dot - 1), dot + 1);
    if (!has_section(reader->schema, section)) {
        report_section(reader, nowhere, section);
        return;
    }
    int index = find_row(reader->schema, section, key);
    if (index < 0) {
        report_key(reader, nowhere, section, key);
        return;
    }
    reader->source->places[index] =
        (struct tern_config_place){.is_set = true, .override = argument};
    set_override(reader, &reader->schema->rows[index], equals + 1);
}

/* Defaults are parsed like values; one that does not parse is a bug in the table. */
static void set_defaults(struct reader *reader)
{
    reader->override = "default";
    for (int i = 0; i < reader->schema->row_count; i++) {
        if (reader->schema->rows[i].default_text != NULL) {
            set_override(reader, &reader->schema->rows[i], reader->schema->rows[i].default_text);
        }
    }
    TERN_CHECK(reader->source->problem_count == 0);
    reader->override = NULL;
}

tern_status tern_config_parse(const struct tern_config_schema *schema,
                              const char *name,
                              const char *text,
                              size_t bytes,
                              const char *const *overrides,
                              int override_count,
                              void *target,
                              struct tern_config_source *source)
{
    TERN_CHECK(schema->row_count <= TERN_CONFIG_ROWS_MAX);
    memset(source, 0, sizeof *source);
    source->name = name;
    tern_text_init(&source->problems);
    struct reader reader = {.schema = schema, .source = source, .target = target};
    set_defaults(&reader);
    if (check_text(&reader, text, bytes)) {
        read_document(&reader, text, bytes, read_root);
        source->is_broken = reader.is_broken;
    } else {
        source->is_broken = true;
    }
    for (int i = 0; i < override_count; i++) {
        read_override(&reader, overrides[i]);
    }
    return tern_config_finish(source);
}

void tern_config_problem(const struct tern_config_schema *schema,
                         struct tern_config_source *source,
                         const char *section,
                         const char *key,
                         const char *format,
                         ...)
{
    char where[512];
    char sentence[1024];
    int index = find_row(schema, section, key);
    TERN_CHECK(index >= 0);
    const struct tern_config_place *place = &source->places[index];
    int used = snprintf(sentence, sizeof sentence, "%s.%s: ", section, key);
    va_list args;
    va_start(args, format);
    vsnprintf(sentence + used, sizeof sentence - (size_t)used, format, args);
    va_end(args);
    where_in(source, place->override, (struct place){place->line, place->column}, where);
    add_problem(source, where, sentence);
}

tern_status tern_config_finish(struct tern_config_source *source)
{
    if (source->problem_count == 0) {
        return TERN_OK;
    }
    if (source->problem_count == 1) {
        return tern_fail(TERN_ERR_CONFIG, "%.*s", (int)source->problems.length - 1,
                         source->problems.data);
    }
    /* As many whole lines as fit beside the last one. */
    size_t room = TERN_DETAIL_BYTES - 512;
    size_t shown = 0;
    int lines = 0;
    for (size_t i = 0; i < source->problems.length && i < room; i++) {
        if (source->problems.data[i] == '\n') {
            shown = i + 1;
            lines++;
        }
    }
    char hidden[64] = "";
    if (lines < source->problem_count) {
        snprintf(hidden, sizeof hidden, ", the first %d of them above", lines);
    }
    return tern_fail(TERN_ERR_CONFIG, "%.*s%.300s: %d problems%s; nothing was started", (int)shown,
                     source->problems.data != NULL ? source->problems.data : "", source->name,
                     source->problem_count, hidden);
}

bool tern_config_is_broken(const struct tern_config_source *source)
{
    return source->is_broken;
}

bool tern_config_is_bad(const struct tern_config_schema *schema,
                        const struct tern_config_source *source,
                        const char *section,
                        const char *key)
{
    for (int i = 0; i < schema->row_count; i++) {
        if (source->places[i].is_bad && strcmp(schema->rows[i].section, section) == 0 &&
            (key == NULL || strcmp(schema->rows[i].key, key) == 0)) {
            return true;
        }
    }
    return false;
}

bool tern_config_is_set(const struct tern_config_schema *schema,
                        const struct tern_config_source *source,
                        const char *section,
                        const char *key)
{
    int index = find_row(schema, section, key);
    TERN_CHECK(index >= 0);
    return source->places[index].is_set;
}

tern_status tern_config_write(const struct tern_config_schema *schema,
                              const void *target,
                              struct tern_text *out)
{
    for (int i = 0; i < schema->row_count; i++) {
        const struct tern_config_row *row = &schema->rows[i];
        if (i == 0 || strcmp(row->section, row[-1].section) != 0) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s:\n", row->section));
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "  %s: ", row->key));
        TERN_RETURN_IF_ERR(tern_config_value_print(row, target, out));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "\n"));
    }
    return TERN_OK;
}

tern_status tern_config_help(const struct tern_config_schema *schema, struct tern_text *out)
{
    for (int i = 0; i < schema->row_count; i++) {
        const struct tern_config_row *row = &schema->rows[i];
        if (i == 0 || strcmp(row->section, row[-1].section) != 0) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "%s%s:\n", i > 0 ? "\n" : "", row->section));
        }
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "  %s\n      %s\n      value: ", row->key, row->help));
        TERN_RETURN_IF_ERR(tern_config_value_expected(row, out));
        bool has_unit =
            row->type != TERN_CONFIG_CUSTOM && row->unit != NULL && row->unit[0] != '\0';
        if (has_unit) {
            TERN_RETURN_IF_ERR(tern_text_printf(out, ", in %s", row->unit));
        }
        TERN_RETURN_IF_ERR(tern_text_printf(
            out, "; default: %s\n", row->default_text != NULL ? row->default_text : "none"));
    }
    return TERN_OK;
}

void tern_config_fini(const struct tern_config_schema *schema, void *target)
{
    for (int i = 0; i < schema->row_count; i++) {
        tern_config_value_free(&schema->rows[i], target);
    }
}

void tern_config_source_fini(struct tern_config_source *source)
{
    tern_text_fini(&source->problems);
}
