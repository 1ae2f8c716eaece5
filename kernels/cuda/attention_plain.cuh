/* attention_plain.cuh - the attention kernels of any width, dtype, stride and alignment; arithmetic in fp32. */
#ifndef TERN_KERNELS_CUDA_ATTENTION_PLAIN_CUH
#define TERN_KERNELS_CUDA_ATTENTION_PLAIN_CUH

#include "kernels/cuda/attention.cuh"

/* Rows that a block owns. */
int tern_attention_plain_rows(enum tern_attention_pass pass, int width);
tern_status tern_attention_launch_plain(enum tern_attention_pass pass,
                                        const tern_attention_params &p,
                                        cudaStream_t stream);

#endif
