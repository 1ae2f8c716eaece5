/* cases.c - the table of op cases. */
#include "tests/kernels/cases.h"

#include "runtime/base/check.h"
#include "runtime/base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    CASES_MAX = 4096
};

static const char *const g_dims[TERN_OP_COUNT][TERN_CASE_DIMS] = {
    [TERN_OP_EMBED_FWD] = {"n", "t", "c", "v", "wpe", "first", "docs", "scaled", "stored",
                            "places", "packed"},
    [TERN_OP_EMBED_BWD] = {"n", "t", "c", "v", "wpe", "first", "docs", "scaled", "stored"},
    [TERN_OP_NORM_FWD] = {"n", "c", "rms", "residual", "inplace", "beta", "stats", "acc", "heads",
                          "layout"},
    [TERN_OP_NORM_BWD] = {"n", "c", "rms", "residual", "inplace", "beta", "stats", "acc", "heads",
                          "layout"},
    [TERN_OP_GEMM] = {"m", "n", "k", "ta", "tb", "acc", "epilogue", "mix", "pad", "stored",
                      "packed"},
    [TERN_OP_BIAS_BWD] = {"rows", "n", "pad", "acc"},
    [TERN_OP_GEMM_BIAS_BWD] = {"m", "n", "k", "acc", "of_a", "turned", "pad"},
    [TERN_OP_ATTENTION_FWD] = {"b", "tq", "tkv", "h", "k", "d", "layout", "window", "lse", "docs",
                               "cap"},
    [TERN_OP_ATTENTION_BWD] = {"b", "tq", "tkv", "h", "k", "d", "layout", "window", "lse", "docs",
                               "cap"},
    [TERN_OP_KV_WRITE] = {"s", "rows", "length", "h", "k", "d", "window", "cap", "kept", "pad"},
    [TERN_OP_PAGED_ATTENTION] = {"s", "rows", "length", "h", "k", "d", "window", "cap", "kept",
                                 "pad"},
    [TERN_OP_ROPE] = {"n", "t", "heads", "d", "pad", "first", "bwd", "docs", "part", "places"},
    [TERN_OP_ACT_FWD] = {"n", "act"},
    [TERN_OP_ACT_BWD] = {"n", "act", "inplace"},
    [TERN_OP_GLU_FWD] = {"n", "f", "act"},
    [TERN_OP_GLU_BWD] = {"n", "f", "act"},
    [TERN_OP_ADD] = {"n", "alias", "scaled"},
    [TERN_OP_CROSS_ENTROPY] = {"rows", "v", "pad", "bwd", "ignore", "half", "cap"},
    [TERN_OP_ADAMW] = {"n", "copy", "step"},
    [TERN_OP_SUMSQ] = {"blocks", "n", "plain"},
    [TERN_OP_CLIP] = {"blocks", "losses", "limit"},
    [TERN_OP_CAST] = {"n", "from", "to"},
    [TERN_OP_SOFTCAP] = {"n", "cap", "inplace"},
    [TERN_OP_MOE_ROUTE] = {"n", "experts", "top", "normalise"},
    [TERN_OP_MOE_COMBINE] = {"n", "top", "c"},
    [TERN_OP_PACK] = {"n", "k", "pad", "trans", "stored", "packed"},
};

static const char *const g_data[TERN_DATA_COUNT] = {"normal", "mean",  "denormal", "one_hot",
                                                    "equal",  "large", "zero"};

static struct tern_case *g_cases;
static int g_count;

#define DIMS(...) ((const int64_t[TERN_CASE_DIMS]){__VA_ARGS__})

static void add_use(enum tern_op op,
                    enum tern_case_data data,
                    enum tern_case_use use,
                    const int64_t *dim)
{
    TERN_CHECK(g_count < CASES_MAX);
    struct tern_case *c = &g_cases[g_count++];
    *c = (struct tern_case){.op = op, .data = data, .use = use};
    memcpy(c->dim, dim, sizeof c->dim);
}

static void add(enum tern_op op, enum tern_case_data data, const int64_t *dim)
{
    add_use(op, data, TERN_USE_TEST, dim);
}

static void bench(enum tern_op op, const int64_t *dim)
{
    add_use(op, TERN_DATA_NORMAL, TERN_USE_BENCH, dim);
}

static void add_embed(void)
{
    static const int64_t widths[] = {1, 15, 16, 17, 64, 127, 768, 1027};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t c = widths[i];
        add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(12, 4, c, 9, 1, 3));
        add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(7, 7, c, 300, 0, 0));
        add(TERN_OP_EMBED_BWD, TERN_DATA_NORMAL, DIMS(12, 4, c, 9, 1));
        add(TERN_OP_EMBED_BWD, TERN_DATA_NORMAL, DIMS(35, 7, c, 5, 0));
    }
    add(TERN_OP_EMBED_FWD, TERN_DATA_DENORMAL, DIMS(6, 3, 33, 4, 1, 0));
    add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(1, 1, 64, 1, 1, 11));
    add(TERN_OP_EMBED_BWD, TERN_DATA_EQUAL, DIMS(300, 100, 40, 1, 1));
    add(TERN_OP_EMBED_BWD, TERN_DATA_NORMAL, DIMS(256, 64, 70, 50, 1));
    /* where rows are sorted by id: several tiles; ids of one, two and three bytes; long and short runs */
    add(TERN_OP_EMBED_BWD, TERN_DATA_NORMAL, DIMS(2304, 48, 4, 5, 1));
    add(TERN_OP_EMBED_BWD, TERN_DATA_NORMAL, DIMS(2300, 100, 8, 300, 0));
    add(TERN_OP_EMBED_BWD, TERN_DATA_NORMAL, DIMS(1100, 100, 4, 70000, 0));
    for (int64_t docs = 1; docs < 6; docs++) {
        add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(33, 11, 20, 9, 1, docs % 2, docs));
        add(TERN_OP_EMBED_BWD, TERN_DATA_NORMAL, DIMS(33, 11, 20, 9, 1, 0, docs));
    }
    add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(13, 40, 33, 9, 1, 0, 0, 1, 0, 1));
    add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(5, 7, 64, 9, 1, 0, 0, 0, 0, 1));
    bench(TERN_OP_EMBED_FWD, DIMS(1024, 256, 768, 50257, 1, 0));
    bench(TERN_OP_EMBED_BWD, DIMS(1024, 256, 768, 50257, 1));
}

