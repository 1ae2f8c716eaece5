/* attention_w96.cu - attention on tensor cores, heads of width 96. */
#include "kernels/cuda/attention_instance.cuh"

TERN_ATTENTION_WIDTH(96)
