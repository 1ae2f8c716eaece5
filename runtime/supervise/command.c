/* command.c - finds its way through mpirun's words. */
#include "runtime/supervise/command.h"

#include "runtime/base/mem.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <string.h>

enum {
    RANKS_MAX = 1 << 20,
    NUMBER_BYTES = 24
};

/* After the launcher. A host whose link is down is noticed after 2 + 3 s, not after 480. */
static const char *const g_added[] = {
    "--mca", "oob_tcp_keepalive_time",   "2", "--mca", "oob_tcp_keepalive_intvl", "1",
    "--mca", "oob_tcp_keepalive_probes", "3",
};
enum {
    ADDED_COUNT = sizeof g_added / sizeof g_added[0],
    WORDS_MORE = ADDED_COUNT + 8
};

static const char *base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash != NULL ? slash + 1 : path;
}

static bool is_one_of(const char *word, const char *const *words)
{
    for (; *words != NULL; words++) {
        if (strcmp(word, *words) == 0) {
            return true;
        }
    }
    return false;
}

static enum tern_launcher launcher_of(const char *word)
{
    static const char *const mpirun[] = {"mpirun",         "mpiexec",         "orterun",
                                         "mpirun.openmpi", "mpiexec.openmpi", NULL};
    const char *name = base_name(word);
    if (is_one_of(name, mpirun)) {
        return TERN_LAUNCHER_MPIRUN;
    }
    return strcmp(name, "srun") == 0 ? TERN_LAUNCHER_SRUN : TERN_LAUNCHER_NONE;
}

/* The word before the first "train" or "finetune" that has one. */
static int find_program(const struct tern_launch_command *command)
{
    static const char *const commands[] = {"train", "finetune", NULL};
    for (int i = 1; i < command->argc; i++) {
        if (is_one_of(command->argv[i], commands)) {
            return i - 1;
        }
    }
    return command->argc;
}

static tern_status read_ranks(struct tern_launch_command *command, int at)
{
    const char *word = command->argv[at];
    if (!tern_text_to_i64(word, &command->ranks) || command->ranks < 1 ||
        command->ranks > RANKS_MAX) {
        return tern_fail(TERN_ERR_USAGE, "%s: found '%.80s' after %s, expected ranks from 1 to %d",
                         base_name(command->argv[command->launcher_at]), word,
                         command->argv[at - 1], RANKS_MAX);
    }
    command->ranks_at = at;
    return TERN_OK;
}

static void read_parameter(struct tern_launch_command *command, const char *name, const char *value)
{
    if (strcmp(name, "plm_rsh_agent") == 0) {
        command->shell = value;
    } else if (strcmp(name, "plm_rsh_args") == 0) {
        command->shell_args = value;
    } else if (strncmp(name, "oob_tcp_keepalive_", 18) == 0) {
        command->has_keepalive = true;
    }
}

/* The words between mpirun and the program. */
static tern_status read_mpirun(struct tern_launch_command *command)
{
    static const char *const ranks[] = {"-np", "--np", "-n", "--n", "-c", NULL};
    static const char *const files[] = {
        "-hostfile",         "--hostfile", "-machinefile", "--machinefile", "--default-hostfile",
        "-default-hostfile", NULL};
    static const char *const lists[] = {"-H", "-host", "--host", NULL};
    static const char *const parameters[] = {"-mca", "--mca", "-gmca", "--gmca", NULL};
    const char *const *argv = command->argv;
    int end = command->program_at;
    for (int i = command->launcher_at + 1; i + 1 < end; i++) {
        if (is_one_of(argv[i], ranks)) {
            TERN_RETURN_IF_ERR(read_ranks(command, ++i));
        } else if (is_one_of(argv[i], files) || is_one_of(argv[i], lists)) {
            if (command->hosts_at >= 0) {
                return tern_fail(TERN_ERR_USAGE,
                                 "mpirun: found '%.80s' after another list of hosts, expected one",
                                 argv[i]);
            }
            command->is_host_list = is_one_of(argv[i], lists);
            command->hosts_at = ++i;
        } else if (is_one_of(argv[i], parameters) && i + 2 < end) {
            read_parameter(command, argv[i + 1], argv[i + 2]);
            i += 2;
        }
    }
    for (int i = end; i < command->argc; i++) {
        if (strcmp(argv[i], ":") == 0) {
            return tern_fail(TERN_ERR_USAGE,
                             "mpirun: found ':' and a second program, expected tern alone");
        }
    }
    return TERN_OK;
}

