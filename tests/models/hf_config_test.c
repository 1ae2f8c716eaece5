/* hf_config_test.c - config.json of all the ways that files differ: what is read from old and new keys, and what is
 * refused, with the words that name it. */
#include "models/hf_config.h"
#include "tests/base/check.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A base with one key taken out and others put in. */
#define LLAMA_KEYS \
    "\"architectures\": [\"LlamaForCausalLM\"], \"model_type\": \"llama\", " \
    "\"num_hidden_layers\": 2, \"hidden_size\": 64, \"intermediate_size\": 96, " \
    "\"num_attention_heads\": 4, \"num_key_value_heads\": 2, \"max_position_embeddings\": 128, " \
    "\"vocab_size\": 100, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-5"

static tern_status parse(const char *text, struct tern_model_config *config)
{
    return tern_hf_config_parse("config.json", text, strlen(text), config);
}

/* The last of two equal keys wins, so `more` overrides the base. */
static void print_llama(char *out, size_t bytes, const char *more)
{
    snprintf(out, bytes, "{" LLAMA_KEYS "%s%s}", more[0] != '\0' ? ", " : "", more);
}

struct refusal {
    const char *more; /* members added to the base; or a whole text, beginning with a brace */
    tern_status status;
    const char *words[3]; /* each in the sentence */
};

