/* main.c - bench_roofline: how long a training step would take, op by op, on GPUs that are not here.
 *
 *   bench_roofline [--model NAME] [--machine NAME] [--json]
 *
 * A prediction from the op table's costs and a table of assumptions, not a measurement. */
#include "bench/roofline/roofline.h"
#include "runtime/base/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    STEP_TOKENS = 524288, /* of all GPUs */
    GPUS = 8
};

struct options {
    const char *model, *machine;
    bool json;
};

/* Models, and what others are known to reach with them or with one of that size. */
static const struct target {
    const char *preset;
    int64_t sequence;
    const char *goal, *peer;
} g_targets[] = {
    {"gpt2-124m", 1024, "560,000 tokens/s on one H100 or H200",
     "llm.c, 8 H100: 468,000 tokens/s a GPU, 38.0 % MFU (modded-nanogpt, record of 2024-10-13)"},
    {"gpt2-1558m", 1024, "60 % MFU on one H100 or H200",
     "LLM.Q, Qwen2.5-1.5B, T=1024, one H100: 58,800 tokens/s, 56.6 % MFU (its "
     "benchmarks/H100x1.md); llm.c, this model, 8 H100: 46,800 a GPU, 46.5 %"},
    {"llama-3.1-8b", 4096, "none yet",
     "LLM.Q, Qwen2.5-7B, T=1024, one H100, offloading: 13,850 tokens/s, 60.3 % MFU; NVIDIA's NeMo, "
     "this model, T=8192, 8 H100: 10,254 a GPU, 53.4 %"},
};

enum {
    TARGET_COUNT = sizeof g_targets / sizeof g_targets[0]
};

static const char *const g_recompute[] = {"none", "attention", "block"};

static bool parse(int argc, char **argv, struct options *out)
{
    *out = (struct options){0};
    for (int i = 1; i < argc; i++) {
        bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0) {
            out->json = true;
        } else if (strcmp(argv[i], "--model") == 0 && has_value) {
            out->model = argv[++i];
        } else if (strcmp(argv[i], "--machine") == 0 && has_value) {
            out->machine = argv[++i];
        } else {
            return false;
        }
    }
    return true;
}

static void print_assumptions(void)
{
    const struct tern_roof_assumptions *a = &tern_roof_assumed;
    printf(
        "A prediction on paper: the ops that tern's own stepper calls, each at its cost "
        "(kernels/cost.h), none of them run.\nAssumed: memory-bound ops at %.0f %% of "
        "bandwidth; a product at the machine's best measured rate, less whole waves of tiles, "
        "k / (k + %.0f)\nfor filling the pipeline, x %.2f where rows are no multiple of 16 "
        "bytes apart; attention at %.0f %% of its rate for D <= 64, backward at %.0f %%\nand %.0f "
        "products instead of 5; bias gradients in the epilogues of products, at no cost; %.1f us "
        "between kernels (CUDA graphs); %.0f ns an addition "
        "in double where one waits for the other; %.0f us an exchange between GPUs, %.0f "
        "us\nbetween hosts. %d tokens a step. "
        "MFU counts causal attention (6 N + 6 L H D T).\n\n",
        100 * a->memory_share, a->gemm_fill, a->gemm_unaligned, 100 * a->attention_narrow,
        100 * a->attention_backward, 5 * a->attention_products, 1e6 * a->gap_seconds,
        1e9 * a->addition_seconds, 1e6 * a->exchange_seconds, 1e6 * a->words_seconds, STEP_TOKENS);
    printf("%-9s %8s %10s %8s %10s %10s %10s %10s\n", "machine", "GiB", "bf16 TF/s", "TB/s",
           "product", "attention", "bus GB/s", "pair GB/s");
    for (int i = 0; i < tern_roof_machine_count; i++) {
        const struct tern_roof_machine *m = &tern_roof_machines[i];
        printf("%-9s %8.1f %10.0f %8.2f %10.0f %10.0f %10.0f %10.0f\n", m->name, m->memory_gib,
               m->bf16 * 1e-12, m->bytes * 1e-12, m->gemm * 1e-12, m->attention * 1e-12,
               m->bus * 1e-9, m->exchange * 1e-9);
    }
}

