/* ops.h - every operation a backend offers: argument structs, and the table each backend fills.
 *
 * Shape letters: B batch, T sequence, N = B*T rows (tokens), C model width, H query heads, K key/value heads,
 * D head width, F feed-forward width, V vocabulary. Row-major everywhere; strides are in elements.
 * Activations are f32 or bf16, parameters the same, gradients of parameters f32. Arithmetic is fp32 (or wider);
 * bf16 is storage, except that a gemm with compute == TERN_BF16 rounds both factors to bf16 before multiplying, and
 * that attention in bf16 may (rounds_weights).
 *
 * Promises of every backend: a result never depends on the thread count; sums have a fixed order for a given
 * shape; an op does not allocate. `ref` is the definition, with double accumulators.
 *
 * Operands that are written must not overlap any other, unless the comment of the struct says "may be"; then they are
 * the same address. Rows of one buffer side by side (equal strides, disjoint columns) do not overlap.
 *
 * Callers go through the checked wrappers below (tern_op_*), which verify the arguments once for all backends. A call
 * with no elements (n, rows, b or blocks 0) is done at once. */
#ifndef TERN_KERNELS_OPS_H
#define TERN_KERNELS_OPS_H

#include "runtime/base/device.h"

/* Documents packed into one sequence: where an op takes `starts`, i32 (N) or null, starts[n] is the token of n's own
 * sequence at which n's document begins: 0 <= starts[n] <= n % T, and it never descends along a sequence. Positions
 * count from there, and nothing is seen across it. Null: one document a sequence. */

/* Weights may stay as a model file stores them, f16 or in GGUF's blocks (kernels/blocks.h), where an argument says
 * stored: values are decoded to f32 before anything else, rows are whole blocks, and their bytes may lie anywhere. */
static inline bool tern_dtype_is_stored(enum tern_dtype dtype)
{
    return dtype == TERN_F16 || tern_dtype_block_elements(dtype) > 1;
}

/* Weights packed once for many products: a matrix (n, k), its rows the outputs, in a layout that each backend keeps to
 * itself (and may choose by the processor it runs on). Rows lie in strips of TERN_PACKED_ROWS: the first r rows, r a
 * multiple of that, take tern_packed_bytes of (r, k), and matrices of one kind and k that lie one behind the other, all
 * but the last of a multiple of it, are one matrix. Kinds say what a weight may be:
 *
 *   F32, BF16   the number
 *   others      scale * (q - zero) + min, k in groups of 32 (TERN_PACKED_GROUP) that share scale and min, both f16:
 *               Q8 8 bits, zero 128; Q4 4, 8; Q5 5, 16; Q6 6, 32, and a scale of each 16;
 *               Q4A 4 bits, Q5A 5, zero 0; only these two have min
 *
 * Products from packed weights have one promise more: the bits of an output depend on its row of a and on the weights
 * only, not on m, on other rows, or on where its row is. */
enum tern_packed {
    TERN_PACKED_NONE,
    TERN_PACKED_F32,
    TERN_PACKED_BF16,
    TERN_PACKED_Q8,
    TERN_PACKED_Q6,
    TERN_PACKED_Q5,
    TERN_PACKED_Q5A,
    TERN_PACKED_Q4,
    TERN_PACKED_Q4A,
    TERN_PACKED_COUNT
};
enum {
    TERN_PACKED_ROWS = 16,
    TERN_PACKED_GROUP = 32
};
static inline bool tern_packed_is_codes(enum tern_packed packed)
{
    return packed >= TERN_PACKED_Q8;
}
const char *tern_packed_name(enum tern_packed packed); /* "q4a" */
/* The kind that keeps the values of a type that files have: f32 F32; bf16 BF16; blocks their codes, with scales that
 * are products (q3_k to q6_k, iq4_xs) rounded to f16. q2_k and mxfp4, which fit none: BF16, rounded. f16: F32. */
enum tern_packed tern_packed_for(enum tern_dtype dtype);

/* dst = src in its packed layout. From a type that tern_packed_for gives another kind for: to F32 or BF16 by value, to
 * Q8 and Q4 by the encoder of q8_0 and q4_0 (kernels/blocks.h). Kinds of codes need k % 32 == 0. */
