/* attention_w80.cu - attention on tensor cores, heads of width 80. */
#include "kernels/cuda/attention_instance.cuh"

TERN_ATTENTION_WIDTH(80)
