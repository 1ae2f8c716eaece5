/* blas.h - inside the matrix product of the CUDA backend: what a piece of one is (key), how it is run (plan), and the
 * file that remembers plans. No CUDA header, so that tests without a GPU can use it.
 *
 * cuBLASLt is column-major: a row-major (r, c) matrix is its (c, r), so d = op(a) op(b) is asked for as
 * d^T = op(b)^T op(a)^T, without moving anything. Its epilogues know only column-major output, and there a bias runs
 * along the rows of d^T, which are our columns. */
#ifndef TERN_KERNELS_CUDA_BLAS_H
#define TERN_KERNELS_CUDA_BLAS_H

#include "kernels/ops.h"

/* How a piece is run. */
enum tern_blas_route {
    TERN_BLAS_DIRECT, /* one cublasLtMatmul with its epilogue: it writes d, and aux */
    TERN_BLAS_GELU,  /* one without GELU or its slope, to aux resp. d; a kernel of ours does that */
    TERN_BLAS_APART, /* one without the gradient of a bias; another kernel of ours makes that */
    TERN_BLAS_FINISH, /* one without epilogue gives the product in f32; a kernel of ours does the rest */
    TERN_BLAS_ROUTES
};

/* What a key's epilogue may be beside enum tern_epilogue: sums over k of a's or b's columns. */
enum {
    TERN_BLAS_SUMS_OF_A = 16,
    TERN_BLAS_SUMS_OF_B
};

/* A piece of a product, all but its addresses: what a plan depends on. No padding: compared and hashed as bytes. */
struct tern_blas_key {
    int64_t m, n, k;
    int64_t lda, ldb, ldd; /* elements, row-major */
    uint8_t trans_a, trans_b, accumulate, epilogue;
    uint8_t factor; /* dtype of both factors: bf16 or f32 */
    uint8_t d_dtype, bias_dtype;
    uint8_t is_finish; /* d is bf16 and comes by TERN_BLAS_FINISH: the product goes to f32 sums */
    uint8_t align_a, align_b, align_d, align_bias, align_aux; /* bytes, at most TERN_BLAS_ALIGN */
    uint8_t zero[3];
};

enum {
    TERN_BLAS_ALIGN = 16, /* no kernel asks for more than 128-bit accesses, or TMA's 16 bytes */
    TERN_BLAS_ALGO_WORDS = 8,
};

/* What was chosen for a key. */
struct tern_blas_plan {
    struct tern_blas_key key;
    uint64_t algo[TERN_BLAS_ALGO_WORDS]; /* cublasLtMatmulAlgo_t */
    uint64_t workspace_bytes;
    uint32_t route;      /* enum tern_blas_route */
    uint32_t is_timed;   /* chosen by time, and worth keeping in the file */
    uint32_t is_checked; /* the library agrees; false for what comes out of a file */
    double seconds;      /* of one run, if timed */
};

/* How a call is cut, so that copies of factors and f32 sums fit into the scratch. Sums along k are never cut. */
struct tern_blas_cut {
    enum tern_dtype factor; /* what both factors are given as */
    bool copy_a, copy_b;    /* that factor is stored in another dtype: converted into the scratch */
    bool has_sums; /* f32 sums in the scratch, because d is bf16 and cuBLASLt does not make it */
    int64_t m, n;  /* of a piece; the last ones may be smaller */
    size_t a_bytes, b_bytes, sums_bytes; /* of the largest piece, multiples of 256; in this order */
};

/* ---- blas_problem.c: pure functions ---- */

/* False when not even the smallest piece fits into scratch_bytes. */
bool tern_blas_cut(const struct tern_gemm_args *args,
                   bool must_finish,
                   size_t scratch_bytes,
                   struct tern_blas_cut *out);
/* Scratch that any product within the limits can be cut to, with room for few pieces. */
size_t tern_blas_scratch_bytes(const struct tern_op_limits *limits);
/* Row strides of the copies and sums of a piece of the given width: rows start 16-byte aligned. */
int64_t tern_blas_scratch_stride(int64_t width);

/* The key of a piece whose operands are `args` (already cut and copied). */
struct tern_blas_key tern_blas_key_of(const struct tern_gemm_args *args, bool is_finish);
/* The routes that cuBLASLt's documentation allows for a key, best first. Returns how many (at least one). */
int tern_blas_routes(const struct tern_blas_key *key,
                     int capability,
                     enum tern_blas_route out[TERN_BLAS_ROUTES]);
/* FNV-1a, 64 bits; goes on from `hash`, at first the seed. */
#define TERN_BLAS_HASH_SEED 0xcbf29ce484222325u
uint64_t tern_blas_hash(uint64_t hash, const void *bytes, size_t count);

/* ---- blas_table.c: plans in memory ---- */

struct tern_blas_table;
/* NULL when there is no memory. Takes all of it now: nothing is allocated for a plan. */
struct tern_blas_table *tern_blas_table_create(void);
void tern_blas_table_destroy(struct tern_blas_table *table);
/* False when the key is not there. */
bool tern_blas_table_find(struct tern_blas_table *table,
                          const struct tern_blas_key *key,
                          struct tern_blas_plan *out);
/* A full neighbourhood forgets its oldest plan. */
void tern_blas_table_put(struct tern_blas_table *table, const struct tern_blas_plan *plan);
/* Calls visit on every timed plan, in a fixed order. */
void tern_blas_table_each(const struct tern_blas_table *table,
                          void (*visit)(const struct tern_blas_plan *plan, void *context),
                          void *context);

/* ---- blas_cache.c: plans in a file ---- */

/* An algorithm is good on one GPU model with one library; nothing in it is portable. */
struct tern_blas_machine {
    char gpu[256];
    int capability, multiprocessors;
    int64_t library, driver;
};

enum {
    TERN_BLAS_PATH_BYTES = 1024
};

/* Where the file is: TERN_CUDA_CACHE, else a name made of the machine in $XDG_CACHE_HOME/tern or ~/.cache/tern. False
 * when there is none (TERN_CUDA_CACHE=off, no home). *is_given_out: the user named it. */
bool tern_blas_cache_path(const struct tern_blas_machine *machine,
                          char out[TERN_BLAS_PATH_BYTES],
                          bool *is_given_out);
/* Puts the file's plans into the table. A file that is missing is empty; one that is broken, or another machine's, is
 * ignored with one warning and replaced by the next write. Returns how many plans came. */
int tern_blas_cache_read(const char *path,
                         const struct tern_blas_machine *machine,
                         struct tern_blas_table *table);
/* Writes all timed plans to a new file and renames it. A failure is warned of and does no harm. */
bool tern_blas_cache_write(const char *path,
                           const struct tern_blas_machine *machine,
                           const struct tern_blas_table *table);

#endif