struct tern_pack_args {
    struct tern_dptr src; /* src_dtype (n, k), or (k, n) when trans_src, which blocks are not */
    struct tern_dptr dst; /* tern_packed_bytes(device, packed, n, k), aligned to 32 bytes */
    int64_t n, k;
    int64_t ld; /* elements from one row of src to the next */
    bool trans_src;
    enum tern_dtype src_dtype; /* f32, bf16 or stored */
    enum tern_packed packed;
};

/* Rows of many sequences, cut anywhere: where an op takes `positions`, i32 (N) or null, positions[n] in [0, P), P being
 * position_count, takes the place of what is said of first_position, T and starts, which are then 0 and null. */

/* out (N, C) = scale * wte[ids[n]] (+ wpe[first_position + n % T - starts[n]]). Without wpe it also gathers the rows
 * of experts: wte (N, C), ids from moe_route. */
struct tern_embed_fwd_args {
    struct tern_dptr ids;       /* i32 (N), each in [0, V) */
    struct tern_dptr starts;    /* i32 (N) or null */
    struct tern_dptr positions; /* i32 (N) or null */
    struct tern_dptr wte;       /* wte_dtype (V, C) */
    struct tern_dptr wpe;       /* dtype (P, C) or null */
    struct tern_dptr out;       /* dtype (N, C) */
    int64_t n, t, c, v;
    int64_t first_position;
    int64_t position_count;
    float scale; /* 0: 1 */
    enum tern_dtype dtype;
    enum tern_dtype wte_dtype;   /* stored, bf16 or dtype; f32, which is 0: dtype */
    enum tern_packed wte_packed; /* not NONE: wte is packed, and wte_dtype says nothing */
};

/* dwte[ids[n]] += scale * dout[n]; dwpe[n % T - starts[n]] += dout[n]: rows added in ascending n. Always accumulates. */
struct tern_embed_bwd_args {
    struct tern_dptr ids;    /* i32 (N) */
    struct tern_dptr starts; /* i32 (N) or null */
    struct tern_dptr dout;   /* dtype (N, C) */
    struct tern_dptr dwte;   /* f32 (V, C) */
    struct tern_dptr dwpe;   /* f32 (P, C) or null */
    int64_t n, t, c, v;
    float scale; /* 0: 1 */
    enum tern_dtype dtype;
};

enum tern_norm_kind {
    TERN_NORM_LAYER,
    TERN_NORM_RMS
};

/* sum = x + residual (written to sum, which may be x; residual null: sum is not written and x is normalised);
 * layer: out = (sum - mean) * rstd * gamma + beta; rms: out = sum * rstd * gamma,
 * rstd = 1/sqrt(var + eps) resp. 1/sqrt(mean(sum^2) + eps), gamma being gamma_offset + what is stored. Variance by two
 * passes or Welford. The sum is rounded to dtype before it is normalised, so that what is saved is what was used.
 *
 * Several norms may lie side by side in a row, with one gamma: heads of C each, row n's at x + n * x_row, as q and k
 * do in the rows of q, k and v. Then out may be x (without residual, in equal rows), and copy keeps what x was. */
struct tern_norm_fwd_args {
    struct tern_dptr x;             /* dtype (N, heads, C), row stride x_row */
    struct tern_dptr residual, sum; /* dtype (N, heads, C), dense */
    struct tern_dptr gamma;         /* dtype (C) */
    struct tern_dptr beta;          /* dtype (C) or null */
    struct tern_dptr out;           /* dtype (N, heads, C), row stride out_row */
    struct tern_dptr copy; /* dtype (N, heads, C), dense: what was normalised; null: none */
    struct tern_dptr mean,
        rstd; /* f32 (N, heads); mean null for rms; both may be null when no backward follows */
    int64_t n, c;
    int64_t heads;          /* 0: 1 */
    int64_t x_row, out_row; /* 0: heads * C */
    float eps;
    float gamma_offset;
    enum tern_norm_kind kind;
    enum tern_dtype dtype;
};

/* dx (N, heads, C) = dresidual + d(norm)/dx(dy); dresidual may be null or dx itself, and dx may be dy.
 * dgamma, dbeta (C) f32, sums over rows and heads: overwritten, or added to when accumulate. */
