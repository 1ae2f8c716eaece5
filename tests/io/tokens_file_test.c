/* tokens_file_test.c - shards: every format read, every defect named, what is written and when
 * it gets its name. */
#include "io/tokens_file.h"
#include "io/tokens_prepare.h"
#include "runtime/base/fault.h"
#include "tests/io/shards.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

static const int32_t some_ids[] = {5, 0, 119, 7, 7, 42, 1, 99, 3, 12};
enum {
    SOME = sizeof some_ids / sizeof some_ids[0]
};

static void assert_shard_holds(const char *path,
                               const int32_t *ids,
                               int64_t count,
                               const char *dtype)
{
    struct tern_shard *shard = tern_alloc("test shard", sizeof *shard);
    assert_ok(tern_shard_open(path, true, shard));
    assert_int_equal(shard->tokens, count);
    assert_string_equal(shard->dtype, dtype);
    for (int64_t i = 0; i < count; i++) {
        assert_int_equal(tern_shard_token(shard, i), ids[i]);
    }
    tern_shard_close(shard);
    tern_free(shard);
}

static void test_reads_llmc(void **state)
{
    (void)state;
    write_llmc("a.bin", 20240520, 1, SOME, some_ids, 2);
    assert_shard_holds(at("a.bin"), some_ids, SOME, "uint16");
    static const int32_t large[] = {128000, 0, 70000, 65535, 65536};
    write_llmc("b.bin", 20240801, 7, 5, large, 4);
    assert_shard_holds(at("b.bin"), large, 5, "uint32");
}

static void test_reads_megatron(void **state)
{
    (void)state;
    static const struct {
        int code, bytes;
        const char *dtype;
    } kinds[] = {
        {1, 1, "uint8"}, {3, 2, "int16"}, {4, 4, "int32"}, {5, 8, "int64"}, {8, 2, "uint16"}};
    static const int32_t documents[] = {4, 5, 1};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        write_megatron("m", kinds[i].code, kinds[i].bytes, some_ids, documents, 3);
        assert_shard_holds(at("m"), some_ids, SOME, kinds[i].dtype);
        assert_shard_holds(at("m.bin"), some_ids, SOME, kinds[i].dtype);
        assert_shard_holds(at("m.idx"), some_ids, SOME, kinds[i].dtype);
    }
}

/* ---- defects ---- */

struct defect {
    const char *file; /* what is changed: "m.idx", "m.bin" or "l.bin" */
    int64_t length;   /* cut or grown to this; -1: as it is */
    int64_t offset;   /* -1: nothing overwritten */
    int64_t value;
    int bytes;
    const char *words;
};

/* m: 3 documents of 4, 5, 1 tokens, uint16; its index has 34 + 3 * 12 + 4 * 8 = 102 bytes. l: 10
 * tokens uint16. */