static const struct refusal g_refusals[] = {
    /* not a config */
    {"{", TERN_ERR_INPUT, {"config.json"}},
    {"{}",
     TERN_ERR_CONFIG,
     {"config.json: key 'architectures'", "found nothing", "expected a list"}},
    {"{\"architectures\": []}", TERN_ERR_CONFIG, {"key 'architectures'"}},
    {"{\"architectures\": [7]}", TERN_ERR_CONFIG, {"key 'architectures'"}},
    {"{\"architectures\": \"LlamaForCausalLM\"}", TERN_ERR_CONFIG, {"key 'architectures'"}},
    {"{\"model_type\": \"bert\"}", TERN_ERR_UNSUPPORTED, {"found 'bert'", "Qwen3MoeForCausalLM"}},
    {"\"architectures\": [\"LlamaForSequenceClassification\"]",
     TERN_ERR_UNSUPPORTED,
     {"found 'LlamaForSequenceClassification'", "expected one of GPT2LMHeadModel"}},
    {"\"architectures\": [\"Gemma3ForConditionalGeneration\"]",
     TERN_ERR_CONFIG,
     {"key 'text_config'", "found nothing", "an object"}},
    {"\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"text_config\": []",
     TERN_ERR_CONFIG,
     {"key 'text_config'"}},
    {"\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"text_config\": {}",
     TERN_ERR_CONFIG,
     {"num_hidden_layers", "found nothing"}},
    {"\"architectures\": [\"FalconForCausalLM\"]", TERN_ERR_UNSUPPORTED, {"'FalconForCausalLM'"}},
    /* sizes: kinds and ranges */
    {"\"num_hidden_layers\": null",
     TERN_ERR_CONFIG,
     {"num_hidden_layers", "found null", "1 to 1024"}},
    {"\"num_hidden_layers\": 0", TERN_ERR_CONFIG, {"num_hidden_layers", "found 0"}},
    {"\"num_hidden_layers\": -3", TERN_ERR_CONFIG, {"num_hidden_layers", "found -3"}},
    {"\"num_hidden_layers\": 2.5", TERN_ERR_CONFIG, {"num_hidden_layers", "found 2.5"}},
    {"\"num_hidden_layers\": 100000", TERN_ERR_CONFIG, {"num_hidden_layers", "100000"}},
    {"\"num_hidden_layers\": 99999999999999999999", TERN_ERR_INPUT, {"config.json"}},
    {"\"num_hidden_layers\": 1e300", TERN_ERR_CONFIG, {"num_hidden_layers", "1e+300"}},
    {"\"num_hidden_layers\": \"2\"", TERN_ERR_CONFIG, {"num_hidden_layers", "found '2'"}},
    {"\"num_hidden_layers\": [2]", TERN_ERR_CONFIG, {"num_hidden_layers", "an array"}},
    {"\"num_hidden_layers\": true", TERN_ERR_CONFIG, {"num_hidden_layers", "a boolean"}},
    {"\"hidden_size\": 1000000000", TERN_ERR_CONFIG, {"hidden_size"}},
    {"\"hidden_size\": 66",
     TERN_ERR_CONFIG,
     {"hidden_size", "found 66", "multiple of num_attention_heads"}},
    {"\"intermediate_size\": -1", TERN_ERR_CONFIG, {"intermediate_size"}},
    {"\"intermediate_size\": {}", TERN_ERR_CONFIG, {"intermediate_size", "an object"}},
    {"\"num_attention_heads\": 4096", TERN_ERR_CONFIG, {"num_attention_heads"}},
    {"\"num_attention_heads\": 0", TERN_ERR_CONFIG, {"num_attention_heads"}},
    {"\"num_key_value_heads\": 3", TERN_ERR_CONFIG, {"kv_heads", "found 3", "divisor"}},
    {"\"num_key_value_heads\": 8", TERN_ERR_CONFIG, {"kv_heads", "found 8"}},
    {"\"num_key_value_heads\": 0", TERN_ERR_CONFIG, {"num_key_value_heads"}},
    {"\"head_dim\": 15", TERN_ERR_CONFIG, {"head_width", "found 15", "even"}},
    {"\"head_dim\": 100000", TERN_ERR_CONFIG, {"head_dim"}},
    {"\"head_dim\": 0", TERN_ERR_CONFIG, {"head_dim"}},
    {"\"max_position_embeddings\": 0", TERN_ERR_CONFIG, {"max_position_embeddings"}},
    {"\"max_position_embeddings\": 4294967296", TERN_ERR_CONFIG, {"max_position_embeddings"}},
    {"\"vocab_size\": 0", TERN_ERR_CONFIG, {"vocab_size"}},
    {"\"vocab_size\": 2147483647", TERN_ERR_CONFIG, {"vocab_size"}},
    {"\"rms_norm_eps\": 0", TERN_ERR_CONFIG, {"rms_norm_eps"}},
    {"\"rms_norm_eps\": -1e-5", TERN_ERR_CONFIG, {"rms_norm_eps"}},
    {"\"rms_norm_eps\": \"small\"", TERN_ERR_CONFIG, {"rms_norm_eps", "found 'small'"}},
    {"\"tie_word_embeddings\": 1", TERN_ERR_CONFIG, {"tie_word_embeddings", "true or false"}},
    {"\"attention_bias\": \"no\"", TERN_ERR_CONFIG, {"attention_bias"}},
    {"\"mlp_bias\": 0", TERN_ERR_CONFIG, {"mlp_bias"}},
    /* what we do not have */
    {"\"hidden_act\": \"relu\"", TERN_ERR_UNSUPPORTED, {"hidden_act", "found 'relu'", "silu"}},
    {"\"hidden_act\": \"gelu\"", TERN_ERR_UNSUPPORTED, {"hidden_act", "found 'gelu'"}},
    {"\"hidden_act\": 3", TERN_ERR_CONFIG, {"hidden_act", "found 3"}},
    {"\"quantization_config\": {\"quant_method\": \"gptq\"}",
     TERN_ERR_UNSUPPORTED,
     {"quantization_config", "gptq"}},
    {"\"quantization_config\": {}", TERN_ERR_UNSUPPORTED, {"quantization_config"}},
    {"\"add_cross_attention\": true", TERN_ERR_UNSUPPORTED, {"add_cross_attention", "found true"}},
    {"\"is_encoder_decoder\": true", TERN_ERR_UNSUPPORTED, {"is_encoder_decoder"}},
    {"\"use_bidirectional_attention\": true",
     TERN_ERR_UNSUPPORTED,
     {"use_bidirectional_attention"}},
    /* rotary positions */
    {"\"rope_theta\": 0", TERN_ERR_CONFIG, {"rope_theta"}},
    {"\"rope_theta\": \"big\"", TERN_ERR_CONFIG, {"rope_theta", "found 'big'"}},
    {"\"rope_theta\": 1e40", TERN_ERR_CONFIG, {"rope_theta"}},
    {"\"rope_scaling\": 4", TERN_ERR_CONFIG, {"rope_scaling", "an object or null"}},
    {"\"rope_scaling\": []", TERN_ERR_CONFIG, {"rope_scaling"}},
    {"\"rope_scaling\": {\"type\": \"mrope\"}", TERN_ERR_UNSUPPORTED, {"'type'", "found 'mrope'"}},
    {"\"rope_scaling\": {\"rope_type\": 7}", TERN_ERR_CONFIG, {"rope_type", "found 7"}},
    {"\"rope_parameters\": {\"rope_type\": \"proportional\"}",
     TERN_ERR_UNSUPPORTED,
     {"proportional"}},
    {"\"rope_scaling\": {\"type\": \"linear\"}", TERN_ERR_CONFIG, {"rope_factor"}},
    {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": -2}", TERN_ERR_CONFIG, {"factor"}},
    {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.5}", TERN_ERR_CONFIG, {"rope_factor"}},
    {"\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": \"2\"}", TERN_ERR_CONFIG, {"factor"}},
    {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}",
     TERN_ERR_CONFIG,
     {"rope_high_freq_factor"}},
    {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 4, "
     "\"high_freq_factor\": 1}",
     TERN_ERR_CONFIG,
     {"rope_high_freq_factor", "found 1"}},
    {"\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, \"low_freq_factor\": 1, "
     "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 0}",
     TERN_ERR_CONFIG,
     {"original_max_position_embeddings"}},
    {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": \"x\"}",
     TERN_ERR_CONFIG,
     {"beta_fast"}},
    {"\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"truncate\": 1}",
     TERN_ERR_CONFIG,
     {"truncate"}},
    {"\"rope_scaling\": {\"rope_type\": \"longrope\"}",
     TERN_ERR_CONFIG,
     {"short_factor", "8 numbers"}},
    {"\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": [1, 2]}",
     TERN_ERR_CONFIG,
     {"short_factor", "an array", "8 numbers"}},
    {"\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": [1,1,1,1,1,1,1,0], "
     "\"long_factor\": [1,1,1,1,1,1,1,1]}",
     TERN_ERR_CONFIG,
     {"short_factor"}},
    {"\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": [1,1,1,1,1,1,1,1], "
     "\"long_factor\": [1,1,1,1,1,1,1,\"a\"]}",
     TERN_ERR_CONFIG,
     {"long_factor"}},
    {"\"rope_parameters\": {\"full_attention\": {\"rope_theta\": 1e4}}",
     TERN_ERR_UNSUPPORTED,
     {"rope_parameters", "by kind of layer"}},
    {"\"partial_rotary_factor\": 0", TERN_ERR_CONFIG, {"partial_rotary_factor"}},
    {"\"partial_rotary_factor\": 1.5", TERN_ERR_CONFIG, {"partial_rotary_factor"}},
    {"\"partial_rotary_factor\": 0.2", TERN_ERR_CONFIG, {"rope_width", "even"}},
    {"\"partial_rotary_factor\": 0.01", TERN_ERR_CONFIG, {"partial_rotary_factor", "a pair"}},
    /* windows */
    {"\"architectures\": [\"MistralForCausalLM\"], \"sliding_window\": -4",
     TERN_ERR_CONFIG,
     {"sliding_window"}},
    {"\"architectures\": [\"MistralForCausalLM\"], \"sliding_window\": \"4\"",
     TERN_ERR_CONFIG,
     {"sliding_window"}},
    {"\"architectures\": [\"Qwen2ForCausalLM\"], \"use_sliding_window\": true, \"sliding_window\": "
     "8, "
     "\"layer_types\": [\"full_attention\"]",
     TERN_ERR_CONFIG,
     {"layer_types", "for each layer"}},
    {"\"architectures\": [\"Qwen3ForCausalLM\"], \"use_sliding_window\": true, \"sliding_window\": "
     "8, "
     "\"layer_types\": [\"full_attention\", \"linear_attention\"]",
     TERN_ERR_UNSUPPORTED,
     {"layer_types", "linear_attention"}},
    {"\"architectures\": [\"Gemma2ForCausalLM\"], \"num_hidden_layers\": 6, \"layer_types\": "
     "[\"sliding_attention\", \"full_attention\", \"full_attention\", \"sliding_attention\", "
     "\"full_attention\", \"sliding_attention\"]",
     TERN_ERR_UNSUPPORTED,
     {"layer_types", "no period"}},
    {"\"architectures\": [\"Gemma3ForCausalLM\"], \"sliding_window_pattern\": 0",
     TERN_ERR_CONFIG,
     {"sliding_window_pattern"}},
    {"\"architectures\": [\"Gemma3ForCausalLM\"], \"rope_parameters\": {\"sliding_attention\": "
     "{\"rope_type\": \"linear\", \"factor\": 2}}",
     TERN_ERR_UNSUPPORTED,
     {"sliding_attention", "linear"}},
    {"\"architectures\": [\"Gemma2ForCausalLM\"], \"attn_logit_softcapping\": -1",
     TERN_ERR_CONFIG,
     {"attn_logit_softcapping"}},
    {"\"architectures\": [\"Gemma2ForCausalLM\"], \"query_pre_attn_scalar\": 0",
     TERN_ERR_CONFIG,
     {"query_pre_attn_scalar"}},
    /* experts */
    {"\"architectures\": [\"MixtralForCausalLM\"], \"num_local_experts\": 0",
     TERN_ERR_CONFIG,
     {"num_local_experts"}},
    {"\"architectures\": [\"MixtralForCausalLM\"], \"num_local_experts\": 4, "
     "\"num_experts_per_tok\": 5",
     TERN_ERR_CONFIG,
     {"experts_used", "found 5"}},
    {"\"architectures\": [\"MixtralForCausalLM\"], \"num_local_experts\": 1000000",
     TERN_ERR_CONFIG,
     {"num_local_experts"}},
    {"\"architectures\": [\"Qwen3MoeForCausalLM\"]",
     TERN_ERR_CONFIG,
     {"moe_intermediate_size", "nothing"}},
    {"\"architectures\": [\"Qwen3MoeForCausalLM\"], \"moe_intermediate_size\": 8, "
     "\"decoder_sparse_step\": 2",
     TERN_ERR_UNSUPPORTED,
     {"decoder_sparse_step"}},
    {"\"architectures\": [\"Qwen3MoeForCausalLM\"], \"moe_intermediate_size\": 8, "
     "\"mlp_only_layers\": [0]",
     TERN_ERR_UNSUPPORTED,
     {"mlp_only_layers"}},
    /* GPT-2 has its own keys */
    {"{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2}",
     TERN_ERR_CONFIG,
     {"n_embd", "nothing"}},
    {"{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 30, \"n_head\": 4, "
     "\"n_positions\": 64, \"vocab_size\": 100}",
     TERN_ERR_CONFIG,
     {"heads", "width"}},
    {"{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 32, \"n_head\": 4, "
     "\"n_positions\": 64, \"vocab_size\": 100, \"scale_attn_by_inverse_layer_idx\": true}",
     TERN_ERR_UNSUPPORTED,
     {"scale_attn_by_inverse_layer_idx"}},
    {"{\"architectures\": [\"GPT2LMHeadModel\"], \"n_layer\": 2, \"n_embd\": 32, \"n_head\": 4, "
     "\"n_positions\": 64, \"vocab_size\": 100, \"activation_function\": \"gelu\"}",
     TERN_ERR_UNSUPPORTED,
     {"activation_function", "'gelu'"}},
};

