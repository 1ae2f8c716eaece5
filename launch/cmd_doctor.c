/* cmd_doctor.c - what this machine is, what tern will use, and what is wrong with it, with
 * advice. */
#include "io/json.h"
#include "kernels/open.h"
#include "launch/commands.h"
#include "launch/environment.h"
#include "launch/options.h"
#include "launch/version.h"
#include "runtime/base/fault.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

enum {
    FACTS_MAX = 40,
    PROBLEMS_MAX = 24,
    VALUE_BYTES = 512,
    BACKENDS_MAX = 16
};

#define GIB ((int64_t)1 << 30)
#define MIB ((int64_t)1 << 20)

struct report {
    struct {
        const char *key;
        char value[VALUE_BYTES];
        bool is_number;
    } facts[FACTS_MAX];
    int fact_count;
    char problems[PROBLEMS_MAX][VALUE_BYTES];
    int problem_count;
};

static void add_fact(struct report *report, const char *key, const char *format, ...)
    TERN_PRINTF(3, 4);
static void add_problem(struct report *report, const char *format, ...) TERN_PRINTF(2, 3);

static void add_fact(struct report *report, const char *key, const char *format, ...)
{
    if (report->fact_count == FACTS_MAX) {
        return;
    }
    va_list args;
    va_start(args, format);
    report->facts[report->fact_count].key = key;
    vsnprintf(report->facts[report->fact_count].value, VALUE_BYTES, format, args);
    va_end(args);
    report->fact_count++;
}

static void add_number(struct report *report, const char *key, int64_t value)
{
    add_fact(report, key, "%" PRId64, value);
    report->facts[report->fact_count - 1].is_number = true;
}

static void add_problem(struct report *report, const char *format, ...)
{
    if (report->problem_count == PROBLEMS_MAX) {
        return;
    }
    va_list args;
    va_start(args, format);
    vsnprintf(report->problems[report->problem_count], VALUE_BYTES, format, args);
    va_end(args);
    report->problem_count++;
}

/* First line of a file of /proc or /sys that begins with `start`, without it and the blanks
 * behind; false if none. */
static bool read_line(const char *path, const char *start, char out[VALUE_BYTES])
{
    FILE *file = fopen(path, "re");
    if (file == NULL) {
        return false;
    }
    bool is_found = false;
    char line[VALUE_BYTES];
    size_t length = strlen(start);
    while (!is_found && fgets(line, sizeof line, file) != NULL) {
        if (strncmp(line, start, length) == 0) {
            const char *value = line + length + strspn(line + length, " \t:");
            snprintf(out, VALUE_BYTES, "%.*s", (int)strcspn(value, "\n"), value);
            is_found = true;
        }
    }
    fclose(file);
    return is_found;
}

static int64_t meminfo_bytes(const char *start)
{
    char value[VALUE_BYTES];
    return read_line("/proc/meminfo", start, value) ? strtoll(value, NULL, 10) * 1024 : -1;
}

static void look_at_cores(struct report *report)
{
    char value[VALUE_BYTES];
    struct utsname name;
    if (uname(&name) == 0) {
        add_fact(report, "host", "%s", name.nodename);
        add_fact(report, "kernel", "%s %s %s", name.sysname, name.release, name.machine);
    }
    if (read_line("/proc/cpuinfo", "model name", value)) {
        add_fact(report, "cpu_model", "%s", value);
    }
    add_fact(report, "cpu_features", "%s", tern_cpu_features());
    int64_t online = sysconf(_SC_NPROCESSORS_ONLN);
    add_number(report, "cores_online", online);
    cpu_set_t mask;
    int64_t allowed = online;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
        allowed = CPU_COUNT(&mask);
    }
    add_number(report, "cores_allowed", allowed);
    if (allowed < online) {
        add_problem(report,
                    "this process may use %" PRId64 " of %" PRId64
                    " cores: the launcher bound it (mpirun: --bind-to none) or a cpuset does",
                    allowed, online);
    }
    double quota;
    double period;
    if (read_line("/sys/fs/cgroup/cpu.max", "", value) &&
        sscanf(value, "%lf %lf", &quota, &period) == 2 && period > 0) {
        add_fact(report, "cores_quota", "%.2f", quota / period);
        if (quota / period < (double)allowed) {
            add_problem(report,
                        "the container may use %.2f cores of time but sees %" PRId64
                        ": a run takes %d threads there; more are stopped in the middle of their work",
                        quota / period, allowed, quota / period < 1 ? 1 : (int)(quota / period));
        }
    }
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        add_problem(report, "this CPU has no AVX2 with FMA: kernels run at the compiler's "
                            "baseline, many times slower");
    }
