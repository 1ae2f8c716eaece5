/* learn_test.c - which tokens of a conversation are the assistant's, packs of conversations, and what is refused. */
#include "io/packs.h"
#include "io/tokens.h"
#include "runtime/base/text.h"
#include "runtime/chat/chat.h"
#include "runtime/chat/learn.h"
#include "runtime/chat/prepare.h"
#include "tests/io/data_fixture.h"

#define CHATML \
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}" \
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"

struct model {
    struct tern_tokenizer *tokenizer;
    struct tern_template *template;
    struct tern_learner *learner;
};

static void open_model(struct model *m, const char *template)
{
    static const char text[] = "say light water one two three user assistant system\n";
    static const char *const specials[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    write_file("text.txt", text, sizeof text - 1);
    const char *const paths[] = {at("text.txt")};
    assert_ok(tern_tokenizer_train(paths, 1, 290, specials, 3, at("tokenizer.json")));
    write_file("chat_template.jinja", template, strlen(template));
    static const char config[] = "{\"eos_token\": {\"content\": \"<|im_end|>\"}}";
    write_file("tokenizer_config.json", config, sizeof config - 1);
    assert_ok(tern_tokenizer_open(at("tokenizer.json"), &m->tokenizer));
    assert_ok(tern_template_open(at("tokenizer.json"), NULL, &m->template));
    assert_ok(tern_learner_create(m->template, m->tokenizer, &m->learner));
}

static void close_model(struct model *m)
{
    tern_learner_destroy(m->learner);
    tern_template_close(m->template);
    tern_tokenizer_close(m->tokenizer);
}

/* The text of the marked tokens, "[...]" around each run of them. */
static tern_status learned_text(struct model *m, const char *json, struct tern_text *out)
{
    struct tern_json *root;
    struct tern_learned learned;
    out->length = 0;
    assert_ok(tern_text_append(out, "", 0));
    assert_ok(tern_json_parse("conversation", json, strlen(json), &root));
    tern_status status = tern_learner_read(m->learner, root, &learned);
    tern_json_close(root);
    for (int64_t i = 0; status == TERN_OK && i < learned.count; i++) {
        size_t bytes;
        const char *piece = tern_tokenizer_piece(m->tokenizer, learned.ids[i], &bytes);
        bool was = i > 0 && learned.marks[i - 1];
        assert_ok(tern_text_append(out, "[", learned.marks[i] && !was));
        assert_ok(tern_text_append(out, piece, learned.marks[i] ? bytes : 0));
        bool goes_on = i + 1 < learned.count && learned.marks[i + 1];
        assert_ok(tern_text_append(out, "]", learned.marks[i] && !goes_on));
    }
    return status;
}

static const char two_turns[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": "
    "\"say one\"}, {\"role\": \"assistant\", \"content\": \" one\\n\"}, {\"role\": \"user\", "
    "\"content\": \"say two\"}, {\"role\": \"assistant\", \"content\": \"two\"}]}";

static void test_what_is_learned(void **state)
{
    (void)state;
    static const struct {
        const char *template, *conversation, *learned;
    } rows[] = {
        {CHATML, two_turns, "[ one\n<|im_end|>][two<|im_end|>]"},
        /* marks of the template's own win, and say all */
        {"{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role == 'assistant' %}"
         "{% generation %}{{ m.content }}<|im_end|>\n{% endgeneration %}{% else %}{{ m.content }}"
         "<|im_end|>\n{% endif %}{% endfor %}",
         two_turns, "[ one\n<|im_end|>\n][two<|im_end|>\n]"},
        /* a token across an edge of a mark is inside */
        {"a<|im{% generation %}_start|>x<|im{% endgeneration %}_end|>y",
         "[{\"role\": \"assistant\", \"content\": \"\"}]", "[<|im_start|>x<|im_end|>]"},
        /* an answer that is written otherwise once the conversation goes on */
        {"{% for m in messages %}<|im_start|>{{ m.role }}\n{% if loop.last and m.role == "
         "'assistant' %}<think>\n\n</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
         two_turns, "[ one\n<|im_end|>][<think>\n\n</think>two<|im_end|>]"},
        /* more than the turn ends with the conversation */
        {"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
         "{% if add_generation_prompt %}<|im_start|>assistant\n{% else %}<|endoftext|>\n{% endif "
         "%}",
         two_turns, "[ one\n<|im_end|>][two<|im_end|>]"},
        /* no token ends a turn */
        {"{% for m in messages %}{% if m.role == 'user' %}Q: {{ m.content }}\nA:{% else %} {{ "
         "m.content }}\n{% endif %}{% endfor %}",
         "[{\"role\": \"user\", \"content\": \"say\"}, {\"role\": \"assistant\", \"content\": "
         "\"light\"}]",
         "[ light\n]"},
        {CHATML, "[{\"role\": \"user\", \"content\": \"say\"}]", ""},
        {CHATML,
         "[{\"role\": \"user\", \"content\": \"\xE6\x9D\xB1\"}, {\"role\": \"assistant\", "
         "\"content\": \"\xF0\x9F\x99\x82 <|im_start|>\"}]",
         "[\xF0\x9F\x99\x82 <|im_start|><|im_end|>]"},
        {CHATML,
         "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"assistant\", "
         "\"content\": \"\"}]",
         "[<|im_end|>]"},
    };
    struct tern_text text;
    tern_text_init(&text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model m;
        open_model(&m, rows[i].template);
        assert_ok(learned_text(&m, rows[i].conversation, &text));
        assert_string_equal(text.data, rows[i].learned);
        close_model(&m);
    }
    tern_text_fini(&text);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *template, *conversation, *words;
        tern_status status;
    } rows[] = {
        /* the prompt says more than the turn, as templates of reasoning models do */
        {"{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content|trim }}<|im_end|>\n"
         "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n<think>{% endif %}",
         two_turns, "message 2: the chat template writes other text|byte 88|{% generation %}",
         TERN_ERR_UNSUPPORTED},
        {CHATML, "{\"text\": \"x\"}", "messages: found nothing", TERN_ERR_INPUT},
        {CHATML, "[1]", "message 0: found a int; expected an object", TERN_ERR_INPUT},
        {CHATML, "\"x\"", "messages: found a string", TERN_ERR_INPUT},
        {CHATML, "{\"messages\": [], \"tools\": 1}", "tools: found a number", TERN_ERR_INPUT},
        {"{{ raise_exception('no') }}", two_turns, "refuses this conversation: no", TERN_ERR_INPUT},
    };
    struct tern_text text;
    tern_text_init(&text);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct model m;
        open_model(&m, rows[i].template);
        assert_fails(learned_text(&m, rows[i].conversation, &text), rows[i].status, rows[i].words);
        close_model(&m);
    }
    tern_text_fini(&text);
}