static void refuses(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < sizeof g_refusals / sizeof g_refusals[0]; i++) {
        const struct refusal *row = &g_refusals[i];
        char text[2048];
        struct tern_model_config config;
        if (row->more[0] == '{') {
            snprintf(text, sizeof text, "%s", row->more);
        } else {
            print_llama(text, sizeof text, row->more);
        }
        tern_status status = parse(text, &config);
        const char *found = status == TERN_OK ? "" : tern_detail();
        bool is_good = status == row->status;
        for (size_t w = 0; w < 3 && row->words[w] != NULL; w++) {
            is_good = is_good && strstr(found, row->words[w]) != NULL;
        }
        if (!is_good) {
            print_error("%s\n  found %s: %s\n  expected %s with '%s'\n", row->more,
                        tern_status_name(status), found, tern_status_name(row->status),
                        row->words[0]);
            bad++;
        }
    }
    print_message("%zu configs refused, %d wrongly\n", sizeof g_refusals / sizeof g_refusals[0],
                  bad);
    assert_int_equal(bad, 0);
}

/* rope_theta beside rope_scaling, and rope_parameters, say the same. */
static void old_and_new_keys(void **state)
{
    (void)state;
    static const char *const pairs[][2] = {
        {"\"rope_theta\": 5e5, \"rope_scaling\": null",
         "\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"default\"}"},
        {"\"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8.0, "
         "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
         "\"original_max_position_embeddings\": 32}",
         "\"rope_parameters\": {\"rope_theta\": 500000.0, \"rope_type\": \"llama3\", \"factor\": "
         "8.0, "
         "\"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "
         "\"original_max_position_embeddings\": 32}"},
        {"\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2.0}",
         "\"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 2.0, \"rope_theta\": "
         "10000.0}"},
        {"\"architectures\": [\"Gemma3ForCausalLM\"], \"rope_theta\": 1e6, "
         "\"rope_local_base_freq\": 1e4, "
         "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 8.0}, \"hidden_act\": null",
         "\"architectures\": [\"Gemma3ForCausalLM\"], \"hidden_act\": null, \"rope_parameters\": "
         "{\"full_attention\": {\"rope_theta\": 1e6, \"rope_type\": \"linear\", \"factor\": 8.0}, "
         "\"sliding_attention\": {\"rope_theta\": 1e4, \"rope_type\": \"default\"}}"},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        struct tern_model_config configs[2];
        for (size_t k = 0; k < 2; k++) {
            char text[2048];
            print_llama(text, sizeof text, pairs[i][k]);
            if (parse(text, &configs[k]) != TERN_OK) {
                fail_msg("%s: %s", pairs[i][k], tern_detail());
            }
        }
        assert_memory_equal(&configs[0], &configs[1], sizeof configs[0]);
    }
}

