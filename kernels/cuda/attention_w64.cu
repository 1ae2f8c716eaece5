/* attention_w64.cu - attention on tensor cores, heads of width 64. */
#include "kernels/cuda/attention_instance.cuh"

TERN_ATTENTION_WIDTH(64)
