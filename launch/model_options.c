/* model_options.c - one place for the words of options that several commands have. */
#include "launch/model_options.h"

#include "io/cache.h"
#include "io/store.h"
#include "models/placed.h"

#define WEIGHTS_HELP \
    "what matrices become: stored as the file has them; exact their values in fp32; auto their " \
    "own 4 to 8 bits with int8 products, or bf16; bf16, q8, q4 "

struct tern_option tern_option_weights(int *mode)
{
    return (struct tern_option){
        .name = "weights",
        .kind = TERN_OPTION_CHOICE,
        .target = mode,
        .value_name = "KIND",
        .choices = tern_placed_mode_names,
        .help = *mode == TERN_PLACED_AUTO ? WEIGHTS_HELP "(default: auto)"
                                          : WEIGHTS_HELP "(default: stored)",
    };
}

struct tern_option tern_option_kv_dtype(int *choice)
{
    static const char *const words[] = {"bf16", "f32", "int8", NULL};
    return (struct tern_option){
        .name = "kv-dtype",
        .kind = TERN_OPTION_CHOICE,
        .target = choice,
        .value_name = "KIND",
        .choices = words,
        .help = "how keys and values are kept (default: bf16)",
    };
}

enum tern_dtype tern_option_kv_dtype_of(int choice)
{
    static const enum tern_dtype dtypes[] = {TERN_BF16, TERN_F32, TERN_I8};
    return dtypes[choice];
}

tern_status tern_model_fetch(struct tern_positionals *positionals)
{
    static char path[TERN_PATH_BYTES]; /* one MODEL a process */
    if (!tern_store_is_url(positionals->items[0])) {
        return TERN_OK;
    }
    TERN_RETURN_IF_ERR(tern_cache_fetch(positionals->items[0], path));
    positionals->items[0] = path;
    return TERN_OK;
}
