/* api_request_test.c - bodies of requests: what is refused with which field, and what reaches the engine. */
#include "runtime/serve/api_request.h"
#include "tests/io/data_fixture.h"

#define CHATML \
    "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools here') }}" \
    "{% endif %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
#define WITH_TOOLS \
    "{% for t in tools or [] %}[{{ t.function.name }}]{% endfor %}{% for m in messages %}" \
    "{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}<tool_call>{{ c.function.name }}" \
    "{{ c.function.arguments.a }}{% endfor %}|{% endfor %}{{ extra }}"

enum {
    CONTEXT = 64
};

static struct tern_loaded g_loaded;
static struct tern_api_model g_model, g_tool_model;

static void init_model(struct tern_api_model *model, const char *template)
{
    write_file("template.jinja", template, strlen(template));
    assert_ok(
        tern_api_model_init(model, &g_loaded, at("tokenizer.json"), at("template.jinja"), CONTEXT));
    snprintf(model->name, sizeof model->name, "tiny");
}

static int open_models(void **state)
{
    static const char text[] = "say light water one two three user assistant system\n";
    static const char *const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    assert_int_equal(fixture_make(state), 0);
    write_file("text.txt", text, sizeof text - 1);
    const char *const paths[] = {at("text.txt")};
    assert_ok(tern_tokenizer_train(paths, 1, 290, specials, 3, at("tokenizer.json")));
    assert_ok(tern_tokenizer_open(at("tokenizer.json"), &g_loaded.tokenizer));
    g_loaded.model.config.vocab_size = tern_tokenizer_vocab_size(g_loaded.tokenizer);
    g_loaded.model.config.context = CONTEXT;
    g_loaded.model.config.width = 16;
    init_model(&g_model, CHATML);
    init_model(&g_tool_model, WITH_TOOLS);
    return 0;
}

static int close_models(void **state)
{
    tern_api_model_fini(&g_model);
    tern_api_model_fini(&g_tool_model);
    tern_tokenizer_close(g_loaded.tokenizer);
    return fixture_remove(state);
}

/* ---- what is refused ---- */

struct bad {
    const char *body;
    int status;
    const char *param; /* "": null */
};

#define CHAT(rest)    "{\"messages\":[{\"role\":\"user\",\"content\":\"one\"}]," rest "}"
#define TEXT(rest)    "{\"prompt\":\"one\"," rest "}"
#define VECTOR(rest)  "{\"input\":\"one\"," rest "}"
#define SAYS(message) "{\"messages\":[" message "]}"
#define TOOL          "{\"type\":\"function\",\"function\":{\"name\":\"f\"}}"