static void test_prompt_and_end(void **state)
{
    (void)state;
    struct model m;
    struct tern_text text;
    int32_t end;
    tern_text_init(&text);
    open_model(&m, CHATML);
    assert_ok(tern_chat_prompt(m.template, "S\"", "a\nb", 3, &text));
    assert_string_equal(text.data, "<|im_start|>system\nS\"<|im_end|>\n<|im_start|>user\na\nb"
                                   "<|im_end|>\n<|im_start|>assistant\n");
    assert_ok(tern_chat_end(m.template, m.tokenizer, &end));
    assert_int_equal(end, tern_tokenizer_id(m.tokenizer, "<|im_end|>"));
    assert_string_equal(tern_template_special(m.template, "eos_token"), "<|im_end|>");
    close_model(&m);
    open_model(&m, "{% for m in messages %}{{ m.content }}\n{% endfor %}");
    assert_ok(tern_chat_end(m.template, m.tokenizer, &end));
    assert_int_equal(end, -1);
    close_model(&m);
    tern_text_fini(&text);
}

/* ---- packs ---- */

/* Conversations of random lengths; a third of them with nothing to learn. */
static void write_conversations(int count)
{
    struct tern_text text;
    tern_text_init(&text);
    for (int i = 0; i < count; i++) {
        uint64_t draw = tern_random_u64(7, 1, (uint64_t)i);
        assert_ok(tern_text_printf(&text,
                                   "{\"messages\": [{\"role\": \"user\", \"content\": \"%d\"}", i));
        if (draw % 3 > 0) {
            assert_ok(tern_text_printf(&text, ", {\"role\": \"assistant\", \"content\": \""));
            for (uint64_t k = 0; k < draw / 3 % 60; k++) {
                assert_ok(tern_text_printf(&text, " light"));
            }
            assert_ok(tern_text_printf(&text, "\"}"));
        }
        assert_ok(tern_text_printf(&text, "]}\n%s", i % 5 == 0 ? " \n" : ""));
    }
    write_file("chat.jsonl", text.data, text.length);
    tern_text_fini(&text);
}

