/* azure.c - Azure's Scheduled Events.
 *
 * One list for the whole scale set: an event is ours when our name is among its Resources. Its
 * DocumentIncarnation changes with the list. The first request switches the service on and may take
 * two minutes; without a request for 24 hours it switches itself off, so it is asked all the time. */
#include "io/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/dates.h"
#include "runtime/reclaim/source.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define EVENTS_PATH "/metadata/scheduledevents?api-version=2020-07-01"
#define OWN_PATH    "/metadata/instance?api-version=2019-06-04"
#define HEADER      "Metadata: true"

enum {
    NAME_BYTES = 128,
    FIRST_SECONDS = 125, /* for the request that switches the service on */
    LATER_SECONDS = 5,
    PREEMPT_SECONDS = 30 /* at least, between the notice of a preemption and the machine's end */
};

struct azure {
    struct tern_metadata *metadata;
    char own[NAME_BYTES]; /* as in Resources; "" not known yet */
    bool is_on, has_incarnation;
    int64_t incarnation;
};

static tern_status open_azure(struct tern_metadata *metadata, void **out)
{
    struct azure *azure = tern_alloc_zero("reclaim", 1, sizeof *azure);
    if (azure == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a source of notices");
    }
    azure->metadata = metadata;
    *out = azure;
    return TERN_OK;
}

static void close_azure(void *self)
{
    tern_free(self);
}

/* A JSON document; any other status than 200 is a failure. Owned: tern_json_close. */
static tern_status get_json(struct azure *azure,
                            const char *path,
                            double seconds,
                            struct tern_json **out)
{
    const struct tern_metadata_ask ask = {.path = path, .headers = {HEADER}, .seconds = seconds};
    struct tern_http_answer answer;
    *out = NULL;
    tern_status status = tern_metadata_ask(azure->metadata, &ask, &answer);
    if (status == TERN_OK && answer.status != 200) {
        status = tern_metadata_refused(&ask, &answer);
    }
    if (status == TERN_OK) {
        status = tern_json_parse(path, answer.body.data != NULL ? answer.body.data : "",
                                 answer.body.length, out);
    }
    tern_http_answer_fini(&answer);
    return status;
}

static tern_status learn_own_name(struct azure *azure)
{
    struct tern_json *json = NULL;
    TERN_RETURN_IF_ERR(get_json(azure, OWN_PATH, LATER_SECONDS, &json));
    const struct tern_json *compute = tern_json_get((const struct tern_json *)json, "compute");
    const char *name = tern_json_string(tern_json_get(compute, "name"), NULL);
    tern_status status = TERN_OK;
    if (name != NULL && name[0] != '\0' && strlen(name) < sizeof azure->own) {
        strcpy(azure->own, name);
    } else {
        status =
            tern_fail(TERN_ERR_INPUT, "%s: expected the machine's name in compute.name", OWN_PATH);
    }
    tern_json_close(json);
    return status;
}

/* Resource names do not differ by case alone. */
static bool is_ours(const struct azure *azure, const struct tern_json *resources)
{
    for (int64_t i = 0; i < tern_json_count(resources); i++) {
        const char *name = tern_json_string(tern_json_item(resources, i), NULL);
        if (name != NULL && strcasecmp(name, azure->own) == 0) {
            return true;
        }
    }
    return false;
}

static enum tern_notice kind_of(const char *type)
{
    static const struct {
        const char *type;
        enum tern_notice kind;
    } kinds[] = {
        {"Preempt", TERN_NOTICE_AZURE_PREEMPT}, {"Terminate", TERN_NOTICE_AZURE_TERMINATE},
        {"Reboot", TERN_NOTICE_AZURE_REBOOT},   {"Redeploy", TERN_NOTICE_AZURE_REBOOT},
        {"Freeze", TERN_NOTICE_AZURE_FREEZE},
    };
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        if (strcmp(type, kinds[i].type) == 0) {
            return kinds[i].kind;
        }
    }
    return TERN_NOTICE_NONE;
}

/* When it starts: as written; at once when it has started or, of a preemption, in 30 s. */
static double deadline_of(enum tern_notice kind, const char *not_before, bool is_started)
{
    double moment;
    if (is_started) {
        return tern_clock_seconds();
    }
    if (tern_date_parse(not_before, &moment)) {
        return tern_date_to_clock(moment);
    }
    return kind == TERN_NOTICE_AZURE_PREEMPT ? tern_clock_seconds() + PREEMPT_SECONDS : -1;
}

