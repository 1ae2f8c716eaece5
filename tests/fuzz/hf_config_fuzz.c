/* hf_config_fuzz.c - any bytes as a config.json: what is read passes its own check, and is read back as it was printed. */
#include "models/hf_config.h"
#include "tests/fuzz/memory_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void print_and_parse(const struct tern_model_config *config)
{
    struct tern_text text;
    tern_text_init(&text);
    struct tern_model_config again;
    if (tern_hf_config_print(config, NULL, TERN_F32, &text) != TERN_OK ||
        tern_hf_config_parse("again", text.data, text.length, &again) != TERN_OK) {
        fprintf(stderr, "%s\n%s\n", tern_detail(), text.data);
        abort();
    }
    if (again.layers != config->layers || again.width != config->width ||
        again.heads != config->heads || again.kv_heads != config->kv_heads ||
        again.head_width != config->head_width || again.vocab_size != config->vocab_size ||
        again.family != config->family || again.rope_scaling != config->rope_scaling) {
        fprintf(stderr, "another model after printing:\n%s\n", text.data);
        abort();
    }
    tern_text_fini(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tern_model_config config;
    struct tern_model_ids ids = {.bos = -1};
    tern_status status = tern_hf_config_parse("fuzz", (const char *)data, bytes, &config);
    check_refusal(status);
    if (status == TERN_OK) {
        if (tern_model_config_check(&config) != TERN_OK) {
            abort();
        }
        print_and_parse(&config);
    }
    check_refusal(tern_hf_ids_parse("fuzz", (const char *)data, bytes, &ids));
    check_memory(bytes);
    return 0;
}
