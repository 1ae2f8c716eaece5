/* tokenizer_refusals_test.c - tokenizer.json files that are broken, hostile or beyond us: a clear
 * sentence each time, and nothing left behind. */
#include "io/tokenizer.h"
#include "tests/io/data_fixture.h"

/* A small tokenizer.json with one piece of it replaced. */
static void write_changed(const char *name, const char *text, const char *from, const char *to)
{
    const char *place = strstr(text, from);
    assert_non_null(place);
    struct tern_text out;
    tern_text_init(&out);
    assert_ok(tern_text_append(&out, text, (size_t)(place - text)));
    assert_ok(tern_text_append(&out, to, strlen(to)));
    assert_ok(tern_text_append(&out, place + strlen(from), strlen(place + strlen(from))));
    write_file(name, out.data, out.length);
    tern_text_fini(&out);
}

struct refusal {
    const char *from, *to;
    tern_status status;
    const char *words;
};

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

/* Each change alone makes a file that is refused with these words and the file's name. */
static void assert_refusals(const char *text,
                            const struct refusal *refusals,
                            size_t count,
                            const char *kind)
{
    for (size_t i = 0; i < count; i++) {
        const struct refusal *refusal = &refusals[i];
        write_changed("changed.json", text, refusal->from, refusal->to);
        struct tern_tokenizer *tokenizer;
        tern_status status = tern_tokenizer_open(at("changed.json"), &tokenizer);
        if (status == TERN_OK) {
            fail_msg("%s %zu: '%s' for '%s' was taken", kind, i, refusal->to, refusal->from);
        }
        assert_fails(status, refusal->status, refusal->words);
        assert_fails(status, refusal->status, "changed.json");
        assert_null(tokenizer);
    }
}

/* ---- byte-level: a file as tern writes it ---- */

