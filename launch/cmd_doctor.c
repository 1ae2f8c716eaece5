/* cmd_doctor.c - tern doctor: what this machine is, what tern will use of it, and what is wrong with it. */
#include "launch/commands.h"
#include "launch/doctor.h"
#include "launch/options.h"
#include "runtime/base/fault.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum {
    BYTES_MIN = 8,
    BYTES_MAX = 1 << 30
};

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

static tern_status print(const struct doctor *doctor, bool is_json)
{
    struct tern_text text;
    tern_text_init(&text);
    tern_status status =
        is_json ? doctor_print_json(doctor, &text) : doctor_print_text(doctor, &text);
    if (status == TERN_OK) {
        fputs(text.data, stdout);
    }
    tern_text_fini(&text);
    return status;
}

/* Under a launcher one rank speaks for its host. */
static bool is_first_of_host(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_LOCAL_RANK");
    rank = rank != NULL ? rank : getenv("SLURM_LOCALID");
    return rank == NULL || strcmp(rank, "0") == 0;
}

static tern_status visit(const char *root, bool is_peers, int64_t bytes_max, bool is_json)
{
    struct doctor *doctor = tern_alloc_zero("doctor", 1, sizeof *doctor);
    if (doctor == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate %zu bytes", sizeof *doctor);
    }
    doctor->root = root;
    tern_status status = doctor_look_at_fabric(doctor);
    if (status == TERN_OK && is_peers) {
        status = doctor_check_peers(doctor, bytes_max, is_json);
    } else if (status == TERN_OK && is_first_of_host()) {
        doctor_look_at_host(doctor);
        status = print(doctor, is_json);
    }
    tern_free(doctor);
    return status;
}

tern_status tern_command_doctor(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    const char *root = "/";
    bool is_json = false;
    bool is_faults = false;
    bool is_peers = false;
    int64_t bytes_max = BYTES_MAX;
    const struct tern_option options[] = {
        {"json", TERN_OPTION_FLAG, &is_json, NULL, "one JSON object instead of text"},
        {"root", TERN_OPTION_STRING, &root, "DIR",
         "read sysfs, procfs and nccl.conf below DIR, e.g. a copy of another machine's (default: "
         "/)"},
        {"peer-check", TERN_OPTION_FLAG, &is_peers, NULL,
         "under mpirun or srun: measure all-reduce and every pair of ranks, and name who is slow"},
        {"max-bytes", TERN_OPTION_BYTES, &bytes_max, "SIZE",
         "with --peer-check: largest message, from 8 bytes to 1G (default: 1G, or what the memory "
         "allows)",
         BYTES_MIN, BYTES_MAX},
        {"fault-points", TERN_OPTION_FLAG, &is_faults, NULL,
         "only list the points where TERN_FAULT can act"},
    };
    const struct tern_command_spec spec = {
        .name = "doctor",
        .usage = "[options]",
        .summary =
            "Shows what this machine is, what tern will use of it, what is wrong with it and "
            "what to do. Changes nothing.",
        .example = "mpirun -np 2 tern doctor --peer-check --max-bytes 64M",
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
    struct stat info;
    if (stat(root, &info) != 0 || !S_ISDIR(info.st_mode)) {
        return tern_fail(TERN_ERR_USAGE, "--root: found '%.200s', expected a folder", root);
    }
    return visit(root, is_peers, bytes_max, is_json);
}