/* What MFU a row costs: its time less the time that its model FLOPs would take at the peak, of the step. */
static double lost(const struct tern_roof_row *row, const struct tern_roof_plan *plan, double step)
{
    double ideal = row->is_product ? row->flops / plan->gpu.machine->bf16 : 0;
    return (row->seconds - ideal) / step;
}

static int by_seconds(const void *a, const void *b)
{
    double x = ((const struct tern_roof_row *)a)->seconds;
    double y = ((const struct tern_roof_row *)b)->seconds;
    return (x < y) - (x > y);
}

static void print_ops(const struct tern_roof_plan *plan, const struct tern_roof_step *step)
{
    struct tern_roof_count sorted = step->compute;
    double products = 0;
    qsort(sorted.rows, (size_t)sorted.row_count, sizeof sorted.rows[0], by_seconds);
    printf("\n%s on %d x %s, T=%lld, micro-batch %lld, recompute %s, %d lanes: one GPU's step\n",
           plan->preset, plan->ranks, plan->gpu.machine->name, (long long)plan->sequence,
           (long long)plan->micro_batch, g_recompute[plan->recompute], plan->lanes);
    printf("  %-44s %7s %9s %7s %8s %7s %9s\n", "op", "calls", "ms", "share", "TFLOP/s", "GB/s",
           "MFU lost");
    for (int i = 0; i < sorted.row_count; i++) {
        const struct tern_roof_row *row = &sorted.rows[i];
        printf("  %-44s %7lld %9.3f %6.2f%% %8.1f %7.0f %8.2f%%\n", row->label,
               (long long)row->calls, row->seconds * 1e3, 100 * row->seconds / step->seconds,
               row->flops / row->seconds * 1e-12, row->bytes / row->seconds * 1e-9,
               100 * lost(row, plan, step->seconds));
        products += row->is_product ? row->flops : 0;
    }
    printf("  %-44s %7s %9.3f %6.2f%% %8s %7s %8.2f%%\n", "waits for other GPUs", "",
           step->exposed_seconds * 1e3, 100 * step->exposed_seconds / step->seconds, "", "",
           100 * step->exposed_seconds / step->seconds);
    printf("  %-44s %42s %8.2f%%\n", "product FLOPs that the MFU formula does not count", "",
           100 * (products - step->model_flops) / plan->gpu.machine->bf16 / step->seconds);
    printf("  %-44s %7s %9.3f 100.00%%  MFU %.1f %%\n", "step", "", step->seconds * 1e3,
           100 * step->mfu);
    for (int i = 0; i < step->comm.row_count; i++) {
        const struct tern_roof_row *row = &step->comm.rows[i];
        printf("  beside it, on the queue of communication: %s %lld calls, %.3f ms\n", row->label,
               (long long)row->calls, row->seconds * 1e3);
    }
}

