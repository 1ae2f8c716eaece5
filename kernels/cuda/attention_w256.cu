/* attention_w256.cu - attention on tensor cores, heads of width 256. */
#include "kernels/cuda/attention_instance.cuh"

TERN_ATTENTION_WIDTH(256)
