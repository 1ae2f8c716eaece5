/* ledger_print.c - the account for people and for other programs. */
#include "runtime/observe/ledger_print.h"

#include "io/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    WORST_MAX = 3, /* kinds of waste that the line names */
    TIME_BYTES = 32
};

/* ---- words ---- */

static tern_status print_cost(const struct tern_ledger_account *account, struct tern_text *out)
{
    double per_million = tern_ledger_per_million(account);
    if (!account->has_cost) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, ", %.2f %s", account->total_cost, account->currency));
    return per_million < 0 ? TERN_OK
                           : tern_text_printf(out, " (%.4g %s a million tokens)", per_million,
                                              account->currency);
}

/* The kind of waste that took most, below `below` seconds; -1: none. */
static int next_worst(const struct tern_ledger_account *account, double below, int after)
{
    int worst = -1;
    for (int k = TERN_LEDGER_PRODUCTIVE + 1; k < TERN_LEDGER_KIND_COUNT; k++) {
        double seconds = account->seconds[k];
        bool is_left = seconds < below || (seconds == below && k > after);
        if (is_left && seconds > 0 && (worst < 0 || seconds > account->seconds[worst])) {
            worst = k;
        }
    }
    return worst;
}

static double percent(const struct tern_ledger_account *account, int kind)
{
    double total = account->total_seconds;
    return total > 0 ? 100 * account->seconds[kind] / total : 0;
}

tern_status tern_ledger_print_line(const struct tern_ledger_account *account, struct tern_text *out)
{
    char tokens[TERN_TEXT_BYTES_BYTES];
    double hours = account->total_seconds / 3600;
    TERN_RETURN_IF_ERR(tern_text_printf(
        out, "%.*f machine-hours in %d launch%s, effective training time %.1f %%, %s tokens",
        hours < 1 ? 4 : 2, hours, account->launch_count, account->launch_count == 1 ? "" : "es",
        percent(account, TERN_LEDGER_PRODUCTIVE), tern_text_commas(account->tokens, tokens)));
    TERN_RETURN_IF_ERR(print_cost(account, out));
    double below = account->total_seconds * 2 + 1;
    int kind = 0;
    for (int i = 0; i < WORST_MAX; i++) {
        kind = next_worst(account, below, kind);
        if (kind < 0) {
            return TERN_OK;
        }
        below = account->seconds[kind];
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s %s %.1f %%", i == 0 ? "; wasted:" : ",",
                                            tern_ledger_kind_name((enum tern_ledger_kind)kind),
                                            percent(account, kind)));
    }
    return TERN_OK;
}

tern_status tern_ledger_print_table(const struct tern_ledger_account *account,
                                    struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "%-18s %16s %8s%s\n", "kind", "machine-seconds",
                                        "share", account->has_cost ? "          cost" : ""));
    for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%-18s %16.3f %7.2f%%",
                                            tern_ledger_kind_name((enum tern_ledger_kind)k),
                                            account->seconds[k], percent(account, k)));
        if (account->has_cost) {
            TERN_RETURN_IF_ERR(
                tern_text_printf(out, " %9.4f %s", account->cost[k], account->currency));
        }
        TERN_RETURN_IF_ERR(tern_text_printf(out, "\n"));
    }
    TERN_RETURN_IF_ERR(tern_ledger_print_line(account, out));
    if (account->bad_lines > 0) {
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "\n%" PRId64 " line%s left out: torn, or no row of a ledger",
                             account->bad_lines, account->bad_lines == 1 ? " is" : "s are"));
    }
    return tern_text_printf(out, "\n");
}

/* ---- JSON ---- */

static tern_status print_kinds(struct tern_text *out, const char *name, const double *values)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\"%s\":{", name));
    for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s\"%s\":%.6f", k > 0 ? "," : "",
                                            tern_ledger_kind_name((enum tern_ledger_kind)k),
                                            values[k]));
    }
    return tern_text_printf(out, "}");
}

/* "2026-01-31T12:00:00Z" or with milliseconds. Returns out. */
static const char *time_text(int64_t us, char out[TIME_BYTES])
{
    char seconds[TIME_BYTES - 8];
    time_t whole = (time_t)(us / 1000000);
    struct tm utc;
    if (gmtime_r(&whole, &utc) == NULL ||
        strftime(seconds, sizeof seconds, "%Y-%m-%dT%H:%M:%S", &utc) == 0) {
        strcpy(seconds, "1970-01-01T00:00:00"); /* a year that no calendar has */
    }
    snprintf(out, TIME_BYTES, "%s.%03dZ", seconds, (int)(us / 1000 % 1000));
    return out;
}