#define STAGE "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false"
#define POST  "\"post_processor\": {\"type\": \"ByteLevel\""
static const struct refusal of_bytes[] = {
    {"{", "[", TERN_ERR_INPUT, "line 2|JSON"},
    {"{", "null {", TERN_ERR_INPUT, "JSON"},
    {"\"normalizer\": null", "\"normalizer\": {\"type\": \"NFKC\"}", TERN_ERR_UNSUPPORTED,
     "normalizer|NFKC|'NFC'"},
    {"\"normalizer\": null", "\"normalizer\": 3", TERN_ERR_INPUT, "normalizer|a number"},
    {"\"normalizer\": null", "\"normalizer\": {\"type\": \"Sequence\"}", TERN_ERR_INPUT,
     "normalizer|an array"},
    {"\"normalizer\": null", "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [1]}",
     TERN_ERR_INPUT, "normalizer|a number|an object"},
    {"\"normalizer\": null",
     "\"normalizer\": {\"type\": \"Sequence\", \"normalizers\": [{\"type\": \"Sequence\"}]}",
     TERN_ERR_UNSUPPORTED, "normalizer|Sequence in a Sequence"},
    {"\"normalizer\": null", "\"normalizer\": {\"type\": \"Prepend\"}", TERN_ERR_INPUT,
     "Prepend.prepend|1 to"},
    {"\"normalizer\": null", "\"normalizer\": {\"type\": \"Replace\"}", TERN_ERR_INPUT, "pattern"},
    {"\"normalizer\": null",
     "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"String\": \"\"}, \"content\": \"a\"}",
     TERN_ERR_INPUT, "String|1 to"},
    {"\"normalizer\": null",
     "\"normalizer\": {\"type\": \"Replace\", \"pattern\": {\"Regex\": \"(a*)*b\"}}",
     TERN_ERR_UNSUPPORTED, "Regex|(a*)*b"},
    {"\"truncation\": null", "\"truncation\": {}", TERN_ERR_UNSUPPORTED, "truncation"},
    {"\"padding\": null", "\"padding\": {}", TERN_ERR_UNSUPPORTED, "padding"},
    {STAGE, "\"pre_tokenizer\": {\"type\": \"Metaspace\"", TERN_ERR_INPUT, "Metaspace.replacement"},
    {STAGE, "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\"",
     TERN_ERR_UNSUPPORTED, "decoder|ByteLevel"},
    {STAGE, "\"pre_tokenizer\": {\"type\": \"BertPreTokenizer\"", TERN_ERR_UNSUPPORTED,
     "pre_tokenizer|BertPreTokenizer|Metaspace"},
    {STAGE,
     "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"(?:x+x+)+y\"}, "
     "\"behavior\": \"Isolated\"",
     TERN_ERR_UNSUPPORTED, "Split.pattern|(?:x+x+)+y|Tekken"},
    {STAGE,
     "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"Regex\": \"\\\\p{N}\"}, "
     "\"behavior\": \"Contiguous\"",
     TERN_ERR_UNSUPPORTED, "Split.behavior|Contiguous|Isolated"},
    {STAGE,
     "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"ab\"}, "
     "\"behavior\": \"Removed\"",
     TERN_ERR_UNSUPPORTED, "Split.behavior|Removed|MergedWithNext"},
    {STAGE,
     "\"pre_tokenizer\": {\"type\": \"Split\", \"pattern\": {\"String\": \"ab\"}, "
     "\"behavior\": \"Isolated\", \"invert\": true",
     TERN_ERR_UNSUPPORTED, "Split.invert"},
    {STAGE,
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Split\"}]",
     TERN_ERR_INPUT, "pattern|nothing|an object"},
    {STAGE, "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": []",
     TERN_ERR_UNSUPPORTED, "decoder|ByteLevel"},
    {STAGE,
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"ByteLevel\"}, "
     "{\"type\": \"Digits\"}]",
     TERN_ERR_UNSUPPORTED, "after ByteLevel|Digits"},
    {"\"pre_tokenizer\": {", "\"pre_tokenizer\": null, \"x\": {", TERN_ERR_UNSUPPORTED,
     "decoder|ByteLevel"},
    {"\"decoder\": {\"type\": \"ByteLevel\"", "\"decoder\": {\"type\": \"WordPiece\"",
     TERN_ERR_UNSUPPORTED, "decoder|WordPiece"},
    {POST, "\"post_processor\": {\"type\": \"BertProcessing\"", TERN_ERR_UNSUPPORTED,
     "post_processor|BertProcessing"},
    {POST, "\"post_processor\": {\"type\": \"TemplateProcessing\"", TERN_ERR_INPUT,
     "post_processor.single|nothing|an array"},
    {POST, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": []", TERN_ERR_INPUT,
     "single|no Sequence"},
    {POST, "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{}]",
     TERN_ERR_INPUT, "single[0]"},
    {POST,
     "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"Sequence\": {}}, "
     "{\"Sequence\": {}}]",
     TERN_ERR_INPUT, "single[1]"},
    {POST,
     "\"post_processor\": {\"type\": \"TemplateProcessing\", \"single\": [{\"SpecialToken\": "
     "{\"id\": \"<x>\"}}]",
     TERN_ERR_INPUT, "'<x>'|0 ids"},
    {POST,
     "\"post_processor\": {\"type\": \"TemplateProcessing\", \"special_tokens\": {\"<x>\": "
     "{\"ids\": [99999]}}, \"single\": [{\"SpecialToken\": {\"id\": \"<x>\"}}]",
     TERN_ERR_INPUT, "'<x>'|outside"},
    {"\"type\": \"BPE\"", "\"type\": \"WordPiece\"", TERN_ERR_UNSUPPORTED,
     "model.type|WordPiece|BPE"},
    {"\"type\": \"BPE\"", "\"type\": 7", TERN_ERR_UNSUPPORTED, "model.type"},
    {"\"type\": \"BPE\"", "\"type\": \"Unigram\"", TERN_ERR_UNSUPPORTED, "ByteLevel|Unigram"},
    {"\"dropout\": null", "\"dropout\": 0.1", TERN_ERR_UNSUPPORTED, "dropout"},
    {"\"end_of_word_suffix\": null", "\"end_of_word_suffix\": \"</w>\"", TERN_ERR_UNSUPPORTED,
     "end_of_word_suffix|</w>"},
    {"{\"id\": 0, \"content\": ", "{\"id\": 7, \"content\": ", TERN_ERR_INPUT,
     "added_tokens[0]|id 7|contradicts"},
    {"{\"id\": 0, \"content\": ", "{\"id\": -1, \"content\": ", TERN_ERR_INPUT,
     "added_tokens[0].id"},
    {"{\"id\": 0, \"content\": ", "{\"id\": 4294967296, \"content\": ", TERN_ERR_INPUT,
     "added_tokens[0].id"},
    {"{\"id\": 0, \"content\": ", "{\"id\": 16777215, \"content\": ", TERN_ERR_INPUT,
     "added_tokens[0].id"}, /* a table of gigabytes for a small file */
    {"\"content\": \"<|endoftext|>\"", "\"content\": \"\"", TERN_ERR_INPUT,
     "added_tokens[0].content"},
    {"\"added_tokens\": [", "\"added_tokens\": 5, \"x\": [", TERN_ERR_INPUT,
     "added_tokens|a number|an array"},
    {"\"vocab\": {", "\"vocab\": [], \"x\": {", TERN_ERR_INPUT, "model.vocab|an array|an object"},
    {"\"model\": {", "\"model\": [], \"x\": {", TERN_ERR_INPUT, "model|an array|an object"},
    {"\"merges\": [", "\"x\": [", TERN_ERR_INPUT, "model.merges|nothing|an array"},
    {"\"A\": ", "\"A\": 1e3, \"x\": ", TERN_ERR_INPUT, "model.vocab|\"A\"|expected an id"},
    {"\"A\": ", "\"A\": -5, \"x\": ", TERN_ERR_INPUT, "model.vocab|\"A\"|expected an id"},
    {"\"A\": ", "\"A\": 16777215, \"x\": ", TERN_ERR_INPUT, "model.vocab|\"A\"|expected an id"},
    {"\"A\": ", "\"A\": 99999999999999999999, \"x\": ", TERN_ERR_INPUT, "JSON|integer"},
    {"\"A\": ", "\"A\": 5, \"x\": ", TERN_ERR_INPUT, "model.vocab|given twice"},
    {"\"A\": ", "\"\": 299999, \"A\": ", TERN_ERR_INPUT, "model.vocab|expected an id"},
    {"\"A\": ", "\"\": 999, \"A\": ", TERN_ERR_INPUT, "id 999|0 bytes"},
    {"\"A\": ", "\"AAA\": ", TERN_ERR_UNSUPPORTED, "0x41|byte-level"},
    {"\"A\": ", "\"\\ud800\": ", TERN_ERR_INPUT, "JSON"},
    {"\"merges\": [", "\"merges\": [\"a b c\", ", TERN_ERR_INPUT, "merges[0]|left right"},
    {"\"merges\": [", "\"merges\": [[\"a\"], ", TERN_ERR_INPUT, "merges[0]"},
    {"\"merges\": [", "\"merges\": [[\"a\", \"b\", \"c\"], ", TERN_ERR_INPUT, "merges[0]"},
    {"\"merges\": [", "\"merges\": [7, ", TERN_ERR_INPUT, "merges[0]"},
    {"\"merges\": [", "\"merges\": [\" a\", ", TERN_ERR_INPUT, "merges[0]"},
    {"\"merges\": [", "\"merges\": [\"\", ", TERN_ERR_INPUT, "merges[0]"},
    {"\"merges\": [", "\"merges\": [\"a nix\", ", TERN_ERR_INPUT, "merges[0]|'nix'|model.vocab"},
    {"\"merges\": [", "\"merges\": [\"Q Q\", ", TERN_ERR_INPUT, "merges[0]|'QQ'|model.vocab"},
};