static void add_norm_kind(int64_t rms)
{
    static const int64_t widths[] = {1, 2, 15, 16, 17, 63, 64, 65, 80, 320, 768, 1027};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t c = widths[i], beta = !rms;
        add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL, DIMS(3, c, rms, 0, 0, beta, 1));
        add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL, DIMS(5, c, rms, 1, (int64_t)(i & 1), beta, 1));
        add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(5, c, rms, 0, 0, beta, 1, (int64_t)(i & 1)));
        add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(9, c, rms, 1, (int64_t)(i & 1), beta, 1, 1));
    }
    static const int64_t wide[] = {512, 1536, 4096, 9216,
                                   16640}; /* held by warps, blocks, or not */
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++) {
        add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL,
            DIMS(4, wide[i], rms, 1, (int64_t)(i & 1), !rms, 1));
        add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(9, wide[i], rms, 1, 0, !rms, 1, 1));
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        add(TERN_OP_NORM_FWD, (enum tern_case_data)data, DIMS(4, 768, rms, 0, 0, !rms, 1));
        add(TERN_OP_NORM_FWD, (enum tern_case_data)data, DIMS(2, 131, rms, 1, 0, 0, 0));
        add(TERN_OP_NORM_BWD, (enum tern_case_data)data, DIMS(6, 131, rms, 1, 0, !rms, 1, 1));
    }
    add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL, DIMS(1, 64, rms, 0, 0, 0, 0));
    add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(1, 64, rms, 0, 0, 0, 1, 0));
    add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(300, 96, rms, 1, 1, !rms, 1, 1));
    add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(4200, 512, rms, 1, 1, !rms, 1, 1));
    bench(TERN_OP_NORM_FWD, DIMS(1024, 768, rms, 1, 0, !rms, 1));
    bench(TERN_OP_NORM_BWD, DIMS(1024, 768, rms, 1, 1, !rms, 1, 1));
}

static void add_gemm(void)
{
    /* One, a tile less one, a tile, a tile and one, for the tiles in use: 6, 8, 14, 16, 32, 48,
     * 64. */
    static const int64_t sizes[][3] = {
        {1, 1, 1},    {1, 17, 5},    {5, 1, 33},    {6, 16, 32},  {7, 15, 31},   {8, 32, 64},
        {13, 47, 65}, {14, 48, 96},  {15, 49, 127}, {17, 64, 80}, {31, 65, 128}, {64, 31, 257},
        {65, 33, 20}, {33, 127, 72}, {1, 320, 768}, {2, 96, 300}, {96, 1, 40},   {129, 70, 3},
    };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        const int64_t *s = sizes[i];
        for (int64_t trans = 0; trans < 4; trans++) {
            int64_t ta = trans >> 1, tb = trans & 1, pad = (int64_t)(i % 3);
            add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(s[0], s[1], s[2], ta, tb, 0, 0, 0, pad));
        }
        int64_t mix = (int64_t)i % MIX_COUNT;
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(s[0], s[1], s[2], 1, 0, 1, 0, MIX_WIDE_D, 0));
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(s[0], s[1], s[2], 0, 1, 0, 1, mix, 1));
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(s[0], s[1], s[2], 0, 1, 0, 2, mix, 0));
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(s[0], s[1], s[2], 0, 0, 0, 0, mix, 3));
        int64_t tb = (int64_t)(i / 2 % 2), pad = (int64_t)(i % 4);
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(s[0], s[1], s[2], 0, tb, 0, 3, mix, pad));
    }
    /* A layer of GPT-2 and its backward pass, made small: C = 32, F = 128, V = 257 for 24 tokens; whole vectors
     * everywhere but in the head. */
    static const int64_t layer[][TERN_CASE_DIMS] = {
        {24, 96, 32, 0, 0, 0, 1},
        {24, 32, 32, 0, 0, 0, 1},
        {24, 128, 32, 0, 0, 0, 2},
        {24, 32, 128, 0, 0, 0, 1},
        {24, 32, 96, 0, 1},
        {24, 128, 32, 0, 1, 0, 3},
        {32, 96, 24, 1, 0, 1, 0, MIX_WIDE_D},
        {128, 32, 24, 1, 0, 0, 0, MIX_WIDE_D},
        {24, 257, 32, 0, 1, 0, 0, MIX_WIDE_D},
        {24, 32, 257, 0, 0, 0, 0, MIX_WIDE_A},
        {257, 32, 24, 1, 0, 1, 0, MIX_WIDE_D},
    };
    for (size_t i = 0; i < sizeof layer / sizeof layer[0]; i++) {
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, layer[i]);
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        add(TERN_OP_GEMM, (enum tern_case_data)data, DIMS(34, 50, 130, 0, 1, 0, 1, 0, 0));
        add(TERN_OP_GEMM, (enum tern_case_data)data, DIMS(34, 50, 130, 1, 0, 1, 0, MIX_WIDE_D, 0));
        add(TERN_OP_GEMM, (enum tern_case_data)data, DIMS(34, 48, 130, 0, 1, 0, 3, 0, 0));
    }
    add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(70, 200, 1027, 0, 1, 0, 1, 0, 0));
    add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(130, 257, 300, 1, 0, 1, 0, MIX_WIDE_D, 0));
    add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(200, 1030, 64, 0, 0, 0, 0, MIX_WIDE_D, 0));
    bench(TERN_OP_GEMM, DIMS(1024, 2304, 768, 0, 1, 0, 1, 0, 0));
    bench(TERN_OP_GEMM, DIMS(1024, 3072, 768, 0, 1, 0, 2, 0, 0));
    bench(TERN_OP_GEMM, DIMS(1024, 768, 3072, 0, 1, 0, 1, 0, 0));
    bench(TERN_OP_GEMM, DIMS(1024, 768, 3072, 0, 0, 0, 0, 0, 0));
    bench(TERN_OP_GEMM, DIMS(1024, 3072, 768, 0, 1, 0, 3, 0, 0));
    bench(TERN_OP_GEMM, DIMS(3072, 768, 1024, 1, 0, 1, 0, MIX_WIDE_D, 0));
    bench(TERN_OP_GEMM, DIMS(128, 50257, 768, 0, 1, 0, 0, MIX_WIDE_D, 0));
    bench(TERN_OP_GEMM, DIMS(1, 2304, 768, 0, 1, 0, 1, 0, 0));
    bench(TERN_OP_GEMM, DIMS(8, 3072, 768, 0, 1, 0, 2, 0, 0));
}