static void print_line(const struct options *options,
                       const struct tern_roof_plan *plan,
                       bool fits,
                       const struct tern_roof_step *step)
{
    double gib = (double)plan->bytes / (1 << 30);
    if (options->json) {
        printf("{\"model\":\"%s\",\"machine\":\"%s\",\"gpus\":%d,\"lanes\":%d,\"fits\":%s,"
               "\"micro_batch\":%lld,\"recompute\":\"%s\",\"bytes\":%lld",
               plan->preset, plan->gpu.machine->name, plan->ranks, plan->lanes,
               fits ? "true" : "false", (long long)plan->micro_batch, g_recompute[plan->recompute],
               (long long)plan->bytes);
        if (fits) {
            printf(",\"step_seconds\":%.9g,\"tokens_per_second\":%.9g,\"mfu\":%.6g,"
                   "\"model_flops\":%.9g,\"exposed_seconds\":%.9g,\"link_bytes\":%.9g,\"ops\":[",
                   step->seconds, step->tokens_per_second, step->mfu, step->model_flops,
                   step->exposed_seconds, step->link_bytes);
            for (int i = 0; i < step->compute.row_count; i++) {
                const struct tern_roof_row *row = &step->compute.rows[i];
                printf("%s{\"op\":\"%s\",\"calls\":%lld,\"seconds\":%.9g,\"flops\":%.9g,"
                       "\"bytes\":%.9g,\"is_product\":%s}",
                       i == 0 ? "" : ",", row->label, (long long)row->calls, row->seconds,
                       row->flops, row->bytes, row->is_product ? "true" : "false");
            }
            printf("]");
        }
        printf("}\n");
        return;
    }
    printf("  %-9s %4d %5d %8.1f  ", plan->gpu.machine->name, plan->ranks, plan->lanes, gib);
    if (!fits) {
        printf("does not fit into %.1f GiB, micro-batch 1, recompute block\n",
               plan->gpu.machine->memory_gib);
        return;
    }
    /* the bytes of a reduce-scatter in fp32 and an all-gather in bf16 */
    double bus = step->link_bytes / plan->gpu.machine->bus;
    printf("%5lld %-9s %10.1f %11.0f %6.1f%% %9.1f %9.1f %9lld\n", (long long)plan->micro_batch,
           g_recompute[plan->recompute], step->seconds * 1e3, step->tokens_per_second,
           100 * step->mfu, step->exposed_seconds * 1e3, bus * 1e3, (long long)step->exchanges);
}

static struct tern_roof_plan plan_of(const struct target *target,
                                     const struct tern_roof_machine *machine,
                                     int ranks,
                                     int lanes)
{
    return (struct tern_roof_plan){
        .preset = target->preset,
        .gpu = {machine, tern_roof_assumed},
        .ranks = ranks,
        .lanes = lanes,
        .sequence = target->sequence,
        .global_batch = STEP_TOKENS / target->sequence,
    };
}

/* On one GPU with the default lanes and with one, which needs fewer gradient buffers; on eight. */
static const struct {
    int ranks, lanes;
} g_groups[] = {{1, 8}, {1, 1}, {GPUS, 8}};

static tern_status predict(const struct options *options,
                           const struct target *target,
                           const struct tern_roof_machine *machine,
                           bool print_ops_too)
{
    bool is_printed = false;
    for (size_t i = 0; i < sizeof g_groups / sizeof g_groups[0]; i++) {
        struct tern_roof_plan plan = plan_of(target, machine, g_groups[i].ranks, g_groups[i].lanes);
        struct tern_roof_step step;
        bool fits;
        TERN_RETURN_IF_ERR(tern_roof_plan_fit(&plan, &fits, &step));
        if (!print_ops_too) {
            print_line(options, &plan, fits, &step);
        } else if (fits && (!is_printed || plan.ranks > 1)) {
            print_ops(&plan, &step);
            is_printed = true;
        }
    }
    return TERN_OK;
}

/* ---- what would help ---- */

/* One kernel over blocks of keys has 5 products, but then a row's dq is a sum over blocks. Without atomics each block
 * leaves its part in memory, and a second kernel adds them in order. */
static void five_products(struct tern_roof_assumptions *a)
{
    a->attention_products = 1;
    a->dq_block_keys = 128;
}

/* As if one block walked over all keys of a head, with dq in the L2 and its traffic hidden: the best there could be. */
static void dq_for_free(struct tern_roof_assumptions *a)
{
    a->dq_block_keys = 0;
}

/* FlashAttention-3's rates on Hopper, causal, T = 4096: about 600 forward at D = 128, 400 at 64, 480 backward. */
static void use_wgmma(struct tern_roof_assumptions *a)
{
    a->attention_speedup = 600.0 / 350;
    a->attention_narrow = 400.0 / 600;
}

static const struct {
    const char *what;
    void (*change)(struct tern_roof_assumptions *);
} g_changes[] = {
    {"attention backward with 5 products, dq's parts in memory", five_products},
    {"or with dq's parts at no cost", dq_for_free},
    {"and attention by wgmma, at FlashAttention-3's rates", use_wgmma},
};

