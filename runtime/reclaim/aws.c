/* aws.c - EC2's instance metadata, version 2: spot interruptions, rebalance recommendations,
 * scheduled maintenance, scale-in.
 *
 * Each path is 404 (or an empty list) until something happens. A token of six hours is fetched by
 * PUT, refreshed before it ends, and thrown away when the service says 401. */
#include "io/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/dates.h"
#include "runtime/reclaim/source.h"

#include <stdio.h>
#include <string.h>

#define META "/latest/meta-data/"

enum {
    TOKEN_BYTES = 512,
    TOKEN_SECONDS = 21600,
    REFRESH_SECONDS = 60,    /* before the token ends */
    SPOT_SECONDS = 120,      /* that a spot notice leaves when its time cannot be read */
    MAINTENANCE_SECONDS = 60 /* between two looks: it is announced days ahead */
};

struct aws {
    struct tern_metadata *metadata;
    char token_header[TOKEN_BYTES + 32]; /* "" when there is none */
    double token_until;
    bool is_cycle_known, is_spot;
    double next_maintenance;
    struct tern_standing maintenance;
};

static tern_status open_aws(struct tern_metadata *metadata, void **out)
{
    struct aws *aws = tern_alloc_zero("reclaim", 1, sizeof *aws);
    if (aws == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a source of notices");
    }
    aws->metadata = metadata;
    aws->is_spot = true;
    *out = aws;
    return TERN_OK;
}

static void close_aws(void *self)
{
    tern_free(self);
}

static tern_status renew_token(struct aws *aws)
{
    const struct tern_metadata_ask ask = {
        .method = "PUT",
        .path = "/latest/api/token",
        .headers = {"X-aws-ec2-metadata-token-ttl-seconds: 21600"},
    };
    struct tern_http_answer answer;
    aws->token_header[0] = '\0';
    tern_status status = tern_metadata_ask(aws->metadata, &ask, &answer);
    if (status == TERN_OK && answer.status != 200) {
        status = tern_metadata_refused(&ask, &answer);
    }
    const char *token = status == TERN_OK ? tern_metadata_line(&answer, TOKEN_BYTES) : NULL;
    if (token != NULL) {
        snprintf(aws->token_header, sizeof aws->token_header, "X-aws-ec2-metadata-token: %s",
                 token);
        aws->token_until = tern_clock_seconds() + TOKEN_SECONDS - REFRESH_SECONDS;
    } else if (status == TERN_OK) {
        status =
            tern_fail(TERN_ERR_INPUT, "PUT %s answers with something that is no token", ask.path);
    }
    tern_http_answer_fini(&answer);
    return status;
}

/* TERN_ERR_NOT_FOUND: 404, so nothing has happened. Fini of the answer in every case. */
static tern_status get(struct aws *aws, const char *path, struct tern_http_answer *answer)
{
    tern_status status = TERN_OK;
    *answer = (struct tern_http_answer){0};
    for (int tries = 0; tries < 2; tries++) {
        if (aws->token_header[0] == '\0' || tern_clock_seconds() >= aws->token_until) {
            TERN_RETURN_IF_ERR(renew_token(aws));
        }
        const struct tern_metadata_ask ask = {.path = path, .headers = {aws->token_header}};
        tern_http_answer_fini(answer);
        TERN_RETURN_IF_ERR(tern_metadata_ask(aws->metadata, &ask, answer));
        if (answer->status == 200) {
            return TERN_OK;
        }
        if (answer->status == 404) {
            return tern_fail(TERN_ERR_NOT_FOUND, "%s: nothing there", path);
        }
        status = tern_metadata_refused(&ask, answer);
        if (answer->status != 401) {
            break;
        }
        aws->token_header[0] = '\0'; /* it has ended before its time */
    }
    return status;
}

/* On demand nobody is interrupted: two requests less each time. */
static tern_status learn_cycle(struct aws *aws)
{
    struct tern_http_answer answer;
    tern_status status = get(aws, META "instance-life-cycle", &answer);
    if (status == TERN_OK || status == TERN_ERR_NOT_FOUND) {
        const char *cycle = status == TERN_OK ? tern_metadata_line(&answer, 64) : NULL;
        aws->is_spot = cycle == NULL || strcmp(cycle, "on-demand") != 0;
        aws->is_cycle_known = true;
        status = TERN_OK;
    }
    tern_http_answer_fini(&answer);
    return status;
}

/* A JSON document, or TERN_ERR_NOT_FOUND. Owned: tern_json_close. */
static tern_status get_json(struct aws *aws, const char *path, struct tern_json **out)
{
    struct tern_http_answer answer;
    *out = NULL;
    tern_status status = get(aws, path, &answer);
    if (status == TERN_OK) {
        status = tern_json_parse(path, answer.body.data != NULL ? answer.body.data : "",
                                 answer.body.length, out);
    }
    tern_http_answer_fini(&answer);
    return status;
}

