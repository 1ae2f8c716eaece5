/* ledger_row.c - a row of ledger.csv as text, and back. */
#include "runtime/base/text.h"
#include "runtime/observe/ledger_book.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    FIELDS_BEFORE = 11, /* columns before those of kinds */
    FIELDS = FIELDS_BEFORE + TERN_LEDGER_KIND_COUNT + 1,
    FIELD_BYTES_MAX = 64,
    SECONDS_DIGITS_MAX = 11
};
static const int64_t TOKENS_MAX = 1000000000000000000;

static const char *const g_kinds[TERN_LEDGER_KIND_COUNT] = {
    [TERN_LEDGER_PRODUCTIVE] = "productive",
    [TERN_LEDGER_START] = "start",
    [TERN_LEDGER_COMPILE] = "compile",
    [TERN_LEDGER_LOAD] = "load",
    [TERN_LEDGER_DATA_WAIT] = "data_wait",
    [TERN_LEDGER_CHECKPOINT_STALL] = "checkpoint_stall",
    [TERN_LEDGER_LOST_STEPS] = "lost_steps",
    [TERN_LEDGER_DRAIN] = "drain",
    [TERN_LEDGER_IDLE_AFTER_NOTICE] = "idle_after_notice",
    [TERN_LEDGER_HANG_DETECTION] = "hang_detection",
    [TERN_LEDGER_RESTART] = "restart",
};
static const char *const g_states[TERN_LEDGER_STATE_COUNT] = {
    [TERN_LEDGER_RUNNING] = "running",     [TERN_LEDGER_FINISHED] = "finished",
    [TERN_LEDGER_RECLAIMED] = "reclaimed", [TERN_LEDGER_STOPPED] = "stopped",
    [TERN_LEDGER_PEER_LOST] = "peer_lost", [TERN_LEDGER_FAILED] = "failed",
    [TERN_LEDGER_REDONE] = "redone",
};

const char *tern_ledger_kind_name(enum tern_ledger_kind kind)
{
    return g_kinds[kind];
}

const char *tern_ledger_state_name(enum tern_ledger_state state)
{
    return g_states[state];
}

const char *tern_ledger_header(void)
{
    return "launch,state,from,to,machines,ranks,price_per_hour,currency,first_step,last_step,"
           "tokens,productive,start,compile,load,data_wait,checkpoint_stall,lost_steps,drain,"
           "idle_after_notice,hang_detection,restart,unfinished\n";
}

/* Microseconds as seconds with six digits. */
static int print_us(char *out, size_t bytes, int64_t us)
{
    uint64_t size = us < 0 ? 0 - (uint64_t)us : (uint64_t)us;
    return snprintf(out, bytes, "%s%" PRIu64 ".%06" PRIu64, us < 0 ? "-" : "", size / 1000000,
                    size % 1000000);
}

static int print_step(char *out, size_t bytes, int64_t step)
{
    return step < 0 ? snprintf(out, bytes, ",") : snprintf(out, bytes, "%" PRId64 ",", step);
}

size_t tern_ledger_row_print(const struct tern_ledger_row *row, char out[TERN_LEDGER_ROW_BYTES])
{
    const size_t bytes = TERN_LEDGER_ROW_BYTES;
    size_t n = (size_t)snprintf(out, bytes, "%s,%s,", row->launch, g_states[row->state]);
    n += (size_t)print_us(out + n, bytes - n, row->from_us);
    out[n++] = ',';
    n += (size_t)print_us(out + n, bytes - n, row->to_us);
    n += (size_t)snprintf(out + n, bytes - n, ",%d,%d,", row->machines, row->ranks);
    if (row->price >= 0) {
        n += (size_t)snprintf(out + n, bytes - n, "%.9g", row->price);
    }
    n += (size_t)snprintf(out + n, bytes - n, ",%s,", row->currency);
    n += (size_t)print_step(out + n, bytes - n, row->first_step);
    n += (size_t)print_step(out + n, bytes - n, row->last_step);
    n += (size_t)snprintf(out + n, bytes - n, "%" PRId64 ",", row->tokens);
    for (int k = 0; k <= TERN_LEDGER_KIND_COUNT; k++) {
        bool is_kind = k < TERN_LEDGER_KIND_COUNT;
        n += (size_t)print_us(out + n, bytes - n, is_kind ? row->us[k] : row->unfinished_us);
        out[n++] = is_kind ? ',' : '\n';
    }
    return n;
}