/* What real files say, as their authors wrote them. */
static void real_files(void **state)
{
    (void)state;
    struct tern_model_config c;
    char text[2048];
    /* Gemma 3 270M: 15 windowed layers of 18, a wide head, one key/value head. */
    print_llama(text, sizeof text,
                "\"architectures\": [\"Gemma3ForCausalLM\"], \"hidden_act\": null, "
                "\"num_hidden_layers\": 18, "
                "\"_sliding_window_pattern\": 6, \"head_dim\": 256, \"num_key_value_heads\": 1, "
                "\"hidden_activation\": \"gelu_pytorch_tanh\", \"hidden_size\": 640, "
                "\"sliding_window\": 512, "
                "\"query_pre_attn_scalar\": 256, \"rope_theta\": 1000000.0, "
                "\"rope_local_base_freq\": 10000.0, "
                "\"rms_norm_eps\": 1e-06, \"attn_logit_softcapping\": null, "
                "\"final_logit_softcapping\": null");
    assert_int_equal(parse(text, &c), TERN_OK);
    int windowed = 0;
    for (int i = 0; i < 18; i++) {
        windowed += tern_model_window(&c, i) == 512;
        assert_int_equal(tern_model_window(&c, i) == 0, i == 5 || i == 11 || i == 17);
    }
    assert_int_equal(windowed, 15);
    assert_true(c.query_scale == 0.0625F && c.tied_embeddings && c.attention_softcap == 0);
    assert_true(c.features.norm_offset == 1 && c.features.has_qk_norm && c.features.has_post_norms);
    assert_true(tern_model_embedding_scale(&c, TERN_BF16) == 25.25F);
    assert_true(fabsf(tern_model_embedding_scale(&c, TERN_F32) - 25.298221F) < 1e-5F);
    /* Gemma 3 4B, with images: a text part that leaves most to the class. */
    static const char gemma4b[] =
        "{\"architectures\": [\"Gemma3ForConditionalGeneration\"], \"eos_token_id\": [1, 106], "
        "\"model_type\": "
        "\"gemma3\", \"text_config\": {\"hidden_size\": 2560, \"intermediate_size\": 10240, "
        "\"model_type\": "
        "\"gemma3_text\", \"num_hidden_layers\": 34, \"rope_scaling\": {\"factor\": 8.0, "
        "\"rope_type\": "
        "\"linear\"}, \"sliding_window\": 1024}, \"vision_config\": {\"hidden_size\": 1152}}";
    assert_int_equal(parse(gemma4b, &c), TERN_OK);
    assert_true(c.heads == 8 && c.kv_heads == 4 && c.head_width == 256 && c.vocab_size == 262208);
    assert_true(c.context == 131072 && c.window == 1024 && c.rope_factor == 8 &&
                c.rope_theta == 1e6F);
    assert_true(c.rope_theta_local == 1e4F && c.tied_embeddings && c.query_scale == 0.0625F);
    /* Gemma 2 9B: caps that its file may leave to the class. */
    print_llama(
        text, sizeof text,
        "\"architectures\": [\"Gemma2ForCausalLM\"], \"hidden_act\": \"gelu_pytorch_tanh\", "
        "\"query_pre_attn_scalar\": 224");
    assert_int_equal(parse(text, &c), TERN_OK);
    assert_true(c.attention_softcap == 50 && c.logit_softcap == 30 && c.window == 4096);
    assert_true(tern_model_window(&c, 0) == 4096 && tern_model_window(&c, 1) == 0);
    assert_true(fabsf(c.query_scale - 1 / sqrtf(224)) < 1e-7F);
    /* Mistral 7B v0.3 has no window, v0.1 one of 4096 for each layer. */
    print_llama(text, sizeof text,
                "\"architectures\": [\"MistralForCausalLM\"], \"sliding_window\": null");
    assert_int_equal(parse(text, &c), TERN_OK);
    assert_int_equal(tern_model_window(&c, 0), 0);
    print_llama(text, sizeof text,
                "\"architectures\": [\"MistralForCausalLM\"], \"sliding_window\": 4096");
    assert_int_equal(parse(text, &c), TERN_OK);
    assert_int_equal(tern_model_window(&c, 1), 4096);
    /* Qwen2.5 states a window and does not use it. */
    print_llama(text, sizeof text,
                "\"architectures\": [\"Qwen2ForCausalLM\"], \"use_sliding_window\": false, "
                "\"sliding_window\": 131072, \"max_window_layers\": 28");
    assert_int_equal(parse(text, &c), TERN_OK);
    assert_true(c.window == 0 && c.features.has_qkv_bias && !c.features.has_out_bias);
    /* Yarn as Qwen2.5's page says to add it: the context becomes four times as long. */
    print_llama(text, sizeof text,
                "\"architectures\": [\"Qwen2ForCausalLM\"], \"rope_scaling\": {\"type\": \"yarn\", "
                "\"factor\": 4.0, \"original_max_position_embeddings\": 128}");
    assert_int_equal(parse(text, &c), TERN_OK);
    assert_int_equal(c.context, 512);
    /* Phi-3's first files call longrope su, and say the original context outside. */
    print_llama(text, sizeof text,
                "\"architectures\": [\"Phi3ForCausalLM\"], \"original_max_position_embeddings\": "
                "32, \"rope_scaling\": "
                "{\"type\": \"su\", \"short_factor\": [1,1,1,1,1,1,1,1], \"long_factor\": "
                "[2,2,2,2,2,2,2,2]}");
    assert_int_equal(parse(text, &c), TERN_OK);
    assert_true(c.rope_scaling == TERN_ROPE_LONGROPE && c.rope_original_context == 32 &&
                c.rope_factor == 4);
}

