/* run_record.c - JSON in and out, none of it trusted. */
#include "runtime/supervise/run_record.h"

#include "io/checkpoint.h"
#include "io/json.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/random.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    RECORD_BYTES_MAX = 64 << 10,
    JOURNAL_BYTES_MAX = 4 << 20,
    LOG_TAIL_BYTES = 256 << 10
};

/* ---- what the run says ---- */

static void copy_text(char *out, size_t room, const struct tern_json *value)
{
    const char *text = tern_json_string(value, NULL);
    snprintf(out, room, "%s", text != NULL ? text : "");
}

void tern_launch_record_read(const char *run_dir, const char *id, struct tern_launch_record *out)
{
    char name[TERN_LAUNCH_ID_ROOM + 16];
    char path[TERN_PATH_BYTES];
    char *text = NULL;
    size_t bytes;
    struct tern_json *json = NULL;
    *out = (struct tern_launch_record){0};
    snprintf(name, sizeof name, "launches/%s.json", id);
    if (tern_path_join(path, run_dir, name) == TERN_OK && tern_file_exists(path) &&
        tern_file_read(path, RECORD_BYTES_MAX, &text, &bytes) == TERN_OK &&
        tern_json_parse(path, text, bytes, &json) == TERN_OK) {
        out->state = tern_launch_state_of(tern_json_string(tern_json_get(json, "state"), NULL));
        (void)!tern_json_i64(tern_json_get(json, "step"), &out->step);
        copy_text(out->reason, sizeof out->reason, tern_json_get(json, "reason"));
        copy_text(out->leaving, sizeof out->leaving, tern_json_get(json, "leaving"));
    }
    tern_json_close(json);
    tern_free(text);
}

static int64_t committed_step(const char *run_dir)
{
    int count = 0;
    int64_t step = 0;
    if (tern_ckpt_list(run_dir, NULL, 0, &count) != TERN_OK || count == 0) {
        return 0;
    }
    struct tern_ckpt_entry *entries =
        tern_alloc_zero("checkpoints", (size_t)count, sizeof *entries);
    int room = count;
    if (entries != NULL && tern_ckpt_list(run_dir, entries, room, &count) == TERN_OK) {
        for (int i = 0; i < count && i < room; i++) {
            step = entries[i].is_good && entries[i].step > step ? entries[i].step : step;
        }
    }
    tern_free(entries);
    return step;
}

static bool log_path(const char *run_dir, char out[TERN_PATH_BYTES])
{
    return tern_path_join(out, run_dir, "log.jsonl") == TERN_OK && tern_file_exists(out);
}

/* The greatest "step" of the whole lines at the end of the log; nothing writes to it now. */
static int64_t logged_step(const char *run_dir)
{
    char path[TERN_PATH_BYTES];
    struct tern_map map;
    int64_t best = 0;
    if (!log_path(run_dir, path) || tern_map_open(path, &map) != TERN_OK) {
        return 0;
    }
    const char *text = (const char *)map.data;
    size_t at = map.bytes > LOG_TAIL_BYTES ? map.bytes - LOG_TAIL_BYTES : 0;
    while (at < map.bytes) {
        const char *end = memchr(text + at, '\n', map.bytes - at);
        struct tern_json *json = NULL;
        int64_t step;
        if (end == NULL) {
            break;
        }
        size_t length = (size_t)(end - (text + at));
        if (tern_json_parse(path, text + at, length, &json) == TERN_OK) {
            const char *kind = tern_json_string(tern_json_get(json, "kind"), NULL);
            if (kind != NULL && strcmp(kind, "step") == 0 &&
                tern_json_i64(tern_json_get(json, "step"), &step) && step > best) {
                best = step;
            }
        }
        tern_json_close(json);
        at += length + 1;
    }
    tern_map_close(&map);
    return best;
}

int64_t tern_run_progress(const char *run_dir)
{
    int64_t committed = committed_step(run_dir);
    int64_t logged = logged_step(run_dir);
    return committed > logged ? committed : logged;
}

int64_t tern_run_pulse(const char *run_dir)
{
    char path[TERN_PATH_BYTES];
    int64_t bytes;
    return log_path(run_dir, path) && tern_file_size(path, &bytes) == TERN_OK ? bytes : 0;
}

/* ---- the account ---- */