#endif
}

static void look_at_memory(struct report *report)
{
    char value[VALUE_BYTES];
    char text[TERN_TEXT_BYTES_BYTES];
    int64_t available = meminfo_bytes("MemAvailable");
    add_number(report, "memory_bytes", meminfo_bytes("MemTotal"));
    add_number(report, "memory_available_bytes", available);
    if (read_line("/sys/fs/cgroup/memory.max", "", value) && value[0] != 'm') {
        int64_t limit = strtoll(value, NULL, 10);
        add_number(report, "memory_limit_bytes", limit);
        available = limit < available ? limit : available;
    }
    if (available >= 0 && available < GIB) {
        add_problem(report, "only %s of memory are available: the smallest models need 1 GiB",
                    tern_text_bytes(available, text));
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        add_problem(report, "the address space is limited to %s (ulimit -v): raise it to unlimited",
                    tern_text_bytes((int64_t)limit.rlim_cur, text));
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        add_number(report, "open_files_limit", (int64_t)limit.rlim_cur);
        if (limit.rlim_cur < 1024) {
            add_problem(report, "only %" PRId64 " files may be open (ulimit -n): expected 1024",
                        (int64_t)limit.rlim_cur);
        }
    }
}

static void look_at_storage(struct report *report)
{
    char text[TERN_TEXT_BYTES_BYTES];
    char folder[VALUE_BYTES / 2];
    struct statvfs disk;
    if (getcwd(folder, sizeof folder) != NULL && statvfs(folder, &disk) == 0) {
        int64_t bytes = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
        add_fact(report, "folder", "%s", folder);
        add_number(report, "folder_free_bytes", bytes);
        if (bytes < 4 * GIB) {
            add_problem(report,
                        "only %s are free in %s: a checkpoint of a 124M model is 1.5 GiB, and at "
                        "least two are kept",
                        tern_text_bytes(bytes, text), folder);
        }
        if ((disk.f_flag & ST_RDONLY) != 0 || access(folder, W_OK) != 0) {
            add_problem(report, "%s cannot be written: give --run-dir another place", folder);
        }
    }
    if (statvfs("/dev/shm", &disk) != 0) {
        add_problem(report, "there is no /dev/shm: ranks of one machine cannot share memory");
        return;
    }
    int64_t shared = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
    add_number(report, "shared_memory_free_bytes", shared);
    if (shared <= 64 * MIB) {
        add_problem(report,
                    "only %s of shared memory: start the container with --shm-size=2g or more",
                    tern_text_bytes(shared, text));
    }
}

static void look_at_launcher(struct report *report)
{
    char path[TERN_PLUGIN_PATH_BYTES];
    const char *world = getenv("OMPI_COMM_WORLD_SIZE");
    const char *tasks = getenv("SLURM_NTASKS");
    bool has_pmi = getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL;
    if (world != NULL) {
        add_fact(report, "launcher", "mpirun, %s ranks", world);
    } else if (tasks != NULL) {
        add_fact(report, "launcher", "slurm, %s tasks", tasks);
    } else {
        add_fact(report, "launcher", "none: one rank");
    }
    if (world == NULL && tasks != NULL && strcmp(tasks, "1") != 0 && !has_pmi) {
        add_problem(report,
                    "slurm has %s tasks but no PMI: each would run alone; use srun --mpi=pmix or "
                    "mpirun",
                    tasks);
    }
    bool has_plugin = tern_version_mpi_plugin(path);
    void *plugin = has_plugin ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (plugin != NULL) {
        add_fact(report, "mpi_plugin", "%s", path);
    } else if (has_plugin) {
        add_problem(report, "the MPI plugin cannot be loaded: %s; install Open MPI's library",
                    dlerror());
    } else {
        add_problem(report,
                    "there is no MPI plugin at %s: one rank works; for more configure with "
                    "-DTERN_MPI=ON or set TERN_MPI_PLUGIN",
                    path);
    }
}

static void look_at_environment(struct report *report)
{
    for (int i = 0; tern_environment_name(i) != NULL; i++) {
        const char *value = getenv(tern_environment_name(i));
        if (value != NULL) {
            add_fact(report, tern_environment_name(i), "%s", value);
        }
    }
}