static void test_byte_level(void **state)
{
    (void)state;
    tern_tokenizer_close(train_small(300));
    char *text;
    size_t bytes;
    assert_ok(tern_file_read(at("tokenizer.json"), 1 << 20, &text, &bytes));
    assert_refusals(text, of_bytes, COUNT(of_bytes), "bytes");
    for (size_t length = 0; length < bytes; length += 97) { /* cut off anywhere */
        write_file("changed.json", text, length);
        struct tern_tokenizer *tokenizer;
        assert_fails(tern_tokenizer_open(at("changed.json"), &tokenizer), TERN_ERR_INPUT,
                     "changed.json");
    }
    tern_free(text);
    struct tern_tokenizer *tokenizer;
    assert_fails(tern_tokenizer_open(at("nowhere.json"), &tokenizer), TERN_ERR_NOT_FOUND,
                 "nowhere.json");
    assert_ok(tern_tokenizer_open(g_folder, &tokenizer)); /* the one in the folder */
    tern_tokenizer_close(tokenizer);
}

/* ---- characters: a file in the manner of Llama 2 ---- */

static const char characters[] =
    "{\"normalizer\": {\"type\": \"Prepend\", \"prepend\": \"_\"}, \"pre_tokenizer\": null,\n"
    "\"decoder\": {\"type\": \"Sequence\", \"decoders\": [{\"type\": \"Replace\", \"pattern\": "
    "{\"String\": \"_\"}, \"content\": \" \"}, {\"type\": \"ByteFallback\"}, {\"type\": \"Fuse\"}, "
    "{\"type\": \"Strip\", \"content\": \" \", \"start\": 1, \"stop\": 0}]},\n"
    "\"model\": {\"type\": \"BPE\", \"unk_token\": \"<unk>\", \"byte_fallback\": true,\n"
    "\"vocab\": {\"<unk>\": 0, \"a\": 1, \"b\": 2, \"ab\": 3, \"_\": 4, \"<0x0A>\": 5},\n"
    "\"merges\": [\"a b\"]}}";