/* {"action":"terminate","time":"..."}. A notice whose time cannot be read is one, too. */
static tern_status poll_spot(struct aws *aws, struct tern_standing *out)
{
    struct tern_json *json = NULL;
    char text[TERN_NOTICE_TEXT_BYTES];
    double moment;
    tern_status status = get_json(aws, META "spot/instance-action", &json);
    if (status != TERN_OK && status != TERN_ERR_INPUT) {
        return status == TERN_ERR_NOT_FOUND ? TERN_OK : status;
    }
    const struct tern_json *root = (const struct tern_json *)json;
    const char *action = tern_json_string(tern_json_get(root, "action"), NULL);
    const char *time = tern_json_string(tern_json_get(root, "time"), NULL);
    bool has_time = tern_date_parse(time, &moment);
    if (tern_json_kind_of(root) == TERN_JSON_OBJECT && action != NULL) {
        snprintf(text, sizeof text, "%.40s at %.40s", action, time != NULL ? time : "no time");
        tern_standing_add(out, TERN_NOTICE_AWS_SPOT,
                          has_time ? tern_date_to_clock(moment)
                                   : tern_clock_seconds() + SPOT_SECONDS,
                          has_time ? time : "spot", text);
        status = TERN_OK;
    } else {
        status = tern_fail(TERN_ERR_INPUT, "spot/instance-action: expected an object with "
                                           "\"action\" and \"time\"");
    }
    tern_json_close(json);
    return status;
}

static tern_status poll_rebalance(struct aws *aws, struct tern_standing *out)
{
    struct tern_json *json = NULL;
    tern_status status = get_json(aws, META "events/recommendations/rebalance", &json);
    if (status != TERN_OK) {
        return status == TERN_ERR_NOT_FOUND ? TERN_OK : status;
    }
    const char *time =
        tern_json_string(tern_json_get((const struct tern_json *)json, "noticeTime"), NULL);
    if (time != NULL) {
        tern_standing_add(out, TERN_NOTICE_AWS_REBALANCE, -1, time, time);
    } else {
        status = tern_fail(TERN_ERR_INPUT, "events/recommendations/rebalance: expected an object "
                                           "with \"noticeTime\"");
    }
    tern_json_close(json);
    return status;
}

static tern_status poll_scaling(struct aws *aws, struct tern_standing *out)
{
    struct tern_http_answer answer;
    tern_status status = get(aws, META "autoscaling/target-lifecycle-state", &answer);
    const char *state = status == TERN_OK ? tern_metadata_line(&answer, 64) : NULL;
    if (state != NULL && strcmp(state, "Terminated") == 0) {
        tern_standing_add(out, TERN_NOTICE_AWS_SCALING, -1, state, state);
    }
    tern_http_answer_fini(&answer);
    return status == TERN_ERR_NOT_FOUND ? TERN_OK : status;
}

static void add_maintenance(struct tern_standing *out, const struct tern_json *event)
{
    char text[TERN_NOTICE_TEXT_BYTES];
    double moment;
    const char *id = tern_json_string(tern_json_get(event, "EventId"), NULL);
    const char *code = tern_json_string(tern_json_get(event, "Code"), NULL);
    const char *state = tern_json_string(tern_json_get(event, "State"), NULL);
    const char *from = tern_json_string(tern_json_get(event, "NotBefore"), NULL);
    if (code == NULL || !tern_date_parse(from, &moment) ||
        (state != NULL && strcmp(state, "active") != 0)) { /* canceled, completed */
        return;
    }
    snprintf(text, sizeof text, "%.60s from %.40s", code, from);
    tern_standing_add(out, TERN_NOTICE_AWS_MAINTENANCE, tern_date_to_clock(moment),
                      id != NULL ? id : code, text);
}

/* What stands is kept between two looks. */
static tern_status poll_maintenance(struct aws *aws, struct tern_standing *out)
{
    if (tern_clock_seconds() >= aws->next_maintenance) {
        struct tern_json *json = NULL;
        tern_status status = get_json(aws, META "events/maintenance/scheduled", &json);
        if (status != TERN_OK && status != TERN_ERR_NOT_FOUND) {
            return status;
        }
        aws->next_maintenance = tern_clock_seconds() + MAINTENANCE_SECONDS;
        aws->maintenance.count = 0;
        const struct tern_json *list = (const struct tern_json *)json;
        for (int64_t i = 0; i < tern_json_count(list); i++) {
            add_maintenance(&aws->maintenance, tern_json_item(list, i));
        }
        tern_json_close(json);
    }
    for (int i = 0; i < aws->maintenance.count; i++) {
        const struct tern_notice_info *info = &aws->maintenance.items[i];
        tern_standing_add(out, info->kind, info->deadline, info->id, info->text);
    }
    return TERN_OK;
}

/* The most urgent first; what was found counts, whatever fails behind it. */
static tern_status poll_aws(void *self, double wait_seconds, struct tern_standing *out)
{
    struct aws *aws = self;
    (void)wait_seconds;
    tern_status worst = aws->is_cycle_known ? TERN_OK : learn_cycle(aws);
    tern_status (*const looks[])(struct aws *, struct tern_standing *) = {
        aws->is_spot ? poll_spot : NULL, aws->is_spot ? poll_rebalance : NULL, poll_scaling,
        poll_maintenance};
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        if (worst != TERN_OK && aws->token_header[0] == '\0') {
            break; /* nobody is there */
        }
        tern_status status = looks[i] != NULL ? looks[i](aws, out) : TERN_OK;
        worst = worst == TERN_OK ? status : worst;
    }
    return out->count > 0 ? TERN_OK : worst;
}

const struct tern_source_ops tern_source_aws = {
    .name = "aws",
    .period_seconds = 5,
    .given_seconds = SPOT_SECONDS,
    .open = open_aws,
    .close = close_aws,
    .poll = poll_aws,
};