/* As tern itself reads it: the last one counts. */
static const char *find_run_dir(const struct tern_launch_command *command)
{
    const char *found = command->program_at < command->argc ? "run" : NULL;
    for (int i = command->program_at; i < command->argc; i++) {
        const char *word = command->argv[i];
        if (strncmp(word, "--run-dir=", 10) == 0) {
            found = word + 10;
        } else if (strcmp(word, "--run-dir") == 0 && i + 1 < command->argc) {
            found = command->argv[++i];
        }
    }
    return found;
}

tern_status tern_launch_command_read(int argc,
                                     const char *const *argv,
                                     struct tern_launch_command *out)
{
    *out = (struct tern_launch_command){
        .argv = argv, .argc = argc, .launcher_at = -1, .ranks_at = -1, .hosts_at = -1};
    if (argc < 1) {
        return tern_fail(TERN_ERR_USAGE, "found no command after '--', expected one such as "
                                         "mpirun -np 4 tern train run.yaml --run-dir run");
    }
    out->program_at = find_program(out);
    for (int i = 0; i < out->program_at && out->launcher_at < 0; i++) {
        out->launcher = launcher_of(argv[i]);
        out->launcher_at = out->launcher != TERN_LAUNCHER_NONE ? i : -1;
    }
    out->run_dir = find_run_dir(out);
    return out->launcher == TERN_LAUNCHER_MPIRUN ? read_mpirun(out) : TERN_OK;
}

tern_status tern_launch_command_write(const struct tern_launch_command *command,
                                      const struct tern_launch_shape *shape,
                                      const char ***argv_out)
{
    bool is_mpirun = command->launcher == TERN_LAUNCHER_MPIRUN;
    size_t hosts_bytes = shape->hosts != NULL ? strlen(shape->hosts) + 1 : 0;
    size_t room = (size_t)command->argc + WORDS_MORE;
    const char **argv =
        tern_alloc_zero("command", 1, room * sizeof *argv + NUMBER_BYTES + hosts_bytes);
    if (argv == NULL) {
        return tern_fail(TERN_ERR_MEMORY, "cannot allocate a command of %zu words", room);
    }
    char *number = (char *)(argv + room);
    char *hosts = hosts_bytes > 0 ? number + NUMBER_BYTES : NULL;
    snprintf(number, NUMBER_BYTES, "%lld", (long long)shape->ranks);
    if (hosts != NULL) {
        memcpy(hosts, shape->hosts, hosts_bytes);
    }
    int count = 0;
    for (int i = 0; i < command->argc; i++) {
        bool is_ranks = i == command->ranks_at && shape->ranks > 0;
        bool is_hosts = i == command->hosts_at && hosts != NULL;
        argv[count++] = is_ranks ? number : is_hosts ? hosts : command->argv[i];
        if (!is_mpirun || i != command->launcher_at) {
            continue;
        }
        for (int k = 0; k < ADDED_COUNT && !command->has_keepalive; k++) {
            argv[count++] = g_added[k];
        }
        argv[count++] = "-x";
        argv[count++] = "TERN_LAUNCH_ID";
        if (hosts != NULL && command->hosts_at < 0) {
            argv[count++] = "--hostfile";
            argv[count++] = hosts;
        }
        if (shape->ranks > 0 && command->ranks_at < 0) {
            argv[count++] = "-np";
            argv[count++] = number;
        }
    }
    *argv_out = argv;
    return TERN_OK;
}
