/* rope.c - rotary positions: the angle that one position turns each pair of a head by, in every
 * scaling, and the tables of cosines and sines.
 *
 * Frequencies are those of Transformers' modeling_rope_utils, computed in double. */
#include "models/transformer.h"

#include <math.h>

/* What the plain frequencies are made of: pair i turns by base^(-2i / width). */
static double plain_frequency(double base, int64_t pair, int64_t width)
{
    double exponent = (double)(2 * pair) / (double)width;
    return pow(base, -exponent);
}

/* Long wavelengths are slowed by `factor`, short ones kept, those between blended. */
static double llama3_frequency(const struct tern_model_config *config, double frequency)
{
    double wavelength = 2 * M_PI / frequency;
    double low = (double)config->rope_original_context / config->rope_low_freq_factor;
    double high = (double)config->rope_original_context / config->rope_high_freq_factor;
    if (wavelength < high) {
        return frequency;
    }
    if (wavelength > low) {
        return frequency / config->rope_factor;
    }
    double smooth =
        ((double)config->rope_original_context / wavelength - config->rope_low_freq_factor) /
        (config->rope_high_freq_factor - config->rope_low_freq_factor);
    return (1 - smooth) * frequency / config->rope_factor + smooth * frequency;
}

/* The pair (a real number) that turns `turns` times within the original context. */
static double yarn_pair(const struct tern_model_config *config, double turns)
{
    return (double)config->rope_width *
           log((double)config->rope_original_context / (turns * 2 * M_PI)) /
           (2 * log(config->rope_theta));
}

/* Pairs that turn often are kept, those that turn rarely slowed, a ramp between. */
static double yarn_frequency(const struct tern_model_config *config, int64_t pair, double frequency)
{
    double low = yarn_pair(config, config->rope_beta_fast);
    double high = yarn_pair(config, config->rope_beta_slow);
    if (!config->rope_keeps_fractions) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, (double)config->rope_width - 1);
    if (low == high) {
        high += 0.001;
    }
    double slowed = fmin(fmax(((double)pair - low) / (high - low), 0), 1);
    return slowed * frequency / config->rope_factor + (1 - slowed) * frequency;
}

/* The base for a sequence longer than the original context (NTK by parts of the length). */
static double dynamic_base(const struct tern_model_config *config, int64_t length)
{
    double original = (double)config->rope_original_context;
    double stretch = fmax((double)length, original);
    double factor = config->rope_factor;
    double width = (double)config->rope_width;
    return config->rope_theta *
           pow(factor * stretch / original - (factor - 1), width / (width - 2));
}

static double frequency_of(const struct tern_model_config *config,
                           bool is_local,
                           int64_t length,
                           int64_t pair)
{
    int64_t width = config->rope_width;
    if (is_local && config->rope_theta_local > 0) {
        return plain_frequency(config->rope_theta_local, pair, width);
    }
    double base = config->rope_scaling == TERN_ROPE_DYNAMIC ? dynamic_base(config, length)
                                                            : config->rope_theta;
    double frequency = plain_frequency(base, pair, width);
    switch (config->rope_scaling) {
    case TERN_ROPE_LINEAR:
        return frequency / config->rope_factor;
    case TERN_ROPE_LLAMA3:
        return llama3_frequency(config, frequency);
    case TERN_ROPE_YARN:
        return yarn_frequency(config, pair, frequency);
    case TERN_ROPE_LONGROPE:
        return frequency / (length > config->rope_original_context ? config->rope_long[pair]
                                                                   : config->rope_short[pair]);
    default:
        return frequency;
    }
}

double tern_rope_attention_factor(const struct tern_model_config *config)
{
    if (config->rope_attention_factor > 0) {
        return config->rope_attention_factor;
    }
    if (config->rope_scaling == TERN_ROPE_YARN) {
        return config->rope_factor > 1 ? 0.1 * log(config->rope_factor) + 1 : 1;
    }
    if (config->rope_scaling == TERN_ROPE_LONGROPE && config->rope_factor > 1) {
        return sqrt(1 + log(config->rope_factor) / log((double)config->rope_original_context));
    }
    return 1;
}

bool tern_rope_follows_length(const struct tern_model_config *config)
{
    return config->rope_scaling == TERN_ROPE_DYNAMIC || config->rope_scaling == TERN_ROPE_LONGROPE;
}

void tern_rope_tables(const struct tern_model_config *config,
                      bool is_local,
                      int64_t length,
                      int64_t first,
                      int64_t positions,
                      float *cos_out,
                      float *sin_out)
{
    int64_t half = config->rope_width / 2;
    bool is_scaled = !(is_local && config->rope_theta_local > 0);
    double factor = is_scaled ? tern_rope_attention_factor(config) : 1;
    for (int64_t i = 0; i < half; i++) {
        double frequency = frequency_of(config, is_local, length, i);
        for (int64_t p = 0; p < positions; p++) {
            cos_out[p * half + i] = (float)(factor * cos((double)(first + p) * frequency));
            sin_out[p * half + i] = (float)(factor * sin((double)(first + p) * frequency));
        }
    }
}