struct tern_norm_bwd_args {
    struct tern_dptr dy,
        x; /* dtype (N, heads, C), row strides dy_row and x_row; x: what was normalised */
    struct tern_dptr gamma;
    struct tern_dptr mean, rstd;
    struct tern_dptr dresidual, dx; /* row stride dy_row */
    struct tern_dptr dgamma, dbeta; /* dbeta null for rms */
    int64_t n, c;
    int64_t heads;         /* 0: 1 */
    int64_t x_row, dy_row; /* 0: heads * C */
    float gamma_offset;
    bool accumulate;
    enum tern_norm_kind kind;
    enum tern_dtype dtype;
};

enum tern_epilogue {
    TERN_EPILOGUE_NONE,
    TERN_EPILOGUE_BIAS,      /* d = ab + bias */
    TERN_EPILOGUE_BIAS_GELU, /* aux = ab + bias (rounded to d_dtype); d = gelu(aux) */
    TERN_EPILOGUE_DGELU,     /* d = ab (rounded to d_dtype) * gelu'(aux); aux is read */
};
static inline bool tern_epilogue_has_bias(enum tern_epilogue epilogue)
{
    return epilogue == TERN_EPILOGUE_BIAS || epilogue == TERN_EPILOGUE_BIAS_GELU;
}
static inline bool tern_epilogue_has_aux(enum tern_epilogue epilogue)
{
    return epilogue == TERN_EPILOGUE_BIAS_GELU || epilogue == TERN_EPILOGUE_DGELU;
}

/* d (m, n) = op(a) (m, k) * op(b) (k, n), with an epilogue, or d += when accumulate.
 * op(a)[i][p] = a[i*lda + p], or a[p*lda + i] when trans_a; op(b)[p][j] = b[p*ldb + j], or b[j*ldb + p].
 * accumulate needs d_dtype f32 and epilogue NONE. compute f32: factors as they are. compute bf16: factors rounded
 * to bf16, products and sums in fp32. b may be stored; then it is transposed, and ldb is in elements all the same.
 *
 * b may be packed: trans_b, no trans_a, no accumulate, epilogue not DGELU; ldb and b_dtype say nothing. F32 and BF16 with
 * compute f32 or bf16 (a rounded to bf16, b as it is). Kinds of codes with compute TERN_I8: rows of a are rounded to int8 in groups of 32 along
 * k, codes = a * (127 / max|a|) to nearest even in fp32, of the group, scale = max|a| / 127 (127 / max|a| beyond f32:
 * zeros); products of codes are summed exactly, scaled and summed over groups in fp32. A value of a that is not
 * finite makes its row of d not finite. */
struct tern_gemm_args {
    struct tern_dptr a, b, d;
    struct tern_dptr bias; /* bias_dtype (n) */
    struct tern_dptr aux;  /* d_dtype (m, n), row stride ldd */
    int64_t m, n, k;
    int64_t lda, ldb, ldd;
    bool trans_a, trans_b;
    bool accumulate;
    enum tern_epilogue epilogue;
    enum tern_dtype a_dtype, b_dtype, d_dtype, bias_dtype;
    enum tern_dtype compute;
    enum tern_packed b_packed;
};

/* dbias (n) f32 = sum over rows of dy (rows, n); added to when accumulate. */
struct tern_bias_bwd_args {
    struct tern_dptr dy;
    struct tern_dptr dbias;
    int64_t rows, n, ldy;
    bool accumulate;
    enum tern_dtype dtype;
};

/* gemm, and in the same call the sums over k of one of its factors: the gradient of a bias beside that of its weight.
 * is_of_a: dbias (m), of a, which is trans_a; else dbias (n), of b, which is not trans_b: the factor is stored (k, ...).
 * dbias is overwritten, or added to with gemm.accumulate. A backend may have none: then it is gemm and bias_bwd. */
struct tern_gemm_bias_bwd_args {
    struct tern_gemm_args gemm; /* d f32, no epilogue */
    struct tern_dptr dbias;     /* f32 */
    bool is_of_a;
};

/* The second half of it on its own. */
static inline struct tern_bias_bwd_args tern_gemm_bias_bwd_half(
    const struct tern_gemm_bias_bwd_args *args)
{
    const struct tern_gemm_args *gemm = &args->gemm;
    struct tern_bias_bwd_args half; /* C++ too */
    half.dy = args->is_of_a ? gemm->a : gemm->b;
    half.dbias = args->dbias;
    half.rows = gemm->k;
    half.n = args->is_of_a ? gemm->m : gemm->n;
    half.ldy = args->is_of_a ? gemm->lda : gemm->ldb;
    half.accumulate = gemm->accumulate;
    half.dtype = args->is_of_a ? gemm->a_dtype : gemm->b_dtype;
    return half;
}

