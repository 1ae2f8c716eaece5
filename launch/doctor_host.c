/* doctor_host.c - cores, memory, storage, launcher: what this process may use of its host. */
#include "comm/fabric/sysfile.h"
#include "kernels/open.h"
#include "launch/doctor.h"
#include "launch/environment.h"
#include "launch/version.h"

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

#define GIB ((int64_t)1 << 30)
#define MIB ((int64_t)1 << 20)

enum {
    FILE_BYTES = 16384 /* enough for /proc/meminfo and the first core of /proc/cpuinfo */
};

/* The value of a key in a file of "Key: value" lines; false if there is none. */
static bool read_value(const struct doctor *doctor,
                       const char *file,
                       const char *key,
                       char out[DOCTOR_VALUE_BYTES])
{
    char text[FILE_BYTES];
    return tern_sys_text(doctor->root, text, sizeof text, "%s", file) &&
           tern_sys_value(text, key, out, DOCTOR_VALUE_BYTES);
}

static int64_t meminfo_bytes(const struct doctor *doctor, const char *key)
{
    char value[DOCTOR_VALUE_BYTES];
    return read_value(doctor, "proc/meminfo", key, value) ? strtoll(value, NULL, 10) * 1024 : -1;
}

static void look_at_cores(struct doctor *doctor)
{
    char value[DOCTOR_VALUE_BYTES];
    struct utsname name;
    if (uname(&name) == 0) {
        doctor_add_fact(doctor, "host", "%s", name.nodename);
        doctor_add_fact(doctor, "kernel", "%s %s %s", name.sysname, name.release, name.machine);
    }
    if (read_value(doctor, "proc/cpuinfo", "model name", value)) {
        doctor_add_fact(doctor, "cpu_model", "%s", value);
    }
    doctor_add_fact(doctor, "cpu_features", "%s", tern_cpu_features());
    int64_t online = sysconf(_SC_NPROCESSORS_ONLN);
    doctor_add_number(doctor, "cores_online", online);
    cpu_set_t mask;
    int64_t allowed = online;
    if (sched_getaffinity(0, sizeof mask, &mask) == 0) {
        allowed = CPU_COUNT(&mask);
    }
    doctor_add_number(doctor, "cores_allowed", allowed);
    if (allowed < online) {
        doctor_add_problem(
            doctor,
            "this process may use %" PRId64 " of %" PRId64
            " cores: the launcher bound it (mpirun: --bind-to none) or a cpuset does",
            allowed, online);
    }
    double quota;
    double period;
    if (tern_sys_line(doctor->root, value, sizeof value, "sys/fs/cgroup/cpu.max") &&
        sscanf(value, "%lf %lf", &quota, &period) == 2 && period > 0) {
        doctor_add_fact(doctor, "cores_quota", "%.2f", quota / period);
        if (quota / period < (double)allowed) {
            doctor_add_problem(
                doctor,
                "the container may use %.2f cores of time but sees %" PRId64
                ": a run takes %d threads there; more are stopped in the middle of their work",
                quota / period, allowed, quota / period < 1 ? 1 : (int)(quota / period));
        }
    }
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
        doctor_add_problem(doctor, "this CPU has no AVX2 with FMA: kernels run at the compiler's "
                                   "baseline, many times slower");
    }
#endif
}

static void look_at_memory(struct doctor *doctor)
{
    char value[DOCTOR_VALUE_BYTES];
    char text[TERN_TEXT_BYTES_BYTES];
    int64_t available = meminfo_bytes(doctor, "MemAvailable");
    doctor_add_number(doctor, "memory_bytes", meminfo_bytes(doctor, "MemTotal"));
    doctor_add_number(doctor, "memory_available_bytes", available);
    if (tern_sys_line(doctor->root, value, sizeof value, "sys/fs/cgroup/memory.max") &&
        value[0] != 'm') {
        int64_t limit = strtoll(value, NULL, 10);
        doctor_add_number(doctor, "memory_limit_bytes", limit);
        available = limit < available ? limit : available;
    }
    if (available >= 0 && available < GIB) {
        doctor_add_problem(doctor,
                           "only %s of memory are available: the smallest models need 1 GiB",
                           tern_text_bytes(available, text));
    }
    struct rlimit limit;
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        doctor_add_problem(doctor,
                           "the address space is limited to %s (ulimit -v): raise it to unlimited",
                           tern_text_bytes((int64_t)limit.rlim_cur, text));
    }
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        doctor_add_number(doctor, "open_files_limit", (int64_t)limit.rlim_cur);
        if (limit.rlim_cur < 1024) {
            doctor_add_problem(doctor,
                               "only %" PRId64 " files may be open (ulimit -n): expected 1024",
                               (int64_t)limit.rlim_cur);
        }
    }
}

