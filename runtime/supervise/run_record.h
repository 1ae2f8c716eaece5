/* run_record.h - what a run directory tells about its launches, and RUN/supervise.json, the supervisor's own account.
 *
 *   RUN/supervise.json   tag, pid, host, state, launch, launches, restarts, stalls, hosts, and the newest launches with
 *                        their ends; replaced whole
 *   RUN/supervise.hosts  the hostfile of the launch that runs
 *   RUN/supervise.lock   held by the one supervisor of the run */
#ifndef TERN_RUNTIME_SUPERVISE_RUN_RECORD_H
#define TERN_RUNTIME_SUPERVISE_RUN_RECORD_H

#include "io/file.h"
#include "runtime/base/clock.h"
#include "runtime/supervise/ending.h"
#include "runtime/supervise/hosts.h"
#include "runtime/supervise/reach.h"

enum {
    TERN_LAUNCH_ID_ROOM = 48,
    TERN_LAUNCH_REASON_BYTES = 512,
    TERN_JOURNAL_LAUNCHES = 64 /* that are kept */
};

struct tern_launch_record {
    enum tern_launch_state state;
    int64_t step;
    char reason[TERN_LAUNCH_REASON_BYTES];
    char leaving[TERN_HOST_NAME_BYTES]; /* host that is taken away; "*": all; "": none */
};

/* RUN/launches/ID.json. What cannot be read is TERN_LAUNCH_NO_RECORD. */
void tern_launch_record_read(const char *run_dir, const char *id, struct tern_launch_record *out);
/* The greatest step that is committed or in the log, 0 if there is none. */
int64_t tern_run_progress(const char *run_dir);
/* Something that grows while a run trains: bytes of its log. */
int64_t tern_run_pulse(const char *run_dir);

/* One launch in the account. */
struct tern_journal_launch {
    char id[TERN_LAUNCH_ID_ROOM];
    int64_t ranks; /* asked of the launcher; 0: as the command says */
    int hosts;
    char started[TERN_RFC3339_BYTES], ended[TERN_RFC3339_BYTES]; /* ended: "" while it runs */
    int code;
    enum tern_verdict verdict;
    enum tern_launch_state state;
    int64_t step;
    char reason[TERN_LAUNCH_REASON_BYTES];
};

struct tern_journal {
    char path[TERN_PATH_BYTES];
    char tag[TERN_TAG_BYTES];
    int64_t launches; /* begun by all supervisors of this run */
    struct tern_restart_count count;
    const char *state; /* starting | running | stopping | waiting | ended; static */
    int exit_code;     /* once it has ended */
    struct tern_journal_launch
        items[TERN_JOURNAL_LAUNCHES]; /* item k: launch k modulo that number */
};

/* What an earlier supervisor of this run wrote is gone on with; a new tag where there is nothing or nothing that can be read. */
TERN_MUST_CHECK tern_status tern_journal_open(const char *run_dir, struct tern_journal *out);
/* A new launch: its id, durable before the launch begins. The entry is valid until TERN_JOURNAL_LAUNCHES more. */
TERN_MUST_CHECK tern_status tern_journal_begin(struct tern_journal *journal,
                                               struct tern_journal_launch **out);
/* Replaces the file. */
TERN_MUST_CHECK tern_status tern_journal_write(const struct tern_journal *journal,
                                               const struct tern_hosts *hosts);

#endif
