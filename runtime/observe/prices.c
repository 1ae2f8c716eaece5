/* prices.c - one pass over a catalogue, a line at a time; fields may be in quotes. */
#include "runtime/observe/prices.h"

#include "io/file.h"
#include "runtime/base/text.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FIELDS_MAX = 64,
    FIELD_BYTES =
        96, /* of those that matter: a longer one is cut, and then is no name that is looked for */
    NEAREST_MAX = 512 /* names that a suggestion is chosen from */
};

enum column {
    INSTANCE,
    PRICE,
    SPOT_PRICE,
    REGION,
    COLUMNS
};
static const char *const g_columns[COLUMNS] = {"InstanceType", "Price", "SpotPrice", "Region"};

struct search {
    const char *path, *instance, *region;
    enum column wanted; /* PRICE or SPOT_PRICE */
    int at[COLUMNS];    /* where each column is; -1: not there */
    bool has_instance, has_region;
    double best; /* NaN: none yet */
    char names[NEAREST_MAX][FIELD_BYTES];
    const char *name_list[NEAREST_MAX];
    int name_count;
};

/* The next field of a line, without its quotes; false at the end of the line. */
static bool next_field(const char **at, const char *end, char out[FIELD_BYTES])
{
    const char *c = *at;
    size_t used = 0;
    if (c > end) {
        return false;
    }
    bool is_quoted = c < end && *c == '"';
    c += is_quoted;
    for (; c < end && (is_quoted || *c != ','); c++) {
        if (is_quoted && *c == '"') {
            if (c + 1 < end && c[1] == '"') {
                c++; /* a doubled one is one */
            } else {
                is_quoted = false;
                continue;
            }
        }
        if (used + 1 < FIELD_BYTES) {
            out[used++] = *c;
        }
    }
    out[used] = '\0';
    *at = c + 1; /* behind the comma, or beyond the end */
    return true;
}

static tern_status read_header(struct search *s, const char *line, const char *end)
{
    char field[FIELD_BYTES];
    for (int k = 0; k < COLUMNS; k++) {
        s->at[k] = -1;
    }
    for (int i = 0; i < FIELDS_MAX && next_field(&line, end, field); i++) {
        for (int k = 0; k < COLUMNS; k++) {
            if (strcmp(field, g_columns[k]) == 0) {
                s->at[k] = i;
            }
        }
    }
    for (int k = 0; k < COLUMNS; k++) {
        bool is_needed = k == INSTANCE || k == (int)s->wanted || (k == REGION && s->region != NULL);
        if (is_needed && s->at[k] < 0) {
            return tern_fail(TERN_ERR_CONFIG, "%s: its first line has no column %s", s->path,
                             g_columns[k]);
        }
    }
    return TERN_OK;
}

static void note_name(struct search *s, const char *name)
{
    bool is_known = s->name_count > 0 && strcmp(s->names[s->name_count - 1], name) == 0;
    if (!is_known && s->name_count < NEAREST_MAX) {
        snprintf(s->names[s->name_count], FIELD_BYTES, "%s", name);
        s->name_list[s->name_count] = s->names[s->name_count];
        s->name_count++;
    }
}

static void read_line(struct search *s, const char *line, const char *end)
{
    char found[COLUMNS][FIELD_BYTES] = {{0}};
    char field[FIELD_BYTES];
    double price;
    for (int i = 0; i < FIELDS_MAX && next_field(&line, end, field); i++) {
        for (int k = 0; k < COLUMNS; k++) {
            if (s->at[k] == i) {
                memcpy(found[k], field, sizeof field);
            }
        }
    }
    if (strcmp(found[INSTANCE], s->instance) != 0) {
        note_name(s, found[INSTANCE]);
        return;
    }
    s->has_instance = true;
    if (s->region != NULL && strcmp(found[REGION], s->region) != 0) {
        return;
    }
    s->has_region = true;
    if (tern_text_to_f64(found[s->wanted], &price) && isfinite(price) && price > 0 &&
        !(price >= s->best)) {
        s->best = price;
    }
}

static tern_status judge(const struct search *s)
{
    const char *kind = s->wanted == PRICE ? "price" : "spot price";
    if (!isnan(s->best)) {
        return TERN_OK;
    }
    if (!s->has_instance) {
        return tern_fail(TERN_ERR_CONFIG, "%s has no instance type '%s'%s%s%s", s->path,
                         s->instance, s->name_count > 0 ? ", nearest is '" : "",
                         s->name_count > 0
                             ? tern_text_nearest(s->instance, s->name_list, (size_t)s->name_count)
                             : "",
                         s->name_count > 0 ? "'" : "");
    }
    if (!s->has_region) {
        return tern_fail(TERN_ERR_CONFIG, "%s has no '%s' in region '%s'", s->path, s->instance,
                         s->region);
    }
    return tern_fail(TERN_ERR_CONFIG, "%s has no %s of '%s'%s%s", s->path, kind, s->instance,
                     s->region != NULL ? " in region " : "", s->region != NULL ? s->region : "");
}

static tern_status search_map(struct search *s, const struct tern_map *map)
{
    const char *line = (const char *)map->data;
    const char *end = line + map->bytes;
    for (bool is_first = true; line < end; is_first = false) {
        const char *stop = memchr(line, '\n', (size_t)(end - line));
        stop = stop != NULL ? stop : end;
        const char *last = stop > line && stop[-1] == '\r' ? stop - 1 : stop;
        if (is_first) {
            TERN_RETURN_IF_ERR(read_header(s, line, last));
        } else if (last > line) {
            read_line(s, line, last);
        }
        line = stop + 1;
    }
    return map->bytes > 0 ? judge(s) : tern_fail(TERN_ERR_CONFIG, "%s is empty", s->path);
}

tern_status tern_price_find(const char *path,
                            const char *instance,
                            const char *region,
                            bool is_spot,
                            double *price_out)
{
    struct tern_map map;
    struct search s = {.path = path,
                       .instance = instance,
                       .region = region,
                       .wanted = is_spot ? SPOT_PRICE : PRICE,
                       .best = NAN};
    tern_status status = tern_map_open(path, &map);
    if (status != TERN_OK) {
        return tern_fail(TERN_ERR_CONFIG, "%s", tern_detail());
    }
    status = search_map(&s, &map);
    tern_map_close(&map);
    *price_out = s.best;
    return status;
}