/* Fields of both chat and completions: behind a good beginning. */
static const struct bad g_shared[] = {
    {"\"model\":1", 400, "model"},
    {"\"model\":\"other\"", 404, "model"},
    {"\"model\":\"\"", 404, "model"},
    {"\"model\":[\"tiny\"]", 400, "model"},
    {"\"n\":0", 400, "n"},
    {"\"n\":-1", 400, "n"},
    {"\"n\":129", 400, "n"},
    {"\"n\":1.5", 400, "n"},
    {"\"n\":\"1\"", 400, "n"},
    {"\"n\":true", 400, "n"},
    {"\"n\":[1]", 400, "n"},
    {"\"n\":1e300", 400, "n"},
    {"\"temperature\":-0.1", 400, "temperature"},
    {"\"temperature\":2.1", 400, "temperature"},
    {"\"temperature\":\"hot\"", 400, "temperature"},
    {"\"temperature\":{}", 400, "temperature"},
    {"\"top_p\":-1", 400, "top_p"},
    {"\"top_p\":1.01", 400, "top_p"},
    {"\"top_p\":\"1\"", 400, "top_p"},
    {"\"top_k\":-2", 400, "top_k"},
    {"\"top_k\":0.5", 400, "top_k"},
    {"\"top_k\":\"all\"", 400, "top_k"},
    {"\"min_p\":2", 400, "min_p"},
    {"\"min_p\":false", 400, "min_p"},
    {"\"presence_penalty\":2.5", 400, "presence_penalty"},
    {"\"presence_penalty\":\"x\"", 400, "presence_penalty"},
    {"\"frequency_penalty\":-2.5", 400, "frequency_penalty"},
    {"\"frequency_penalty\":[]", 400, "frequency_penalty"},
    {"\"repetition_penalty\":0", 400, "repetition_penalty"},
    {"\"repetition_penalty\":-1", 400, "repetition_penalty"},
    {"\"seed\":\"7\"", 400, "seed"},
    {"\"seed\":1.5", 400, "seed"},
    {"\"seed\":1e19", 400, "seed"},
    {"\"max_tokens\":-1", 400, "max_tokens"},
    {"\"max_tokens\":0", 400, "max_tokens"},
    {"\"max_tokens\":\"many\"", 400, "max_tokens"},
    {"\"max_tokens\":1e10", 400, "max_tokens"},
    {"\"max_tokens\":1.25", 400, "max_tokens"},
    {"\"max_completion_tokens\":0", 400, "max_completion_tokens"},
    {"\"max_completion_tokens\":[]", 400, "max_completion_tokens"},
    {"\"min_tokens\":-1", 400, "min_tokens"},
    {"\"ignore_eos\":1", 400, "ignore_eos"},
    {"\"skip_special_tokens\":\"no\"", 400, "skip_special_tokens"},
    {"\"stream\":1", 400, "stream"},
    {"\"stream\":\"true\"", 400, "stream"},
    {"\"stream_options\":{\"include_usage\":true}", 400, "stream_options"},
    {"\"stream\":true,\"stream_options\":true", 400, "stream_options"},
    {"\"stream\":true,\"stream_options\":{\"include_usage\":1}", 400,
     "stream_options.include_usage"},
    {"\"stop\":1", 400, "stop"},
    {"\"stop\":\"\"", 400, "stop"},
    {"\"stop\":[\"a\",\"\"]", 400, "stop[1]"},
    {"\"stop\":[\"a\",2]", 400, "stop[1]"},
    {"\"stop\":{}", 400, "stop"},
    {"\"stop\":\"a\\u0000b\"", 400, "stop"},
    {"\"stop\":[\"1\",\"2\",\"3\",\"4\",\"5\",\"6\",\"7\",\"8\",\"9\",\"a\",\"b\",\"c\",\"d\","
     "\"e\",\"f\",\"g\",\"h\"]",
     400, "stop"},
    {"\"stop_token_ids\":1", 400, "stop_token_ids"},
    {"\"stop_token_ids\":[-1]", 400, "stop_token_ids"},
    {"\"stop_token_ids\":[290]", 400, "stop_token_ids"},
    {"\"stop_token_ids\":[\"1\"]", 400, "stop_token_ids"},
    {"\"logit_bias\":[1]", 400, "logit_bias"},
    {"\"logit_bias\":{\"x\":1}", 400, "logit_bias"},
    {"\"logit_bias\":{\"-1\":1}", 400, "logit_bias"},
    {"\"logit_bias\":{\"0x1\":1}", 400, "logit_bias"},
    {"\"logit_bias\":{\"\":1}", 400, "logit_bias"},
    {"\"logit_bias\":{\"290\":1}", 400, "logit_bias"},
    {"\"logit_bias\":{\"99999999999999999999\":1}", 400, "logit_bias"},
    {"\"logit_bias\":{\"1\":101}", 400, "logit_bias"},
    {"\"logit_bias\":{\"1\":\"5\"}", 400, "logit_bias"},
    {"\"logit_bias\":{\"1\":null}", 400, "logit_bias"},
    {"\"user\":7", 400, "user"},
    {"\"metadata\":\"x\"", 400, "metadata"},
    {"\"response_format\":\"json\"", 400, "response_format"},
    {"\"response_format\":{}", 400, "response_format.type"},
    {"\"response_format\":{\"type\":\"xml\"}", 400, "response_format.type"},
    {"\"response_format\":{\"type\":7}", 400, "response_format.type"},
    {"\"response_format\":{\"type\":\"json_schema\"}", 400, "response_format.json_schema"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":7}", 400,
     "response_format.json_schema"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":\"x\"}}", 400,
     "response_format.json_schema.schema"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":\"x\"}}", 400,
     "response_format.json_schema.schema"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"name\":1,\"schema\":{}}}",
     400, "response_format.json_schema.name"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":"
     "\"apple\"}}}",
     400, "response_format"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"not\":{}}}}",
     400, "response_format"},
    {"\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{\"schema\":{\"type\":"
     "\"string\",\"pattern\":\"(\"}}}",
     400, "response_format"},
};

