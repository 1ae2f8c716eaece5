/* attention_w128.cu - attention on tensor cores, heads of width 128. */
#include "kernels/cuda/attention_instance.cuh"

TERN_ATTENTION_WIDTH(128)