static void prepare(const struct model *m, double val_fraction, struct tern_chat_prepared *out)
{
    const char *const paths[] = {at("chat.jsonl")};
    struct tern_chat_prepare prepare = {.paths = paths,
                                        .path_count = 1,
                                        .template = m->template,
                                        .tokenizer = m->tokenizer,
                                        .out_prefix = at("chat"),
                                        .val_fraction = val_fraction};
    assert_ok(tern_chat_prepare(&prepare, out));
}

/* Every place of every pack: documents whole and once, starts, targets where marks are, padding. */
static void check_packs(const struct tern_packs *packs, int64_t length, int64_t vocab)
{
    struct tern_packs_summary sum;
    int32_t inputs[512], targets[512], starts[512];
    int64_t places = 0, learned = 0, documents = 0;
    tern_packs_summary(packs, &sum);
    for (int64_t i = 0; i < tern_packs_count(packs); i++) {
        assert_ok(tern_packs_read(packs, i, vocab, inputs, targets, starts));
        for (int64_t t = 0; t < length; t++) {
            bool begins = t == 0 || starts[t] != starts[t - 1];
            assert_true(starts[t] == (begins ? t : starts[t - 1]));
            if (inputs[t] == 0) { /* <|endoftext|> is in no conversation: padding up to the end */
                assert_int_equal(targets[t], -1);
                assert_true(t == 0 || inputs[t - 1] != 0 || starts[t] == starts[t - 1]);
                continue;
            }
            assert_true(!begins || inputs[t] == 1); /* <|im_start|> */
            documents += begins;
            places++;
            learned += targets[t] >= 0;
            bool is_next_inside =
                t + 1 < length && inputs[t + 1] != 0 && starts[t + 1] == starts[t];
            assert_true(targets[t] < 0 || !is_next_inside || targets[t] == inputs[t + 1]);
        }
    }
    assert_int_equal(places, sum.places);
    assert_int_equal(learned, sum.learned);
    assert_int_equal(documents, sum.documents - sum.dropped);
}