static const struct bad g_chat[] = {
    {"", 400, ""},
    {"{", 400, ""},
    {"null", 400, ""},
    {"[]", 400, ""},
    {"\"x\"", 400, ""},
    {"{\"messages\":[}", 400, ""},
    {"{\"messages\":\"\xff\"}", 400, ""},
    {"{\"messages\":[{\"role\":\"user\",\"content\":\"\\ud800\"}]}", 400, ""},
    {"{} {}", 400, ""},
    {"{\"n\":99999999999999999999}", 400, ""},
    {"{}", 400, "messages"},
    {"{\"messages\":null}", 400, "messages"},
    {"{\"messages\":[]}", 400, "messages"},
    {"{\"messages\":{}}", 400, "messages"},
    {"{\"messages\":\"hello\"}", 400, "messages"},
    {SAYS("1"), 400, "messages[0]"},
    {SAYS("null"), 400, "messages[0]"},
    {SAYS("{}"), 400, "messages[0].role"},
    {SAYS("{\"role\":1,\"content\":\"x\"}"), 400, "messages[0].role"},
    {SAYS("{\"role\":\"robot\",\"content\":\"x\"}"), 400, "messages[0].role"},
    {SAYS("{\"role\":\"\",\"content\":\"x\"}"), 400, "messages[0].role"},
    {SAYS("{\"role\":\"user\"}"), 400, "messages[0].content"},
    {SAYS("{\"role\":\"user\",\"content\":null}"), 400, "messages[0].content"},
    {SAYS("{\"role\":\"user\",\"content\":7}"), 400, "messages[0].content"},
    {SAYS("{\"role\":\"user\",\"content\":{}}"), 400, "messages[0].content"},
    {SAYS("{\"role\":\"user\",\"content\":[\"x\"]}"), 400, "messages[0].content[0]"},
    {SAYS("{\"role\":\"user\",\"content\":[{}]}"), 400, "messages[0].content[0]"},
    {SAYS("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},"
          "{\"type\":\"image_url\"}]}"),
     400, "messages[0].content[1]"},
    {SAYS("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":1}]}"), 400,
     "messages[0].content[0].text"},
    {SAYS("{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"assistant\",\"tool_calls\":7}"), 400,
     "messages[1].tool_calls"},
    {SAYS("{\"role\":\"assistant\",\"tool_calls\":[7]}"), 400, "messages[0].tool_calls[0]"},
    {SAYS("{\"role\":\"assistant\",\"tool_calls\":[{}]}"), 400,
     "messages[0].tool_calls[0].function"},
    {SAYS("{\"role\":\"user\",\"content\":\"x\",\"name\":7}"), 400, "messages[0].name"},
    {SAYS("{\"role\":\"tool\",\"content\":\"x\",\"tool_call_id\":{}}"), 400,
     "messages[0].tool_call_id"},
    {SAYS("{\"role\":\"assistant\",\"tool_calls\":[{\"id\":7,\"function\":{\"name\":\"f\"}}]}"),
     400, "messages[0].tool_calls[0].id"},
    {SAYS("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":{},\"function\":{\"name\":\"f\"}}]}"),
     400, "messages[0].tool_calls[0].type"},
    {SAYS("{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"code\",\"function\":{\"name\":\"f\"}"
          "}]}"),
     400, "messages[0].tool_calls[0].type"},
    {SAYS("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":1}}]}"), 400,
     "messages[0].tool_calls[0].function.name"},
    {SAYS("{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":1}}]"
          "}"),
     400, "messages[0].tool_calls[0].function.arguments"},
    {CHAT("\"logprobs\":1"), 400, "logprobs"},
    {CHAT("\"logprobs\":\"yes\""), 400, "logprobs"},
    {CHAT("\"top_logprobs\":5"), 400, "top_logprobs"},
    {CHAT("\"logprobs\":true,\"top_logprobs\":21"), 400, "top_logprobs"},
    {CHAT("\"logprobs\":true,\"top_logprobs\":-1"), 400, "top_logprobs"},
    {CHAT("\"tools\":{}"), 400, "tools"},
    {CHAT("\"tools\":[7]"), 400, "tools[0]"},
    {CHAT("\"tools\":[{}]"), 400, "tools[0].type"},
    {CHAT("\"tools\":[{\"type\":\"retrieval\"}]"), 400, "tools[0].type"},
    {CHAT("\"tools\":[{\"type\":\"function\"}]"), 400, "tools[0].function"},
    {CHAT("\"tools\":[" TOOL ",{\"type\":\"function\",\"function\":{}}]"), 400,
     "tools[1].function.name"},
    {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"a b\"}}]"), 400,
     "tools[0].function.name"},
    {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"\"}}]"), 400,
     "tools[0].function.name"},
    {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\\\"\"}}]"), 400,
     "tools[0].function.name"},
    {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":7}}]"),
     400, "tools[0].function.parameters"},
    {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"description\":7}}]"),
     400, "tools[0].function.description"},
    {CHAT("\"tool_choice\":\"required\""), 400, "tool_choice"},
    {CHAT("\"tools\":[" TOOL "],\"tool_choice\":\"maybe\""), 400, "tool_choice"},
    {CHAT("\"tools\":[" TOOL "],\"tool_choice\":7"), 400, "tool_choice"},
    {CHAT("\"tools\":[" TOOL "],\"tool_choice\":{}"), 400, "tool_choice.function.name"},
    {CHAT("\"tools\":[" TOOL "],\"tool_choice\":{\"function\":{\"name\":\"g\"}}"), 400,
     "tool_choice"},
    {CHAT("\"tools\":[" TOOL "],\"tool_choice\":\"required\",\"response_format\":{\"type\":"
          "\"json_object\"}"),
     400, "response_format"},
    {CHAT("\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"f\",\"parameters\":{\"not\":"
          "{}}}}],\"tool_choice\":\"required\""),
     400, "tools"},
    {CHAT("\"parallel_tool_calls\":1"), 400, "parallel_tool_calls"},
    {CHAT("\"functions\":[{\"name\":\"f\"}]"), 400, "functions"},
    {CHAT("\"audio\":{\"voice\":\"x\"}"), 400, "audio"},
    {CHAT("\"chat_template_kwargs\":7"), 400, "chat_template_kwargs"},
    {CHAT("\"chat_template_kwargs\":{\"messages\":[]}"), 400, "chat_template_kwargs"},
    {CHAT("\"chat_template_kwargs\":{\"\":1}"), 400, "chat_template_kwargs"},
    {SAYS("{\"role\":\"user\",\"content\":\"one two three light water one two three light water "
          "one two three light water one two three light water one two three light water"
          "one two three light water one two three light water one two three light water"
          "one two three light water one two three light water one two three light water\"}"),
     400, "messages"},
};