static bool is_tag(const char *text)
{
    return text != NULL && strlen(text) == TERN_TAG_BYTES - 1 &&
           strspn(text, "0123456789abcdef") == TERN_TAG_BYTES - 1;
}

static enum tern_verdict verdict_of(const char *word)
{
    for (int i = 0; word != NULL && i < TERN_VERDICT_COUNT; i++) {
        if (strcmp(word, tern_verdict_name((enum tern_verdict)i)) == 0) {
            return (enum tern_verdict)i;
        }
    }
    return TERN_VERDICT_LOST;
}

static void read_launch(const struct tern_json *json, struct tern_journal_launch *out)
{
    int64_t number = 0;
    *out = (struct tern_journal_launch){0};
    copy_text(out->id, sizeof out->id, tern_json_get(json, "id"));
    copy_text(out->started, sizeof out->started, tern_json_get(json, "started"));
    copy_text(out->ended, sizeof out->ended, tern_json_get(json, "ended"));
    copy_text(out->reason, sizeof out->reason, tern_json_get(json, "reason"));
    (void)!tern_json_i64(tern_json_get(json, "ranks"), &out->ranks);
    (void)!tern_json_i64(tern_json_get(json, "step"), &out->step);
    out->hosts = tern_json_i64(tern_json_get(json, "hosts"), &number) ? (int)number : 0;
    out->code = tern_json_i64(tern_json_get(json, "status"), &number) ? (int)number : 0;
    out->state = tern_launch_state_of(tern_json_string(tern_json_get(json, "state"), NULL));
    out->verdict = verdict_of(tern_json_string(tern_json_get(json, "verdict"), NULL));
}

/* False where it is none. */
static bool read_journal(const struct tern_json *root, struct tern_journal *out)
{
    int64_t launches = 0;
    const char *tag = tern_json_string(tern_json_get(root, "tag"), NULL);
    const struct tern_json *items = tern_json_get(root, "history");
    int64_t kept = tern_json_count(items);
    if (!is_tag(tag) || !tern_json_i64(tern_json_get(root, "launches"), &launches) ||
        launches < 0 || launches > 1000000000 || kept > TERN_JOURNAL_LAUNCHES || kept > launches) {
        return false;
    }
    /* One that was started by a batch system counts on; who gave up may begin anew. */
    int64_t stalls = 0;
    int64_t exit_code = 0;
    if (tern_json_i64(tern_json_get(root, "stalls"), &stalls) && stalls > 0 && stalls < 1000000 &&
        tern_json_i64(tern_json_get(root, "exit_code"), &exit_code) &&
        exit_code != TERN_EXIT_FAILED && exit_code != TERN_EXIT_USAGE) {
        out->count.stalls = stalls;
    }
    memcpy(out->tag, tag, TERN_TAG_BYTES);
    out->launches = launches;
    for (int64_t i = 0; i < kept; i++) {
        read_launch(tern_json_item(items, i),
                    &out->items[(launches - kept + i) % TERN_JOURNAL_LAUNCHES]);
    }
    return true;
}

static void invent_tag(char out[TERN_TAG_BYTES])
{
    uint32_t number = 0;
    if (getentropy(&number, sizeof number) != 0) {
        number = (uint32_t)getpid() * 2654435761u ^ (uint32_t)tern_clock_ns();
    }
    snprintf(out, TERN_TAG_BYTES, "%08x", number);
}

tern_status tern_journal_open(const char *run_dir, struct tern_journal *out)
{
    char *text = NULL;
    size_t bytes;
    struct tern_json *json = NULL;
    *out = (struct tern_journal){.state = "starting"};
    TERN_RETURN_IF_ERR(tern_path_join(out->path, run_dir, "supervise.json"));
    if (tern_file_exists(out->path)) {
        bool is_well = tern_file_read(out->path, JOURNAL_BYTES_MAX, &text, &bytes) == TERN_OK &&
                       tern_json_parse(out->path, text, bytes, &json) == TERN_OK &&
                       read_journal(json, out);
        if (!is_well) {
            tern_log_warn("%s is not what a supervisor writes; it begins anew", out->path);
        }
    }
    tern_json_close(json);
    tern_free(text);
    if (out->tag[0] == '\0') {
        invent_tag(out->tag);
    }
    return TERN_OK;
}

