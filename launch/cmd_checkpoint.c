/* cmd_checkpoint.c - tern checkpoint list | verify | digest | prune | pull: what a run directory
 * holds, on stdout. */
#include "io/checkpoint.h"
#include "io/file.h"
#include "io/json.h"
#include "io/store.h"
#include "launch/checkpoint_remote.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "runtime/base/log.h"
#include "runtime/base/mem.h"
#include "runtime/base/text.h"
#include "runtime/observe/ledger_print.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* What the positional argument is: a run directory, or one checkpoint of it. */
struct target {
    char path[TERN_PATH_BYTES];
    bool is_checkpoint;
};

static bool has_child(const char *folder, const char *name)
{
    char path[TERN_PATH_BYTES];
    return tern_path_join(path, folder, name) == TERN_OK && tern_file_exists(path);
}

static tern_status resolve(const char *argument, struct target *target)
{
    TERN_RETURN_IF_ERR(tern_path_join(target->path, argument, ""));
    size_t length = strlen(target->path);
    while (length > 1 && target->path[length - 1] == '/') {
        target->path[--length] = '\0';
    }
    if (!tern_file_is_folder(target->path)) {
        return tern_fail(TERN_ERR_USAGE,
                         "'%s' is not a folder, expected a run directory or RUN/ckpt/step-N",
                         argument);
    }
    target->is_checkpoint = has_child(target->path, "MANIFEST.json");
    if (!target->is_checkpoint && !has_child(target->path, "ckpt")) {
        return tern_fail(TERN_ERR_USAGE,
                         "'%s' is neither a run directory (it has no ckpt folder) nor a committed "
                         "checkpoint (it has no MANIFEST.json)",
                         argument);
    }
    return TERN_OK;
}

static tern_status need_run(const struct target *target)
{
    return target->is_checkpoint
               ? tern_fail(TERN_ERR_USAGE, "'%s' is one checkpoint, expected a run directory",
                           target->path)
               : TERN_OK;
}

/* All committed ones; tern_free. */
static tern_status read_list(const char *run_dir,
                             struct tern_ckpt_entry **entries_out,
                             int *count_out)
{
    int capacity = 0, count = 0;
    struct tern_ckpt_entry *entries = NULL;
    do { /* again, should one appear in between */
        tern_free(entries);
        TERN_RETURN_IF_ERR(tern_ckpt_list(run_dir, NULL, 0, &capacity));
        entries = tern_alloc_zero("checkpoint list", (size_t)capacity + 1, sizeof *entries);
        if (entries == NULL) {
            return tern_fail(TERN_ERR_MEMORY, "no memory for a list of %d checkpoints", capacity);
        }
        tern_status status = tern_ckpt_list(run_dir, entries, capacity, &count);
        if (status != TERN_OK) {
            tern_free(entries);
            return status;
        }
    } while (count > capacity);
    *entries_out = entries;
    *count_out = count;
    return TERN_OK;
}

/* ---- list ---- */

static tern_status print_entry_json(const struct tern_ckpt_entry *entry)
{
    struct tern_text fault;
    tern_text_init(&fault);
    tern_status status = tern_json_quote(&fault, entry->fault, strlen(entry->fault));
    if (status == TERN_OK) {
        printf("{\"step\":%" PRId64 ",\"ranks\":%d,\"bytes\":%" PRId64
               ",\"time\":\"%s\",\"good\":%s,\"fault\":%s}\n",
               entry->step, entry->ranks, entry->bytes, entry->time,
               entry->is_good ? "true" : "false", entry->is_good ? "null" : fault.data);
    }
    tern_text_fini(&fault);
    return status;
}

static void print_entry(const struct tern_ckpt_entry *entry)
{
    char size[TERN_TEXT_BYTES_BYTES];
    if (entry->is_good) {
        printf("step-%08" PRId64 "  ranks %-4d  %-10s  %s\n", entry->step, entry->ranks,
               tern_text_bytes(entry->bytes, size), entry->time);
    } else {
        printf("step-%08" PRId64 "  damaged: %s\n", entry->step, entry->fault);
    }
}

tern_status tern_checkpoint_print(const struct tern_ckpt_entry *entry, bool is_json)
{
    if (is_json) {
        return print_entry_json(entry);
    }
    print_entry(entry);
    return TERN_OK;
}