static const struct bad g_text[] = {
    {"{}", 400, "prompt"},
    {"{\"prompt\":null}", 400, "prompt"},
    {"{\"prompt\":7}", 400, "prompt"},
    {"{\"prompt\":true}", 400, "prompt"},
    {"{\"prompt\":{}}", 400, "prompt"},
    {"{\"prompt\":[]}", 400, "prompt"},
    {"{\"prompt\":\"\"}", 400, "prompt"},
    {"{\"prompt\":[\"one\",\"\"]}", 400, "prompt[1]"},
    {"{\"prompt\":[\"one\",7]}", 400, "prompt[1]"},
    {"{\"prompt\":[null]}", 400, "prompt[0]"},
    {"{\"prompt\":[[]]}", 400, "prompt[0]"},
    {"{\"prompt\":[1,\"one\"]}", 400, "prompt"},
    {"{\"prompt\":[290]}", 400, "prompt"},
    {"{\"prompt\":[-1]}", 400, "prompt"},
    {"{\"prompt\":[1.5]}", 400, "prompt"},
    {"{\"prompt\":[4294967297]}", 400, "prompt"},
    {"{\"prompt\":[[1],[2,300]]}", 400, "prompt[1]"},
    {"{\"prompt\":[[1],[[2]]]}", 400, "prompt[1]"},
    {"{\"prompt\":[\"one\",\"two\"],\"n\":65}", 400, "n"},
    {TEXT("\"echo\":1"), 400, "echo"},
    {TEXT("\"logprobs\":true"), 400, "logprobs"},
    {TEXT("\"logprobs\":-1"), 400, "logprobs"},
    {TEXT("\"logprobs\":21"), 400, "logprobs"},
    {TEXT("\"best_of\":0"), 400, "best_of"},
    {TEXT("\"best_of\":2"), 400, "best_of"},
    {TEXT("\"suffix\":\"end\""), 400, "suffix"},
    {TEXT("\"suffix\":7"), 400, "suffix"},
    {"{\"prompt\":[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
     "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}",
     400, "prompt"},
};