enum {
    TERN_HEAD_WIDTH_MAX = 512,
    TERN_EXPERTS_MAX = 1024
};

/* Causal attention, grouped queries: query head h reads key/value head h / (H/K). Query t of Tq has position
 * Tkv - Tq + t and sees keys [max(starts[t], position - window + 1), position]; window 0: all before. Memory is linear
 * in T: only lse is kept. Heads lie side by side in a row; a tensor has a row stride (between tokens) and a batch stride.
 * Scores are scale * q.k, or softcap * tanh(scale * q.k / softcap).
 * dk, dv, dq are overwritten and have the strides of k, v, q. */
struct tern_attention_args {
    struct tern_dptr q;    /* dtype (B, Tq, H, D) */
    struct tern_dptr k, v; /* dtype (B, Tkv, K, D) */
    struct tern_dptr out;  /* dtype (B, Tq, H, D), row stride out_row */
    struct tern_dptr lse;  /* f32 (B, H, Tq): log of the sum of exponentials; may be null forward */
    struct tern_dptr dout; /* backward only; strides of out */
    struct tern_dptr dq, dk, dv;
    struct tern_dptr starts; /* i32 (B, Tq) or null; with it Tq == Tkv */
    int64_t b, tq, tkv, h, kv_heads, d;
    int64_t q_row, q_batch, kv_row, kv_batch, out_row, out_batch;
    int64_t window;
    float scale;
    float softcap; /* 0: none */
    enum tern_dtype dtype;
};

enum {
    TERN_KV_BLOCK = 16 /* tokens */
};

/* Keys and values of many sequences lie in a pool of blocks of TERN_KV_BLOCK tokens, tern_kv_block_bytes each, one after
 * another, in a layout that is the backend's own: a block is written by kv_write, read by paged_attention, copied whole.
 * A pool starts at a multiple of 16. They are kept as kv_dtype, f32, bf16 or i8, of i8 with a scale for each token and head, of keys and of values:
 * max = the largest |x| of the head's D, the code of x is x * (127 / max) rounded to nearest even, and reads back as
 * code * (max / 127), all in f32; with a max below 2^-100 all read back as 0. What is no finite number may read back as
 * any number from i8.
 *
 * Bytes of one block; 0: the backend has no such blocks. */
size_t tern_kv_block_bytes(const struct tern_device *device,
                           int64_t kv_heads,
                           int64_t d,
                           enum tern_dtype kv_dtype);

/* Row n of k and v goes to place slots[n] % TERN_KV_BLOCK of block slots[n] / TERN_KV_BLOCK. A slot is written once in a
 * call. */
struct tern_kv_write_args {
    struct tern_dptr k, v;  /* dtype (N, K, D), row strides k_row and v_row */
    struct tern_dptr slots; /* i32 (N); -1: the row is skipped */
    struct tern_dptr pool;
    int64_t n, kv_heads, d, k_row, v_row;
    int64_t blocks; /* of the pool */
    enum tern_dtype dtype, kv_dtype;
};

/* Causal attention of new tokens of S sequences over all of each sequence in the pool, their own keys and values
 * included: kv_write comes before. Sequence s has rows [row_starts[s], row_starts[s + 1]), the last of them at position
 * lengths[s] - 1; the key at position p lies in block tables[s][p / TERN_KV_BLOCK], of which only those are looked at
 * that a row sees. Heads, window, scale and softcap as in attention.
 *
 * A row's bits depend on its q and on the keys and values that it sees alone: not on the rows that come with it, the
 * other sequences, the blocks' numbers, or the thread count. */
struct tern_paged_attention_args {
    struct tern_dptr q;   /* dtype (N, H, D), row stride q_row */
    struct tern_dptr out; /* dtype (N, H, D), row stride out_row */
    struct tern_dptr pool;
    struct tern_dptr row_starts; /* i32 (S + 1), from 0 to N; a sequence may have no rows */
    struct tern_dptr lengths;    /* i32 (S), at least the sequence's rows, at most `longest` */
    struct tern_dptr tables;     /* i32 (S, table_row) */
    int64_t n, sequences, longest, table_row;
    int64_t blocks; /* of the pool */
    int64_t h, kv_heads, d, q_row, out_row;
    int64_t window;
    float scale;
    float softcap; /* 0: none */
    enum tern_dtype dtype, kv_dtype;
};