static void add_bias(void)
{
    static const int64_t widths[] = {1, 15, 16, 17, 64, 65, 768, 1027};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        add(TERN_OP_BIAS_BWD, TERN_DATA_NORMAL, DIMS(33, widths[i], 0, 0));
        add(TERN_OP_BIAS_BWD, TERN_DATA_NORMAL, DIMS(7, widths[i], 3, 1));
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        add(TERN_OP_BIAS_BWD, (enum tern_case_data)data, DIMS(300, 130, 0, 1));
    }
    add(TERN_OP_BIAS_BWD, TERN_DATA_NORMAL, DIMS(1, 64, 0, 0));
    add(TERN_OP_BIAS_BWD, TERN_DATA_NORMAL,
        DIMS(1100, 24, 0, 1)); /* tall: many runs of few columns */
    add(TERN_OP_BIAS_BWD, TERN_DATA_NORMAL, DIMS(1200, 4096, 0, 1));
    bench(TERN_OP_BIAS_BWD, DIMS(1024, 3072, 0, 1));
    for (int64_t form = 0; form < 8; form++) {
        int64_t acc = form & 1, of_a = form >> 1 & 1, turned = form >> 2;
        add(TERN_OP_GEMM_BIAS_BWD, TERN_DATA_NORMAL, DIMS(64, 96, 200, acc, of_a, turned, 0));
        add(TERN_OP_GEMM_BIAS_BWD, TERN_DATA_NORMAL, DIMS(33, 7, 65, acc, of_a, turned, 3));
        add(TERN_OP_GEMM_BIAS_BWD, TERN_DATA_NORMAL, DIMS(1, 24, 1, acc, of_a, turned, 8));
    }
    bench(TERN_OP_GEMM_BIAS_BWD, DIMS(768, 3072, 8192, 0, 0, 0, 0));
}

/* Rows that are 16-byte aligned in a head width that GPUs have tensor-core kernels for: lengths around the edges of
 * their tiles, groups, caches, windows. Dimensions are chosen so that buffers are not shifted (instance.c). */
static void add_attention_tiles(enum tern_op op)
{
    static const int64_t widths[] = {64, 80, 96, 128, 256};
    static const int64_t lengths[][4] = {{47, 49, 64, 128},
                                         {31, 33, 65, 128},
                                         {32, 63, 64, 129},
                                         {33, 64, 127, 129},
                                         {15, 17, 64, 65}};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t d = widths[i];
        for (size_t j = 0; j < 4; j++) {
            add(op, TERN_DATA_NORMAL,
                DIMS(1, lengths[i][j], lengths[i][j], 1, 1, d, ATT_PACKED, 0, 1));
        }
        add(op, TERN_DATA_NORMAL, DIMS(2, 20, 20, 8, 2, d, ATT_PACKED, 0, 1));
        add(op, TERN_DATA_NORMAL, DIMS(1, 40, 150, 4, 1, d, ATT_CACHE, 0, 1));
        add(op, TERN_DATA_NORMAL, DIMS(1, 1, 66, 4, 1, d, ATT_CACHE, 0, 1));
        add(op, TERN_DATA_NORMAL, DIMS(1, 99, 99, 1, 1, d, ATT_PACKED, 33, 1));
        add(op, TERN_DATA_NORMAL, DIMS(1, 9, 150, 4, 1, d, ATT_CACHE, 17, 1));
    }
    static const int64_t windows[] = {1, 4, 5, 64, 65};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        add(op, TERN_DATA_NORMAL, DIMS(1, 150, 150, 1, 1, 64, ATT_PACKED, windows[i], 1));
    }
    /* a window whose edge is the edge of a tile of keys, of rows, of both */
    static const int64_t edges[] = {50, 66, 79, 95};
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
        add(op, TERN_DATA_NORMAL, DIMS(1, 150, 150, 2, 1, 64, ATT_PACKED, edges[i], 1));
    }
    for (int data = TERN_DATA_DENORMAL; data < TERN_DATA_COUNT; data++) {
        add(op, (enum tern_case_data)data, DIMS(1, 67, 67, 4, 1, 64, ATT_PACKED, 0, 1));
    }
    if (op == TERN_OP_ATTENTION_FWD) {
        add(op, TERN_DATA_NORMAL, DIMS(1, 8, 150, 4, 1, 128, ATT_CACHE, 0, 0));
    }
}

/* Packed documents: short and long ones, edges of tiles, with windows, groups and padded rows. */
static void add_attention_documents(enum tern_op op)
{
    static const int64_t lengths[] = {1, 7, 64, 100, 290};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int64_t t = lengths[i];
        for (int64_t docs = 1; docs < 8; docs += 2) {
            add(op, TERN_DATA_NORMAL, DIMS(2, t, t, 2, 1, 64, ATT_PACKED, 0, 1, docs));
        }
        add(op, TERN_DATA_NORMAL, DIMS(1, t, t, 3, 3, 20, ATT_SEPARATE, 9, 1, 4));
        add(op, TERN_DATA_NORMAL, DIMS(3, t, t, 8, 2, 48, ATT_PACKED, 33, 1, 2));
    }
    add(op, TERN_DATA_LARGE, DIMS(2, 67, 67, 3, 1, 48, ATT_PACKED, 0, 1, 5));
}