/* One change after the other, on the smallest group that the model fits. */
static tern_status print_changes(const struct target *target,
                                 const struct tern_roof_machine *machine)
{
    struct tern_roof_plan plan;
    struct tern_roof_step step;
    bool fits = false;
    size_t count = sizeof g_groups / sizeof g_groups[0];
    for (size_t i = 0; i < count && !fits; i++) {
        plan = plan_of(target, machine, g_groups[i].ranks, g_groups[i].lanes);
        TERN_RETURN_IF_ERR(tern_roof_plan_fit(&plan, &fits, &step));
    }
    if (!fits) {
        return TERN_OK;
    }
    printf(
        "\n  what would help, one after the other, on %d x %s: as it is %.1f %% MFU, %.0f tok/s a "
        "GPU\n",
        plan.ranks, machine->name, 100 * step.mfu, step.tokens_per_second);
    for (size_t i = 0; i < sizeof g_changes / sizeof g_changes[0]; i++) {
        g_changes[i].change(&plan.gpu.assumed);
        TERN_RETURN_IF_ERR(tern_roof_step_run(&plan, &step));
        printf("    %-56s %5.1f %% MFU, %.0f\n", g_changes[i].what, 100 * step.mfu,
               step.tokens_per_second);
    }
    return TERN_OK;
}

static bool is_chosen(const char *wanted, const char *name)
{
    return wanted == NULL || strcmp(wanted, name) == 0;
}

/* Op by op where a GPU is meant to be rented, or where asked for. */
static bool wants_ops(const struct options *options, const struct tern_roof_machine *machine)
{
    return options->machine != NULL || strncmp(machine->name, "H", 1) == 0;
}

static tern_status predict_model(const struct options *options, const struct target *target)
{
    const struct tern_roof_machine *machines = tern_roof_machines;
    if (!options->json) {
        printf("\n==== %s, T=%lld\n", target->preset, (long long)target->sequence);
    }
    for (int i = 0; i < tern_roof_machine_count && !options->json; i++) {
        if (is_chosen(options->machine, machines[i].name) && wants_ops(options, &machines[i])) {
            TERN_RETURN_IF_ERR(predict(options, target, &machines[i], true));
        }
    }
    if (!options->json) {
        printf("\n  %-9s %4s %5s %8s  %5s %-9s %10s %11s %7s %9s %9s %9s\n", "machine", "GPUs",
               "lanes", "GiB/GPU", "micro", "recompute", "ms/step", "tok/s/GPU", "MFU", "waits ms",
               "bus ms", "exchanges");
    }
    for (int i = 0; i < tern_roof_machine_count; i++) {
        if (is_chosen(options->machine, machines[i].name)) {
            TERN_RETURN_IF_ERR(predict(options, target, &machines[i], false));
        }
    }
    for (int i = 0; i < tern_roof_machine_count && !options->json; i++) {
        if (is_chosen(options->machine, machines[i].name) && wants_ops(options, &machines[i])) {
            TERN_RETURN_IF_ERR(print_changes(target, &machines[i]));
        }
    }
    if (!options->json) {
        printf("  goal: %s\n  measured by others: %s\n", target->goal, target->peer);
    }
    return TERN_OK;
}

int main(int argc, char **argv)
{
    struct options options;
    if (!parse(argc, argv, &options)) {
        fprintf(stderr, "usage: bench_roofline [--model NAME] [--machine NAME] [--json]\n");
        return TERN_EXIT_USAGE;
    }
    if (!options.json) {
        print_assumptions();
    }
    int count = 0;
    for (int i = 0; i < TARGET_COUNT; i++) {
        if (is_chosen(options.model, g_targets[i].preset)) {
            tern_status status = predict_model(&options, &g_targets[i]);
            if (status != TERN_OK) {
                fprintf(stderr, "bench_roofline: %s\n", tern_detail());
                return tern_status_exit_code(status);
            }
            count++;
        }
    }
    if (count == 0) {
        fprintf(stderr,
                "bench_roofline: no model '%s'; expected gpt2-124m, gpt2-1558m or "
                "llama-3.1-8b\n",
                options.model);
        return TERN_EXIT_USAGE;
    }
    return 0;
}
