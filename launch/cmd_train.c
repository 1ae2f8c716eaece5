/* cmd_train.c - tern train and tern finetune: a training run from a configuration file. */
#include "launch/commands.h"
#include "launch/options.h"
#include "runtime/train/config.h"
#include "runtime/train/trainer.h"

#include <stdio.h>
#include <stdlib.h>

/* --help-config: every key of the configuration file. */
static tern_status print_config_help(void)
{
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = tern_config_help(&tern_train_schema, &text);
    if (status == TERN_OK) {
        fwrite(text.data, 1, text.length, stdout);
    }
    tern_text_fini(&text);
    return status;
}

#define EXIT_CODES \
    "Exit codes: 0 done, 33 stopped on request with a checkpoint committed (start again), 34 a " \
    "peer was lost (start again), 1 failed, 2 bad input."

static const struct tern_command_spec g_train = {
    .name = "train",
    .usage = "CONFIG.yaml [options]",
    .summary = "Train a model; under mpirun or srun on all ranks. " EXIT_CODES,
    .example = "mpirun -np 2 tern train run.yaml --run-dir runs/a --set train.steps=500",
};
static const struct tern_command_spec g_finetune = {
    .name = "finetune",
    .usage = "MODEL CONFIG.yaml [options]",
    .summary = "Train on from a model's weights, all of them or adapters (section lora); under "
               "mpirun or srun on all ranks. MODEL is a Hugging Face folder, a GGUF file, a run "
               "directory or one checkpoint of it, or a folder that peft wrote; it says what the "
               "model is, so CONFIG.yaml needs no section model, and its tokenizer is used unless "
               "data.tokenizer is given. Started again, the run goes on from its own checkpoint, "
               "without MODEL; adapters need the model they belong to again. " EXIT_CODES,
    .example = "tern finetune runs/a tune.yaml --run-dir runs/b --set optimizer.lr=1e-5",
};

/* finetune: MODEL comes before the configuration file. */
static tern_status run(bool is_finetune, int argc, char **argv, int *exit_code)
{
    static const char *const resume_words[] = {"auto", "never", "required", NULL};
    const char *run_dir = "run";
    const char *run_id = NULL;
    struct tern_option_list overrides = {0};
    const char *metrics_host = "127.0.0.1";
    int64_t metrics_port = -1;
    int resume = TERN_RESUME_AUTO;
    bool dry_run = false;
    bool profile = false;
    bool help_config = false;
    const struct tern_option options[] = {
        {.name = "run-dir",
         .kind = TERN_OPTION_STRING,
         .target = &run_dir,
         .value_name = "DIR",
         .help = "where checkpoints, logs and launch records go (default: run)"},
        {.name = "run-id",
         .kind = TERN_OPTION_STRING,
         .target = &run_id,
         .value_name = "NAME",
         .help =
             "the run's name, the same at every start: with it snapshots in memory are found by "
             "hosts that have lost DIR, or never had it (default: DIR says which run it is)"},
        {.name = "set",
         .kind = TERN_OPTION_LIST,
         .target = &overrides,
         .value_name = "SECTION.KEY=VALUE",
         .help = "override one key of the configuration; may be repeated"},
        {.name = "resume",
         .kind = TERN_OPTION_CHOICE,
         .target = &resume,
         .value_name = "WHEN",
         .choices = resume_words,
         .help = "auto: from the newest good checkpoint if there is one; never; required (default: "
                 "auto)"},
        {.name = "metrics-port",
         .kind = TERN_OPTION_I64,
         .target = &metrics_port,
         .value_name = "N",
         .help = "serve /metrics for Prometheus on this port of rank 0's host; 0: any free one, "
                 "which is printed (default: none)",
         .min = 0,
         .max = 65535},
        {.name = "metrics-host",
         .kind = TERN_OPTION_STRING,
         .target = &metrics_host,
         .value_name = "H",
         .help = "address to serve /metrics on (default: 127.0.0.1, this machine only)"},
        {.name = "dry-run",
         .kind = TERN_OPTION_FLAG,
         .target = &dry_run,
         .help = "check everything, print the memory bill, and end"},
        {.name = "profile",
         .kind = TERN_OPTION_FLAG,
         .target = &profile,
         .help = "at the end print where the time went, op by op"},
        {.name = "help-config",
         .kind = TERN_OPTION_FLAG,
         .target = &help_config,
         .help = "print every configuration key with type, default, range and unit"},
    };
    struct tern_command_spec spec = is_finetune ? g_finetune : g_train;
    spec.options = options;
    spec.option_count = (int)(sizeof options / sizeof options[0]);
    spec.positional_max = is_finetune ? 2 : 1;
    struct tern_positionals positionals;
    bool is_help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    if (help_config) {
        return print_config_help();
    }
    if (positionals.count < spec.positional_max) {
        return tern_fail(TERN_ERR_USAGE, "tern %s: no %s given, expected %s (see 'tern %s --help')",
                         spec.name,
                         is_finetune && positionals.count == 0 ? "model" : "configuration file",
                         is_finetune ? "MODEL CONFIG.yaml" : "CONFIG.yaml", spec.name);
    }
    return tern_train_run(
        &(struct tern_train_options){.model = is_finetune ? positionals.items[0] : NULL,
                                     .config_path = positionals.items[spec.positional_max - 1],
                                     .overrides = overrides.items,
                                     .override_count = overrides.count,
                                     .run_dir = run_dir,
                                     .run_id = run_id,
                                     .launch_id = getenv("TERN_LAUNCH_ID"),
                                     .resume = (enum tern_resume)resume,
                                     .metrics_host = metrics_host,
                                     .metrics_port = (int)metrics_port,
                                     .dry_run = dry_run,
                                     .profile = profile},
        exit_code);
}

tern_status tern_command_train(int argc, char **argv, int *exit_code)
{
    return run(false, argc, argv, exit_code);
}

tern_status tern_command_finetune(int argc, char **argv, int *exit_code)
{
    return run(true, argc, argv, exit_code);
}