/* Rotary positions in place, Hugging Face's half split, in the first R = rotary_d elements of every head: for i < R/2,
 * with c = cos[p][i], s = sin[p][i], (x[i], x[i+R/2]) -> (x[i] c - x[i+R/2] s, x[i+R/2] c + x[i] s);
 * p = first_position + row % T - starts[row], or positions[row]. backward: s negated. */
struct tern_rope_args {
    struct tern_dptr x;         /* dtype (N, heads, D), row stride x_row */
    struct tern_dptr cos, sin;  /* f32 (P, R/2) */
    struct tern_dptr starts;    /* i32 (N) or null */
    struct tern_dptr positions; /* i32 (N) or null */
    int64_t n, t, heads, d, x_row;
    int64_t rotary_d; /* R, even, up to D; 0: D */
    int64_t first_position;
    int64_t position_count;
    bool backward;
    enum tern_dtype dtype;
};

enum tern_act {
    TERN_ACT_GELU_TANH,
    TERN_ACT_SILU
};

/* y = act(x); backward: dx = dy * act'(x), dx may be dy. n elements. */
struct tern_act_args {
    struct tern_dptr x, y, dy, dx;
    int64_t n;
    enum tern_act act;
    enum tern_dtype dtype;
};

/* Gated MLP: gate_up (N, 2F) = [gate | up]; out (N, F) = act(gate) * up. Backward: dgate_up from dout and gate_up. */
struct tern_glu_args {
    struct tern_dptr gate_up, out;
    struct tern_dptr dout, dgate_up;
    int64_t n, f;
    enum tern_act act;
    enum tern_dtype dtype;
};

/* y = a + scale * b, rounded once; a null: y = scale * b. n elements, y may be a or b. The lane tree and gradient sums
 * use it with f32. */
struct tern_add_args {
    struct tern_dptr a, b, y;
    int64_t n;
    float scale; /* 0 stands for 1 */
    enum tern_dtype dtype;
};

/* y = cap * tanh(x / cap), n elements; y may be x. */
struct tern_softcap_args {
    struct tern_dptr x, y;
    int64_t n;
    float cap;
    enum tern_dtype dtype;
};

/* Softmax cross-entropy of rows of logits (R, V), row stride ld: nll[r] = lse - logits[r][target]; targets outside
 * [0, V) (use -1) count nothing: nll 0. With a softcap, softcap * tanh(logits / softcap) takes the place of logits. backward: the gradient, softmax - one_hot (zero for ignored rows), unscaled,
 * takes the place of logits; or, with dlogits, goes there in bf16, and logits hold nothing of use afterwards. nll is
 * written then too. */
struct tern_cross_entropy_args {
    struct tern_dptr logits;  /* f32 (R, V) */
    struct tern_dptr targets; /* i32 (R) */
    struct tern_dptr nll;     /* f32 (R) */
    struct tern_dptr dlogits; /* bf16 (R, V), row stride ldd; or null; backward only */
    int64_t rows, v, ld, ldd;
    float softcap; /* 0: none */
    bool backward;
    enum tern_dtype dtype; /* of logits and nll: f32, which is 0 */
};

/* One AdamW step (Loshchilov and Hutter 2019, decoupled decay) on n elements, all f32:
 * g = grad * grad_scale[0]; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2;
 * w -= lr * ((m / bias1) / (sqrt(v / bias2) + eps) + weight_decay * w); copy = w in copy_dtype (null: none).
 * A grad_scale that is not finite leaves everything as it is. */
struct tern_adamw_args {
    struct tern_dptr weight, grad, exp_avg, exp_avg_sq;
    struct tern_dptr copy;
    struct tern_dptr grad_scale; /* f32 (1): what clip found */
    enum tern_dtype copy_dtype;
    int64_t n;
    float lr, beta1, beta2, eps, weight_decay;
    float bias1, bias2; /* 1 - beta^step */
};

/* sums[i] = sum of x[j]^2 in double for j in [starts[i], starts[i+1]); is_plain: of x[j], on host backends in ascending
 * j. */
struct tern_sumsq_args {
    struct tern_dptr x;      /* f32 */
    struct tern_dptr starts; /* i64 (blocks + 1), ascending */
    struct tern_dptr sums;   /* f64 (blocks) */
    int64_t blocks;
    bool is_plain;
};

