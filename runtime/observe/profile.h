/* profile.h - where the time of a run went, op by op. */
#ifndef TERN_RUNTIME_OBSERVE_PROFILE_H
#define TERN_RUNTIME_OBSERVE_PROFILE_H

/* A table on stderr from the op counters: seconds, share, GFLOP/s, GB/s, share of peak when it is
 * known (> 0). */
void tern_profile_print(double peak_flops);

#endif
