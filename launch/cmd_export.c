/* cmd_export.c - tern export: a model as others read it. */
#include "launch/commands.h"
#include "launch/model_options.h"
#include "launch/options.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"
#include "runtime/export/export.h"

static void print_result(const struct tern_export_options *options,
                         const struct tern_export_result *result)
{
    char bytes[TERN_TEXT_BYTES_BYTES], parameters[TERN_TEXT_BYTES_BYTES];
    tern_log_info("export: %s: %lld tensors, %s parameters, %s of weights in %.1f s (%.0f MB/s)",
                  options->out, (long long)result->tensors,
                  tern_text_commas(result->parameters, parameters),
                  tern_text_bytes(result->bytes, bytes), result->seconds,
                  (double)result->bytes / 1e6 / (result->seconds > 0 ? result->seconds : 1));
}

tern_status tern_command_export(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    /* in the order of their enums */
    static const char *const formats[] = {"hf", "gguf", "peft", NULL};
    static const char *const dtypes[] = {"auto", "f32",  "bf16",   "f16",
                                         "q8_0", "q4_0", "q4_k_m", NULL};
    int format = -1, dtype = TERN_EXPORT_AUTO;
    struct tern_export_options export = {0};
    const struct tern_option options[] = {
        {.name = "format",
         .kind = TERN_OPTION_CHOICE,
         .target = &format,
         .value_name = "FORMAT",
         .choices = formats,
         .help =
             "hf: a folder that Transformers loads; gguf: a file that llama.cpp loads; peft: the "
             "adapters alone, of a run that trained some"},
        {.name = "dtype",
         .kind = TERN_OPTION_CHOICE,
         .target = &dtype,
         .value_name = "TYPE",
         .choices = dtypes,
         .help = "what matrices are stored as; auto: bf16 or f16 where the model has that, else "
                 "f32; the last three only with gguf (default: auto)"},
        {.name = "imatrix",
         .kind = TERN_OPTION_STRING,
         .target = &export.imatrix,
         .value_name = "FILE",
         .help =
             "with q8_0, q4_0 and q4_k_m: importance of each column, a GGUF file as llama.cpp's "
             "llama-imatrix writes it"},
    };
    const struct tern_command_spec spec = {
        .name = "export",
        .usage = "MODEL OUT --format hf|gguf|peft [options]",
        .summary = "Writes MODEL (a run, a checkpoint, a Hugging Face folder or a GGUF file) as a "
                   "Hugging Face folder or a GGUF file, tokenizer included; adapters are merged, "
                   "or with peft written "
                   "by themselves. OUT must not exist; it "
                   "appears when it is whole.",
        .example = "tern export runs/a model.gguf --format gguf --dtype q4_k_m",
        .options = options,
        .option_count = (int)(sizeof options / sizeof options[0]),
        .positional_min = 2,
        .positional_max = 2,
    };
    struct tern_positionals positionals;
    struct tern_export_result result;
    bool is_help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    if (format < 0) {
        return tern_fail(TERN_ERR_USAGE, "tern export: expected --format hf, gguf or peft");
    }
    TERN_RETURN_IF_ERR(tern_model_fetch(&positionals));
    export.model = positionals.items[0];
    export.out = positionals.items[1];
    export.format = (enum tern_export_format)format;
    export.weights = (enum tern_export_weights)dtype;
    TERN_RETURN_IF_ERR(tern_export(&export, &result));
    print_result(&export, &result);
    return TERN_OK;
}