/* What a step's gradients are multiplied by, from what all ranks found. With v[i] = values[order[i]]:
 * total = v[0] + v[1] + ... + v[blocks - 1], added in this order in double on every backend;
 * norm = sqrt(total) / count; scale = min(1, max_norm / (norm + 1e-6)) / count, max_norm 0: 1 / count.
 * When the norm or one of the `losses` values that follow in the order is not finite, scale is a NaN. */
struct tern_clip_args {
    struct tern_dptr values; /* f64 (n) */
    struct tern_dptr order;  /* i64 (blocks + losses): each in [0, n) */
    struct tern_dptr total;  /* f64 (1) */
    struct tern_dptr scale;  /* f32 (1) */
    int64_t n, blocks, losses;
    double count;    /* the gradients are of the sum of this many losses */
    double max_norm; /* 0: no limit */
};

/* dst = src converted; n elements; f32 <-> bf16 or a plain copy. */
struct tern_cast_args {
    struct tern_dptr src, dst;
    int64_t n;
    enum tern_dtype src_dtype, dst_dtype;
};

/* A mixture of experts: for every row the top_k experts of largest logit (of equal ones the lower number first), and
 * their weights: softmax over all experts; normalise: divided by the sum of those chosen. The N * top_k pairs of row
 * and expert are then numbered by expert, those of an expert by row: expert e computes on pairs
 * [starts[e], starts[e + 1]), pair i on row rows[i]. N * top_k < 2^31. */
struct tern_moe_route_args {
    struct tern_dptr logits;  /* dtype (N, experts) */
    struct tern_dptr experts; /* i32 (N, top_k), largest logit first */
    struct tern_dptr weights; /* f32 (N, top_k) */
    struct tern_dptr pairs;   /* i32 (N, top_k): the number of each pair */
    struct tern_dptr rows;    /* i32 (N * top_k) */
    struct tern_dptr starts;  /* i32 (experts + 1) */
    int64_t n, expert_count, top_k;
    bool normalise;
    enum tern_dtype dtype;
};

/* out (N, C) = the sum over j < top_k, in that order, of weights[n][j] * x[pairs[n][j]]. */
struct tern_moe_combine_args {
    struct tern_dptr x;       /* dtype (N * top_k, C): what the experts gave, by pair */
    struct tern_dptr weights; /* f32 (N, top_k) */
    struct tern_dptr pairs;   /* i32 (N, top_k) */
    struct tern_dptr out;     /* dtype (N, C) */
    int64_t n, top_k, c;
    enum tern_dtype dtype;
};

/* What a backend may lack; arguments that need it are refused by name (TERN_ERR_UNSUPPORTED), as are ops that it has
 * not at all. */
enum tern_op_lack {
    TERN_LACKS_EMBED_SCALE = 1 << 0,
    TERN_LACKS_NORM_HEADS = 1 << 1, /* several norms in a row, strides, copy, in place */
    TERN_LACKS_NORM_OFFSET = 1 << 2,
    TERN_LACKS_SOFTCAP = 1 << 3,     /* in attention and cross-entropy */
    TERN_LACKS_ROTARY_PART = 1 << 4, /* rotary_d < D */
    TERN_LACKS_DOCUMENTS = 1 << 5,   /* starts */
    TERN_LACKS_STORED = 1 << 6,      /* weights as model files store them */
    TERN_LACKS_PACKED = 1 << 7,      /* packed weights */
};

/* The largest shapes an open device will be asked for: its workspace is taken once from them. */
struct tern_op_limits {
    int64_t rows;     /* N: tokens of a micro-batch, or rows of any gemm */
    int64_t sequence; /* T */
    int64_t width;    /* the widest of C, F, H*D, ... in a norm, bias or gemm row */
    int64_t heads, kv_heads, head_width;
    int64_t batch; /* B, or S of paged_attention */
    int64_t vocab;
    /* Algorithms may be chosen by timing them: faster, but two processes may then sum in different orders. */
    bool may_tune;
};