static const struct defect defects[] = {
    {"m.idx", 0, -1, 0, 0, "m.idx|byte 0|at least 34"},
    {"m.idx", 33, -1, 0, 0, "m.idx|byte 33|at least 34"},
    {"m.idx", 34, -1, 0, 0, "m.idx|byte 18|3 sequences"},
    {"m.idx", 101, -1, 0, 0, "m.idx|byte 101|102 bytes|3 sequences|4 document"},
    {"m.idx", 103, -1, 0, 0, "m.idx|byte 103|102 bytes"},
    {"m.idx", -1, 0, 'X', 1, "m.idx|byte 0|58 4d 49|MMIDIDX"},
    {"m.idx", -1, 8, 1, 1, "m.idx|byte 0|MMIDIDX"},
    {"m.idx", -1, 9, 2, 8, "m.idx|byte 9|version 2|expected 1"},
    {"m.idx", -1, 17, 0, 1, "m.idx|byte 17|code 0|8 (uint16)"},
    {"m.idx", -1, 17, 7, 1, "m.idx|byte 17|code 7|4 (int32)"},
    {"m.idx", -1, 17, 9, 1, "m.idx|byte 17|code 9"},
    {"m.idx", -1, 17, 4, 1, "m.idx|byte 54|sequence 1|byte 8|expected 16"},
    {"m.idx", -1, 18, 0, 8, "m.idx|byte 18|0 sequences|expected 1 to"},
    {"m.idx", -1, 18, 4, 8, "m.idx|byte 102|4 sequences"},
    {"m.idx", -1, 18, -1, 8, "m.idx|byte 18|18446744073709551615 sequences"},
    {"m.idx", -1, 26, 1, 8, "m.idx|byte 26|1 document borders|expected 2"},
    {"m.idx", -1, 26, INT64_MAX, 8, "m.idx|byte 26|9223372036854775807"},
    {"m.idx", -1, 26, 5, 8, "m.idx|byte 102|110 bytes"},
    {"m.idx", -1, 34, -4, 4, "m.idx|byte 34|size -4|sequence 0"},
    {"m.idx", -1, 34, 5, 4, "m.idx|byte 54|sequence 1|byte 8|expected 10"},
    {"m.idx", -1, 42, 2, 4, "m.bin|byte 20|expected 22 bytes|m.idx"},
    {"m.idx", -1, 46, 2, 8, "m.idx|byte 46|sequence 0|byte 2|expected 0"},
    {"m.idx", -1, 54, 10, 8, "m.idx|byte 54|sequence 1|byte 10|expected 8"},
    {"m.idx", -1, 62, INT64_MIN, 8, "m.idx|byte 62|sequence 2"},
    {"m.idx", -1, 70, 1, 8, "m.idx|byte 70|border 1|expected 0 to 0"},
    {"m.idx", -1, 78, 4, 8, "m.idx|byte 78|border 4|expected 0 to 3"},
    {"m.idx", -1, 86, 0, 8, "m.idx|byte 86|border 0|expected 1 to 3"},
    {"m.idx", -1, 94, 2, 8, "m.idx|byte 94|last document border 2|expected 3"},
    {"m.bin", 0, -1, 0, 0, "m.bin|byte 0|at least 2 bytes|one token"},
    {"m.bin", 18, -1, 0, 0, "m.bin|byte 18|expected 20 bytes|m.idx"},
    {"m.bin", 19, -1, 0, 0, "m.bin|byte 19|expected 20 bytes"},
    {"m.bin", 22, -1, 0, 0, "m.bin|byte 22|expected 20 bytes"},
    {"l.bin", 0, -1, 0, 0, "l.bin|byte 0|at least 1024|llm.c|no .idx"},
    {"l.bin", 1023, -1, 0, 0, "l.bin|byte 1023|at least 1024"},
    {"l.bin", 1024, -1, 0, 0, "l.bin|byte 1024|1044 bytes|10 tokens"},
    {"l.bin", 1043, -1, 0, 0, "l.bin|byte 1043|1044 bytes"},
    {"l.bin", 1046, -1, 0, 0, "l.bin|byte 1046|1044 bytes"},
    {"l.bin", -1, 0, 20240521, 4, "l.bin|byte 0|20240521|20240520|20240801|.idx"},
    {"l.bin", -1, 4, 2, 4, "l.bin|byte 4|version 2|expected 1"},
    {"l.bin", -1, 0, 20240801, 4, "l.bin|byte 4|version 1|expected 7"},
    {"l.bin", -1, 8, 0, 4, "l.bin|byte 8|0 tokens|at least 1"},
    {"l.bin", -1, 8, -10, 4, "l.bin|byte 8|-10 tokens"},
    {"l.bin", -1, 8, 11, 4, "l.bin|byte 1044|1046 bytes|11 tokens|uint16"},
};