static void add_event(const struct azure *azure,
                      const struct tern_json *event,
                      struct tern_standing *out)
{
    char text[TERN_NOTICE_TEXT_BYTES];
    const char *id = tern_json_string(tern_json_get(event, "EventId"), NULL);
    const char *type = tern_json_string(tern_json_get(event, "EventType"), NULL);
    const char *status = tern_json_string(tern_json_get(event, "EventStatus"), NULL);
    const char *from = tern_json_string(tern_json_get(event, "NotBefore"), NULL);
    enum tern_notice kind = type != NULL ? kind_of(type) : TERN_NOTICE_NONE;
    bool is_started = status != NULL && strcmp(status, "Started") == 0;
    if (id == NULL || kind == TERN_NOTICE_NONE || strlen(id) >= TERN_NOTICE_ID_BYTES ||
        !is_ours(azure, tern_json_get(event, "Resources")) ||
        (status != NULL && strcmp(status, "Completed") == 0)) {
        return;
    }
    if (is_started && tern_notice_is_advice(kind)) {
        return; /* too late to save before it */
    }
    snprintf(text, sizeof text, "%s of %.40s %s", type, azure->own,
             is_started     ? "has started"
             : from != NULL ? from
                            : "");
    tern_standing_add(out, kind, deadline_of(kind, from, is_started), id, text);
}

static tern_status take_events(struct azure *azure,
                               const struct tern_json *root,
                               struct tern_standing *out)
{
    int64_t incarnation;
    const struct tern_json *events = tern_json_get(root, "Events");
    if (tern_json_kind_of(events) != TERN_JSON_ARRAY ||
        !tern_json_i64(tern_json_get(root, "DocumentIncarnation"), &incarnation)) {
        return tern_fail(TERN_ERR_INPUT,
                         "scheduledevents: expected \"DocumentIncarnation\" and \"Events\"");
    }
    if (azure->has_incarnation && incarnation == azure->incarnation) {
        return tern_fail(TERN_ERR_AGAIN, "scheduledevents: nothing new");
    }
    for (int64_t i = 0; i < tern_json_count(events); i++) {
        add_event(azure, tern_json_item(events, i), out);
    }
    azure->incarnation = incarnation;
    azure->has_incarnation = true;
    return TERN_OK;
}

static tern_status poll_azure(void *self, double wait_seconds, struct tern_standing *out)
{
    struct azure *azure = self;
    struct tern_json *json = NULL;
    (void)wait_seconds;
    if (azure->own[0] == '\0') {
        TERN_RETURN_IF_ERR(learn_own_name(azure));
    }
    TERN_RETURN_IF_ERR(
        get_json(azure, EVENTS_PATH, azure->is_on ? LATER_SECONDS : FIRST_SECONDS, &json));
    azure->is_on = true;
    tern_status status = take_events(azure, (const struct tern_json *)json, out);
    tern_json_close(json);
    return status;
}

static tern_status approve_azure(void *self, const struct tern_notice_info *info)
{
    struct azure *azure = self;
    struct tern_text body;
    struct tern_http_answer answer = {0};
    struct tern_metadata_ask ask = {.method = "POST",
                                    .path = EVENTS_PATH,
                                    .headers = {HEADER, "Content-Type: application/json"}};
    tern_text_init(&body);
    tern_status status = tern_text_printf(&body, "{\"StartRequests\":[{\"EventId\":");
    status = status == TERN_OK ? tern_json_quote(&body, info->id, strlen(info->id)) : status;
    status = status == TERN_OK ? tern_text_printf(&body, "}]}") : status;
    if (status == TERN_OK) {
        ask.body = body.data;
        status = tern_metadata_ask(azure->metadata, &ask, &answer);
    }
    if (status == TERN_OK && answer.status != 200) {
        status = tern_metadata_refused(&ask, &answer);
    }
    tern_http_answer_fini(&answer);
    tern_text_fini(&body);
    return status;
}

const struct tern_source_ops tern_source_azure = {
    .name = "azure",
    .period_seconds = 1,
    .given_seconds = PREEMPT_SECONDS,
    .open = open_azure,
    .close = close_azure,
    .poll = poll_azure,
    .approve = approve_azure,
};
