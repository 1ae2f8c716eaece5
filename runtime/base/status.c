/* status.c - names, blast radius and the per-thread sentence. */
#include "runtime/base/status.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    enum tern_blast blast;
    int exit_code;
} g_statuses[TERN_STATUS_COUNT] = {
    [TERN_OK] = {"ok", TERN_BLAST_NONE, TERN_EXIT_OK},
    [TERN_ERR_USAGE] = {"usage", TERN_BLAST_CALL, TERN_EXIT_USAGE},
    [TERN_ERR_CONFIG] = {"config", TERN_BLAST_CALL, TERN_EXIT_USAGE},
    [TERN_ERR_INPUT] = {"input", TERN_BLAST_CALL, TERN_EXIT_USAGE},
    [TERN_ERR_ARGUMENT] = {"argument", TERN_BLAST_CALL, TERN_EXIT_FAILED},
    [TERN_ERR_NOT_FOUND] = {"not found", TERN_BLAST_CALL, TERN_EXIT_USAGE},
    [TERN_ERR_UNSUPPORTED] = {"unsupported", TERN_BLAST_CALL, TERN_EXIT_USAGE},
    [TERN_ERR_MEMORY] = {"memory", TERN_BLAST_CALL, TERN_EXIT_FAILED},
    [TERN_ERR_IO] = {"io", TERN_BLAST_CALL, TERN_EXIT_FAILED},
    [TERN_ERR_NO_SPACE] = {"no space", TERN_BLAST_CALL, TERN_EXIT_FAILED},
    [TERN_ERR_CORRUPT] = {"corrupt", TERN_BLAST_CALL, TERN_EXIT_FAILED},
    [TERN_ERR_BUSY] = {"busy", TERN_BLAST_CALL, TERN_EXIT_FAILED},
    [TERN_ERR_CANCELLED] = {"cancelled", TERN_BLAST_CALL, TERN_EXIT_FAILED},
    [TERN_ERR_AGAIN] = {"again", TERN_BLAST_CALL, TERN_EXIT_FAILED},
    [TERN_ERR_DEVICE] = {"device", TERN_BLAST_DEVICE, TERN_EXIT_FAILED},
    [TERN_ERR_PEER_LOST] = {"peer lost", TERN_BLAST_GROUP, TERN_EXIT_PEER_LOST},
    [TERN_ERR_TIMEOUT] = {"timeout", TERN_BLAST_GROUP, TERN_EXIT_PEER_LOST},
    [TERN_ERR_NONFINITE] = {"non-finite", TERN_BLAST_JOB, TERN_EXIT_FAILED},
    [TERN_ERR_STATE] = {"state", TERN_BLAST_JOB, TERN_EXIT_FAILED},
};

static _Thread_local char g_detail[TERN_DETAIL_BYTES];

const char *tern_status_name(tern_status status)
{
    return status < TERN_STATUS_COUNT ? g_statuses[status].name : "unknown";
}

enum tern_blast tern_status_blast(tern_status status)
{
    return status < TERN_STATUS_COUNT ? g_statuses[status].blast : TERN_BLAST_JOB;
}

int tern_status_exit_code(tern_status status)
{
    return status < TERN_STATUS_COUNT ? g_statuses[status].exit_code : TERN_EXIT_FAILED;
}

tern_status tern_fail(tern_status status, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    char sentence[TERN_DETAIL_BYTES]; /* the arguments may point into the old sentence */
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    memcpy(g_detail, sentence, strlen(sentence) + 1);
    return status;
}

tern_status tern_fail_errno(tern_status status, int error, const char *format, ...)
{
    char sentence[TERN_DETAIL_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    char reason[128];
    const char *text = strerror_r(error, reason, sizeof reason);
    if (error == ENOSPC || error == EDQUOT) {
        status = TERN_ERR_NO_SPACE;
    } else if (error == ENOENT) {
        status = TERN_ERR_NOT_FOUND;
    }
    return tern_fail(status, "%s: %s", sentence, text);
}

tern_status tern_fail_prefix(tern_status status, const char *format, ...)
{
    char prefix[TERN_DETAIL_BYTES / 2];
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    return tern_fail(status, "%s: %s", prefix, g_detail);
}

const char *tern_detail(void)
{
    return g_detail;
}

void tern_detail_set(const char *sentence)
{
    snprintf(g_detail, sizeof g_detail, "%s", sentence);
}