static void test_every_defect_is_named(void **state)
{
    (void)state;
    static const int32_t documents[] = {4, 5, 1};
    struct tern_shard *shard = tern_alloc("test shard", sizeof *shard);
    for (size_t i = 0; i < sizeof defects / sizeof defects[0]; i++) {
        const struct defect *defect = &defects[i];
        write_megatron("m", 8, 2, some_ids, documents, 3);
        write_llmc("l.bin", 20240520, 1, SOME, some_ids, 2);
        int fd = open(at(defect->file), O_RDWR);
        assert_true(fd >= 0);
        if (defect->length >= 0) {
            assert_int_equal(ftruncate(fd, defect->length), 0);
        }
        if (defect->offset >= 0) {
            assert_int_equal(pwrite(fd, &defect->value, (size_t)defect->bytes, defect->offset),
                             defect->bytes);
        }
        close(fd);
        const char *opened = defect->file[0] == 'm' ? at("m.bin") : at("l.bin");
        assert_fails(tern_shard_open(opened, true, shard), TERN_ERR_INPUT, defect->words);
        assert_fails(tern_shard_open(opened, false, shard), TERN_ERR_INPUT, defect->words);
    }
    assert_fails(tern_shard_open(at("nothing"), true, shard), TERN_ERR_NOT_FOUND,
                 "nothing.idx|nothing.bin");
    assert_int_equal(unlink(at("m.bin")), 0);
    assert_fails(tern_shard_open(at("m.idx"), true, shard), TERN_ERR_NOT_FOUND, "m.bin");
    assert_fails(tern_shard_open(at("l.idx"), true, shard), TERN_ERR_NOT_FOUND, "l.idx");
    tern_free(shard);
}

/* ---- writing ---- */

static void add_document(struct tern_shard_writer *writer, const int32_t *ids, int64_t count)
{
    assert_ok(tern_shard_writer_add(writer, ids, count));
    assert_ok(tern_shard_writer_end_document(writer));
}

static struct tern_shard_part *new_parts(void)
{
    struct tern_shard_part *parts = tern_alloc_zero("test parts", 2, sizeof *parts);
    assert_non_null(parts);
    return parts;
}

static void assert_same_file(const char *a, const char *b)
{
    char *left, *right;
    size_t left_bytes, right_bytes;
    assert_ok(tern_file_read(at(a), 1 << 24, &left, &left_bytes));
    assert_ok(tern_file_read(at(b), 1 << 24, &right, &right_bytes));
    assert_int_equal(left_bytes, right_bytes);
    assert_memory_equal(left, right, left_bytes);
    tern_free(left);
    tern_free(right);
}

static void test_writes_megatrons_layout(void **state)
{
    (void)state;
    static const int32_t documents[] = {4, 5, 1};
    struct tern_shard_part *parts = new_parts();
    for (int wide = 0; wide < 2; wide++) {
        int64_t vocab = wide ? 65500 : 65499;
        write_megatron("expected", wide ? 4 : 8, wide ? 4 : 2, some_ids, documents, 3);
        struct tern_shard_writer *writer;
        assert_ok(tern_shard_writer_open(at("w"), vocab, 0, &writer));
        add_document(writer, some_ids, 4);
        add_document(writer, some_ids + 4, 5);
        add_document(writer, some_ids, 0); /* nothing: no document */
        add_document(writer, some_ids + 9, 1);
        int count;
        assert_ok(tern_shard_writer_commit(writer, 0, parts, &count));
        tern_shard_writer_close(writer);
        assert_int_equal(count, 1);
        assert_int_equal(parts[0].tokens, SOME);
        assert_int_equal(parts[0].documents, 3);
        assert_same_file("w.bin", "expected.bin");
        assert_same_file("w.idx", "expected.idx");
        assert_false(tern_file_exists(at("w.bin.tmp")));
        assert_false(tern_file_exists(at("w.idx.tmp")));
        assert_false(tern_file_exists(at("w.documents.tmp")));
    }
    tern_free(parts);
}

/* A small limit stands for 2^30 tokens. */
static void test_long_documents_become_sequences(void **state)
{
    (void)state;
    struct tern_shard_writer *writer;
    struct tern_shard_part *parts = new_parts();
    int count;
    assert_ok(tern_shard_writer_open(at("q"), 120, 4, &writer));
    add_document(writer, some_ids, 9); /* 4 + 4 + 1 */
    add_document(writer, some_ids, 4);
    assert_ok(tern_shard_writer_commit(writer, 0, parts, &count));
    tern_shard_writer_close(writer);
    struct tern_shard *shard = tern_alloc("test shard", sizeof *shard);
    assert_ok(tern_shard_open(at("q"), true, shard));
    assert_int_equal(shard->documents, 2);
    assert_int_equal(shard->sequences, 4);
    assert_int_equal(shard->tokens, 13);
    tern_shard_close(shard);
    char *idx;
    size_t bytes;
    assert_ok(tern_file_read(at("q.idx"), 1 << 20, &idx, &bytes));
    static const int32_t sizes[] = {4, 4, 1, 4};
    static const int64_t pointers[] = {0, 8, 16, 18};
    static const int64_t borders[] = {0, 3, 4};
    assert_memory_equal(idx + 34, sizes, sizeof sizes);
    assert_memory_equal(idx + 34 + 16, pointers, sizeof pointers);
    assert_memory_equal(idx + 34 + 48, borders, sizeof borders);
    tern_free(idx);
    tern_free(shard);
    tern_free(parts);
}

