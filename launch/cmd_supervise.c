/* cmd_supervise.c - tern supervise: starts a run again until it is done. */
#include "launch/commands.h"
#include "launch/options.h"
#include "runtime/supervise/supervise.h"

enum {
    DAY_SECONDS = 86400
};

tern_status tern_command_supervise(int argc, char **argv, int *exit_code)
{
    struct tern_supervise_options supervise = {
        .restarts_max = -1,
        .stalls_max = 8,
        .hosts_min = 1,
        .probe_seconds = 5,
        .stop_seconds = 60,
        .hang_seconds = 900,
        .wait_seconds = 600,
    };
    const struct tern_option options[] = {
        {.name = "run-dir",
         .kind = TERN_OPTION_STRING,
         .target = &supervise.run_dir,
         .value_name = "DIR",
         .help = "the run's directory, whose launch records decide (default: that of the command's "
                 "tern train)"},
        {.name = "hostfile",
         .kind = TERN_OPTION_STRING,
         .target = &supervise.hostfile,
         .value_name = "FILE",
         .help = "lines 'NAME slots=N'; read again before each launch (default: mpirun's "
                 "--hostfile or --host; without any, hosts are nobody's concern)"},
        {.name = "max-restarts",
         .kind = TERN_OPTION_I64,
         .target = &supervise.restarts_max,
         .value_name = "N",
         .min = -1,
         .max = 1e9,
         .help = "start again at most N times; -1: as often as it helps (default: -1)"},
        {.name = "max-stalls",
         .kind = TERN_OPTION_I64,
         .target = &supervise.stalls_max,
         .value_name = "N",
         .min = 1,
         .max = 1e6,
         .help = "give up after N launches in a row that came no step further; between them 1, 2, "
                 "4, ... 60 s (default: 8)"},
        {.name = "end-on-reclaim",
         .kind = TERN_OPTION_FLAG,
         .target = &supervise.ends_reclaimed,
         .help = "end with 33 when the run was reclaimed: for batch jobs, which are queued again"},
        {.name = "min-hosts",
         .kind = TERN_OPTION_I64,
         .target = &supervise.hosts_min,
         .value_name = "N",
         .min = 1,
         .max = 4096,
         .help = "wait until N hosts answer (default: 1)"},
        {.name = "wait-seconds",
         .kind = TERN_OPTION_F64,
         .target = &supervise.wait_seconds,
         .value_name = "SECONDS",
         .min = 0,
         .max = 30.0 * DAY_SECONDS,
         .help = "how long it waits for them before it ends with 34 (default: 600)"},
        {.name = "probe-seconds",
         .kind = TERN_OPTION_F64,
         .target = &supervise.probe_seconds,
         .value_name = "SECONDS",
         .min = 0.1,
         .max = DAY_SECONDS,
         .help = "between questions to hosts: two in a row without an answer while nothing is "
                 "logged end the launch, two answers of a lost one bring it back (default: 5)"},
        {.name = "stop-seconds",
         .kind = TERN_OPTION_F64,
         .target = &supervise.stop_seconds,
         .value_name = "SECONDS",
         .min = 0,
         .max = DAY_SECONDS,
         .help = "how long a launch may take to commit when it is asked to stop (default: 60)"},
        {.name = "hang-seconds",
         .kind = TERN_OPTION_F64,
         .target = &supervise.hang_seconds,
         .value_name = "SECONDS",
         .min = 0,
         .max = 30.0 * DAY_SECONDS,
         .help =
             "how long a launch may log nothing before it is ended; 0: for ever (default: 900)"},
        {.name = "shell",
         .kind = TERN_OPTION_STRING,
         .target = &supervise.shell,
         .value_name = "COMMAND",
         .help = "what runs a command on a host (default: mpirun's plm_rsh_agent and plm_rsh_args, "
                 "else ssh)"},
    };
    const struct tern_command_spec spec = {
        .name = "supervise",
        .usage = "[options] -- mpirun ... tern train ...",
        .summary =
            "Start a training run, and start it again until it is done: when it was reclaimed, "
            "when "
            "ranks or hosts are lost, with as many ranks as there are hosts for, never more than "
            "-np says. The launch records in the run's directory decide, not the status of mpirun. "
            "Before each launch the processes of the one before are ended on every host. SIGTERM, "
            "SIGINT and SIGUSR2 ask for a checkpoint (SIGUSR2 to mpirun) and end it all. Its own "
            "account is RUN/supervise.json. Exit codes: 0 the run is done, 33 stopped with a "
            "checkpoint committed, 34 no hosts or ranks lost at the end, 1 failed or given up, 2 "
            "bad usage, configuration or input.",
        .example = "tern supervise --hostfile hosts -- mpirun -np 16 --map-by node tern train "
                   "run.yaml --run-dir /shared/run",
        .options = options,
        .option_count = (int)(sizeof options / sizeof options[0]),
        .positional_max = TERN_POSITIONALS_MAX,
    };
    struct tern_positionals positionals;
    bool is_help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    supervise.argv = positionals.items;
    supervise.argc = positionals.count;
    return tern_supervise_run(&supervise, exit_code);
}