/* What the run has cost so far, for people: a run without a ledger, or with a damaged one, still has its checkpoints. */
static void say_ledger(const char *run_dir)
{
    char path[TERN_PATH_BYTES];
    struct tern_ledger_account account;
    struct tern_text line;
    if (tern_path_join(path, run_dir, "ledger.csv") != TERN_OK || !tern_file_exists(path)) {
        return;
    }
    tern_text_init(&line);
    if (tern_ledger_read(path, -1, &account) != TERN_OK ||
        tern_ledger_print_line(&account, &line) != TERN_OK) {
        tern_log_warn("%s", tern_detail());
    } else {
        tern_log_info("ledger: %s", line.data);
    }
    tern_text_fini(&line);
    tern_ledger_account_fini(&account);
}

static tern_status run_list(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    bool is_json = false, is_help;
    const struct tern_option options[] = {
        {"json", TERN_OPTION_FLAG, &is_json, NULL, "one JSON object a line instead of columns"},
    };
    const struct tern_command_spec spec = {
        .name = "checkpoint list",
        .usage = "RUN | URL [options]",
        .summary = "Lists the committed checkpoints of a run directory or an object store, oldest "
                   "first. Looks at "
                   "manifests and file "
                   "sizes; 'verify' reads everything. What the run has cost is said on stderr.",
        .example = "tern checkpoint list runs/bible",
        .options = options,
        .option_count = 1,
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals positionals;
    struct target target;
    struct tern_ckpt_entry *entries;
    int count;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    if (tern_store_is_url(positionals.items[0])) {
        return tern_checkpoint_list_remote(positionals.items[0], is_json);
    }
    TERN_RETURN_IF_ERR(resolve(positionals.items[0], &target));
    TERN_RETURN_IF_ERR(need_run(&target));
    TERN_RETURN_IF_ERR(read_list(target.path, &entries, &count));
    tern_status status = TERN_OK;
    for (int i = 0; i < count && status == TERN_OK; i++) {
        status = tern_checkpoint_print(&entries[i], is_json);
    }
    tern_free(entries);
    if (status == TERN_OK && !is_json) {
        say_ledger(target.path);
    }
    return status;
}

/* ---- verify ---- */

/* One line on stdout; true if it is good. */
static bool verify_one(const char *path)
{
    tern_status status = tern_ckpt_verify(path);
    printf("%s  %s%s%s\n", status == TERN_OK ? "good" : "bad ", path, status == TERN_OK ? "" : ": ",
           status == TERN_OK ? "" : tern_detail());
    fflush(stdout);
    return status == TERN_OK;
}

static tern_status verify_all(const char *run_dir)
{
    struct tern_ckpt_entry *entries;
    int count, bad = 0;
    tern_status status = TERN_OK;
    TERN_RETURN_IF_ERR(read_list(run_dir, &entries, &count));
    for (int i = 0; i < count && status == TERN_OK; i++) {
        char path[TERN_PATH_BYTES], name[48];
        snprintf(name, sizeof name, "ckpt/step-%08" PRId64, entries[i].step);
        status = tern_path_join(path, run_dir, name);
        bad += status == TERN_OK && !verify_one(path);
    }
    tern_free(entries);
    if (status == TERN_OK && count == 0) {
        return tern_fail(TERN_ERR_NOT_FOUND, "'%s' has no checkpoint", run_dir);
    }
    if (status == TERN_OK && bad > 0) {
        return tern_fail(
            TERN_ERR_CORRUPT,
            "%d of %d checkpoints of '%s' %s damaged; training resumes from the newest "
            "good one",
            bad, count, run_dir, bad == 1 ? "is" : "are");
    }
    return status;
}

static tern_status run_verify(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    bool is_help;
    const struct tern_command_spec spec = {
        .name = "checkpoint verify",
        .usage = "RUN | RUN/ckpt/step-N | URL | URL/step-N",
        .summary = "Reads every byte of the checkpoints, compares sizes and hashes with the "
                   "manifest, and opens every "
                   "tensor. Ends with 1 if one is damaged.",
        .example = "tern checkpoint verify runs/bible",
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals positionals;
    struct target target;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    if (tern_store_is_url(positionals.items[0])) {
        return tern_checkpoint_verify_remote(positionals.items[0]);
    }
    TERN_RETURN_IF_ERR(resolve(positionals.items[0], &target));
    if (!target.is_checkpoint) {
        return verify_all(target.path);
    }
    return verify_one(target.path)
               ? TERN_OK
               : tern_fail(TERN_ERR_CORRUPT, "checkpoint '%s' is damaged", target.path);
}

/* ---- digest ---- */

static tern_status run_digest(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    bool is_help;
    const struct tern_command_spec spec = {
        .name = "checkpoint digest",
        .usage = "RUN | RUN/ckpt/step-N",
        .summary = "Prints the XXH3-128 of the parameters, of each optimizer state and of the data "
                   "cursor: the same "
                   "whatever the rank count or compression that wrote them. Of a run directory: "
                   "its newest good "
                   "checkpoint.",
        .example = "tern checkpoint digest runs/bible/ckpt/step-00000200",
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals positionals;
    struct target target;
    struct tern_ckpt_digest digest;
    int64_t step;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(resolve(positionals.items[0], &target));
    if (!target.is_checkpoint) {
        char found[TERN_CKPT_PATH_BYTES];
        TERN_RETURN_IF_ERR(tern_ckpt_find(target.path, found, &step));
        memcpy(target.path, found, sizeof found);
    }
    TERN_RETURN_IF_ERR(tern_ckpt_digest(target.path, &digest));
    printf("model       %s\nexp_avg     %s\nexp_avg_sq  %s\ncursor      %s\n", digest.model,
           digest.exp_avg, digest.exp_avg_sq, digest.cursor);
    return TERN_OK;
}

/* ---- prune ---- */

static tern_status run_prune(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    bool is_help;
    int64_t keep = 3;
    const struct tern_option options[] = {
        {"keep", TERN_OPTION_I64, &keep, "N", "how many of the newest stay (default 3)", 2, 1e6},
    };
    const struct tern_command_spec spec = {
        .name = "checkpoint prune",
        .usage = "RUN [options]",
        .summary =
            "Removes all but the newest checkpoints of a run directory, and what interrupted saves "
            "left. The "
            "newest good one is verified and never removed. Refused while a run writes there.",
        .example = "tern checkpoint prune runs/bible --keep 2",
        .options = options,
        .option_count = 1,
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals positionals;
    struct target target;
    struct tern_lock lock;
    int removed = 0;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(resolve(positionals.items[0], &target));
    TERN_RETURN_IF_ERR(need_run(&target));
    TERN_RETURN_IF_ERR(tern_ckpt_lock(target.path, &lock));
    tern_status status = tern_ckpt_clean(target.path);
    if (status == TERN_OK) {
        status = tern_ckpt_prune(target.path, (int)keep, &removed);
    }
    tern_lock_drop(&lock);
    printf("removed %d checkpoint%s\n", removed, removed == 1 ? "" : "s");
    return status;
}

/* ---- which ---- */

static const struct {
    const char *name;
    tern_status (*run)(int argc, char **argv, int *exit_code);
    const char *summary;
} g_actions[] = {
    {"list", run_list, "the committed checkpoints of a run directory"},
    {"verify", run_verify, "read everything and compare with the hashes"},
    {"digest", run_digest, "hashes of the logical tensors, equal for equal runs"},
    {"prune", run_prune, "remove old checkpoints and leftovers"},
    {"pull", tern_checkpoint_pull, "fetch from an object store into a run directory"},
};
enum {
    ACTIONS = sizeof g_actions / sizeof g_actions[0]
};

static void print_actions(void)
{
    printf("usage: tern checkpoint ACTION RUN[/ckpt/step-N] | URL [options]\n\n");
    for (int i = 0; i < ACTIONS; i++) {
        printf("  %-8s %s\n", g_actions[i].name, g_actions[i].summary);
    }
    printf("\n'tern checkpoint ACTION --help' says more.\n\nexample: tern checkpoint verify "
           "runs/bible\n");
}

tern_status tern_command_checkpoint(int argc, char **argv, int *exit_code)
{
    const char *names[ACTIONS];
    for (int i = 0; i < ACTIONS; i++) {
        names[i] = g_actions[i].name;
    }
    if (argc == 0) {
        return tern_fail(TERN_ERR_USAGE, "checkpoint: expected list, verify, digest, prune or pull "
                                         "(see 'tern checkpoint --help')");
    }
    if (strcmp(argv[0], "--help") == 0 || strcmp(argv[0], "-h") == 0) {
        print_actions();
        return TERN_OK;
    }
    for (int i = 0; i < ACTIONS; i++) {
        if (strcmp(argv[0], names[i]) == 0) {
            return g_actions[i].run(argc - 1, argv + 1, exit_code);
        }
    }
    return tern_fail(TERN_ERR_USAGE, "checkpoint: unknown action '%s', nearest is '%s'", argv[0],
                     tern_text_nearest(argv[0], names, ACTIONS));
}