static void add_attention_op(enum tern_op op)
{
    static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 129};
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        int64_t t = lengths[i];
        add(op, TERN_DATA_NORMAL, DIMS(1, t, t, 2, 2, 64, (int64_t)(i % 2), 0, 1));
        add(op, TERN_DATA_NORMAL, DIMS(2, t, t, 4, 2, 16, ATT_PACKED, 0, 1));
    }
    static const int64_t ratios[] = {1, 2, 3, 4, 8};
    static const int64_t widths[] = {8, 20, 32, 64, 80, 96, 128, 5};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t ratio = ratios[i % 5], k = ratio == 8 ? 1 : 2;
        add(op, TERN_DATA_NORMAL, DIMS(2, 19, 19, ratio * k, k, widths[i], ATT_PACKED, 0, 1));
        add(op, TERN_DATA_NORMAL, DIMS(1, 9, 70, ratio * k, k, widths[i], ATT_CACHE, 0, 1));
        add(op, TERN_DATA_NORMAL, DIMS(2, 1, 33, ratio * k, k, widths[i], ATT_CACHE, 0, 1));
        add(op, TERN_DATA_NORMAL, DIMS(1, 67, 67, ratio, 1, widths[i], ATT_SEPARATE, 0, 1));
    }
    static const int64_t windows[] = {1, 2, 16, 17, 40, 500};
    for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
        add(op, TERN_DATA_NORMAL, DIMS(1, 70, 70, 2, 1, 32, ATT_PACKED, windows[i], 1));
        add(op, TERN_DATA_NORMAL, DIMS(1, 13, 90, 2, 1, 32, ATT_CACHE, windows[i], 1));
    }
    for (int data = TERN_DATA_DENORMAL; data < TERN_DATA_COUNT; data++) {
        add(op, (enum tern_case_data)data, DIMS(1, 67, 67, 3, 1, 48, ATT_PACKED, 0, 1));
    }
    if (op == TERN_OP_ATTENTION_FWD) {
        add(op, TERN_DATA_NORMAL, DIMS(2, 33, 40, 4, 2, 64, ATT_CACHE, 0, 0));
        add(op, TERN_DATA_NORMAL, DIMS(1, 1, 300, 4, 2, 80, ATT_CACHE, 0, 0));
    }
    add(op, TERN_DATA_NORMAL, DIMS(1, 290, 290, 2, 1, 64, ATT_PACKED, 0, 1));
    add(op, TERN_DATA_NORMAL, DIMS(1, 300, 300, 1, 1, 80, ATT_SEPARATE, 100, 1));
    add_attention_tiles(op);
    add_attention_documents(op);
    bench(op, DIMS(4, 256, 256, 12, 12, 64, ATT_PACKED, 0, 1));
    bench(op, DIMS(1, 1024, 1024, 12, 12, 64, ATT_PACKED, 0, 1));
    bench(op, DIMS(1, 1024, 1024, 9, 3, 64, ATT_PACKED, 0, 1));
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What kv_write keeps, seen by rows that see one key, or few; then attention: lengths around the edges of blocks and of
 * segments of keys, groups, widths, windows, many sequences. */
static void add_paged(void)
{
    static const enum tern_dtype kept[] = {TERN_F32, TERN_BF16, TERN_I8};
    static const int64_t widths[] = {1, 5, 16, 20, 64, 80, 128, 256};
    static const int64_t lengths[] = {1, 15, 16, 17, 127, 128, 129, 255, 300};
    static const int64_t windows[] = {1, 2, 16, 17, 128, 140, 500};
    static const int64_t groups[] = {1, 2, 3, 4, 7, 8};
    for (size_t i = 0; i < sizeof kept / sizeof kept[0]; i++) {
        int64_t as = kept[i];
        for (size_t j = 0; j < sizeof widths / sizeof widths[0]; j++) {
            int64_t d = widths[j], pad = (int64_t)j % 3;
            add(TERN_OP_KV_WRITE, TERN_DATA_NORMAL,
                DIMS(4, 3, 40, 2, 2, d, 1 + (int64_t)j % 2, 0, as, pad));
            add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL, DIMS(5, 9, 70, 6, 2, d, 0, 0, as, pad));
        }
        for (size_t j = 0; j < sizeof lengths / sizeof lengths[0]; j++) {
            add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL,
                DIMS(1, 1, lengths[j], 3, 1, 64, 0, 0, as));
            add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL,
                DIMS(2, least(lengths[j], 40), lengths[j], 2, 1, 20, 0, 0, as, 1));
        }
        for (size_t j = 0; j < sizeof windows / sizeof windows[0]; j++) {
            add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL,
                DIMS(3, 25, 290, 2, 1, 16, windows[j], 0, as));
            add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL,
                DIMS(7, 1, 300, 2, 2, 48, windows[j], 20, as, 3));
        }
        for (size_t j = 0; j < sizeof groups / sizeof groups[0]; j++) {
            add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL,
                DIMS(4, 5, 260, 2 * groups[j], 2, 24, 0, 0, as));
        }
        for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
            add(TERN_OP_KV_WRITE, (enum tern_case_data)data, DIMS(2, 1, 33, 2, 1, 40, 1, 0, as));
            add(TERN_OP_PAGED_ATTENTION, (enum tern_case_data)data,
                DIMS(3, 17, 140, 3, 1, 40, 0, 5 * (data % 2), as));
        }
        bench(TERN_OP_PAGED_ATTENTION, DIMS(1, 1, 448, 9, 3, 64, 0, 0, as));
        bench(TERN_OP_PAGED_ATTENTION, DIMS(1, 512, 512, 9, 3, 64, 0, 0, as));
    }
    /* more rows of a group than a task has, more segments than are kept at a time, many sequences */
    add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL, DIMS(2, 2, 140, 130, 1, 8, 0, 0, TERN_BF16));
    add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL, DIMS(1, 4, 17000, 2, 1, 4, 0, 0, TERN_BF16));
    add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL, DIMS(1, 290, 290, 2, 1, 32, 0, 0, TERN_BF16));
    add(TERN_OP_PAGED_ATTENTION, TERN_DATA_NORMAL, DIMS(70, 3, 60, 2, 1, 16, 0, 0, TERN_F32));
}

static void add_rope(void)
{
    static const int64_t widths[] = {2, 8, 20, 30, 32, 34, 64, 80, 128};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        for (int64_t bwd = 0; bwd < 2; bwd++) {
            add(TERN_OP_ROPE, TERN_DATA_NORMAL, DIMS(14, 7, 3, widths[i], 0, 0, bwd));
            add(TERN_OP_ROPE, TERN_DATA_NORMAL, DIMS(3, 1, 2, widths[i], 5, 17, bwd));
        }
    }
    add(TERN_OP_ROPE, TERN_DATA_LARGE, DIMS(6, 3, 2, 64, 1, 0, 0));
    add(TERN_OP_ROPE, TERN_DATA_DENORMAL, DIMS(6, 3, 2, 64, 1, 0, 0));
    add(TERN_OP_ROPE, TERN_DATA_NORMAL, DIMS(300, 150, 1, 64, 0, 2, 0));
    for (int64_t docs = 1; docs < 6; docs++) {
        add(TERN_OP_ROPE, TERN_DATA_NORMAL, DIMS(33, 11, 2, 20, 3, docs % 3, docs % 2, docs));
    }
    add(TERN_OP_ROPE, TERN_DATA_NORMAL, DIMS(33, 1, 2, 20, 3, 40, 0, 0, 0, 1));
    add(TERN_OP_ROPE, TERN_DATA_NORMAL, DIMS(5, 1, 3, 64, 64, 9, 0, 0, 32, 1));
    bench(TERN_OP_ROPE, DIMS(1024, 256, 12, 64, 1152, 0, 0));
}

