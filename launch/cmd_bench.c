/* cmd_bench.c - tern bench: tokens/s of prefill and decode, and the share of the machine's peak. */
#include "launch/commands.h"
#include "launch/model_options.h"
#include "runtime/generate/bench.h"
#include "runtime/observe/profile.h"

#include <stdio.h>

struct settings {
    struct tern_bench_options options;
    int mode, kv_dtype;
    bool json, profile;
};

static void print_json(const struct tern_loaded *loaded,
                       const struct settings *s,
                       const struct tern_bench_result *r)
{
    printf("{\"prefill_tokens_per_second\":%.6g,\"decode_tokens_per_second\":%.6g,"
           "\"prefill_share_of_peak\":%.4g,\"decode_share_of_bandwidth\":%.4g,"
           "\"prefill_seconds\":%.6g,\"decode_seconds\":%.6g,",
           r->prefill_rate, r->decode_rate, r->prefill_share_of_peak, r->decode_share_of_bandwidth,
           r->prefill_seconds, r->decode_seconds);
    printf("\"peak_operations_per_second\":%.6g,\"read_bytes_per_second\":%.6g,"
           "\"resident_bytes\":%lld,\"pp\":%lld,\"tg\":%lld,\"batch\":%lld,\"parameters\":%lld,",
           r->peak_operations, r->read_rate, (long long)r->resident_bytes,
           (long long)s->options.prompt, (long long)s->options.generated,
           (long long)s->options.batch, (long long)loaded->model.params.parameter_count);
    printf(
        "\"weights\":\"%s\",\"kv_dtype\":\"%s\",\"backend\":\"%s\",\"threads\":%d,\"isa\":\"%s\","
        "\"cpu_features\":\"%s\"}\n",
        tern_placed_mode_names[s->mode], tern_dtype_name(s->options.kv_dtype),
        loaded->device->ops->device->name, tern_device_threads(loaded->device),
        tern_device_isa(loaded->device), tern_cpu_features());
}

static void print_text(const struct tern_loaded *loaded,
                       const struct settings *s,
                       const struct tern_bench_result *r)
{
    printf("%s, %d threads, %s, weights %s\n", loaded->device->ops->device->name,
           tern_device_threads(loaded->device), tern_device_isa(loaded->device),
           tern_placed_mode_names[s->mode]);
    if (s->options.prompt > 0) {
        printf("prefill %6lld     %10.1f tokens/s", (long long)s->options.prompt, r->prefill_rate);
        if (r->peak_operations > 0) {
            printf("  %5.1f%% of %.0f Gop/s", 100 * r->prefill_share_of_peak,
                   r->peak_operations * 1e-9);
        }
        printf("\n");
    }
    if (s->options.generated > 0) {
        printf("decode  %6lld x %-3lld%9.1f tokens/s", (long long)s->options.generated,
               (long long)s->options.batch, r->decode_rate);
        if (r->read_rate > 0) {
            printf("  %5.1f%% of %.1f GB/s", 100 * r->decode_share_of_bandwidth,
                   r->read_rate * 1e-9);
        }
        printf("\n");
    }
}

static tern_status run(const char *model, struct settings *s)
{
    struct tern_loaded loaded;
    struct tern_bench_result result;
    s->options.kv_dtype = tern_option_kv_dtype_of(s->kv_dtype);
    TERN_RETURN_IF_ERR(
        tern_loaded_open(model, TERN_LOADED_AUTO, (enum tern_placed_mode)s->mode, &loaded));
    tern_status status = tern_bench(&loaded, &s->options, &result);
    if (status == TERN_OK) {
        (s->json ? print_json : print_text)(&loaded, s, &result);
        if (s->profile) { /* what was counted last */
            tern_profile_print(result.peak_operations);
        }
    }
    tern_loaded_close(&loaded);
    return status;
}

tern_status tern_command_bench(int argc, char **argv, int *exit_code)
{
    (void)exit_code;
    struct settings s = {.options = {.prompt = 512, .generated = 64, .batch = 1, .rounds = 3},
                         .mode = TERN_PLACED_AUTO};
    const struct tern_option options[] = {
        {.name = "pp",
         .kind = TERN_OPTION_I64,
         .target = &s.options.prompt,
         .value_name = "N",
         .min = 0,
         .max = 1e6,
         .help = "tokens of a prompt, read 512 at a time; 0: none (default: 512)"},
        {.name = "tg",
         .kind = TERN_OPTION_I64,
         .target = &s.options.generated,
         .value_name = "N",
         .min = 0,
         .max = 1e6,
         .help = "tokens that each sequence then writes; 0: none (default: 64)"},
        {.name = "batch",
         .kind = TERN_OPTION_I64,
         .target = &s.options.batch,
         .value_name = "N",
         .min = 1,
         .max = 4096,
         .help = "sequences that write together (default: 1)"},
        {.name = "rounds",
         .kind = TERN_OPTION_I64,
         .target = &s.options.rounds,
         .value_name = "N",
         .min = 1,
         .max = 1000,
         .help = "the best of so many counts (default: 3)"},
        tern_option_weights(&s.mode),
        tern_option_kv_dtype(&s.kv_dtype),
        {.name = "json",
         .kind = TERN_OPTION_FLAG,
         .target = &s.json,
         .help = "one JSON object on stdout"},
        {.name = "profile",
         .kind = TERN_OPTION_FLAG,
         .target = &s.profile,
         .help =
             "where the time of one more prefill (with --pp 0: decode) goes, op by op, on stderr"},
    };
    const struct tern_command_spec spec = {
        .name = "bench",
        .usage = "MODEL [options]",
        .summary =
            "Tokens/s of prefill and of decode, no sampling, and what share of the machine's "
            "own peak that is, measured in between: int8 (or fp32) operations/s of its "
            "arithmetic units, bytes/s that it reads.",
        .example = "tern bench model.gguf --pp 512 --tg 64 --batch 16 --json",
        .options = options,
        .option_count = (int)(sizeof options / sizeof options[0]),
        .positional_min = 1,
        .positional_max = 1,
    };
    struct tern_positionals positionals;
    bool is_help;
    TERN_RETURN_IF_ERR(tern_options_parse(&spec, argc, argv, &positionals, &is_help));
    if (is_help) {
        return TERN_OK;
    }
    if (s.options.prompt == 0 && s.options.generated == 0) {
        return tern_fail(TERN_ERR_USAGE,
                         "tern bench: --pp and --tg are both 0, expected one above");
    }
    TERN_RETURN_IF_ERR(tern_model_fetch(&positionals));
    return run(positionals.items[0], &s);
}