static const struct refusal of_characters[] = {
    {"\"<unk>\",", "\"<none>\",", TERN_ERR_INPUT, "unk_token|<none>"},
    {"\"<unk>\",", "5,", TERN_ERR_INPUT, "unk_token|a number|a string"},
    {"\"unk_token\": \"<unk>\", \"byte_fallback\": true,", "", TERN_ERR_UNSUPPORTED,
     "leaves out unknown|byte_fallback"},
    {"\"decoder\": {", "\"decoder\": null, \"x\": {", TERN_ERR_UNSUPPORTED, "decoder|null"},
    {"\"decoder\": {\"type\": \"Sequence\"", "\"decoder\": {\"type\": \"ByteLevel\"",
     TERN_ERR_UNSUPPORTED, "decoder|ByteLevel|pre_tokenizer has none"},
    {"\"decoders\": [", "\"decoders\": [{\"type\": \"Fuse\"}, ", TERN_ERR_UNSUPPORTED,
     "after Fuse|Replace"},
    {"\"decoders\": [", "\"decoders\": [{\"type\": \"ByteFallback\"}, ", TERN_ERR_UNSUPPORTED,
     "Replace|before ByteFallback"},
    {"\"decoders\": [", "\"decoders\": [{\"type\": \"Metaspace\", \"replacement\": \"_\"}, ",
     TERN_ERR_UNSUPPORTED, "after Fuse or Metaspace|Replace"},
    {"{\"type\": \"Fuse\"}, ", "", TERN_ERR_UNSUPPORTED, "decoder|Strip|after Fuse"},
    {"\"start\": 1", "\"start\": -1", TERN_ERR_UNSUPPORTED, "Strip"},
    {"\"stop\": 0", "\"stop\": 1", TERN_ERR_UNSUPPORTED, "Strip"},
    {"\"content\": \" \", \"start\"", "\"content\": \"x\", \"start\"", TERN_ERR_UNSUPPORTED,
     "Strip"},
    {"{\"String\": \"_\"}", "{\"Regex\": \"_\"}", TERN_ERR_UNSUPPORTED, "decoder|Regex"},
    {"\"content\": \" \"}", "\"content\": null}", TERN_ERR_INPUT, "Replace.content"},
    {"\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\", \"prepend_scheme\": "
     "\"?\"}",
     TERN_ERR_UNSUPPORTED, "prepend_scheme|'?'|'first'"},
    {"\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Metaspace\", "
     "\"replacement\": \"_\"}, {\"type\": \"Metaspace\", \"replacement\": \"_\"}]}",
     TERN_ERR_UNSUPPORTED, "second step that adds blanks"},
    {"\"pre_tokenizer\": null",
     "\"pre_tokenizer\": {\"type\": \"Sequence\", \"pretokenizers\": [{\"type\": \"Digits\"}, "
     "{\"type\": "
     "\"Digits\"}, {\"type\": \"Digits\"}, {\"type\": \"Digits\"}, {\"type\": \"Digits\"}, "
     "{\"type\": "
     "\"Digits\"}, {\"type\": \"Digits\"}, {\"type\": \"Digits\"}, {\"type\": \"Digits\"}]}",
     TERN_ERR_UNSUPPORTED, "more than 8"},
};