static void add_pointwise(void)
{
    static const int64_t counts[] = {1, 7, 8, 15, 16, 17, 31, 33, 64, 1027, 4097};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        int64_t n = counts[i];
        for (int64_t act = 0; act < 2; act++) {
            add(TERN_OP_ACT_FWD, TERN_DATA_NORMAL, DIMS(n, act));
            add(TERN_OP_ACT_BWD, TERN_DATA_NORMAL, DIMS(n, act, (int64_t)(i & 1)));
            add(TERN_OP_GLU_FWD, TERN_DATA_NORMAL, DIMS(3, n, act));
            add(TERN_OP_GLU_BWD, TERN_DATA_NORMAL, DIMS(3, n, act));
        }
        for (int64_t alias = 0; alias < 3; alias++) {
            for (int64_t scaled = 0; scaled < 3; scaled++) {
                if (scaled < 2 || alias != 1) {
                    add(TERN_OP_ADD, TERN_DATA_NORMAL, DIMS(n, alias, scaled));
                }
            }
        }
        for (int64_t pair = 0; pair < 4; pair++) {
            add(TERN_OP_CAST, TERN_DATA_NORMAL, DIMS(n, pair >> 1, pair & 1));
        }
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        for (int64_t act = 0; act < 2; act++) {
            add(TERN_OP_ACT_FWD, (enum tern_case_data)data, DIMS(133, act));
            add(TERN_OP_ACT_BWD, (enum tern_case_data)data, DIMS(133, act, 0));
            add(TERN_OP_GLU_FWD, (enum tern_case_data)data, DIMS(2, 133, act));
            add(TERN_OP_GLU_BWD, (enum tern_case_data)data, DIMS(2, 133, act));
        }
        add(TERN_OP_ADD, (enum tern_case_data)data, DIMS(133, 0));
        add(TERN_OP_CAST, (enum tern_case_data)data, DIMS(133, TERN_F32, TERN_BF16));
        add(TERN_OP_CAST, (enum tern_case_data)data, DIMS(133, TERN_BF16, TERN_F32));
    }
    add(TERN_OP_ADD, TERN_DATA_NORMAL, DIMS(200001, 1));
    add(TERN_OP_CAST, TERN_DATA_NORMAL, DIMS(200001, TERN_F32, TERN_BF16));
    add(TERN_OP_ACT_FWD, TERN_DATA_NORMAL, DIMS(100003, 0));
    for (int64_t act = 0; act < 2; act++) {
        bench(TERN_OP_ACT_FWD, DIMS(3145728, act));
        bench(TERN_OP_ACT_BWD, DIMS(3145728, act, 1));
        bench(TERN_OP_GLU_FWD, DIMS(1024, 2048, act));
        bench(TERN_OP_GLU_BWD, DIMS(1024, 2048, act));
    }
    bench(TERN_OP_ADD, DIMS(8388608, 1));
    bench(TERN_OP_CAST, DIMS(8388608, TERN_F32, TERN_BF16));
}

static void add_loss(void)
{
    static const int64_t widths[] = {1, 2, 15, 16, 17, 64, 65, 300, 1027, 5003};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        for (int64_t bwd = 0; bwd < 2; bwd++) {
            add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(5, widths[i], 0, bwd, 0));
            add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(9, widths[i], 3, bwd, 1));
        }
        add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(5, widths[i], 0, 1, 1, 1));
        add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(4, widths[i], 5, 1, 0, 1));
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        for (int64_t bwd = 0; bwd < 2; bwd++) {
            add(TERN_OP_CROSS_ENTROPY, (enum tern_case_data)data, DIMS(6, 200, 1, bwd, 1));
        }
        add(TERN_OP_CROSS_ENTROPY, (enum tern_case_data)data, DIMS(6, 200, 1, 1, 1, 1));
    }
    add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(1, 257, 0, 1, 1));
    add(TERN_OP_CROSS_ENTROPY, TERN_DATA_LARGE, DIMS(12, 1, 0, 1, 0)); /* maxima far below 0 */
    add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(3, 20011, 0, 1, 1));
    add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(3, 20011, 0, 1, 1, 1));
    bench(TERN_OP_CROSS_ENTROPY, DIMS(128, 50257, 0, 0, 1));
    bench(TERN_OP_CROSS_ENTROPY, DIMS(128, 50257, 0, 1, 1));
    bench(TERN_OP_CROSS_ENTROPY, DIMS(128, 50257, 0, 1, 1, 1));
}

static void add_optimizer(void)
{
    static const int64_t counts[] = {1, 7, 15, 16, 17, 33, 1027, 70001};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        for (int64_t copy = 0; copy < 3; copy++) {
            add(TERN_OP_ADAMW, TERN_DATA_NORMAL, DIMS(counts[i], copy, copy * 7 + 1));
        }
        add(TERN_OP_SUMSQ, TERN_DATA_NORMAL, DIMS(1, counts[i]));
        add(TERN_OP_SUMSQ, TERN_DATA_NORMAL, DIMS(5, counts[i]));
        add(TERN_OP_SUMSQ, TERN_DATA_NORMAL, DIMS(5, counts[i], 1));
        add(TERN_OP_CLIP, TERN_DATA_NORMAL, DIMS(counts[i], (int64_t)i, (int64_t)(i % 3 * 50)));
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        add(TERN_OP_ADAMW, (enum tern_case_data)data, DIMS(133, 2, 1000));
        add(TERN_OP_SUMSQ, (enum tern_case_data)data, DIMS(3, 1333));
        add(TERN_OP_SUMSQ, (enum tern_case_data)data, DIMS(3, 1333, 1));
    }
    bench(TERN_OP_ADAMW, DIMS(8388608, 2, 100));
    bench(TERN_OP_SUMSQ, DIMS(64, 8388608));
    bench(TERN_OP_CLIP, DIMS(100000, 8, 1));
}

/* What the families beyond GPT-2 and Llama need of the ops above: scaled embeddings, norms of heads, gamma from 1, caps,
 * rotary positions of a part of a head. */