static void end_ids(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int count;
        int32_t first, last, bos;
    } rows[] = {
        {"{}", 0, 0, 0, -1},
        {"{\"eos_token_id\": 7}", 1, 7, 7, -1},
        {"{\"eos_token_id\": [1, 106], \"bos_token_id\": 2}", 2, 1, 106, 2},
        {"{\"eos_token_id\": null, \"bos_token_id\": null}", 0, 0, 0, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_model_ids ids = {.bos = -1};
        assert_int_equal(tern_hf_ids_parse("g.json", rows[i].text, strlen(rows[i].text), &ids),
                         TERN_OK);
        assert_int_equal(ids.eos_count, rows[i].count);
        assert_int_equal(ids.bos, rows[i].bos);
        if (rows[i].count > 0) {
            assert_int_equal(ids.eos[0], rows[i].first);
            assert_int_equal(ids.eos[ids.eos_count - 1], rows[i].last);
        }
    }
    static const char *const bad[] = {
        "[",
        "{\"eos_token_id\": -1}",
        "{\"eos_token_id\": \"</s>\"}",
        "{\"eos_token_id\": 1.5}",
        "{\"eos_token_id\": [1, \"x\"]}",
        "{\"eos_token_id\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
        "{\"eos_token_id\": 4294967296}",
        "{\"bos_token_id\": 99999999999}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        struct tern_model_ids ids = {.bos = -1};
        assert_int_not_equal(tern_hf_ids_parse("g.json", bad[i], strlen(bad[i]), &ids), TERN_OK);
        assert_non_null(strstr(tern_detail(), "g.json"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(refuses, check_no_live_blocks),
        cmocka_unit_test_teardown(old_and_new_keys, check_no_live_blocks),
        cmocka_unit_test_teardown(real_files, check_no_live_blocks),
        cmocka_unit_test_teardown(end_ids, check_no_live_blocks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