static void test_packs(void **state)
{
    (void)state;
    struct model m;
    struct tern_chat_prepared prepared;
    open_model(&m, CHATML);
    write_conversations(300);
    prepare(&m, 0, &prepared);
    assert_int_equal(prepared.conversations, 300);
    assert_in_range(prepared.silent, 60, 140);
    int64_t vocab = tern_tokenizer_vocab_size(m.tokenizer);
    static const int64_t lengths[] = {1, 20, 64, 100, 512};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        struct tern_packs *packs;
        struct tern_packs_summary sum;
        if (lengths[i] == 1) {
            assert_fails(tern_packs_open(at("chat"), 1, &packs), TERN_ERR_INPUT,
                         "found no token to learn in|cut at 1 tokens");
            continue;
        }
        assert_ok(tern_packs_open(at("chat"), lengths[i], &packs));
        tern_packs_summary(packs, &sum);
        assert_int_equal(sum.documents, 300 - prepared.silent);
        assert_true((sum.cut > 0) == (lengths[i] < 512));
        assert_true(sum.learned == prepared.learned || sum.cut > 0);
        check_packs(packs, lengths[i], vocab);
        /* best fit wastes little when documents are short */
        assert_true(lengths[i] < 512 ||
                    (double)sum.places > 0.9 * 512 * (double)tern_packs_count(packs));
        assert_fails(
            tern_packs_read(packs, 0, 3, (int32_t[512]){0}, (int32_t[512]){0}, (int32_t[512]){0}),
            TERN_ERR_INPUT, "expected 0 to 2");
        tern_packs_close(packs);
    }
    close_model(&m);
}

static void test_split_and_samples(void **state)
{
    (void)state;
    struct model m;
    struct tern_chat_prepared prepared;
    char digest[2][TERN_TOKENS_DIGEST_BYTES];
    open_model(&m, CHATML);
    write_conversations(300);
    prepare(&m, 0.25, &prepared);
    assert_int_equal(prepared.part_count, 2);
    const char *const patterns[] = {prepared.parts[0].prefix, prepared.parts[1].prefix};
    struct tern_tokens_options options = {.patterns = patterns,
                                          .pattern_count = 2,
                                          .sequence_length = 64,
                                          .vocab_size = tern_tokenizer_vocab_size(m.tokenizer),
                                          .seed = 3,
                                          .shuffle = true,
                                          .is_packed = true};
    for (int time = 0; time < 2; time++) {
        struct tern_tokens *tokens;
        struct tern_packs_summary sum;
        int32_t inputs[64], targets[64], starts[64];
        int64_t learned = 0;
        assert_ok(tern_tokens_open(&options, &tokens));
        tern_tokens_packed(tokens, &sum);
        for (int64_t k = 0; k < tern_tokens_epoch_samples(tokens); k++) {
            assert_ok(tern_tokens_sample(tokens, k, inputs, targets, starts));
            for (int i = 0; i < 64; i++) {
                learned += targets[i] >= 0;
            }
        }
        assert_int_equal(learned, sum.learned); /* an epoch has every pack once */
        tern_tokens_digest(tokens, digest[time]);
        tern_tokens_close(tokens);
        if (time == 0) { /* another mark is other data */
            FILE *file = fopen(at("chat_val.loss"), "r+b");
            assert_int_equal(fseek(file, 16, SEEK_SET), 0);
            assert_int_equal(fputc(1, file), 1);
            assert_int_equal(fclose(file), 0);
        }
    }
    assert_string_not_equal(digest[0], digest[1]);
    close_model(&m);
}