/* Documents of 10 tokens; the last ones are held out, nothing is lost, doubled or reordered. */
static void test_splits_at_documents(void **state)
{
    (void)state;
    static const struct {
        int documents;
        double fraction;
        int train_documents;
    } cases[] = {{10, 0.2, 8}, {10, 0.01, 9}, {10, 0.999, 1},
                 {3, 0.5, 2},  {2, 0.5, 1},   {7, 0.3, 5}};
    struct tern_shard_part *parts = new_parts();
    struct tern_shard *shard = tern_alloc("test shard", sizeof *shard);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tern_shard_writer *writer;
        assert_ok(tern_shard_writer_open(at("v"), 1000, 4, &writer));
        for (int32_t d = 0; d < cases[i].documents; d++) {
            int32_t ids[10];
            for (int32_t t = 0; t < 10; t++) {
                ids[t] = d * 10 + t;
            }
            add_document(writer, ids, 10);
        }
        int count;
        assert_ok(tern_shard_writer_commit(writer, cases[i].fraction, parts, &count));
        tern_shard_writer_close(writer);
        assert_int_equal(count, 2);
        assert_string_equal(parts[0].prefix, at("v_train"));
        assert_string_equal(parts[1].prefix, at("v_val"));
        assert_int_equal(parts[0].documents, cases[i].train_documents);
        assert_int_equal(parts[0].documents + parts[1].documents, cases[i].documents);
        int32_t next = 0;
        for (int p = 0; p < 2; p++) {
            assert_ok(tern_shard_open(parts[p].prefix, true, shard));
            assert_int_equal(shard->documents, parts[p].documents);
            assert_int_equal(shard->sequences, parts[p].documents * 3);
            for (int64_t t = 0; t < shard->tokens; t++) {
                assert_int_equal(tern_shard_token(shard, t), next++);
            }
            tern_shard_close(shard);
        }
        assert_int_equal(next, cases[i].documents * 10);
    }
    tern_free(shard);
    tern_free(parts);
}

static void test_splits_one_document_at_a_token(void **state)
{
    (void)state;
    static const struct {
        double fraction;
        int64_t train;
    } cases[] = {{0.2, 8}, {0.001, 9}, {0.999, 1}, {0.55, 5}};
    struct tern_shard_part *parts = new_parts();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct tern_shard_writer *writer;
        int count;
        assert_ok(tern_shard_writer_open(at("one"), 1000, 3, &writer));
        add_document(writer, some_ids, SOME);
        assert_ok(tern_shard_writer_commit(writer, cases[i].fraction, parts, &count));
        tern_shard_writer_close(writer);
        assert_int_equal(parts[0].tokens, cases[i].train);
        assert_shard_holds(at("one_train"), some_ids, cases[i].train, "uint16");
        assert_shard_holds(at("one_val"), some_ids + cases[i].train, SOME - cases[i].train,
                           "uint16");
    }
    tern_free(parts);
}