static tern_status print_text(const struct report *report, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_version_print(out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, "machine:\n"));
    for (int i = 0; i < report->fact_count; i++) {
        const char *key = report->facts[i].key;
        const char *value = report->facts[i].value;
        const char *unit = strstr(key, "_bytes");
        if (unit != NULL) {
            char text[TERN_TEXT_BYTES_BYTES];
            TERN_RETURN_IF_ERR(tern_text_printf(out, "  %-20.*s %s\n", (int)(unit - key), key,
                                                tern_text_bytes(strtoll(value, NULL, 10), text)));
        } else {
            TERN_RETURN_IF_ERR(tern_text_printf(out, "  %-20s %s\n", key, value));
        }
    }
    TERN_RETURN_IF_ERR(
        tern_text_printf(out, "problems:%s\n", report->problem_count > 0 ? "" : " none found"));
    for (int i = 0; i < report->problem_count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "  - %s\n", report->problems[i]));
    }
    return TERN_OK;
}

static tern_status quote(struct tern_text *out, const char *text)
{
    return tern_json_quote(out, text, strlen(text));
}

/* ,"key":"value" */
static tern_status print_member(struct tern_text *out, const char *key, const char *value)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, ","));
    TERN_RETURN_IF_ERR(quote(out, key));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ":"));
    return quote(out, value);
}

static tern_status print_backends(struct tern_text *out)
{
    struct tern_backend_info backends[BACKENDS_MAX];
    int count = tern_backend_list(backends, BACKENDS_MAX);
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"backends\":["));
    for (int i = 0; i < count && i < BACKENDS_MAX; i++) {
        bool can_run = backends[i].reason[0] == '\0';
        TERN_RETURN_IF_ERR(
            tern_text_printf(out, "%s{\"runs\":%s", i > 0 ? "," : "", can_run ? "true" : "false"));
        TERN_RETURN_IF_ERR(print_member(out, "name", backends[i].name));
        TERN_RETURN_IF_ERR(print_member(out, "reason", backends[i].reason));
        TERN_RETURN_IF_ERR(tern_text_printf(out, "}"));
    }
    return tern_text_printf(out, "]");
}

static tern_status print_json(const struct report *report, struct tern_text *out)
{
    TERN_RETURN_IF_ERR(tern_text_printf(out, "{\"version\":"));
    TERN_RETURN_IF_ERR(quote(out, tern_version_number()));
    TERN_RETURN_IF_ERR(print_member(out, "commit", tern_version_commit()));
    TERN_RETURN_IF_ERR(print_member(out, "build", tern_version_build()));
    for (int i = 0; i < report->fact_count; i++) {
        if (report->facts[i].is_number) {
            TERN_RETURN_IF_ERR(
                tern_text_printf(out, ",\"%s\":%s", report->facts[i].key, report->facts[i].value));
        } else {
            TERN_RETURN_IF_ERR(print_member(out, report->facts[i].key, report->facts[i].value));
        }
    }
    TERN_RETURN_IF_ERR(print_backends(out));
    TERN_RETURN_IF_ERR(tern_text_printf(out, ",\"problems\":["));
    for (int i = 0; i < report->problem_count; i++) {
        TERN_RETURN_IF_ERR(tern_text_printf(out, "%s", i > 0 ? "," : ""));
        TERN_RETURN_IF_ERR(quote(out, report->problems[i]));
    }
    return tern_text_printf(out, "]}\n");
}

static void print_fault_points(void)
{
    for (int i = 0; i < TERN_FAULT_POINT_COUNT; i++) {
        printf("%-14s %s\n", tern_fault_point_name((enum tern_fault_point)i),
               tern_fault_point_help((enum tern_fault_point)i));
    }
    if (!TERN_FAULTS) {
        printf("(this build has none of them: configure with -DTERN_FAULTS=ON)\n");
    }
}

tern_status tern_command_doctor(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    bool is_json = false;
    bool is_faults = false;
    const struct tern_option options[] = {
        {"json", TERN_OPTION_FLAG, &is_json, NULL, "one JSON object instead of text"},
        {"fault-points", TERN_OPTION_FLAG, &is_faults, NULL,
         "only list the points where TERN_FAULT can act"},
    };
    const struct tern_command_spec spec = {
        .name = "doctor",
        .usage = "[options]",
        .summary = "Shows what this machine is, what tern will use of it and what is wrong with "
                   "it. Changes nothing.",
        .example = "tern doctor --json",
        .options = options,
        .option_count = sizeof options / sizeof options[0],
    };
    struct tern_positionals positionals;
    bool is_help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    if (is_faults) {
        print_fault_points();
        return TERN_OK;
    }
    struct report report = {0};
    look_at_cores(&report);
    look_at_memory(&report);
    look_at_storage(&report);
    look_at_launcher(&report);
    look_at_environment(&report);
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = is_json ? print_json(&report, &text) : print_text(&report, &text);
    if (status == TERN_OK) {
        fputs(text.data, stdout);
    }
    tern_text_fini(&text);
    return status;
}