static const struct bad g_vector[] = {
    {"{}", 400, "input"},
    {"{\"input\":[]}", 400, "input"},
    {"{\"input\":7}", 400, "input"},
    {"{\"input\":\"\"}", 400, "input"},
    {"{\"input\":[\"one\",null]}", 400, "input[1]"},
    {"{\"input\":[[1],\"one\",{}]}", 400, "input[2]"},
    {VECTOR("\"encoding_format\":\"hex\""), 400, "encoding_format"},
    {VECTOR("\"encoding_format\":1"), 400, "encoding_format"},
    {VECTOR("\"dimensions\":0"), 400, "dimensions"},
    {VECTOR("\"dimensions\":17"), 400, "dimensions"},
    {VECTOR("\"dimensions\":\"8\""), 400, "dimensions"},
    {VECTOR("\"user\":1"), 400, "user"},
    {VECTOR("\"model\":\"other\""), 404, "model"},
};

static void expect_bad(enum tern_api_kind kind, const char *body, const struct bad *bad)
{
    struct tern_api_request request;
    struct tern_api_error error = {0};
    struct tern_text text;
    struct tern_json *json;
    tern_status status =
        tern_api_request_read(&g_model, kind, body, strlen(body), &request, &error);
    tern_api_request_fini(&request);
    if (status != TERN_ERR_INPUT || error.status != bad->status ||
        strcmp(error.param, bad->param) != 0 || error.message[0] == '\0') {
        fail_msg("%s: %s, HTTP %d, param '%s', '%s' (detail '%s'); expected %d, '%s'", body,
                 tern_status_name(status), error.status, error.param, error.message, tern_detail(),
                 bad->status, bad->param);
    }
    tern_text_init(&text);
    assert_ok(tern_api_error_write(&error, &text));
    assert_ok(tern_json_parse("error", text.data, text.length, &json));
    const struct tern_json *inner = tern_json_get(json, "error");
    assert_string_equal(tern_json_string(tern_json_get(inner, "message"), NULL), error.message);
    assert_string_equal(tern_json_string(tern_json_get(inner, "type"), NULL),
                        "invalid_request_error");
    assert_int_equal(tern_json_kind_of(tern_json_get(inner, "param")),
                     bad->param[0] != '\0' ? TERN_JSON_STRING : TERN_JSON_NULL);
    tern_json_close(json);
    tern_text_fini(&text);
}

#define EXPECT_ALL(kind, cases) \
    for (size_t i_ = 0; i_ < sizeof(cases) / sizeof((cases)[0]); i_++) { \
        expect_bad((kind), (cases)[i_].body, &(cases)[i_]); \
    }

static void test_bad_requests(void **state)
{
    (void)state;
    EXPECT_ALL(TERN_API_CHAT, g_chat);
    EXPECT_ALL(TERN_API_COMPLETION, g_text);
    EXPECT_ALL(TERN_API_EMBEDDING, g_vector);
}

static void test_bad_shared_fields(void **state)
{
    (void)state;
    char body[1024];
    for (size_t i = 0; i < sizeof g_shared / sizeof g_shared[0]; i++) {
        snprintf(body, sizeof body, CHAT("%s"), g_shared[i].body);
        expect_bad(TERN_API_CHAT, body, &g_shared[i]);
        snprintf(body, sizeof body, TEXT("%s"), g_shared[i].body);
        expect_bad(TERN_API_COMPLETION, body, &g_shared[i]);
    }
}

/* ---- what is taken ---- */

static struct tern_api_request read_good(struct tern_api_model *model,
                                         enum tern_api_kind kind,
                                         const char *body)
{
    struct tern_api_request request;
    struct tern_api_error error = {0};
    tern_status status = tern_api_request_read(model, kind, body, strlen(body), &request, &error);
    if (status != TERN_OK) {
        fail_msg("%s: %s, '%s', '%s'", body, tern_status_name(status), error.message,
                 tern_detail());
    }
    return request;
}