static void add_family_rows(void)
{
    static const int64_t widths[] = {2, 15, 16, 64, 127, 256};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t c = widths[i], odd = (int64_t)(i & 1);
        add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(12, 4, c, 9, odd, 0, 0, 1));
        add(TERN_OP_EMBED_BWD, TERN_DATA_NORMAL, DIMS(35, 7, c, 5, odd, 0, 0, 1));
        for (int64_t rms = 0; rms < 2; rms++) {
            for (int64_t layout = 0; layout < NORM_EQUAL; layout++) {
                int64_t with = layout + (odd != rms ? NORM_OFFSET : 0), beta = !rms && odd;
                add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL,
                    DIMS(7, c, rms, 0, 0, beta, 1, 0, 1 + (int64_t)i % 4, with));
                add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL,
                    DIMS(9, c, rms, 0, 0, beta, 1, odd, 1 + (int64_t)i % 4, with));
            }
            add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL, DIMS(5, c, rms, 1, odd, 0, 1, 0, 0, 4));
            add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(5, c, rms, 1, odd, 0, 1, 1, 0, 4));
        }
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        add(TERN_OP_NORM_FWD, (enum tern_case_data)data, DIMS(6, 33, 1, 0, 0, 0, 1, 0, 3, 6));
        add(TERN_OP_NORM_BWD, (enum tern_case_data)data, DIMS(6, 33, 1, 0, 0, 0, 1, 1, 3, 6));
    }
    add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL, DIMS(70, 64, 1, 0, 0, 0, 0, 0, 9, NORM_ONE_BUFFER));
    add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(700, 64, 1, 0, 0, 0, 1, 1, 9, NORM_ONE_BUFFER));
    /* whole vectors, few heads */
    add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL, DIMS(4, 64, 1, 0, 0, 0, 1, 0, 2, NORM_ONE_BUFFER));
    add(TERN_OP_NORM_FWD, TERN_DATA_NORMAL, DIMS(6, 64, 1, 0, 0, 0, 1, 0, 1, NORM_ONE_BUFFER));
    add(TERN_OP_NORM_BWD, TERN_DATA_NORMAL, DIMS(4, 64, 1, 0, 0, 0, 1, 0, 2, NORM_ONE_BUFFER));
    static const int64_t parts[][2] = {{8, 2}, {20, 6}, {64, 32}, {80, 32}, {96, 96}, {128, 34}};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        for (int64_t bwd = 0; bwd < 2; bwd++) {
            add(TERN_OP_ROPE, TERN_DATA_NORMAL,
                DIMS(14, 7, 3, parts[i][0], (int64_t)i % 3, 2, bwd, 0, parts[i][1]));
        }
    }
}

static void add_caps(void)
{
    static const enum tern_op ops[] = {TERN_OP_ATTENTION_FWD, TERN_OP_ATTENTION_BWD};
    for (size_t i = 0; i < 2; i++) {
        static const int64_t widths[] = {5, 16, 64, 80, 96, 128, 256};
        for (size_t j = 0; j < sizeof widths / sizeof widths[0]; j++) {
            int64_t d = widths[j], cap = j % 2 == 0 ? 2 : 50;
            add(ops[i], TERN_DATA_NORMAL, DIMS(2, 19, 19, 4, 2, d, ATT_PACKED, 0, 1, 0, cap));
            add(ops[i], TERN_DATA_NORMAL, DIMS(1, 67, 67, 3, 1, d, ATT_SEPARATE, 17, 1, 0, cap));
            add(ops[i], TERN_DATA_NORMAL, DIMS(2, 1, 33, 4, 2, d, ATT_CACHE, 0, 1, 0, cap));
        }
        add(ops[i], TERN_DATA_NORMAL, DIMS(1, 150, 150, 2, 1, 64, ATT_PACKED, 0, 1, 3, 1));
        add(ops[i], TERN_DATA_NORMAL, DIMS(1, 9, 290, 4, 1, 64, ATT_CACHE, 40, 1, 0, 3));
        for (int data = TERN_DATA_DENORMAL; data < TERN_DATA_COUNT; data++) {
            add(ops[i], (enum tern_case_data)data,
                DIMS(1, 40, 40, 2, 1, 32, ATT_PACKED, 0, 1, 0, 5));
        }
    }
    static const int64_t widths[] = {1, 2, 15, 17, 300, 1027};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        int64_t cap = i % 2 == 0 ? 30 : 1;
        add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(5, widths[i], 0, 0, 0, 0, cap));
        add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(9, widths[i], 3, 1, 1, 0, cap));
        add(TERN_OP_CROSS_ENTROPY, TERN_DATA_NORMAL, DIMS(4, widths[i], 5, 1, 1, 1, cap));
        add(TERN_OP_SOFTCAP, TERN_DATA_NORMAL, DIMS(widths[i], cap, (int64_t)i % 2));
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        add(TERN_OP_CROSS_ENTROPY, (enum tern_case_data)data, DIMS(6, 200, 1, 1, 1, 0, 30));
        add(TERN_OP_SOFTCAP, (enum tern_case_data)data, DIMS(133, 30, 0));
    }
    bench(TERN_OP_SOFTCAP, DIMS(256000, 30, 1));
}

/* Weights as model files store them: every type, whole and several blocks, few and many rows of a. */
static void add_stored(void)
{
    for (int64_t type = 0; type < TERN_DTYPE_COUNT; type++) {
        if (!tern_dtype_is_stored((enum tern_dtype)type)) {
            continue;
        }
        int64_t block = tern_dtype_block_elements((enum tern_dtype)type), odd = type % 2;
        int64_t k = block == 1 ? 77 : block * (odd ? 3 : 2), mix = odd ? MIX_WIDE_D : MIX_STORED;
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(1, 33, k, 0, 1, 0, 0, mix, 0, type));
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(5, 70, k, odd, 1, 0, 1, MIX_ALL, 1, type));
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(37, 67, k, 0, 1, 0, 2 * odd, mix, 0, type));
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(9, 40, k, 0, 1, 1, 0, MIX_WIDE_D, 0, type));
        add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(31, 9, k, 1, 1, 0, 1, MIX_STORED, 0, type));
        add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(6, 3, k, 5, odd, 0, 0, odd, type));
        bench(TERN_OP_GEMM, DIMS(1, 2048, 2048, 0, 1, 0, 0, MIX_STORED, 0, type));
        bench(TERN_OP_GEMM, DIMS(256, 2048, 2048, 0, 1, 0, 0, MIX_STORED, 0, type));
    }
    /* blocks of k that cut through blocks of weights, several chunks */
    add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(11, 35, 2560, 0, 1, 0, 0, MIX_STORED, 0, TERN_Q6_K));
    add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(3, 35, 2560, 0, 1, 0, 0, MIX_STORED, 2, TERN_Q4_K));
    add(TERN_OP_GEMM, TERN_DATA_NORMAL, DIMS(20, 17, 1120, 0, 1, 0, 1, MIX_ALL, 0, TERN_Q5_0));
    add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(6, 3, 67, 5, 1, 0, 0, 1, TERN_BF16));
}