tern_status tern_journal_begin(struct tern_journal *journal, struct tern_journal_launch **out)
{
    char id[TERN_LAUNCH_ID_ROOM];
    char now[TERN_RFC3339_BYTES];
    size_t length = 0;
    tern_clock_rfc3339(now);
    for (const char *at = now; *at != '\0'; at++) { /* 20260131T120000.123Z */
        if (*at != '-' && *at != ':') {
            id[length++] = *at;
        }
    }
    struct tern_journal_launch *launch =
        &journal->items[journal->launches++ % TERN_JOURNAL_LAUNCHES];
    *launch = (struct tern_journal_launch){0};
    snprintf(launch->id, sizeof launch->id, "%.*s-%s-%lld", (int)length, id, journal->tag,
             (long long)journal->launches);
    memcpy(launch->started, now, sizeof launch->started);
    *out = launch;
    return TERN_OK;
}

static tern_status write_launch(const struct tern_journal_launch *launch, struct tern_text *json)
{
    TERN_RETURN_IF_ERR(
        tern_text_printf(json, "    {\"id\":\"%s\",\"ranks\":%lld,\"hosts\":%d,\"started\":\"%s\"",
                         launch->id, (long long)launch->ranks, launch->hosts, launch->started));
    if (launch->ended[0] != '\0') {
        TERN_RETURN_IF_ERR(tern_text_printf(
            json,
            ",\"ended\":\"%s\",\"status\":%d,\"state\":\"%s\",\"verdict\":\"%s\",\"step\":%lld",
            launch->ended, launch->code, tern_launch_state_name(launch->state),
            tern_verdict_name(launch->verdict), (long long)launch->step));
    }
    TERN_RETURN_IF_ERR(tern_text_printf(json, ",\"reason\":"));
    TERN_RETURN_IF_ERR(tern_json_quote(json, launch->reason, strlen(launch->reason)));
    return tern_text_printf(json, "}");
}

static tern_status write_hosts(const struct tern_hosts *hosts, struct tern_text *json)
{
    for (int i = 0; i < hosts->count; i++) {
        const struct tern_host *host = &hosts->items[i];
        TERN_RETURN_IF_ERR(
            tern_text_printf(json, "%s\n    {\"name\":\"%s\",\"slots\":%lld,\"up\":%s,\"used\":%s}",
                             i > 0 ? "," : "", host->name, (long long)host->slots,
                             host->is_up ? "true" : "false", host->is_used ? "true" : "false"));
    }
    return TERN_OK;
}

static tern_status compose(const struct tern_journal *journal,
                           const struct tern_hosts *hosts,
                           struct tern_text *json)
{
    char host[256] = "";
    char now[TERN_RFC3339_BYTES];
    int64_t kept =
        journal->launches < TERN_JOURNAL_LAUNCHES ? journal->launches : TERN_JOURNAL_LAUNCHES;
    gethostname(host, sizeof host - 1);
    TERN_RETURN_IF_ERR(tern_text_printf(
        json, "{\n  \"tag\":\"%s\",\"pid\":%ld,\"host\":", journal->tag, (long)getpid()));
    TERN_RETURN_IF_ERR(tern_json_quote(json, host, strlen(host)));
    TERN_RETURN_IF_ERR(tern_text_printf(
        json,
        ",\"time\":\"%s\",\n  "
        "\"state\":\"%s\",\"exit_code\":%d,\"launches\":%lld,\"restarts\":%lld,"
        "\"stalls\":%lld,\n  \"hosts\":[",
        tern_clock_rfc3339(now), journal->state, journal->exit_code, (long long)journal->launches,
        (long long)journal->count.restarts, (long long)journal->count.stalls));
    TERN_RETURN_IF_ERR(write_hosts(hosts, json));
    TERN_RETURN_IF_ERR(tern_text_printf(json, "],\n  \"history\":["));
    for (int64_t i = journal->launches - kept; i < journal->launches; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(json, i > journal->launches - kept ? ",\n" : "\n"));
        TERN_RETURN_IF_ERR(write_launch(&journal->items[i % TERN_JOURNAL_LAUNCHES], json));
    }
    return tern_text_printf(json, "]\n}\n");
}

tern_status tern_journal_write(const struct tern_journal *journal, const struct tern_hosts *hosts)
{
    struct tern_text json;
    tern_text_init(&json);
    tern_status status = compose(journal, hosts, &json);
    if (status == TERN_OK) {
        status = tern_file_replace(journal->path, json.data, json.length);
    }
    tern_text_fini(&json);
    return status;
}