static void test_defaults(void **state)
{
    (void)state;
    struct tern_api_request request = read_good(&g_model, TERN_API_CHAT, CHAT("\"n\":null"));
    const struct tern_engine_request *engine = &request.engine;
    assert_int_equal(engine->n, 1);
    assert_int_equal(engine->max_tokens, -1);
    assert_true(engine->sampling.temperature == 1 && engine->sampling.top_p == 1);
    assert_int_equal(engine->logprobs, -1);
    assert_int_equal(engine->stop_id_count, 1); /* what ends a turn */
    assert_int_equal(engine->stop_ids[0], tern_tokenizer_id(g_loaded.tokenizer, "<|im_end|>"));
    assert_false(request.is_stream);
    uint64_t seed = engine->sampling.seed;
    tern_api_request_fini(&request);
    request = read_good(&g_model, TERN_API_COMPLETION, TEXT("\"unknown\":{\"a\":[1]}"));
    assert_int_equal(request.engine.max_tokens, 16);
    assert_int_equal(request.engine.stop_id_count, 0);
    assert_true(request.engine.sampling.seed != seed); /* two requests, two seeds */
    tern_api_request_fini(&request);
}

static void test_every_field_arrives(void **state)
{
    (void)state;
    struct tern_api_request request = read_good(
        &g_model, TERN_API_CHAT,
        CHAT("\"model\":\"tiny\",\"n\":3,\"temperature\":0.5,\"top_p\":0.25,\"top_k\":7,"
             "\"min_p\":0.125,\"presence_penalty\":1.5,\"frequency_penalty\":-1,"
             "\"repetition_penalty\":1.25,\"seed\":-5,\"max_tokens\":9,\"max_completion_tokens\":4,"
             "\"min_tokens\":2,\"ignore_eos\":true,\"stream\":true,"
             "\"stream_options\":{\"include_usage\":true},\"stop\":[\"a\",\"bc\"],"
             "\"stop_token_ids\":[4],\"logit_bias\":{\"5\":-100,\"6\":1.5},"
             "\"logprobs\":true,\"top_logprobs\":3"));
    const struct tern_engine_request *engine = &request.engine;
    const struct tern_sampling *s = &engine->sampling;
    assert_true(s->temperature == 0.5 && s->top_p == 0.25 && s->top_k == 7 && s->min_p == 0.125);
    assert_true(s->presence == 1.5 && s->frequency == -1 && s->repetition == 1.25);
    assert_true(s->seed == (uint64_t)-5);
    assert_true(engine->max_tokens == 4 && engine->min_tokens == 2 && engine->n == 3);
    assert_true(engine->ignore_end && request.is_stream && request.include_usage);
    assert_true(engine->stop_count == 2 && strcmp(engine->stops[1], "bc") == 0);
    assert_true(engine->stop_id_count == 1 && engine->stop_ids[0] == 4);
    assert_true(engine->bias_count == 2 && engine->bias[0].id == 5 &&
                engine->bias[0].value == -100);
    assert_true(engine->logprobs == 3 && engine->prompt_logprobs == -1);
    tern_api_request_fini(&request);
}

static void test_prompts(void **state)
{
    (void)state;
    struct tern_api_request request =
        read_good(&g_model, TERN_API_COMPLETION,
                  "{\"prompt\":[\"one\",[1,2.0,3]],\"echo\":true,\"logprobs\":2,\"max_tokens\":0}");
    assert_int_equal(request.prompt_count, 2);
    assert_int_equal(request.prompts[1].count, 3);
    assert_int_equal(request.prompts[1].ids[1], 2);
    assert_true(request.echo && request.engine.prompt_logprobs == 2);
    tern_api_request_fini(&request);
    request = read_good(&g_model, TERN_API_COMPLETION, "{\"prompt\":[5,6]}");
    assert_int_equal(request.prompt_count, 1);
    assert_int_equal(request.prompts[0].count, 2);
    tern_api_request_fini(&request);
    request = read_good(&g_model, TERN_API_EMBEDDING,
                        VECTOR("\"encoding_format\":\"base64\",\"dimensions\":4"));
    assert_true(request.is_base64 && request.dimensions == 4 && request.engine.is_embedding);
    tern_api_request_fini(&request);
}