struct tern_ops {
    const struct tern_device_table *device;
    /* Takes the workspace; *bytes_out says how much. May be called again with larger limits, never inside a step. */
    tern_status (*prepare)(struct tern_device *, const struct tern_op_limits *, size_t *bytes_out);
    tern_status (*embed_fwd)(struct tern_device *, const struct tern_embed_fwd_args *);
    tern_status (*embed_bwd)(struct tern_device *, const struct tern_embed_bwd_args *);
    tern_status (*norm_fwd)(struct tern_device *, const struct tern_norm_fwd_args *);
    tern_status (*norm_bwd)(struct tern_device *, const struct tern_norm_bwd_args *);
    tern_status (*gemm)(struct tern_device *, const struct tern_gemm_args *);
    tern_status (*bias_bwd)(struct tern_device *, const struct tern_bias_bwd_args *);
    tern_status (*gemm_bias_bwd)(struct tern_device *, const struct tern_gemm_bias_bwd_args *);
    tern_status (*attention_fwd)(struct tern_device *, const struct tern_attention_args *);
    tern_status (*attention_bwd)(struct tern_device *, const struct tern_attention_args *);
    /* NULL: no paged keys and values. */
    size_t (*kv_block_bytes)(int64_t kv_heads, int64_t d, enum tern_dtype kv_dtype);
    tern_status (*kv_write)(struct tern_device *, const struct tern_kv_write_args *);
    tern_status (*paged_attention)(struct tern_device *, const struct tern_paged_attention_args *);
    tern_status (*rope)(struct tern_device *, const struct tern_rope_args *);
    tern_status (*act_fwd)(struct tern_device *, const struct tern_act_args *);
    tern_status (*act_bwd)(struct tern_device *, const struct tern_act_args *);
    tern_status (*glu_fwd)(struct tern_device *, const struct tern_glu_args *);
    tern_status (*glu_bwd)(struct tern_device *, const struct tern_glu_args *);
    tern_status (*add)(struct tern_device *, const struct tern_add_args *);
    tern_status (*cross_entropy)(struct tern_device *, const struct tern_cross_entropy_args *);
    tern_status (*adamw)(struct tern_device *, const struct tern_adamw_args *);
    tern_status (*sumsq)(struct tern_device *, const struct tern_sumsq_args *);
    tern_status (*clip)(struct tern_device *, const struct tern_clip_args *);
    tern_status (*cast)(struct tern_device *, const struct tern_cast_args *);
    tern_status (*softcap)(struct tern_device *, const struct tern_softcap_args *);
    tern_status (*moe_route)(struct tern_device *, const struct tern_moe_route_args *);
    tern_status (*moe_combine)(struct tern_device *, const struct tern_moe_combine_args *);
    tern_status (*pack)(struct tern_device *, const struct tern_pack_args *);
    /* With `pack`; NULL where a backend has no packed weights. */
    size_t (*packed_bytes)(struct tern_device *, enum tern_packed, int64_t n, int64_t k);
    unsigned lacks; /* of enum tern_op_lack */
    /* TERN_F64 may stand for every floating dtype of a call, side data (mean, lse, cos, gradients) included. Only
     * ref has it: finite differences in double need it. */
    bool has_f64;
    /* Attention in bf16 rounds weights and their gradients to bf16 where they are factors, as tensor cores need it:
     * p before p v and p^T dout, ds before ds k and ds^T q. */
    bool rounds_weights;
};

/* Every backend's device starts with this. */
struct tern_device {
    const struct tern_ops *ops;
};

/* Checked wrappers, one an op: verify pointers, ranges and combinations, then call the backend. */
TERN_MUST_CHECK tern_status tern_op_embed_fwd(struct tern_device *,
                                              const struct tern_embed_fwd_args *);
TERN_MUST_CHECK tern_status tern_op_embed_bwd(struct tern_device *,
                                              const struct tern_embed_bwd_args *);
TERN_MUST_CHECK tern_status tern_op_norm_fwd(struct tern_device *,
                                             const struct tern_norm_fwd_args *);
TERN_MUST_CHECK tern_status tern_op_norm_bwd(struct tern_device *,
                                             const struct tern_norm_bwd_args *);
TERN_MUST_CHECK tern_status tern_op_gemm(struct tern_device *, const struct tern_gemm_args *);
TERN_MUST_CHECK tern_status tern_op_bias_bwd(struct tern_device *,
                                             const struct tern_bias_bwd_args *);
TERN_MUST_CHECK tern_status tern_op_gemm_bias_bwd(struct tern_device *,
                                                  const struct tern_gemm_bias_bwd_args *);
TERN_MUST_CHECK tern_status tern_op_attention_fwd(struct tern_device *,
                                                  const struct tern_attention_args *);