static tern_status print_launch(const struct tern_ledger_launch *launch, struct tern_text *out)
{
    char from[TIME_BYTES], to[TIME_BYTES];
    double seconds[TERN_LEDGER_KIND_COUNT];
    for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
        seconds[k] = (double)launch->us[k] * 1e-6;
    }
    TERN_RETURN_IF_ERR(tern_text_printf(
        out,
        "{\"launch\":\"%s\",\"state\":\"%s\",\"from\":\"%s\",\"to\":\"%s\",\"machines\":%d,"
        "\"ranks\":%d,\"first_step\":%" PRId64 ",\"last_step\":%" PRId64 ",\"tokens\":%" PRId64 ",",
        launch->launch, tern_ledger_state_name(launch->state), time_text(launch->from_us, from),
        time_text(launch->to_us, to), launch->machines, launch->ranks, launch->first_step,
        launch->last_step, launch->tokens));
    if (launch->price >= 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "\"price_per_hour\":%.9g,\"currency\":\"%s\",",
                                            launch->price, launch->currency));
    }
    TERN_RETURN_IF_ERR(print_kinds(out, "seconds", seconds));
    return tern_text_printf(out, "}");
}

tern_status tern_ledger_print_json(const struct tern_ledger_account *account, struct tern_text *out)
{
    double per_million = tern_ledger_per_million(account);
    TERN_RETURN_IF_ERR(tern_text_printf(
        out,
        "{\"machine_seconds\":%.6f,\"effective_training_time\":%.6f,\"tokens\":%" PRId64
        ",\"last_step\":%" PRId64 ",\"bad_lines\":%" PRId64 ",",
        account->total_seconds, tern_ledger_ratio(account), account->tokens, account->last_step,
        account->bad_lines));
    TERN_RETURN_IF_ERR(print_kinds(out, "seconds", account->seconds));
    if (account->has_cost) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"currency\":\"%s\",\"cost\":%.6f,",
                                            account->currency, account->total_cost));
        TERN_RETURN_IF_ERR(print_kinds(out, "costs", account->cost));
    }
    if (per_million >= 0) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"cost_per_million_tokens\":%.9g", per_million));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"launches\":["));
    for (int i = 0; i < account->launch_count; i++) {
        TERN_RETURN_IF_ERR(i > 0 ? tern_text_printf(out, ",") : TERN_OK);
        TERN_RETURN_IF_ERR(print_launch(&account->launches[i], out));
    }
    return tern_text_printf(out, "]}\n");
}

/* ---- FOCUS ---- */

/* A field of CSV: in quotes, those inside doubled. */
static tern_status print_field(struct tern_text *out, const char *text)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\""));
    for (const char *c = text != NULL ? text : ""; *c != '\0'; c++) {
        TERN_RETURN_IF_ERR(tern_text_append(out, c, 1));
        TERN_RETURN_IF_ERR(*c == '"' ? tern_text_append(out, c, 1) : TERN_OK);
    }
    return tern_text_printf(out, "\"");
}

static tern_status print_fields(struct tern_text *out, const char *const *fields, int count)
{
    for (int i = 0; i < count; i++) {
        TERN_RETURN_IF_ERR(i > 0 ? tern_text_printf(out, ",") : TERN_OK);
        TERN_RETURN_IF_ERR(print_field(out, fields[i]));
    }
    return tern_text_printf(out, "\n");
}

/* The first of the month, and of the next one: what a bill is for. */
static void billing_period(int64_t us, char from[TIME_BYTES], char to[TIME_BYTES])
{
    time_t whole = (time_t)(us / 1000000);
    struct tm utc = {.tm_year = 70, .tm_mday = 1};
    gmtime_r(&whole, &utc);
    int year = utc.tm_year + 1900;
    int month = utc.tm_mon + 1;
    snprintf(from, TIME_BYTES, "%04d-%02d-01T00:00:00Z", year % 10000, month);
    snprintf(to, TIME_BYTES, "%04d-%02d-01T00:00:00Z", (month == 12 ? year + 1 : year) % 10000,
             month % 12 + 1);
}

