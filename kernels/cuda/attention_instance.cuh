/* attention_instance.cuh - the kernels of one head width, chosen by their tile: what an attention_w*.cu is made of. */
#ifndef TERN_KERNELS_CUDA_ATTENTION_INSTANCE_CUH
#define TERN_KERNELS_CUDA_ATTENTION_INSTANCE_CUH

#include "kernels/cuda/attention_bwd.cuh"
#include "kernels/cuda/attention_fwd.cuh"

typedef void (*tern_attention_kernel)(const tern_attention_params);

template <enum tern_attention_pass PASS, int D, int WARP_ROWS, int TILE, int BLOCKS>
static tern_attention_kernel tern_attention_kernel_of()
{
    if constexpr (PASS == TERN_ATTENTION_FWD) {
        return tern_attention_fwd_kernel<D, WARP_ROWS, TILE, BLOCKS>;
    } else if constexpr (PASS == TERN_ATTENTION_DQ) {
        return tern_attention_dq_kernel<D, WARP_ROWS, TILE, BLOCKS>;
    } else {
        return tern_attention_dkv_kernel<D, WARP_ROWS, TILE, BLOCKS>;
    }
}

#define TERN_ATTENTION_INSTANCE(pass_, width_, rows_, tile_, blocks_) \
    if (tile->pass == pass_ && tile->warp_rows == rows_ && tile->tile_rows == tile_) { \
        kernel = tern_attention_kernel_of<pass_, width_, rows_, tile_, blocks_>(); \
    }

/* Defines the launcher of one width from its list in attention_plan.h. */
#define TERN_ATTENTION_WIDTH(width) \
    tern_status tern_attention_launch_##width(const struct tern_attention_tile *tile, \
                                              const tern_attention_params &p, cudaStream_t stream) \
    { \
        tern_attention_kernel kernel = NULL; \
        TERN_ATTENTION_TILES_##width(TERN_ATTENTION_INSTANCE) return tern_attention_enqueue( \
            kernel, tile, p, stream); \
    }

static inline tern_status tern_attention_enqueue(tern_attention_kernel kernel,
                                                 const struct tern_attention_tile *tile,
                                                 const tern_attention_params &p,
                                                 cudaStream_t stream)
{
    static const char *const names[] = {"attention_fwd", "attention_bwd (dq)",
                                        "attention_bwd (dk, dv)"};
    size_t bytes = tern_attention_shared_bytes(tile);
    TERN_RETURN_IF_ERR(tern_cuda_status(tern_allow_shared(kernel, bytes), names[tile->pass]));
    tern_launch(kernel, dim3((unsigned)p.items * (unsigned)p.blocks), dim3(TERN_ATTENTION_THREADS),
                bytes, stream, p);
    return tern_cuda_launched(names[tile->pass]);
}

#endif