static void test_nothing_changes_before_the_commit(void **state)
{
    (void)state;
    static const int32_t documents[] = {SOME};
    write_megatron("kept", 8, 2, some_ids, documents, 1);
    struct tern_shard_part *parts = new_parts();
    struct tern_shard_writer *writer, *second;
    int count;
    assert_ok(tern_shard_writer_open(at("kept"), 120, 0, &writer));
    assert_fails(tern_shard_writer_open(at("kept"), 120, 0, &second), TERN_ERR_BUSY,
                 "kept.bin.tmp|another process");
    assert_null(second);
    add_document(writer, some_ids, 3);
    tern_shard_writer_close(writer);
    assert_shard_holds(at("kept"), some_ids, SOME, "uint16");
    assert_false(tern_file_exists(at("kept.bin.tmp")));

    write_file("kept.bin.tmp", "left by a killed run", 20);
    assert_ok(tern_shard_writer_open(at("kept"), 120, 0, &writer));
    add_document(writer, some_ids + 2, 3);
    assert_ok(tern_shard_writer_commit(writer, 0, parts, &count));
    tern_shard_writer_close(writer);
    assert_shard_holds(at("kept"), some_ids + 2, 3, "uint16");

    assert_ok(tern_shard_writer_open(at("kept"), 120, 0, &writer));
    assert_fails(tern_shard_writer_commit(writer, 0, parts, &count), TERN_ERR_INPUT,
                 "0 tokens|kept");
    int32_t beyond = 120;
    assert_fails(tern_shard_writer_add(writer, &beyond, 1), TERN_ERR_ARGUMENT, "id 120|119");
    tern_shard_writer_close(writer);
    assert_fails(tern_shard_writer_open(at("no/folder/x"), 120, 0, &writer), TERN_ERR_NOT_FOUND,
                 "no/folder/x.bin.tmp");
    assert_shard_holds(at("kept"), some_ids + 2, 3, "uint16");
    tern_free(parts);
}

/* Between the two renames there may be no pair, but never one of old and new. */
static void assert_not_mixed(const char *path)
{
    struct tern_shard *shard = tern_alloc("test shard", sizeof *shard);
    if (tern_shard_open(path, true, shard) == TERN_OK) {
        assert_true(shard->tokens == SOME || shard->tokens == 4);
        tern_shard_close(shard);
    }
    tern_free(shard);
}

/* The n-th write or fsync fails, for n = 1, 2, ... until it succeeds: an old pair stays whole as
 * long as the new one is not durable. */
static void test_a_full_disk_leaves_the_old_pair(void **state)
{
    (void)state;
#if TERN_FAULTS
    static const char *const faults[] = {"file.write@%d:enospc", "file.fsync@%d:eio"};
    static const int32_t documents[] = {SOME};
    struct tern_shard_part *parts = new_parts();
    for (int kind = 0; kind < 2; kind++) {
        bool succeeded = false;
        int failures = 0;
        for (int n = 1; !succeeded; n++) {
            write_megatron("full", 8, 2, some_ids, documents, 1);
            char fault[64];
            snprintf(fault, sizeof fault, faults[kind], n);
            assert_int_equal(setenv("TERN_FAULT", fault, 1), 0);
            assert_ok(tern_fault_init());
            struct tern_shard_writer *writer;
            int count;
            assert_ok(tern_shard_writer_open(at("full"), 120, 0, &writer));
            add_document(writer, some_ids, 4);
            tern_status status = tern_shard_writer_commit(writer, 0, parts, &count);
            tern_shard_writer_close(writer);
            succeeded = status == TERN_OK;
            if (!succeeded) {
                failures++;
                assert_fails(status, kind == 0 ? TERN_ERR_NO_SPACE : TERN_ERR_IO, g_folder);
                if (strstr(tern_detail(), "sync folder") == NULL) {
                    assert_shard_holds(at("full"), some_ids, SOME, "uint16");
                } else {
                    assert_not_mixed(at("full"));
                }
                assert_false(tern_file_exists(at("full.bin.tmp")));
                assert_false(tern_file_exists(at("full.idx.tmp")));
            }
        }
        assert_true(failures >= 2);
        assert_shard_holds(at("full"), some_ids, 4, "uint16");
    }
    assert_int_equal(unsetenv("TERN_FAULT"), 0);
    tern_fault_armed = 0;
    tern_free(parts);
#endif
}

/* ---- texts ---- */

static char *g_text; /* what the shard at g_prepared holds, special tokens included */

static void read_back(const struct tern_tokenizer *tokenizer, const char *path)
{
    struct tern_shard *shard = tern_alloc("test shard", sizeof *shard);
    assert_ok(tern_shard_open(path, true, shard));
    int32_t *ids = tern_alloc("test ids", (size_t)shard->tokens * sizeof *ids);
    for (int64_t i = 0; i < shard->tokens; i++) {
        ids[i] = (int32_t)tern_shard_token(shard, i);
    }
    size_t bytes;
    tern_free(g_text);
    assert_ok(tern_tokenizer_decode(tokenizer, ids, shard->tokens, false, &g_text, &bytes));
    tern_free(ids);
    tern_shard_close(shard);
    tern_free(shard);
}