static const char *const g_focus[] = {
    "BilledCost",
    "EffectiveCost",
    "ListCost",
    "ContractedCost",
    "BillingCurrency",
    "ListUnitPrice",
    "ContractedUnitPrice",
    "PricingQuantity",
    "PricingUnit",
    "PricingCategory",
    "ConsumedQuantity",
    "ConsumedUnit",
    "ChargePeriodStart",
    "ChargePeriodEnd",
    "BillingPeriodStart",
    "BillingPeriodEnd",
    "ChargeCategory",
    "ChargeClass",
    "ChargeDescription",
    "ChargeFrequency",
    "ResourceId",
    "ResourceName",
    "ResourceType",
    "ServiceName",
    "ServiceCategory",
    "RegionId",
    "SkuId",
    "ProviderName",
    "Tags",
};

enum {
    FOCUS_COLUMNS = sizeof g_focus / sizeof g_focus[0],
    NUMBER_BYTES = 48
};

static tern_status print_tags(struct tern_text *out,
                              const struct tern_ledger_launch *launch,
                              const char *kind,
                              const char *run)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"run\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(out, run, strlen(run)));
    return tern_text_printf(out,
                            ",\"launch\":\"%s\",\"kind\":\"%s\",\"first_step\":%" PRId64
                            ",\"last_step\":%" PRId64 ",\"estimate\":true}",
                            launch->launch, kind, launch->first_step, launch->last_step);
}

/* One kind of one launch. */
static tern_status print_charge(const struct tern_ledger_launch *launch,
                                int kind,
                                const struct tern_ledger_focus *focus,
                                struct tern_text *out)
{
    char cost[NUMBER_BYTES] = "", price[NUMBER_BYTES] = "", hours[NUMBER_BYTES], what[128];
    char from[TIME_BYTES], to[TIME_BYTES], bill_from[TIME_BYTES], bill_to[TIME_BYTES];
    const char *name = tern_ledger_kind_name((enum tern_ledger_kind)kind);
    double quantity = (double)launch->us[kind] * 1e-6 * launch->machines / 3600;
    int64_t begin =
        kind == TERN_LEDGER_RESTART ? launch->from_us - launch->gap_us : launch->from_us;
    if (launch->price >= 0) {
        snprintf(cost, sizeof cost, "%.9f", quantity * launch->price);
        snprintf(price, sizeof price, "%.9g", launch->price);
    }
    snprintf(hours, sizeof hours, "%.9f", quantity);
    snprintf(what, sizeof what, "estimate: %s of a training run on %d machine%s", name,
             launch->machines, launch->machines == 1 ? "" : "s");
    billing_period(begin, bill_from, bill_to);
    struct tern_text tags;
    tern_text_init(&tags);
    tern_status status = print_tags(&tags, launch, name, focus->run != NULL ? focus->run : "");
    const char *fields[FOCUS_COLUMNS] = {cost,
                                         cost,
                                         cost,
                                         cost,
                                         launch->currency,
                                         price,
                                         price,
                                         hours,
                                         "Hours",
                                         focus->pricing,
                                         hours,
                                         "Hours",
                                         time_text(begin, from),
                                         time_text(launch->to_us, to),
                                         bill_from,
                                         bill_to,
                                         "Usage",
                                         "",
                                         what,
                                         "Usage-Based",
                                         launch->launch,
                                         focus->run,
                                         "Virtual Machine",
                                         "Tern training",
                                         "AI and Machine Learning",
                                         focus->region,
                                         focus->instance,
                                         focus->provider,
                                         tags.data};
    status = status == TERN_OK ? print_fields(out, fields, FOCUS_COLUMNS) : status;
    tern_text_fini(&tags);
    return status;
}

tern_status tern_ledger_print_focus(const struct tern_ledger_account *account,
                                    const struct tern_ledger_focus *focus,
                                    struct tern_text *out)
{
    for (int i = 0; i < (int)FOCUS_COLUMNS; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s%s", i > 0 ? "," : "", g_focus[i]));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(out, "\n"));
    for (int i = 0; i < account->launch_count; i++) {
        for (int k = 0; k < TERN_LEDGER_KIND_COUNT; k++) {
            if (account->launches[i].us[k] != 0) {
                TERN_RETURN_IF_ERR(print_charge(&account->launches[i], k, focus, out));
            }
        }
    }
    return TERN_OK;
}