static void test_broken_marks(void **state)
{
    (void)state;
    struct model m;
    struct tern_chat_prepared prepared;
    struct tern_packs *packs;
    open_model(&m, CHATML);
    write_conversations(20);
    prepare(&m, 0, &prepared);
    static const struct {
        const char *bytes;
        size_t count;
        const char *words;
    } rows[] = {
        {"", 0, "chat.loss|TERNLOSS"},
        {"TERNLOSS\5\0\0\0\0\0\0", 15, "TERNLOSS"},
        {"TERNLOST\5\0\0\0\0\0\0\0", 16, "TERNLOSS"},
        {"TERNLOSS\5\0\0\0\0\0\0\0\1\1\1\1\1", 21, "byte 8: found marks of 5 tokens"},
        {"TERNLOSS\377\377\377\377\377\377\377\377", 16, "byte 8"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        write_file("chat.loss", rows[i].bytes, rows[i].count);
        assert_fails(tern_packs_open(at("chat"), 32, &packs), TERN_ERR_INPUT, rows[i].words);
    }
    assert_ok(tern_file_remove(at("chat.loss")));
    assert_fails(tern_packs_open(at("chat"), 32, &packs), TERN_ERR_NOT_FOUND,
                 "chat.loss|data prepare --format chat");
    assert_false(tern_packs_exist(at("chat")));
    close_model(&m);
}

static void test_lines_are_named(void **state)
{
    (void)state;
    struct model m;
    struct tern_chat_prepared prepared;
    static const struct {
        const char *lines, *words;
    } rows[] = {
        {"\n{\"messages\": 3}\n", "chat.jsonl: line 2: messages: found a number"},
        {"{\"messages\": [}\n", "chat.jsonl: line 1|expected JSON"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n",
         "in none of which an assistant speaks"},
        {"", "found 0 conversations"},
    };
    open_model(&m, CHATML);
    const char *const paths[] = {at("chat.jsonl")};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct tern_chat_prepare prepare = {.paths = paths,
                                            .path_count = 1,
                                            .template = m.template,
                                            .tokenizer = m.tokenizer,
                                            .out_prefix = at("broken")};
        write_file("chat.jsonl", rows[i].lines, strlen(rows[i].lines));
        assert_fails(tern_chat_prepare(&prepare, &prepared), TERN_ERR_INPUT, rows[i].words);
        assert_false(tern_file_exists(at("broken.idx")));
    }
    close_model(&m);
}

static void test_which_template(void **state)
{
    (void)state;
    struct model m;
    struct tern_template *again;
    open_model(&m, CHATML);
    assert_ok(tern_template_open(g_folder, NULL, &again));
    assert_string_equal(tern_template_hash(again), tern_template_hash(m.template));
    tern_template_close(again);
    assert_ok(tern_template_open(g_folder, at("text.txt"), &again));
    assert_string_not_equal(tern_template_hash(again), tern_template_hash(m.template));
    tern_template_close(again);
    assert_fails(tern_template_open(at("nowhere"), NULL, &again), TERN_ERR_NOT_FOUND,
                 "no such file");
    assert_ok(tern_file_remove(at("chat_template.jinja")));
    assert_fails(tern_template_open(at("tokenizer.json"), NULL, &again), TERN_ERR_NOT_FOUND,
                 "has no chat template|tokenizer_config.json");
    static const char named[] =
        "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, {\"name\": "
        "\"tool_use\", \"template\": \"T\"}, {\"name\": \"rag\", \"template\": \"{%\"}]}";
    write_file("tokenizer_config.json", named, sizeof named - 1);
    assert_ok(tern_template_open(g_folder, NULL, &again));
    static const char *const asks[] = {"{\"messages\": []}", "{\"messages\": [], \"tools\": []}"};
    for (int i = 0; i < 2; i++) {
        struct tern_json *json;
        struct tern_jinja_output out = {0};
        assert_ok(tern_json_parse("ask", asks[i], strlen(asks[i]), &json));
        struct tern_template_request request = {.messages = json, .message_count = -1, .now = 0};
        assert_ok(tern_template_render(again, &request, &out));
        assert_string_equal(out.text.data, i == 0 ? "D" : "T");
        tern_jinja_output_fini(&out);
        tern_json_close(json);
    }
    tern_template_close(again);
    write_file("tokenizer_config.json", "{\"chat_template\": 5}", 20);
    assert_fails(tern_template_open(g_folder, NULL, &again), TERN_ERR_INPUT,
                 "chat_template: found a number");
    close_model(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_is_learned),   cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_prompt_and_end),    cmocka_unit_test(test_packs),
        cmocka_unit_test(test_split_and_samples), cmocka_unit_test(test_broken_marks),
        cmocka_unit_test(test_lines_are_named),   cmocka_unit_test(test_which_template),
    };
    return cmocka_run_group_tests_name("learn", tests, fixture_make, fixture_remove);
}
