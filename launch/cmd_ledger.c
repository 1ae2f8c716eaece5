/* cmd_ledger.c - tern ledger: the account of a run directory, on stdout. */
#include "io/file.h"
#include "launch/commands.h"
#include "launch/options.h"
#include "runtime/base/mem.h"
#include "runtime/observe/ledger_print.h"
#include "runtime/train/config.h"

#include <stdio.h>

/* What the run's configuration says of its machines; nothing if it cannot be read. *config: fini is due. */
static void read_machines(const char *run_dir,
                          struct tern_train_config *config,
                          struct tern_ledger_focus *focus)
{
    static const char *const categories[] = {"Standard", "Dynamic", "Committed"};
    char path[TERN_PATH_BYTES];
    char *text;
    size_t bytes;
    if (tern_path_join(path, run_dir, "config.yaml") != TERN_OK ||
        tern_file_read(path, TERN_CONFIG_FILE_BYTES_MAX, &text, &bytes) != TERN_OK) {
        return;
    }
    tern_status status = tern_train_config_parse(path, text, bytes, NULL, 0, config);
    if (status != TERN_OK) { /* a fine-tuned run's has no model */
        tern_train_config_fini(config);
        status = tern_finetune_config_parse(path, text, bytes, NULL, config);
    }
    if (status == TERN_OK) {
        focus->provider = config->ledger.provider;
        focus->region = config->ledger.region;
        focus->instance = config->ledger.instance;
        focus->pricing = categories[config->ledger.pricing];
    }
    tern_free(text);
}

static tern_status print_focus(const char *run_dir,
                               const struct tern_ledger_account *account,
                               struct tern_text *out)
{
    struct tern_train_config config = {0};
    struct tern_ledger_focus focus = {.run = run_dir};
    read_machines(run_dir, &config, &focus);
    tern_status status = tern_ledger_print_focus(account, &focus, out);
    tern_train_config_fini(&config);
    return status;
}

static tern_status print(const char *run_dir, bool is_json, bool is_focus)
{
    char path[TERN_PATH_BYTES];
    struct tern_ledger_account account = {0};
    struct tern_text text;
    tern_text_init(&text);
    TERN_RETURN_IF_ERR(tern_path_join(path, run_dir, "ledger.csv"));
    tern_status status = tern_ledger_read(path, -1, &account);
    if (status == TERN_OK) {
        status = is_focus  ? print_focus(run_dir, &account, &text)
                 : is_json ? tern_ledger_print_json(&account, &text)
                           : tern_ledger_print_table(&account, &text);
    }
    if (status == TERN_OK) {
        fwrite(text.data, 1, text.length, stdout);
    }
    tern_text_fini(&text);
    tern_ledger_account_fini(&account);
    return status;
}

tern_status tern_command_ledger(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    bool is_json = false, is_focus = false, is_help;
    const struct tern_option options[] = {
        {"json", TERN_OPTION_FLAG, &is_json, NULL, "one JSON object, launch by launch"},
        {"focus", TERN_OPTION_FLAG, &is_focus, NULL,
         "CSV with the column names of FOCUS 1.2, one row a launch and kind; estimates: a job "
         "never "
         "sees the invoice"},
    };
    const struct tern_command_spec spec = {
        .name = "ledger",
        .usage = "RUN [options]",
        .summary = "Adds up RUN/ledger.csv: every second of every launch of the run is productive "
                   "or one kind of waste; with ledger.price_per_hour in the configuration each has "
                   "its price. Effective training time is the productive share of wall time x "
                   "machines.",
        .example = "tern ledger runs/bible --json",
        .options = options,
        .option_count = 2,
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals positionals;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    if (is_json && is_focus) {
        return tern_fail(TERN_ERR_USAGE, "ledger: found --json and --focus, expected one of them");
    }
    return print(positionals.items[0], is_json, is_focus);
}