/* ---- unigram ---- */

static const char scored[] =
    "{\"pre_tokenizer\": {\"type\": \"Metaspace\", \"replacement\": \"_\"},\n"
    "\"decoder\": {\"type\": \"Metaspace\", \"replacement\": \"_\"},\n"
    "\"model\": {\"type\": \"Unigram\", \"unk_id\": 0, \"vocab\": [[\"<unk>\", 0], [\"_\", -1.5], "
    "[\"a\", -2]]}}";

static const struct refusal of_scored[] = {
    {"\"unk_id\": 0", "\"unk_id\": null", TERN_ERR_INPUT, "unk_id"},
    {"\"unk_id\": 0", "\"unk_id\": 3", TERN_ERR_INPUT, "unk_id|3"},
    {"\"unk_id\": 0", "\"unk_id\": -1", TERN_ERR_INPUT, "unk_id"},
    {"[\"a\", -2]", "[\"a\"]", TERN_ERR_INPUT, "vocab[2]|score"},
    {"[\"a\", -2]", "[\"a\", \"b\"]", TERN_ERR_INPUT, "vocab[2]"},
    {"[\"a\", -2]", "[-2, \"a\"]", TERN_ERR_INPUT, "vocab[2]"},
    {"[\"a\", -2]", "7", TERN_ERR_INPUT, "vocab[2]"},
    {"[\"a\", -2]", "[\"\", -2]", TERN_ERR_INPUT, "id 2|0 bytes"},
    {"\"vocab\": [", "\"vocab\": {}, \"x\": [", TERN_ERR_INPUT, "model.vocab|an object|an array"},
    {"\"vocab\": [", "\"vocab\": [], \"x\": [", TERN_ERR_INPUT, "unk_id|0"},
    {"[\"a\", -2]", "[\"a\", 1e999]", TERN_ERR_INPUT, "JSON"},
};

static void test_characters_and_scores(void **state)
{
    (void)state;
    struct tern_tokenizer *tokenizer;
    write_file("good.json", characters, sizeof characters - 1);
    assert_ok(tern_tokenizer_open(at("good.json"), &tokenizer));
    tern_tokenizer_close(tokenizer);
    assert_refusals(characters, of_characters, COUNT(of_characters), "characters");
    write_file("good.json", scored, sizeof scored - 1);
    assert_ok(tern_tokenizer_open(at("good.json"), &tokenizer));
    tern_tokenizer_close(tokenizer);
    assert_refusals(scored, of_scored, COUNT(of_scored), "scored");
}

/* Arrays in arrays, deeper than any stack should be asked for. */
static void test_depth(void **state)
{
    (void)state;
    static char deep[1 << 20];
    memset(deep, '[', sizeof deep);
    write_file("deep.json", deep, sizeof deep);
    struct tern_tokenizer *tokenizer;
    assert_fails(tern_tokenizer_open(at("deep.json"), &tokenizer), TERN_ERR_INPUT,
                 "deep.json|depth");
    static const char *const kinds[] = {"{\"normalizer\":", "{\"model\":", "{\"added_tokens\":"};
    for (size_t i = 0; i < COUNT(kinds); i++) {
        memset(deep, '[', sizeof deep);
        memcpy(deep, kinds[i], strlen(kinds[i]));
        write_file("deep.json", deep, sizeof deep);
        assert_fails(tern_tokenizer_open(at("deep.json"), &tokenizer), TERN_ERR_INPUT, "depth");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_byte_level),
        cmocka_unit_test(test_characters_and_scores),
        cmocka_unit_test(test_depth),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
