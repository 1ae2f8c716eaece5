/* main.c - finds the command, runs it, turns its status into a last line and an exit code. */
#include "launch/commands.h"
#include "launch/environment.h"
#include "launch/help.h"
#include "launch/version.h"
#include "runtime/base/fault.h"
#include "runtime/base/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct command {
    const char *name;
    tern_status (*run)(int argc, char **argv, int *exit_code);
    const char *summary;
};

/* clang-format off */
static const struct command g_commands[] = {
    {"train", tern_command_train, "train a model as CONFIG.yaml says; resumes by itself"},
    {"finetune", tern_command_finetune, "train on from a model's weights"},
    {"supervise", tern_command_supervise, "start a training run again until it is done"},
    {"generate", tern_command_generate, "write text with a trained model"},
    {"eval", tern_command_eval, "loss per token, perplexity, bits per byte of a model on a text"},
    {"serve", tern_command_serve, "answer over HTTP as OpenAI's API does"},
    {"score", tern_command_score, "log-probability of each token of a prompt, as JSON lines"},
    {"bench", tern_command_bench, "tokens/s of prefill and decode, share of the machine's peak"},
    {"export", tern_command_export, "write a model as a Hugging Face folder or a GGUF file"},
    {"tokenizer", tern_command_tokenizer, "train a tokenizer, encode, decode"},
    {"data", tern_command_data, "turn text into token shards, and look into them"},
    {"checkpoint", tern_command_checkpoint, "list, verify, digest, prune and pull checkpoints"},
    {"ledger", tern_command_ledger, "where a run's time and money went"},
    {"doctor", tern_command_doctor, "what this machine is, what tern will use, what is wrong"},
};
/* clang-format on */
enum {
    COMMAND_COUNT = sizeof g_commands / sizeof g_commands[0]
};

/* Every line of the sentence carries the prefix, so that the last one does too. */
static int report(tern_status status, int exit_code)
{
    char sentence[TERN_DETAIL_BYTES];
    snprintf(sentence, sizeof sentence, "%s", tern_detail());
    if (sentence[0] == '\0') {
        snprintf(sentence, sizeof sentence, "failed (%s)", tern_status_name(status));
    }
    char *rest = sentence;
    for (char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n")) {
        tern_log_error("%s", line);
    }
    return exit_code != TERN_EXIT_OK ? exit_code : tern_status_exit_code(status);
}

/* Output that did not reach its file is a failure, however well the command went. */
static tern_status flush_output(void)
{
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        return tern_fail_errno(TERN_ERR_IO, errno != 0 ? errno : EIO, "cannot write to stdout");
    }
    return TERN_OK;
}

static tern_status print_top(FILE *file)
{
    const char *names[COMMAND_COUNT];
    const char *summaries[COMMAND_COUNT];
    for (int i = 0; i < COMMAND_COUNT; i++) {
        names[i] = g_commands[i].name;
        summaries[i] = g_commands[i].summary;
    }
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = tern_help_top(names, summaries, COMMAND_COUNT, &text);
    if (status == TERN_OK) {
        fputs(text.data, file);
    }
    tern_text_fini(&text);
    return status;
}

static tern_status print_version(void)
{
    struct tern_text text;
    tern_text_init(&text);
    tern_status status = tern_version_print(&text);
    if (status == TERN_OK) {
        fputs(text.data, stdout);
    }
    tern_text_fini(&text);
    return status;
}

static tern_status refuse_command(const char *word)
{
    const char *names[COMMAND_COUNT];
    static const char *const options[] = {"--help", "--version"};
    for (int i = 0; i < COMMAND_COUNT; i++) {
        names[i] = g_commands[i].name;
    }
    if (word[0] == '-') {
        return tern_fail(TERN_ERR_USAGE,
                         "unknown option '%.80s', nearest is '%s' (see 'tern --help')", word,
                         tern_text_nearest(word, options, 2));
    }
    return tern_fail(TERN_ERR_USAGE, "unknown command '%.80s', nearest is '%s' (see 'tern --help')",
                     word, tern_text_nearest(word, names, COMMAND_COUNT));
}

static tern_status run_command(int argc, char **argv, int *exit_code)
{
    for (int i = 0; i < COMMAND_COUNT; i++) {
        if (strcmp(argv[0], g_commands[i].name) == 0) {
            TERN_RETURN_IF_ERR(tern_environment_check());
            TERN_RETURN_IF_ERR(tern_fault_init());
            return g_commands[i].run(argc - 1, argv + 1, exit_code);
        }
    }
    return refuse_command(argv[0]);
}

static bool is_word(const char *word, const char *long_form, const char *short_form)
{
    return strcmp(word, long_form) == 0 || strcmp(word, short_form) == 0 ||
           strcmp(word, long_form + 2) == 0;
}

static tern_status dispatch(int argc, char **argv, int *exit_code)
{
    TERN_RETURN_IF_ERR(tern_log_init());
    if (argc < 2) {
        TERN_RETURN_IF_ERR(print_top(stderr));
        return tern_fail(TERN_ERR_USAGE, "found no command, expected one of those above");
    }
    if (is_word(argv[1], "--version", "-V")) {
        return print_version();
    }
    if (!is_word(argv[1], "--help", "-h")) {
        return run_command(argc - 1, argv + 1, exit_code);
    }
    if (argc == 2) {
        return print_top(stdout);
    }
    char help[] = "--help";
    char *words[] = {argv[2], help, NULL}; /* tern help COMMAND */
    return run_command(2, words, exit_code);
}

int main(int argc, char **argv)
{
    int exit_code = TERN_EXIT_OK;
    tern_status status = dispatch(argc, argv, &exit_code);
    if (status == TERN_OK) {
        status = flush_output();
    } else {
        fflush(stdout); /* what was printed before the error line */
    }
    return status == TERN_OK ? exit_code : report(status, exit_code);
}