static void test_prepares_texts(void **state)
{
    (void)state;
#define EOS "<|endoftext|>"
    static const struct {
        const char *name, *text;
        enum tern_text_format format;
        bool plain_specials;
        int64_t documents, empty;
        const char *expected;
    } cases[] = {
        {"a.txt", "the fox\n\nthe dog\n", TERN_TEXT_BY_NAME, false, 1, 0,
         "the fox\n\nthe dog\n" EOS},
        {"a.txt", "one" EOS "two\n" EOS EOS "three", TERN_TEXT_BY_NAME, false, 3, 0,
         "one" EOS "two\n" EOS "three" EOS},
        {"a.txt", EOS "one" EOS, TERN_TEXT_BY_NAME, false, 1, 0, "one" EOS},
        {"a.txt", "one" EOS "two", TERN_TEXT_BY_NAME, true, 1, 0, "one" EOS "two" EOS},
        {"a.md", "x\ny", TERN_TEXT_BY_NAME, false, 1, 0, "x\ny" EOS},
        {"a.txt", "x\n\ny\nz", TERN_TEXT_LINES, false, 3, 1, "x" EOS "y" EOS "z" EOS},
        {"a.jsonl",
         "{\"text\": \"caf\\u00e9\\n\"}\n\n  \n{\"id\": 1, \"text\": \"\"}\n{\"text\": \"b\", "
         "\"x\": [1]}",
         TERN_TEXT_BY_NAME, false, 2, 1, "caf\xc3\xa9\n" EOS "b" EOS},
        {"a.dat", "{\"text\": \"x\"}\r\n{\"text\": \"y\"}\r\n", TERN_TEXT_JSONL, false, 2, 0,
         "x" EOS "y" EOS},
        {"a.txt", "bytes \xff\xfe \x80", TERN_TEXT_BY_NAME, false, 1, 0, "bytes \xff\xfe \x80" EOS},
    };
#undef EOS
    struct tern_tokenizer *tokenizer = train_small(300);
    struct tern_prepared *prepared = tern_alloc("test prepared", sizeof *prepared);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        write_file(cases[i].name, cases[i].text, strlen(cases[i].text));
        const char *const paths[] = {at(cases[i].name)};
        struct tern_prepare prepare = {.paths = paths,
                                       .path_count = 1,
                                       .tokenizer = tokenizer,
                                       .out_prefix = at("prepared"),
                                       .format = cases[i].format,
                                       .plain_specials = cases[i].plain_specials};
        assert_ok(tern_tokens_prepare(&prepare, prepared));
        assert_int_equal(prepared->parts[0].documents, cases[i].documents);
        assert_int_equal(prepared->empty_documents, cases[i].empty);
        assert_int_equal(prepared->text_bytes, strlen(cases[i].text));
        read_back(tokenizer, at("prepared"));
        assert_string_equal(g_text, cases[i].expected);
    }
    tern_free(g_text);
    g_text = NULL;
    tern_free(prepared);
    tern_tokenizer_close(tokenizer);
}