/* Packed weights of a type: products of a few rows, of a batch, of many, and of one more than a strip of outputs. */
static void add_packed_type(int64_t type, int64_t packed, int64_t k)
{
    static const int64_t rows[] = {1, 2, 3, 4, 7, 13, 16, 17, 41};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        int64_t mix = i % 2 == 0 ? MIX_STORED : MIX_WIDE_D, odd = (int64_t)(i & 1);
        add(TERN_OP_GEMM, TERN_DATA_NORMAL,
            DIMS(rows[i], 33 + 16 * odd, k, 0, 1, 0, (int64_t)(i % 3), mix, odd, type, packed));
    }
    add(TERN_OP_PACK, TERN_DATA_NORMAL, DIMS(35, k, 0, 0, type, packed));
    add(TERN_OP_PACK, TERN_DATA_NORMAL, DIMS(16, k, 1, 0, type, packed));
    add(TERN_OP_EMBED_FWD, TERN_DATA_NORMAL, DIMS(6, 3, k, 37, 1, 0, 0, 1, type, 0, packed));
    bench(TERN_OP_GEMM, DIMS(1, 2048, 2048, 0, 1, 0, 0, MIX_STORED, 0, type, packed));
    bench(TERN_OP_GEMM, DIMS(16, 2048, 2048, 0, 1, 0, 0, MIX_STORED, 0, type, packed));
    bench(TERN_OP_GEMM, DIMS(256, 2048, 2048, 0, 1, 0, 0, MIX_STORED, 0, type, packed));
}

static void add_packed(void)
{
    for (int64_t type = 0; type < TERN_DTYPE_COUNT; type++) {
        enum tern_dtype dtype = (enum tern_dtype)type;
        int64_t block = tern_dtype_block_elements(dtype);
        if (tern_dtype_is_stored(dtype)) {
            add_packed_type(type, tern_packed_for(dtype), block == 1 ? 77 : block * (type % 2 + 1));
        }
    }
    /* what is stored plainly, by value and encoded; (k, n) too */
    static const int64_t kinds[] = {TERN_PACKED_F32, TERN_PACKED_BF16, TERN_PACKED_Q8,
                                    TERN_PACKED_Q4};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        int64_t k = tern_packed_is_codes((enum tern_packed)kinds[i]) ? 352 : 301;
        add_packed_type(0, kinds[i], k);
        add(TERN_OP_PACK, TERN_DATA_NORMAL, DIMS(35, k, 3, 1, 0, kinds[i]));
        add(TERN_OP_PACK, TERN_DATA_ZERO, DIMS(5, k, 0, 0, 0, kinds[i]));
        add(TERN_OP_GEMM, TERN_DATA_ZERO, DIMS(5, 20, k, 0, 1, 0, 0, MIX_STORED, 0, 0, kinds[i]));
        add(TERN_OP_GEMM, TERN_DATA_DENORMAL,
            DIMS(5, 20, k, 0, 1, 0, 0, MIX_STORED, 0, 0, kinds[i]));
    }
    add(TERN_OP_PACK, TERN_DATA_NORMAL, DIMS(20, 256, 0, 0, TERN_Q6_K, TERN_PACKED_Q8));
    add(TERN_OP_PACK, TERN_DATA_NORMAL, DIMS(20, 96, 0, 0, TERN_Q5_1, TERN_PACKED_Q4));
    /* several tasks of rows and of strips, chunks of rows */
    add(TERN_OP_GEMM, TERN_DATA_NORMAL,
        DIMS(350, 70, 64, 0, 1, 0, 0, MIX_STORED, 0, TERN_Q5_1, TERN_PACKED_Q5A));
    add(TERN_OP_GEMM, TERN_DATA_NORMAL,
        DIMS(130, 40, 1536, 0, 1, 0, 1, MIX_ALL, 0, TERN_Q8_0, TERN_PACKED_Q8));
    add(TERN_OP_GEMM, TERN_DATA_NORMAL,
        DIMS(3, 3000, 32, 0, 1, 0, 0, MIX_STORED, 0, TERN_Q4_0, TERN_PACKED_Q4));
}

