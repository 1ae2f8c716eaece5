/* gcp.c - Google Compute Engine's metadata: the "preempted" flag by long polls, and maintenance of
 * the host.
 *
 * Every answer of the real service carries Metadata-Flavor: Google; one without it is somebody
 * else's. A long poll names the state that it knows by its etag and returns when that has changed or
 * its time is over. */
#include "io/json.h"
#include "runtime/base/clock.h"
#include "runtime/base/mem.h"
#include "runtime/reclaim/dates.h"
#include "runtime/reclaim/source.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#define INSTANCE "/computeMetadata/v1/instance/"
#define HEADER   "Metadata-Flavor: Google"

enum {
    ETAG_BYTES = 64,
    WAIT_SECONDS_MAX = 10, /* of a long poll: maintenance is looked at in between */
    GRACE_SECONDS = 5,     /* that a long poll may be late */
    SPOT_SECONDS = 30,     /* from the flag to the machine's end */
    MIGRATE_SECONDS = 60
};

struct gcp {
    struct tern_metadata *metadata;
    char etag[ETAG_BYTES]; /* "" none yet */
    double since;          /* clock when the flag was first TRUE; 0 not yet */
};

static tern_status open_gcp(struct tern_metadata *metadata, void **out)
{
    struct gcp *gcp = tern_alloc_zero("reclaim", 1, sizeof *gcp);
    if (gcp == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a source of notices");
    }
    gcp->metadata = metadata;
    *out = gcp;
    return TERN_OK;
}

static void close_gcp(void *self)
{
    tern_free(self);
}

/* 200 from Google, or a failure; TERN_ERR_NOT_FOUND: 404. Fini of the answer in every case. */
static tern_status get(struct gcp *gcp,
                       const char *path,
                       double seconds,
                       struct tern_http_answer *answer)
{
    char flavor[16];
    const struct tern_metadata_ask ask = {.path = path, .headers = {HEADER}, .seconds = seconds};
    TERN_RETURN_IF_ERR(tern_metadata_ask(gcp->metadata, &ask, answer));
    if (tern_http_header(answer, "metadata-flavor", flavor, sizeof flavor) == NULL ||
        strcmp(flavor, "Google") != 0) {
        return tern_fail(TERN_ERR_INPUT, "GET %.100s: the answer is not of Google's service", path);
    }
    if (answer->status == 404) {
        return tern_fail(TERN_ERR_NOT_FOUND, "%.100s: nothing there", path);
    }
    return answer->status == 200 ? TERN_OK : tern_metadata_refused(&ask, answer);
}

/* An etag goes into a URL: only what needs no quoting there. */
static void keep_etag(struct gcp *gcp, const struct tern_http_answer *answer)
{
    gcp->etag[0] = '\0';
    if (tern_http_header(answer, "etag", gcp->etag, sizeof gcp->etag) == NULL) {
        gcp->etag[0] = '\0';
        return;
    }
    for (const char *at = gcp->etag; *at != '\0'; at++) {
        if (!isalnum((unsigned char)*at) && *at != '-' && *at != '_') {
            gcp->etag[0] = '\0';
            return;
        }
    }
}

static tern_status poll_preempted(struct gcp *gcp, double wait_seconds, struct tern_standing *out)
{
    char path[192] = INSTANCE "preempted";
    struct tern_http_answer answer;
    int wait = wait_seconds < WAIT_SECONDS_MAX ? (int)wait_seconds : WAIT_SECONDS_MAX;
    bool is_long = gcp->etag[0] != '\0' && wait >= 1 && gcp->since == 0;
    if (is_long) {
        snprintf(path, sizeof path,
                 INSTANCE "preempted?wait_for_change=true&timeout_sec=%d&last_etag=%s", wait,
                 gcp->etag);
    }
    tern_status status = get(gcp, path, is_long ? wait + GRACE_SECONDS : 0, &answer);
    const char *flag = status == TERN_OK ? tern_metadata_line(&answer, 16) : NULL;
    if (flag != NULL && strcmp(flag, "TRUE") == 0) {
        gcp->since = gcp->since > 0 ? gcp->since : tern_clock_seconds();
        tern_standing_add(out, TERN_NOTICE_GCP_PREEMPTED, gcp->since + SPOT_SECONDS, "preempted",
                          "preempted is TRUE");
    } else if (flag != NULL && strcmp(flag, "FALSE") == 0) {
        gcp->since = 0;
    } else if (status == TERN_OK) {
        status = tern_fail(TERN_ERR_INPUT, "instance/preempted: expected TRUE or FALSE");
    }
    if (status == TERN_OK) {
        keep_etag(gcp, &answer);
    } else {
        gcp->etag[0] = '\0';
    }
    tern_http_answer_fini(&answer);
    return status;
}

/* When a host that is to be stopped is: instance/upcoming-maintenance says so where it exists.
 * Negative: not known. */
static double maintenance_start(struct gcp *gcp)
{
    static const char path[] = INSTANCE "upcoming-maintenance?alt=json";
    struct tern_http_answer answer;
    struct tern_json *json = NULL;
    double moment;
    double start = -1;
    if (get(gcp, path, 0, &answer) == TERN_OK && answer.body.data != NULL &&
        tern_json_parse(path, answer.body.data, answer.body.length, &json) == TERN_OK) {
        const struct tern_json *from =
            tern_json_get((const struct tern_json *)json, "window_start_time");
        start = tern_date_parse(tern_json_string(from, NULL), &moment) ? tern_date_to_clock(moment)
                                                                       : -1;
    }
    tern_json_close(json);
    tern_http_answer_fini(&answer);
    return start;
}

static tern_status poll_maintenance(struct gcp *gcp, struct tern_standing *out)
{
    struct tern_http_answer answer;
    tern_status status = get(gcp, INSTANCE "maintenance-event", 0, &answer);
    const char *event = status == TERN_OK ? tern_metadata_line(&answer, 64) : NULL;
    if (event != NULL && strcmp(event, "MIGRATE_ON_HOST_MAINTENANCE") == 0) {
        tern_standing_add(out, TERN_NOTICE_GCP_MIGRATE, tern_clock_seconds() + MIGRATE_SECONDS,
                          event, event);
    } else if (event != NULL && strcmp(event, "TERMINATE_ON_HOST_MAINTENANCE") == 0) {
        tern_standing_add(out, TERN_NOTICE_GCP_MAINTENANCE, maintenance_start(gcp), event, event);
    }
    tern_http_answer_fini(&answer);
    return status == TERN_ERR_NOT_FOUND ? TERN_OK : status;
}

static tern_status poll_gcp(void *self, double wait_seconds, struct tern_standing *out)
{
    struct gcp *gcp = self;
    tern_status first = poll_preempted(gcp, wait_seconds, out);
    if (first == TERN_ERR_CANCELLED || out->count > 0) {
        return first;
    }
    tern_status second = poll_maintenance(gcp, out);
    return out->count > 0 || first == TERN_OK ? second : first;
}

const struct tern_source_ops tern_source_gcp = {
    .name = "gcp",
    .period_seconds = 1, /* a long poll waits by itself */
    .given_seconds = SPOT_SECONDS,
    .open = open_gcp,
    .close = close_gcp,
    .poll = poll_gcp,
};
