/* cublaslt.cc - a stand-in for cuBLASLt: arguments are checked as its documentation demands, memory is declared to the
 * engine, and the arithmetic is done on the CPU in fp32.
 *
 * Refusals come back as the status that the library gives. What on a GPU would be a fault or silently wrong (a pointer
 * less aligned than the algorithm asks for, a bias that is not 16-byte aligned, an algorithm of another problem) ends
 * the process by cusim_fail.
 *
 * The heuristic gives several algorithms, always the same for the same problem as the library does, best first. They
 * differ in what they need and in the order of their sums; the one that comes first when nobody forbids it adds in an
 * order that changes from run to run. */
#include "tests/cusim/engine.h"

#include <cublasLt.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

struct cublasLtContext {
    int device;
};

namespace
{

enum {
    WORKSPACE_ALIGN = 16,
    EPILOGUE_ALIGN = 16, /* of a bias and of aux: kernels take it for granted */
    AUX_LD_STEP = 8,
    SIZE_MAX_SUPPORTED = 0x7fffffff,
    VERSION = 130000,
};

const uint64_t LAYOUT = 0x4c61796f75740001, OPERATION = 0x4465736300000001,
               PREFERENCE = 0x5072656600000001, ALGORITHM = 0x416c676f00000001;

struct layout {
    uint64_t magic;
    uint64_t rows, columns;
    int64_t ld;
    int32_t type;
};

struct operation {
    uint64_t magic;
    int32_t compute, scale;
    int32_t transpose_a, transpose_b;
    uint32_t epilogue;
    int32_t bias_type; /* -1: as D */
    const void *bias;
    void *aux;
    int64_t aux_ld;
};

struct preference {
    uint64_t magic;
    uint64_t workspace;
    uint32_t schemes;
    uint32_t align[4]; /* A, B, C, D */
};

struct algorithm {
    uint64_t magic;
    uint64_t problem; /* hash of the types and sizes that it was made for */
    uint32_t id;
    uint32_t align; /* bytes, of A, C and D and their leading dimensions */
    uint32_t block; /* of k: summed by itself before it is added */
    uint32_t splits;
    uint32_t scheme;
    uint32_t align_b; /* of B */
    uint64_t workspace;
};

static_assert(sizeof(layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "fits");
static_assert(sizeof(operation) <= sizeof(cublasLtMatmulDescOpaque_t), "fits");
static_assert(sizeof(preference) <= sizeof(cublasLtMatmulPreferenceOpaque_t), "fits");
static_assert(sizeof(algorithm) <= sizeof(cublasLtMatmulAlgo_t), "fits");

template <typename Inside, typename Opaque> Inside inside(const Opaque *opaque)
{
    Inside it;
    memcpy(&it, opaque, sizeof it);
    return it;
}

template <typename Inside, typename Opaque> void put(Opaque *opaque, const Inside &it)
{
    memset(opaque, 0xff, sizeof *opaque);
    memcpy(opaque, &it, sizeof it);
}

size_t bytes_of(int32_t type)
{
    return type == CUDA_R_16BF ? 2 : 4;
}

/* ---- a problem, checked ---- */

struct problem {
    operation op;
    layout a, b, c, d;
    uint64_t m, n, k;
};

/* cublasLtMatmul's table of types, as far as f32 and bf16 go. */
bool are_types_supported(const problem &p)
{
    bool is_plain =
        p.op.compute == CUBLAS_COMPUTE_32F || p.op.compute == CUBLAS_COMPUTE_32F_PEDANTIC;
    bool is_fast = p.op.compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
                   p.op.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if (p.op.scale != CUDA_R_32F || p.a.type != p.b.type || p.c.type != p.d.type) {
        return false;
    }
    bool is_bf16 = p.a.type == CUDA_R_16BF;
    return is_bf16 ? is_plain : (is_plain || is_fast) && p.d.type == CUDA_R_32F;
}

bool has_bias(const problem &p)
{
    return p.op.epilogue == CUBLASLT_EPILOGUE_BIAS ||
           p.op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
}

/* The bias is an output: sums over k of a factor. */
bool has_bias_gradient(const problem &p)
{
    return p.op.epilogue == CUBLASLT_EPILOGUE_BGRADA || p.op.epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool has_aux(const problem &p)
{
    return p.op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS ||
           p.op.epilogue == CUBLASLT_EPILOGUE_DGELU;
}

/* Bias and aux by the documentation of cublasLtMatmulDescAttributes_t. */
cublasStatus_t check_epilogue(const problem &p)
{
    if (p.op.epilogue != CUBLASLT_EPILOGUE_DEFAULT && !has_bias(p) && !has_aux(p) &&
        !has_bias_gradient(p)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (has_aux(p) && (p.op.aux == nullptr || p.op.aux_ld < (int64_t)p.m)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (has_aux(p) && p.op.aux_ld % AUX_LD_STEP != 0) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (!has_bias(p) && !has_bias_gradient(p)) {
        return CUBLAS_STATUS_SUCCESS;
    }
    if (p.op.bias == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return p.op.bias_type == -1 || p.op.bias_type == p.d.type ? CUBLAS_STATUS_SUCCESS
                                                              : CUBLAS_STATUS_NOT_SUPPORTED;
}

bool is_layout_sane(const layout &it)
{
    return it.magic == LAYOUT && it.rows > 0 && it.columns > 0 && it.ld >= (int64_t)it.rows;
}

cublasStatus_t make_problem(cublasLtHandle_t handle,
                            const cublasLtMatmulDescOpaque_t *op,
                            const cublasLtMatrixLayoutOpaque_t *a,
                            const cublasLtMatrixLayoutOpaque_t *b,
                            const cublasLtMatrixLayoutOpaque_t *c,
                            const cublasLtMatrixLayoutOpaque_t *d,
                            problem *out)
{
    if (handle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (op == nullptr || a == nullptr || b == nullptr || c == nullptr || d == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    problem p = {inside<operation>(op),
                 inside<layout>(a),
                 inside<layout>(b),
                 inside<layout>(c),
                 inside<layout>(d),
                 0,
                 0,
                 0};
    if (p.op.magic != OPERATION || !is_layout_sane(p.a) || !is_layout_sane(p.b) ||
        !is_layout_sane(p.c) || !is_layout_sane(p.d)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    bool is_a_turned = p.op.transpose_a != CUBLAS_OP_N,
         is_b_turned = p.op.transpose_b != CUBLAS_OP_N;
    p.m = is_a_turned ? p.a.columns : p.a.rows;
    p.k = is_a_turned ? p.a.rows : p.a.columns;
    p.n = is_b_turned ? p.b.rows : p.b.columns;
    uint64_t k = is_b_turned ? p.b.columns : p.b.rows;
    if (k != p.k || p.d.rows != p.m || p.d.columns != p.n || p.c.rows != p.m ||
        p.c.columns != p.n) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (!are_types_supported(p) || std::max({p.m, p.n, p.k}) > SIZE_MAX_SUPPORTED) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    *out = p;
    return check_epilogue(p);
}

/* Of all but addresses. */
uint64_t hash_of(const problem &p)
{
    const uint64_t numbers[] = {p.m,
                                p.n,
                                p.k,
                                (uint64_t)p.a.ld,
                                (uint64_t)p.b.ld,
                                (uint64_t)p.d.ld,
                                (uint64_t)p.a.type,
                                (uint64_t)p.d.type,
                                (uint64_t)p.op.compute,
                                p.op.epilogue,
                                (uint64_t)p.op.transpose_a,
                                (uint64_t)p.op.transpose_b};
    uint64_t hash = 0xcbf29ce484222325;
    for (uint64_t number : numbers) {
        hash = (hash ^ number) * 0x100000001b3;
    }
    return hash;
}

/* ---- algorithms ---- */

enum {
    KINDS = 8,
    GREEDY_BYTES = 40 << 20 /* more than the workspace that NVIDIA recommends */
};

/* The i-th that there is for the problem, in the heuristic's order. */
algorithm kind(const problem &p, int i)
{
    static const struct {
        uint32_t align, align_b, block, splits, scheme;
        uint64_t workspace; /* 0: what its partial sums need */
    } kinds[KINDS] = {
        {16, 16, 48, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, GREEDY_BYTES},
        {16, 16, 32, 3, CUBLASLT_REDUCTION_SCHEME_INPLACE, 0},
        {2, 2, 16, 2, CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE, 0},
        {16, 16, 64, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0},
        {16, 16, 32, 2, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0},
        {8, 2, 16, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0},
        {2, 2, 24, 4, CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE, 0},
        {2, 2, 8, 1, CUBLASLT_REDUCTION_SCHEME_NONE, 0},
    };
    const auto &it = kinds[i];
    bool has_partial = it.scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE ||
                       it.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE;
    uint64_t partial = has_partial ? 4 * p.m * p.n * (it.splits - 1) : 0;
    return {ALGORITHM, hash_of(p), (uint32_t)i,
            it.align,  it.block,   it.splits,
            it.scheme, it.align_b, std::max(partial, it.workspace)};
}

bool is_stride_good(const layout &it, uint32_t align)
{
    return (uint64_t)it.ld * bytes_of(it.type) % align == 0;
}

bool is_allowed(const problem &p, const algorithm &algo, const preference &pref)
{
    const layout *const layouts[] = {&p.a, &p.b, &p.c, &p.d};
    for (int i = 0; i < 4; i++) {
        uint32_t align = i == 1 ? algo.align_b : algo.align;
        if (pref.align[i] % align != 0 || !is_stride_good(*layouts[i], align)) {
            return false;
        }
    }
    bool is_scheme = algo.scheme == CUBLASLT_REDUCTION_SCHEME_NONE || (algo.scheme & pref.schemes);
    return is_scheme && algo.workspace <= pref.workspace;
}

bool is_known(const problem &p, const algorithm &algo)
{
    if (algo.magic != ALGORITHM || algo.id >= KINDS) {
        return false;
    }
    algorithm real = kind(p, (int)algo.id);
    return memcmp(&real, &algo, sizeof real) == 0;
}

/* ---- arithmetic ---- */

float load(const void *matrix, int32_t type, uint64_t i)
{
    if (type == CUDA_R_32F) {
        return ((const float *)matrix)[i];
    }
    uint32_t bits = (uint32_t)((const uint16_t *)matrix)[i] << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

float round_to(int32_t type, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof x);
    if (type == CUDA_R_32F) {
        return x;
    }
    bits =
        (bits & 0x7fffffffu) > 0x7f800000u ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
    bits &= 0xffff0000u;
    memcpy(&x, &bits, sizeof x);
    return x;
}

void store(void *matrix, int32_t type, uint64_t i, float x)
{
    if (type == CUDA_R_32F) {
        ((float *)matrix)[i] = x;
        return;
    }
    float rounded = round_to(type, x);
    uint32_t bits;
    memcpy(&bits, &rounded, sizeof bits);
    ((uint16_t *)matrix)[i] = (uint16_t)(bits >> 16);
}

/* What a multiplier makes of a stored factor. */
float factor(int32_t compute, float x)
{
    uint32_t bits;
    if (compute == CUBLAS_COMPUTE_32F_FAST_16BF) {
        return round_to(CUDA_R_16BF, x);
    }
    if (compute == CUBLAS_COMPUTE_32F_FAST_TF32) {
        memcpy(&bits, &x, sizeof bits);
        bits = (bits + 0xfffu + (bits >> 13 & 1u)) & 0xffffe000u;
        memcpy(&x, &bits, sizeof bits);
    }
    return x;
}

/* op(matrix) in f32, (rows, columns), columns one after another. */
std::vector<float> unpack(const void *matrix, const layout &it, bool is_turned, int32_t compute)
{
    uint64_t rows = is_turned ? it.columns : it.rows, columns = is_turned ? it.rows : it.columns;
    std::vector<float> out(rows * columns);
    const void *from = cusim_raw(matrix);
    for (uint64_t j = 0; j < it.columns; j++) {
        for (uint64_t i = 0; i < it.rows; i++) {
            float x = factor(compute, load(from, it.type, j * (uint64_t)it.ld + i));
            out[is_turned ? i * rows + j : j * rows + i] = x;
        }
    }
    return out;
}

struct call {
    problem p;
    algorithm algo;
    float alpha, beta;
    const void *a, *b, *c;
    void *d, *workspace;
};

/* sums[i] += sum over p in [first, last) of a[i][p] * b[p], blocks of p by themselves first. */
void add_products(const call &it,
                  const std::vector<float> &a,
                  const float *b,
                  uint64_t first,
                  uint64_t last,
                  std::vector<float> &block,
                  std::vector<float> &sums)
{
    uint64_t m = it.p.m;
    for (uint64_t start = first; start < last; start += it.algo.block) {
        uint64_t end = std::min<uint64_t>(last, start + it.algo.block);
        std::fill(block.begin(), block.end(), 0.0f);
        for (uint64_t p = start; p < end; p++) {
            const float *column = &a[p * m];
            float *to = block.data();
            float x = b[p];
            for (uint64_t i = 0; i < m; i++) {
                to[i] += column[i] * x;
            }
        }
        for (uint64_t i = 0; i < m; i++) {
            sums[i] += block[i];
        }
    }
}

float gelu(float x)
{
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x);
    return 0.5f * x * (1.0f + tanhf(u));
}

float gelu_slope(float x)
{
    float u = 0.7978845608028654f * (x + 0.044715f * x * x * x), t = tanhf(u);
    float slope = 0.5f * (1.0f + t);
    return fabsf(t) < 1 ? slope + 0.5f * x * (1.0f - t * t) * 0.7978845608028654f *
                                      (1.0f + 0.134145f * x * x)
                        : slope;
}

/* Column j of D from its sums. */
void finish_column(const call &it, uint64_t j, const std::vector<float> &sums)
{
    const problem &p = it.p;
    const void *c = cusim_raw(it.c), *bias = has_bias(p) ? cusim_raw(p.op.bias) : nullptr;
    void *d = cusim_raw(it.d), *aux = has_aux(p) ? cusim_raw(p.op.aux) : nullptr;
    for (uint64_t i = 0; i < p.m; i++) {
        float x = it.alpha * sums[i];
        if (it.beta != 0) {
            x += it.beta * load(c, p.c.type, j * (uint64_t)p.c.ld + i);
        }
        uint64_t aux_at = j * (uint64_t)p.op.aux_ld + i;
        if (bias != nullptr) {
            x += load(bias, p.d.type, i);
        }
        if (p.op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
            store(aux, p.d.type, aux_at, x);
            x = gelu(x);
        } else if (aux != nullptr) {
            x *= gelu_slope(load(aux, p.d.type, aux_at));
        }
        store(d, p.d.type, j * (uint64_t)p.d.ld + i, x);
    }
}

/* Sums over k of op(A)'s rows or op(B)'s columns, blocks and splits as the products have them; stored, never added. */
void store_bias_gradient(const call &it, const std::vector<float> &a, const std::vector<float> &b)
{
    const problem &p = it.p;
    bool is_of_a = p.op.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    uint64_t count = is_of_a ? p.m : p.n, step = it.algo.block;
    for (uint64_t i = 0; i < count; i++) {
        float sum = 0;
        for (uint64_t first = 0; first < p.k; first += step) {
            float part = 0;
            for (uint64_t at = first; at < std::min(p.k, first + step); at++) {
                part += is_of_a ? a[at * p.m + i] : b[i * p.k + at];
            }
            sum += part;
        }
        store(cusim_raw(p.op.bias), p.d.type, i, sum);
    }
}

cusim_step multiply(void *state)
{
    const call &it = *(const call *)state;
    const problem &p = it.p;
    std::vector<float> a = unpack(it.a, p.a, p.op.transpose_a != CUBLAS_OP_N, p.op.compute);
    std::vector<float> b = unpack(it.b, p.b, p.op.transpose_b != CUBLAS_OP_N, p.op.compute);
    std::vector<float> block(p.m), part(p.m), sums(p.m);
    uint64_t splits = it.algo.splits, step = (p.k + splits - 1) / splits;
    /* in place: whoever is done first adds first */
    uint64_t turn =
        it.algo.scheme == CUBLASLT_REDUCTION_SCHEME_INPLACE ? cusim_random_below(splits) : 0;
    for (uint64_t j = 0; j < p.n; j++) {
        std::fill(sums.begin(), sums.end(), 0.0f);
        for (uint64_t s = 0; s < splits; s++) {
            uint64_t first = (s + turn) % splits * step, last = std::min(p.k, first + step);
            std::fill(part.begin(), part.end(), 0.0f);
            add_products(it, a, &b[j * p.k], first, last, block, part);
            for (uint64_t i = 0; i < p.m; i++) {
                sums[i] += it.algo.scheme == CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE
                               ? round_to(p.d.type, part[i])
                               : part[i];
            }
        }
        finish_column(it, j, sums);
    }
    if (has_bias_gradient(p)) {
        store_bias_gradient(it, a, b);
    }
    if (it.algo.workspace > 0) { /* whatever was there is lost */
        memset(cusim_raw(it.workspace), 0xff, it.algo.workspace);
    }
    return CUSIM_DONE;
}

void drop(void *state)
{
    delete (call *)state;
}

/* ---- a call ---- */

void require_address(const char *what, const void *pointer, uint64_t align, const char *why)
{
    if (pointer != nullptr && cusim_kind_of(pointer, 1, nullptr) == CUSIM_PAGEABLE) {
        cusim_fail("cublasLtMatmul: %s at %p is pageable host memory", what, pointer);
    }
    if ((uintptr_t)pointer % align != 0) {
        cusim_fail(
            "cublasLtMatmul: %s at %p is not aligned to %llu bytes, as %s: misaligned address",
            what, pointer, (unsigned long long)align, why);
    }
}

void check_addresses(const call &it)
{
    const char *algo = "the chosen algorithm needs",
               *epilogue = "epilogue kernels take for granted";
    require_address("A", it.a, it.algo.align, algo);
    require_address("B", it.b, it.algo.align_b, algo);
    require_address("C", it.c, it.algo.align, algo);
    require_address("D", it.d, it.algo.align, algo);
    if (has_bias(it.p) || has_bias_gradient(it.p)) {
        require_address("the bias", it.p.op.bias, EPILOGUE_ALIGN, epilogue);
    }
    if (has_aux(it.p)) {
        require_address("aux", it.p.op.aux, EPILOGUE_ALIGN, epilogue);
        if (it.p.op.aux == it.d) {
            cusim_fail("cublasLtMatmul: aux is D");
        }
    }
    if (it.d == it.a || it.d == it.b) {
        cusim_fail("cublasLtMatmul: D is also a factor");
    }
    if (it.c == it.d && memcmp(&it.p.c, &it.p.d, sizeof it.p.c) != 0) {
        cusim_fail("cublasLtMatmul: C is D, with another layout");
    }
}

cusim_range range_of(const void *matrix, const layout &it, int64_t ld)
{
    return {matrix, it.rows * bytes_of(it.type), it.columns, (size_t)ld * bytes_of(it.type)};
}

cusim_op declare(call *it)
{
    const problem &p = it->p;
    cusim_op op = {};
    op.name = "cublasLtMatmul";
    op.attempt = multiply;
    op.drop = drop;
    op.state = it;
    op.reads[op.read_count++] = range_of(it->a, p.a, p.a.ld);
    op.reads[op.read_count++] = range_of(it->b, p.b, p.b.ld);
    if (it->beta != 0) {
        op.reads[op.read_count++] = range_of(it->c, p.c, p.c.ld);
    }
    if (has_bias(p)) {
        op.reads[op.read_count++] = {p.op.bias, p.m * bytes_of(p.d.type), 1, 0};
    }
    if (has_bias_gradient(p)) {
        uint64_t count = p.op.epilogue == CUBLASLT_EPILOGUE_BGRADA ? p.m : p.n;
        op.writes[op.write_count++] = {p.op.bias, count * bytes_of(p.d.type), 1, 0};
    }
    op.writes[op.write_count++] = range_of(it->d, p.d, p.d.ld);
    if (p.op.epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        op.writes[op.write_count++] = range_of(p.op.aux, p.d, p.op.aux_ld);
    } else if (has_aux(p)) {
        op.reads[op.read_count++] = range_of(p.op.aux, p.d, p.op.aux_ld);
    }
    if (it->algo.workspace > 0) {
        op.writes[op.write_count++] = {it->workspace, it->algo.workspace, 1, 0};
    }
    return op;
}

} // namespace

/* ---- the library's functions ---- */

extern "C" cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    int device;
    if (cudaGetDevice(&device) != cudaSuccess) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    *handle = new cublasLtContext{device};
    cusim_live("cublasLtHandle", 1);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (handle == nullptr) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    delete handle;
    cusim_live("cublasLtHandle", -1);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" size_t cublasLtGetVersion(void)
{
    return VERSION;
}

extern "C" const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
    case CUBLAS_STATUS_SUCCESS:
        return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_NOT_INITIALIZED:
        return "CUBLAS_STATUS_NOT_INITIALIZED";
    case CUBLAS_STATUS_INVALID_VALUE:
        return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_NOT_SUPPORTED:
        return "CUBLAS_STATUS_NOT_SUPPORTED";
    default:
        return "another CUBLAS_STATUS";
    }
}

extern "C" cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t out,
                                                   cudaDataType_t type,
                                                   uint64_t rows,
                                                   uint64_t columns,
                                                   int64_t ld)
{
    if (type != CUDA_R_32F && type != CUDA_R_16BF) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    put(out, layout{LAYOUT, rows, columns, ld, (int32_t)type});
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t out,
                                                 cublasComputeType_t compute,
                                                 cudaDataType_t scale)
{
    put(out, operation{OPERATION, (int32_t)compute, (int32_t)scale, CUBLAS_OP_N, CUBLAS_OP_N,
                       CUBLASLT_EPILOGUE_DEFAULT, -1, nullptr, nullptr, 0});
    return CUBLAS_STATUS_SUCCESS;
}

template <typename T> static bool take(T &field, const void *value, size_t bytes)
{
    if (value == nullptr || bytes != sizeof field) {
        return false;
    }
    memcpy(&field, value, sizeof field);
    return true;
}

extern "C" cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                                         cublasLtMatmulDescAttributes_t attribute,
                                                         const void *value,
                                                         size_t bytes)
{
    operation op = inside<operation>(desc);
    bool is_good = op.magic == OPERATION;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        is_good = is_good && take(op.transpose_a, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        is_good = is_good && take(op.transpose_b, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        is_good = is_good && take(op.epilogue, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        is_good = is_good && take(op.bias, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        is_good = is_good && take(op.aux, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        is_good = is_good && take(op.aux_ld, value, bytes);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
        is_good = is_good && take(op.bias_type, value, bytes);
        break;
    default:
        is_good = false;
    }
    if (!is_good) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    put(desc, op);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceInit(cublasLtMatmulPreference_t out)
{
    put(out, preference{PREFERENCE, 0, CUBLASLT_REDUCTION_SCHEME_MASK, {256, 256, 256, 256}});
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t desc,
    cublasLtMatmulPreferenceAttributes_t attribute,
    const void *value,
    size_t bytes)
{
    preference pref = inside<preference>(desc);
    bool is_good = pref.magic == PREFERENCE;
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
        is_good = is_good && take(pref.workspace, value, bytes);
    } else if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
        is_good = is_good && take(pref.schemes, value, bytes);
    } else if (attribute >= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES &&
               attribute <= CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES) {
        int i = attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES;
        is_good = is_good && take(pref.align[i], value, bytes) && pref.align[i] > 0;
    } else {
        is_good = false;
    }
    if (!is_good) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    put(desc, pref);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                                         cublasLtMatmulDesc_t op,
                                                         cublasLtMatrixLayout_t a,
                                                         cublasLtMatrixLayout_t b,
                                                         cublasLtMatrixLayout_t c,
                                                         cublasLtMatrixLayout_t d,
                                                         cublasLtMatmulPreference_t desc,
                                                         int wanted,
                                                         cublasLtMatmulHeuristicResult_t *results,
                                                         int *count)
{
    problem p;
    *count = 0;
    if (wanted <= 0 || desc == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    preference pref = inside<preference>(desc);
    cublasStatus_t status = make_problem(handle, op, a, b, c, d, &p);
    if (status != CUBLAS_STATUS_SUCCESS || pref.magic != PREFERENCE) {
        return status != CUBLAS_STATUS_SUCCESS ? status : CUBLAS_STATUS_INVALID_VALUE;
    }
    for (int i = 0; i < KINDS && *count < wanted; i++) {
        algorithm algo = kind(p, i);
        if (is_allowed(p, algo, pref)) {
            cublasLtMatmulHeuristicResult_t &result = results[(*count)++];
            result = {};
            put(&result.algo, algo);
            result.workspaceSize = algo.workspace;
            result.state = CUBLAS_STATUS_SUCCESS;
            result.wavesCount = 1;
        }
    }
    return *count > 0 ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

extern "C" cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle,
                                                  cublasLtMatmulDesc_t op,
                                                  cublasLtMatrixLayout_t a,
                                                  cublasLtMatrixLayout_t b,
                                                  cublasLtMatrixLayout_t c,
                                                  cublasLtMatrixLayout_t d,
                                                  const cublasLtMatmulAlgo_t *desc,
                                                  cublasLtMatmulHeuristicResult_t *result)
{
    problem p;
    cublasStatus_t status = make_problem(handle, op, a, b, c, d, &p);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    algorithm algo = inside<algorithm>(desc);
    if (!is_known(p, algo)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    result->workspaceSize = algo.workspace;
    result->state = CUBLAS_STATUS_SUCCESS;
    result->wavesCount = 1;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle,
                                         cublasLtMatmulDesc_t op,
                                         const void *alpha,
                                         const void *a,
                                         cublasLtMatrixLayout_t a_layout,
                                         const void *b,
                                         cublasLtMatrixLayout_t b_layout,
                                         const void *beta,
                                         const void *c,
                                         cublasLtMatrixLayout_t c_layout,
                                         void *d,
                                         cublasLtMatrixLayout_t d_layout,
                                         const cublasLtMatmulAlgo_t *desc,
                                         void *workspace,
                                         size_t workspace_bytes,
                                         cudaStream_t stream)
{
    problem p;
    cublasStatus_t status = make_problem(handle, op, a_layout, b_layout, c_layout, d_layout, &p);
    if (status != CUBLAS_STATUS_SUCCESS) {
        return status;
    }
    if (alpha == nullptr || beta == nullptr || a == nullptr || b == nullptr || c == nullptr ||
        d == nullptr) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (desc == nullptr) { /* the library would ask its heuristic, in the middle of a step */
        cusim_fail("cublasLtMatmul: no algorithm is given");
    }
    algorithm algo = inside<algorithm>(desc);
    if (!is_known(p, algo)) {
        cusim_fail("cublasLtMatmul: the algorithm is not one of m=%llu n=%llu k=%llu, epilogue %u",
                   (unsigned long long)p.m, (unsigned long long)p.n, (unsigned long long)p.k,
                   p.op.epilogue);
    }
    if (workspace_bytes < algo.workspace || (algo.workspace > 0 && workspace == nullptr)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    require_address("the workspace", workspace, WORKSPACE_ALIGN, "the documentation demands");
    if (cusim_stream_device(stream) != handle->device) {
        cusim_fail("cublasLtMatmul: the stream is of GPU %d, the handle of GPU %d",
                   cusim_stream_device(stream), handle->device);
    }
    call *it =
        new call{p, algo, *(const float *)alpha, *(const float *)beta, a, b, c, d, workspace};
    check_addresses(*it);
    cusim_op declared = declare(it);
    if (cusim_enqueue(stream, &declared) != cudaSuccess) {
        drop(it);
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    return CUBLAS_STATUS_SUCCESS;
}