static void add_experts(void)
{
    static const int64_t shapes[][3] = {{1, 1, 1},  {1, 8, 2},   {7, 8, 2},    {33, 5, 3},
                                        {64, 4, 4}, {65, 16, 8}, {130, 128, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        const int64_t *s = shapes[i];
        add(TERN_OP_MOE_ROUTE, TERN_DATA_NORMAL, DIMS(s[0], s[1], s[2], (int64_t)(i & 1)));
        add(TERN_OP_MOE_ROUTE, TERN_DATA_EQUAL, DIMS(s[0], s[1], s[2], 1));
        add(TERN_OP_MOE_COMBINE, TERN_DATA_NORMAL, DIMS(s[0], s[2], 1 + 21 * (int64_t)i));
    }
    for (int data = TERN_DATA_MEAN; data < TERN_DATA_COUNT; data++) {
        add(TERN_OP_MOE_ROUTE, (enum tern_case_data)data, DIMS(17, 11, 3, 0));
        add(TERN_OP_MOE_COMBINE, (enum tern_case_data)data, DIMS(9, 2, 133));
    }
    bench(TERN_OP_MOE_ROUTE, DIMS(1024, 128, 8, 1));
    bench(TERN_OP_MOE_COMBINE, DIMS(1024, 8, 2048));
}

/* Whole vectors everywhere, and then one tensor after another that does not start on one. */
static void add_shifts(void)
{
    static const struct {
        enum tern_op op;
        int tensors;
        int64_t dim[TERN_CASE_DIMS];
    } shapes[] = {
        {TERN_OP_EMBED_FWD, 4, {12, 4, 64, 9, 1, 3}},
        {TERN_OP_EMBED_BWD, 4, {12, 4, 64, 9, 1}},
        {TERN_OP_NORM_FWD, 8, {5, 64, 0, 1, 0, 1, 1}},
        {TERN_OP_NORM_BWD, 9, {9, 64, 0, 1, 0, 1, 1, 1}},
        {TERN_OP_GEMM, 5, {16, 32, 40, 0, 1, 0, TERN_EPILOGUE_BIAS_GELU}},
        {TERN_OP_BIAS_BWD, 2, {33, 64}},
        {TERN_OP_GEMM_BIAS_BWD, 4, {32, 48, 40, 0, 1}},
        {TERN_OP_ATTENTION_FWD, 4, {1, 20, 40, 2, 1, 64, ATT_CACHE, 0, 1}},
        {TERN_OP_ATTENTION_BWD, 7, {1, 20, 40, 2, 1, 64, ATT_CACHE, 0, 1}},
        {TERN_OP_PAGED_ATTENTION, 9, {3, 4, 40, 4, 2, 64, 0, 0, TERN_BF16}},
        {TERN_OP_ROPE, 3, {8, 4, 2, 64}},
        {TERN_OP_ACT_FWD, 2, {1000}},
        {TERN_OP_ACT_BWD, 3, {1000}},
        {TERN_OP_GLU_FWD, 2, {4, 64}},
        {TERN_OP_GLU_BWD, 3, {4, 64}},
        {TERN_OP_ADD, 3, {1000}},
        {TERN_OP_ADD, 2, {1000, 0, 2}},
        {TERN_OP_CROSS_ENTROPY, 4, {5, 64, 0, 1, 0, 1}},
        {TERN_OP_ADAMW, 6, {1000, 2, 8}},
        {TERN_OP_SUMSQ, 3, {5, 1000}},
        {TERN_OP_CLIP, 4, {40, 8, 50}},
        {TERN_OP_CAST, 2, {1000, TERN_F32, TERN_BF16}},
        {TERN_OP_CAST, 2, {1000, TERN_BF16, TERN_F32}},
        {TERN_OP_NORM_FWD, 4, {5, 64, 1, 0, 0, 0, 1, 0, 3, NORM_ONE_BUFFER}},
        {TERN_OP_NORM_BWD, 5, {9, 64, 1, 0, 0, 0, 1, 1, 3, NORM_ONE_BUFFER}},
        {TERN_OP_SOFTCAP, 2, {1000, 30}},
        {TERN_OP_MOE_ROUTE, 6, {20, 16, 2}},
        {TERN_OP_MOE_COMBINE, 4, {20, 2, 64}},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
        for (int tensor = 1; tensor <= shapes[i].tensors; tensor++) {
            add(shapes[i].op, TERN_DATA_NORMAL, shapes[i].dim);
            g_cases[g_count - 1].shift = tensor;
        }
    }
}

const struct tern_case *tern_cases_build(int *count_out)
{
    if (g_cases == NULL) {
        g_cases = tern_alloc_zero("cases", CASES_MAX, sizeof *g_cases);
        TERN_CHECK(g_cases != NULL);
        add_embed();
        add_norm_kind(0);
        add_norm_kind(1);
        add_gemm();
        add_bias();
        add_attention_op(TERN_OP_ATTENTION_FWD);
        add_attention_op(TERN_OP_ATTENTION_BWD);
        add_paged();
        add_rope();
        add_pointwise();
        add_loss();
        add_optimizer();
        add_family_rows();
        add_caps();
        add_experts();
        add_stored();
        add_packed();
        add_shifts();
    }
    *count_out = g_count;
    return g_cases;
}

void tern_cases_free(void)
{
    tern_free(g_cases);
    g_cases = NULL;
    g_count = 0;
}

const char *tern_case_name(const struct tern_case *c, char out[TERN_CASE_NAME_BYTES])
{
    size_t length = (size_t)snprintf(out, TERN_CASE_NAME_BYTES, "%s", tern_op_name(c->op));
    for (int i = 0; i < TERN_CASE_DIMS && g_dims[c->op][i] != NULL; i++) {
        length += (size_t)snprintf(out + length, TERN_CASE_NAME_BYTES - length, " %s=%lld",
                                   g_dims[c->op][i], (long long)c->dim[i]);
    }
    if (c->shift > 0) {
        length +=
            (size_t)snprintf(out + length, TERN_CASE_NAME_BYTES - length, " shift=%d", c->shift);
    }
    snprintf(out + length, TERN_CASE_NAME_BYTES - length, " data=%s", g_data[c->data]);
    return out;
}

static bool parse_word(const char *word, const char *value, struct tern_case *out)
{
    for (int i = 0; strcmp(word, "data") == 0 && i < TERN_DATA_COUNT; i++) {
        if (strcmp(value, g_data[i]) == 0) {
            out->data = (enum tern_case_data)i;
            return true;
        }
    }
    if (strcmp(word, "shift") == 0) {
        out->shift = atoi(value);
        return true;
    }
    for (int i = 0; i < TERN_CASE_DIMS && g_dims[out->op][i] != NULL; i++) {
        if (strcmp(word, g_dims[out->op][i]) == 0) {
            out->dim[i] = strtoll(value, NULL, 10);
            return true;
        }
    }
    return false;
}

bool tern_case_parse(const char *name, struct tern_case *out)
{
    char copy[TERN_CASE_NAME_BYTES], *rest = NULL;
    *out = (struct tern_case){.op = TERN_OP_COUNT};
    if (strlen(name) >= sizeof copy) {
        return false;
    }
    memcpy(copy, name, strlen(name) + 1);
    const char *op = strtok_r(copy, " ", &rest);
    for (int i = 0; op != NULL && i < TERN_OP_COUNT; i++) {
        if (strcmp(op, tern_op_name((enum tern_op)i)) == 0) {
            out->op = (enum tern_op)i;
        }
    }
    for (char *word = strtok_r(NULL, " ", &rest); word != NULL && out->op != TERN_OP_COUNT;
         word = strtok_r(NULL, " ", &rest)) {
        char *equals = strchr(word, '=');
        if (equals == NULL) {
            return false;
        }
        *equals = '\0';
        if (!parse_word(word, equals + 1, out)) {
            return false;
        }
    }
    return out->op != TERN_OP_COUNT;
}

bool tern_case_has_storage(const struct tern_case *c, enum tern_dtype storage)
{
    bool is_f32_only = c->op == TERN_OP_CROSS_ENTROPY || c->op == TERN_OP_ADAMW ||
                       c->op == TERN_OP_SUMSQ || c->op == TERN_OP_CLIP || c->op == TERN_OP_CAST;
    return storage == TERN_F32 || !is_f32_only;
}