static void expect_chat(struct tern_api_model *model, const char *body, const char *text)
{
    struct tern_api_request request = read_good(model, TERN_API_CHAT, body);
    assert_string_equal(request.chat.data, text);
    tern_api_request_fini(&request);
}

static void test_conversations(void **state)
{
    (void)state;
    expect_chat(&g_model,
                SAYS("{\"role\":\"developer\",\"content\":\"one\"},{\"role\":\"user\",\"content\":"
                     "[{\"type\":\"text\",\"text\":\"two\"},{\"type\":\"text\",\"text\":\"three\"}]"
                     "}"),
                "<|im_start|>system\none<|im_end|>\n<|im_start|>user\ntwo\nthree<|im_end|>\n"
                "<|im_start|>assistant\n");
    /* A template that takes tools gets them, and arguments as an object. */
    expect_chat(&g_tool_model,
                "{\"messages\":[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":"
                "\"1\",\"type\":\"function\",\"function\":{\"name\":\"f\",\"arguments\":"
                "\"{\\\"a\\\": 5}\"}}]},{\"role\":\"tool\",\"content\":\"six\"}],\"tools\":[" TOOL
                "],\"chat_template_kwargs\":{\"extra\":\"more\"}}",
                "[f]assistant:<tool_call>f5|tool:six|more");
    assert_int_equal(g_tool_model.tool_format, TERN_TOOLS_TAGGED);
}

/* One that takes none hears of them from the system, and reads calls and answers as text. */
static void test_tools_as_text(void **state)
{
    (void)state;
    struct tern_api_model *model = &g_model;
    int64_t context = model->context;
    model->context = 4096;
    struct tern_api_request request = read_good(
        model, TERN_API_CHAT,
        "{\"messages\":[{\"role\":\"system\",\"content\":\"be brief\"},{\"role\":\"assistant\","
        "\"content\":\"so\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":\"{}\"}}]},"
        "{\"role\":\"tool\",\"content\":\"six\"}],\"tools\":[" TOOL "]}");
    assert_non_null(strstr(request.chat.data, "<|im_start|>system\nbe brief\n\n"));
    assert_non_null(strstr(request.chat.data, "<tools>\n{\"name\":\"f\"}\n</tools>"));
    assert_non_null(strstr(request.chat.data,
                           "<|im_start|>assistant\nso\n<tool_call>\n{\"name\": \"f\", "
                           "\"arguments\": {}}\n</tool_call><|im_end|>"));
    assert_non_null(strstr(request.chat.data,
                           "<|im_start|>user\n<tool_response>\nsix\n</tool_response><|im_end|>"));
    assert_int_equal(request.tools, TERN_TOOLS_TAGGED);
    assert_false(request.engine.skip_special);
    tern_api_request_fini(&request);
    request =
        read_good(model, TERN_API_CHAT, CHAT("\"tools\":[" TOOL "],\"tool_choice\":\"none\""));
    assert_int_equal(request.tools, TERN_TOOLS_NONE);
    assert_null(strstr(request.chat.data, "<tools>"));
    tern_api_request_fini(&request);
    request =
        read_good(model, TERN_API_CHAT, CHAT("\"tools\":[" TOOL "],\"tool_choice\":\"required\""));
    assert_true(request.is_forced && request.engine.grammar != NULL);
    const char *end = request.chat.data + request.chat.length - strlen("<tool_call>\n");
    assert_string_equal(end, "<tool_call>\n");
    tern_api_request_fini(&request);
    model->context = context;
}

static void test_no_template(void **state)
{
    (void)state;
    struct tern_api_model model = {.turn_end = -1};
    struct tern_api_request request;
    struct tern_api_error error = {0};
    const char body[] = CHAT("\"n\":1");
    model.loaded = &g_loaded;
    snprintf(model.no_template, sizeof model.no_template, "none here");
    assert_int_equal(
        tern_api_request_read(&model, TERN_API_CHAT, body, strlen(body), &request, &error),
        TERN_ERR_INPUT);
    assert_string_equal(error.message, "none here");
    tern_api_request_fini(&request);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bad_requests),  cmocka_unit_test(test_bad_shared_fields),
        cmocka_unit_test(test_defaults),      cmocka_unit_test(test_every_field_arrives),
        cmocka_unit_test(test_prompts),       cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_tools_as_text), cmocka_unit_test(test_no_template),
    };
    return cmocka_run_group_tests(tests, open_models, close_models);
}