TERN_MUST_CHECK tern_status tern_op_attention_bwd(struct tern_device *,
                                                  const struct tern_attention_args *);
TERN_MUST_CHECK tern_status tern_op_kv_write(struct tern_device *,
                                             const struct tern_kv_write_args *);
TERN_MUST_CHECK tern_status tern_op_paged_attention(struct tern_device *,
                                                    const struct tern_paged_attention_args *);
TERN_MUST_CHECK tern_status tern_op_rope(struct tern_device *, const struct tern_rope_args *);
TERN_MUST_CHECK tern_status tern_op_act_fwd(struct tern_device *, const struct tern_act_args *);
TERN_MUST_CHECK tern_status tern_op_act_bwd(struct tern_device *, const struct tern_act_args *);
TERN_MUST_CHECK tern_status tern_op_glu_fwd(struct tern_device *, const struct tern_glu_args *);
TERN_MUST_CHECK tern_status tern_op_glu_bwd(struct tern_device *, const struct tern_glu_args *);
TERN_MUST_CHECK tern_status tern_op_add(struct tern_device *, const struct tern_add_args *);
TERN_MUST_CHECK tern_status tern_op_cross_entropy(struct tern_device *,
                                                  const struct tern_cross_entropy_args *);
TERN_MUST_CHECK tern_status tern_op_adamw(struct tern_device *, const struct tern_adamw_args *);
TERN_MUST_CHECK tern_status tern_op_sumsq(struct tern_device *, const struct tern_sumsq_args *);
TERN_MUST_CHECK tern_status tern_op_clip(struct tern_device *, const struct tern_clip_args *);
TERN_MUST_CHECK tern_status tern_op_cast(struct tern_device *, const struct tern_cast_args *);
TERN_MUST_CHECK tern_status tern_op_softcap(struct tern_device *, const struct tern_softcap_args *);
TERN_MUST_CHECK tern_status tern_op_moe_route(struct tern_device *,
                                              const struct tern_moe_route_args *);
TERN_MUST_CHECK tern_status tern_op_moe_combine(struct tern_device *,
                                                const struct tern_moe_combine_args *);
TERN_MUST_CHECK tern_status tern_op_pack(struct tern_device *, const struct tern_pack_args *);
/* Bytes of a packed matrix; 0: this backend keeps none of this kind. */
size_t tern_packed_bytes(struct tern_device *device, enum tern_packed packed, int64_t n, int64_t k);
TERN_MUST_CHECK tern_status tern_device_prepare(struct tern_device *,
                                                const struct tern_op_limits *,
                                                size_t *bytes_out);

/* One entry an op, in the order of struct tern_ops. */
enum tern_op {
    TERN_OP_EMBED_FWD,
    TERN_OP_EMBED_BWD,
    TERN_OP_NORM_FWD,
    TERN_OP_NORM_BWD,
    TERN_OP_GEMM,
    TERN_OP_BIAS_BWD,
    TERN_OP_GEMM_BIAS_BWD,
    TERN_OP_ATTENTION_FWD,
    TERN_OP_ATTENTION_BWD,
    TERN_OP_KV_WRITE,
    TERN_OP_PAGED_ATTENTION,
    TERN_OP_ROPE,
    TERN_OP_ACT_FWD,
    TERN_OP_ACT_BWD,
    TERN_OP_GLU_FWD,
    TERN_OP_GLU_BWD,
    TERN_OP_ADD,
    TERN_OP_CROSS_ENTROPY,
    TERN_OP_ADAMW,
    TERN_OP_SUMSQ,
    TERN_OP_CLIP,
    TERN_OP_CAST,
    TERN_OP_SOFTCAP,
    TERN_OP_MOE_ROUTE,
    TERN_OP_MOE_COMBINE,
    TERN_OP_PACK,
    TERN_OP_COUNT
};
const char *tern_op_name(enum tern_op op); /* "embed_fwd", ... */

/* Time per op since profiling was last switched on, for --profile. Off by default; off costs one branch. While it is
 * on, every op is followed by a sync of its device, so that the time is the op's own. */
struct tern_op_profile {
    const char *name;
    int64_t calls;
    double seconds, flops, bytes;
};
/* Switching on starts from zero; switching off keeps what was counted. */
void tern_op_profile_enable(bool on);
bool tern_op_profile_is_on(void);
void tern_op_profile_read(struct tern_op_profile out[TERN_OP_COUNT]);

#endif