/* Standard input, from a pipe, longer than its blocks: the same shard as from the file. */
static void test_prepares_a_pipe(void **state)
{
    (void)state;
    struct tern_tokenizer *tokenizer = train_small(300);
    struct tern_text text;
    tern_text_init(&text);
    for (uint64_t i = 0; text.length < 3 << 20; i++) {
        assert_ok(tern_text_printf(&text, "%s%llu", draw(1, i) % 3 ? " the" : "\n\n  fox's",
                                   (unsigned long long)i));
    }
    write_file("long.txt", text.data, text.length);
    struct tern_prepared *prepared = tern_alloc("test prepared", sizeof *prepared);
    const char *const file_paths[] = {at("long.txt")};
    const char *const pipe_paths[] = {"-"};
    struct tern_prepare prepare = {.paths = file_paths,
                                   .path_count = 1,
                                   .tokenizer = tokenizer,
                                   .out_prefix = at("from_file")};
    assert_ok(tern_tokens_prepare(&prepare, prepared));
    assert_int_equal(prepared->text_bytes, text.length);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        size_t done = 0;
        while (done < text.length) {
            size_t step = text.length - done < 7777 ? text.length - done : 7777;
            ssize_t written = write(ends[1], text.data + done, step);
            if (written <= 0) {
                _exit(1);
            }
            done += (size_t)written;
        }
        _exit(0);
    }
    close(ends[1]);
    int kept = dup(STDIN_FILENO);
    assert_int_equal(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    close(ends[0]);
    prepare.paths = pipe_paths;
    prepare.out_prefix = at("from_pipe");
    assert_ok(tern_tokens_prepare(&prepare, prepared));
    assert_int_equal(prepared->text_bytes, text.length);
    if (kept >= 0) {
        dup2(kept, STDIN_FILENO);
        close(kept);
    }
    int child_status;
    assert_int_equal(waitpid(child, &child_status, 0), child);
    assert_int_equal(child_status, 0);
    assert_same_file("from_file.bin", "from_pipe.bin");
    assert_same_file("from_file.idx", "from_pipe.idx");
    tern_text_fini(&text);
    tern_free(prepared);
    tern_tokenizer_close(tokenizer);
}

static void test_refused_texts(void **state)
{
    (void)state;
    static const struct {
        const char *name, *text;
        tern_status status;
        const char *words;
    } cases[] = {
        {"r.jsonl", "{\"text\": \"a\"}\n{\"text\": \"b\"\n", TERN_ERR_INPUT,
         "r.jsonl|line 2 (byte 14)|JSON"},
        {"r.jsonl", "{\"text\": \"a\"}\n\n{\"txt\": \"b\"}", TERN_ERR_INPUT,
         "r.jsonl|line 3|nothing|\"text\""},
        {"r.jsonl", "{\"text\": 5}", TERN_ERR_INPUT, "r.jsonl|line 1|a number|\"text\""},
        {"r.jsonl", "[1]", TERN_ERR_INPUT, "line 1|an array|an object"},
        {"r.jsonl", "{\"text\": \"\xff\"}", TERN_ERR_INPUT, "line 1|JSON"},
        {"r.txt", "", TERN_ERR_INPUT, "0 tokens|at least 1"},
        {NULL, "missing.txt", TERN_ERR_NOT_FOUND, "missing.txt"},
        {NULL, "", TERN_ERR_INPUT, "folder"},
    };
    struct tern_tokenizer *tokenizer = train_small(300);
    struct tern_prepared *prepared = tern_alloc("test prepared", sizeof *prepared);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        if (cases[i].name != NULL) {
            write_file(cases[i].name, cases[i].text, strlen(cases[i].text));
        }
        const char *const paths[] = {at(cases[i].name != NULL ? cases[i].name : cases[i].text)};
        struct tern_prepare prepare = {
            .paths = paths, .path_count = 1, .tokenizer = tokenizer, .out_prefix = at("refused")};
        assert_fails(tern_tokens_prepare(&prepare, prepared), cases[i].status, cases[i].words);
        assert_false(tern_file_exists(at("refused.bin")));
        assert_false(tern_file_exists(at("refused.bin.tmp")));
        assert_false(tern_file_exists(at("refused.documents.tmp")));
        prepare.val_fraction = 1;
        assert_fails(tern_tokens_prepare(&prepare, prepared), TERN_ERR_USAGE, "fraction 1");
    }
    tern_free(prepared);
    tern_tokenizer_close(tokenizer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reads_llmc),
        cmocka_unit_test(test_reads_megatron),
        cmocka_unit_test(test_every_defect_is_named),
        cmocka_unit_test(test_writes_megatrons_layout),
        cmocka_unit_test(test_long_documents_become_sequences),
        cmocka_unit_test(test_splits_at_documents),
        cmocka_unit_test(test_splits_one_document_at_a_token),
        cmocka_unit_test(test_nothing_changes_before_the_commit),
        cmocka_unit_test(test_a_full_disk_leaves_the_old_pair),
        cmocka_unit_test(test_prepares_texts),
        cmocka_unit_test(test_prepares_a_pipe),
        cmocka_unit_test(test_refused_texts),
    };
    return cmocka_run_group_tests(tests, fixture_make, fixture_remove);
}