static void look_at_storage(struct doctor *doctor)
{
    char text[TERN_TEXT_BYTES_BYTES];
    char folder[DOCTOR_VALUE_BYTES / 2];
    struct statvfs disk;
    if (getcwd(folder, sizeof folder) != NULL && statvfs(folder, &disk) == 0) {
        int64_t bytes = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
        doctor_add_fact(doctor, "folder", "%s", folder);
        doctor_add_number(doctor, "folder_free_bytes", bytes);
        if (bytes < 4 * GIB) {
            doctor_add_problem(
                doctor,
                "only %s are free in %s: a checkpoint of a 124M model is 1.5 GiB, and at "
                "least two are kept",
                tern_text_bytes(bytes, text), folder);
        }
        if ((disk.f_flag & ST_RDONLY) != 0 || access(folder, W_OK) != 0) {
            doctor_add_problem(doctor, "%s cannot be written: give --run-dir another place",
                               folder);
        }
    }
    if (statvfs("/dev/shm", &disk) != 0) {
        doctor_add_problem(doctor,
                           "there is no /dev/shm: ranks of one machine cannot share memory");
        return;
    }
    int64_t shared = (int64_t)disk.f_bavail * (int64_t)disk.f_frsize;
    doctor_add_number(doctor, "shared_memory_free_bytes", shared);
    if (shared <= 64 * MIB) {
        doctor_add_problem(
            doctor, "only %s of shared memory: start the container with --shm-size=2g or more",
            tern_text_bytes(shared, text));
    }
}

static void look_at_launcher(struct doctor *doctor)
{
    char path[TERN_PLUGIN_PATH_BYTES];
    const char *world = getenv("OMPI_COMM_WORLD_SIZE");
    const char *tasks = getenv("SLURM_NTASKS");
    bool has_pmi = getenv("PMIX_RANK") != NULL || getenv("PMI_RANK") != NULL;
    if (world != NULL) {
        doctor_add_fact(doctor, "launcher", "mpirun, %s ranks", world);
    } else if (tasks != NULL) {
        doctor_add_fact(doctor, "launcher", "slurm, %s tasks", tasks);
    } else {
        doctor_add_fact(doctor, "launcher", "none: one rank");
    }
    if (world == NULL && tasks != NULL && strcmp(tasks, "1") != 0 && !has_pmi) {
        doctor_add_problem(
            doctor,
            "slurm has %s tasks but no PMI: each would run alone; use srun --mpi=pmix or "
            "mpirun",
            tasks);
    }
    bool has_plugin = tern_version_mpi_plugin(path);
    void *plugin = has_plugin ? dlopen(path, RTLD_LAZY | RTLD_LOCAL) : NULL;
    if (plugin != NULL) {
        doctor_add_fact(doctor, "mpi_plugin", "%s", path);
    } else if (has_plugin) {
        doctor_add_problem(
            doctor, "the MPI plugin cannot be loaded: %s; install Open MPI's library", dlerror());
    } else {
        doctor_add_problem(doctor,
                           "there is no MPI plugin at %s: one rank works; for more configure with "
                           "-DTERN_MPI=ON or set TERN_MPI_PLUGIN",
                           path);
    }
}

static void look_at_environment(struct doctor *doctor)
{
    for (int i = 0; tern_environment_name(i) != NULL; i++) {
        const char *value = getenv(tern_environment_name(i));
        if (value != NULL) {
            doctor_add_fact(doctor, tern_environment_name(i), "%s", value);
        }
    }
}

void doctor_look_at_host(struct doctor *doctor)
{
    look_at_cores(doctor);
    look_at_memory(doctor);
    look_at_storage(doctor);
    look_at_launcher(doctor);
    look_at_environment(doctor);
}