/* Decimal seconds to microseconds; false on anything else. */
static bool parse_us(const char *text, int64_t *out)
{
    bool is_negative = *text == '-';
    text += is_negative;
    int digits = 0;
    int64_t value = 0;
    for (; isdigit((unsigned char)*text); text++, digits++) {
        if (digits == SECONDS_DIGITS_MAX) {
            return false;
        }
        value = value * 10 + (*text - '0');
    }
    if (digits == 0 || *text != '.') {
        return false;
    }
    text++;
    for (int i = 0; i < 6; i++, text++) {
        if (!isdigit((unsigned char)*text)) {
            return false;
        }
        value = value * 10 + (*text - '0');
    }
    *out = is_negative ? -value : value;
    return *text == '\0';
}

/* "" is -1: not known. */
static bool parse_step(const char *text, int64_t *out)
{
    *out = -1;
    return *text == '\0' || (tern_text_to_i64(text, out) && *out >= 0);
}

static bool parse_word(const char *text, char *out, size_t bytes)
{
    size_t length = strlen(text);
    for (size_t i = 0; i < length; i++) {
        if (!isalnum((unsigned char)text[i]) && strchr("._-", text[i]) == NULL) {
            return false;
        }
    }
    return length > 0 && length < bytes && memcpy(out, text, length + 1) != NULL;
}

static bool parse_count(const char *text, int *out)
{
    int64_t value;
    bool is_good = tern_text_to_i64(text, &value) && value > 0 && value <= INT32_MAX;
    *out = is_good ? (int)value : 0;
    return is_good;
}

/* Splits at commas; false unless there are exactly FIELDS, none too long. */
static bool split(const char *line, size_t length, char fields[FIELDS][FIELD_BYTES_MAX])
{
    const char *end = line + length;
    for (int i = 0; i < FIELDS; i++) {
        const char *comma = i + 1 < FIELDS ? memchr(line, ',', (size_t)(end - line)) : end;
        if (comma == NULL || comma - line >= FIELD_BYTES_MAX) {
            return false;
        }
        memcpy(fields[i], line, (size_t)(comma - line));
        fields[i][comma - line] = '\0';
        line = comma + 1;
    }
    return strchr(fields[FIELDS - 1], ',') == NULL;
}

static bool parse_state(const char *text, enum tern_ledger_state *out)
{
    for (int i = 0; i < TERN_LEDGER_STATE_COUNT; i++) {
        if (strcmp(text, g_states[i]) == 0) {
            *out = (enum tern_ledger_state)i;
            return true;
        }
    }
    return false;
}

bool tern_ledger_row_parse(const char *line, size_t length, struct tern_ledger_row *out)
{
    char fields[FIELDS][FIELD_BYTES_MAX];
    struct tern_ledger_row row = {.price = -1};
    if (memchr(line, '\0', length) != NULL || !split(line, length, fields)) {
        return false;
    }
    bool has_price = fields[6][0] != '\0';
    bool is_good =
        parse_word(fields[0], row.launch, sizeof row.launch) &&
        parse_state(fields[1], &row.state) && parse_us(fields[2], &row.from_us) &&
        parse_us(fields[3], &row.to_us) && parse_count(fields[4], &row.machines) &&
        parse_count(fields[5], &row.ranks) &&
        (!has_price ||
         (tern_text_to_f64(fields[6], &row.price) && row.price >= 0 && isfinite(row.price))) &&
        parse_word(fields[7], row.currency, sizeof row.currency) &&
        parse_step(fields[8], &row.first_step) && parse_step(fields[9], &row.last_step) &&
        tern_text_to_i64(fields[10], &row.tokens) && row.tokens >= 0 && row.tokens <= TOKENS_MAX;
    int64_t sum = 0;
    for (int k = 0; is_good && k < TERN_LEDGER_KIND_COUNT; k++) {
        is_good = parse_us(fields[FIELDS_BEFORE + k], &row.us[k]);
        sum += row.us[k];
    }
    is_good = is_good && parse_us(fields[FIELDS - 1], &row.unfinished_us) && row.from_us >= 0 &&
              row.to_us >= row.from_us && sum == row.to_us - row.from_us &&
              row.last_step >= row.first_step && (row.first_step >= 0) == (row.last_step >= 0);
    *out = row;
    return is_good;
}
