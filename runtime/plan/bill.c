/* bill.c - the memory bill. */
#include "runtime/plan/bill.h"

#include "io/file.h"
#include "runtime/base/check.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum {
    MARGIN_PERCENT = 3
};

void tern_bill_add(struct tern_bill *bill, const char *what, int64_t bytes)
{
    TERN_CHECK(bill->count < TERN_BILL_ITEMS_MAX);
    bill->items[bill->count].what = what;
    bill->items[bill->count].bytes = bytes;
    bill->count++;
}

int64_t tern_bill_total(const struct tern_bill *bill)
{
    int64_t total = 0;
    for (int i = 0; i < bill->count; i++) {
        total += bill->items[i].bytes;
    }
    return total;
}

static const char *where(const struct tern_bill *bill)
{
    return bill->where != NULL ? bill->where : "memory";
}

void tern_bill_print(const struct tern_bill *bill, int local_ranks, int64_t available_bytes)
{
    char size[TERN_TEXT_BYTES_BYTES];
    char available[TERN_TEXT_BYTES_BYTES];
    tern_log_line("%s of one rank, planned before the first step:", where(bill));
    for (int i = 0; i < bill->count; i++) {
        if (bill->items[i].bytes > 0) {
            tern_log_line("  %-28s %10s", bill->items[i].what,
                          tern_text_bytes(bill->items[i].bytes, size));
        }
    }
    tern_log_line("  %-28s %10s  (%d rank%s on this machine, %s available)", "total",
                  tern_text_bytes(tern_bill_total(bill), size), local_ranks,
                  local_ranks == 1 ? "" : "s", tern_text_bytes(available_bytes, available));
}

/* The number after a word at the start of a line ("MemAvailable:", "active_file"; "" takes the
 * first number of the file), -1 if there is none ("max" included). */
static int64_t read_number(const char *folder, const char *name, const char *word)
{
    char path[TERN_PATH_BYTES];
    char line[256];
    long long value = -1;
    FILE *file = tern_path_join(path, folder, name) == TERN_OK ? fopen(path, "re") : NULL;
    while (file != NULL && value < 0 && fgets(line, sizeof line, file) != NULL) {
        size_t length = strlen(word);
        bool is_it = length == 0 || (strncmp(line, word, length) == 0 && line[length] == ' ');
        if (is_it && sscanf(line + length, "%lld", &value) != 1) {
            value = -1;
        }
        if (length == 0) {
            break;
        }
    }
    if (file != NULL) {
        fclose(file);
    }
    return value;
}

/* The names of one version of control groups. */
struct cgroup_names {
    const char *limit, *used, *inactive, *active;
};

/* What one control group leaves: its limit less what it holds, file cache not counted, since that
 * goes when memory is needed. INT64_MAX without a limit. */
static int64_t cgroup_leaves(const char *folder, const struct cgroup_names *names)
{
    int64_t limit = read_number(folder, names->limit, "");
    int64_t used = read_number(folder, names->used, "");
    if (limit < 0 || used < 0) {
        return INT64_MAX;
    }
    int64_t inactive = read_number(folder, "memory.stat", names->inactive);
    int64_t active = read_number(folder, "memory.stat", names->active);
    used -= (inactive > 0 ? inactive : 0) + (active > 0 ? active : 0);
    int64_t left = limit - (used > 0 ? used : 0);
    return left > 0 ? left : 0;
}

/* Path of this process's group ("/system.slice/x"), "/" where there is none to read. */
static void own_cgroup(const char *proc, char out[TERN_PATH_BYTES])
{
    char path[TERN_PATH_BYTES];
    char line[TERN_PATH_BYTES];
    strcpy(out, "/");
    FILE *file = tern_path_join(path, proc, "self/cgroup") == TERN_OK ? fopen(path, "re") : NULL;
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        if (strncmp(line, "0::/", 4) == 0) {
            strcpy(out, line + 3);
        }
    }
    if (file != NULL) {
        fclose(file);
    }
}

int64_t tern_memory_available_under(const char *proc, const char *cgroup)
{
    static const struct cgroup_names second = {"memory.max", "memory.current", "inactive_file",
                                               "active_file"};
    static const struct cgroup_names first = {"memory.limit_in_bytes", "memory.usage_in_bytes",
                                              "total_inactive_file", "total_active_file"};
    char group[TERN_PATH_BYTES];
    char folder[TERN_PATH_BYTES];
    int64_t kib = read_number(proc, "meminfo", "MemAvailable:");
    int64_t available = kib >= 0 ? kib * 1024 : INT64_MAX;
    own_cgroup(proc, group);
    for (;;) { /* the limits of all groups above count too */
        if (tern_path_join(folder, cgroup, group + 1) == TERN_OK) {
            int64_t left = cgroup_leaves(folder, &second);
            available = left < available ? left : available;
        }
        char *slash = strrchr(group, '/');
        if (slash == NULL || group[1] == '\0') {
            break;
        }
        slash[slash == group] = '\0';
    }
    if (tern_path_join(folder, cgroup, "memory") == TERN_OK) {
        int64_t left = cgroup_leaves(folder, &first);
        available = left < available ? left : available;
    }
    return available;
}

int64_t tern_memory_available_bytes(void)
{
    return tern_memory_available_under("/proc", "/sys/fs/cgroup");
}

tern_status tern_bill_check(const struct tern_bill *bill, int local_ranks, int64_t available_bytes)
{
    int64_t needed = tern_bill_total(bill) * local_ranks;
    if (needed <= available_bytes / 100 * (100 - MARGIN_PERCENT)) {
        return TERN_OK;
    }
    char need[TERN_TEXT_BYTES_BYTES];
    char have[TERN_TEXT_BYTES_BYTES];
    return tern_fail(
        TERN_ERR_CONFIG,
        "the run needs %s of %s on this machine (%d rank%s), %s are available; smaller: "
        "train.recompute: block, a "
        "smaller train.micro_batch or train.sequence_length, train.precision: bf16, "
        "fewer ranks here",
        tern_text_bytes(needed, need), where(bill), local_ranks, local_ranks == 1 ? "" : "s",
        tern_text_bytes(available_bytes, have));
}
