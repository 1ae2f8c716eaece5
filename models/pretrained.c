/* pretrained.c - from a folder or a GGUF file to a config and the places of all tensors. */
#include "models/pretrained.h"

#include "io/file.h"
#include "io/safetensors.h"
#include "runtime/base/mem.h"

#include <string.h>

static bool is_folder(const char *path)
{
    char config[TERN_PATH_BYTES];
    return tern_file_is_folder(path) && tern_path_join(config, path, "config.json") == TERN_OK &&
           tern_file_exists(config);
}

bool tern_pretrained_is(const char *path)
{
    return is_folder(path) || (!tern_file_is_folder(path) && tern_gguf_is_file(path));
}

static tern_status parse_file(const char *folder,
                              const char *file,
                              tern_status (*parse)(const char *name,
                                                   const char *text,
                                                   size_t bytes,
                                                   struct tern_pretrained *out),
                              struct tern_pretrained *out)
{
    char path[TERN_PATH_BYTES];
    struct tern_map map;
    TERN_RETURN_IF_ERR(tern_path_join(path, folder, file));
    TERN_RETURN_IF_ERR(tern_map_open(path, &map));
    tern_status status = parse(path, (const char *)map.data, map.bytes, out);
    tern_map_close(&map);
    return status;
}

static tern_status parse_config(const char *name,
                                const char *text,
                                size_t bytes,
                                struct tern_pretrained *out)
{
    TERN_RETURN_IF_ERR(tern_hf_config_parse(name, text, bytes, &out->config));
    return tern_hf_ids_parse(name, text, bytes, &out->ids);
}

static tern_status parse_generation(const char *name,
                                    const char *text,
                                    size_t bytes,
                                    struct tern_pretrained *out)
{
    return tern_hf_ids_parse(name, text, bytes, &out->ids);
}

static tern_status open_folder(const char *path, struct tern_pretrained *out)
{
    char generation[TERN_PATH_BYTES];
    TERN_RETURN_IF_ERR(parse_file(path, "config.json", parse_config, out));
    TERN_RETURN_IF_ERR(tern_path_join(generation, path, "generation_config.json"));
    if (tern_file_exists(generation)) {
        TERN_RETURN_IF_ERR(parse_file(path, "generation_config.json", parse_generation, out));
    }
    TERN_RETURN_IF_ERR(tern_safetensors_open(path, &out->safetensors));
    out->file = out->safetensors;
    return TERN_OK;
}

static tern_status open_gguf(const char *path, struct tern_pretrained *out)
{
    TERN_RETURN_IF_ERR(tern_gguf_open(path, &out->gguf));
    out->file = tern_gguf_tensors(out->gguf);
    return tern_gguf_config_read(out->gguf, &out->config, &out->ids);
}

/* The type that most elements have. */
static enum tern_dtype main_dtype(const struct tern_pretrained *p)
{
    int64_t elements[TERN_DTYPE_COUNT] = {0};
    enum tern_dtype best = TERN_F32;
    for (int i = 0; i < p->params.count; i++) {
        elements[p->sources[i].tensor->dtype] += p->params.items[i].size;
    }
    for (int i = 0; i < TERN_DTYPE_COUNT; i++) {
        best = elements[i] > elements[best] ? (enum tern_dtype)i : best;
    }
    return best;
}

/* That tables of the model's tensors are in proportion to its file: a config may ask for anything. A
 * value takes at least two bits (of Q2_K), an expert of a GGUF file no tensor of its own but some
 * bytes. What is wrong by less is found tensor by tensor. */
static tern_status check_proportion(const struct tern_pretrained *p)
{
    double values;
    double tensors;
    double bytes = (double)tern_tensor_file_bytes(p->file);
    double most = 2 * (double)tern_tensor_file_count(p->file) + 1000;
    tern_params_count(&p->config, &values, &tensors);
    if (p->gguf != NULL) {
        most = bytes / 64 + 1000;
    }
    if (values > 16 * bytes + (1 << 20) || tensors > most) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: found %.0f bytes and %lld tensors, expected those of a model of %.4g "
                         "parameters in %.0f tensors, as its config has it",
                         tern_tensor_file_path(p->file), bytes,
                         (long long)tern_tensor_file_count(p->file), values, tensors);
    }
    return TERN_OK;
}

tern_status tern_pretrained_open(const char *path, struct tern_pretrained *out)
{
    *out = (struct tern_pretrained){.ids = {.bos = -1}};
    bool is_hf = is_folder(path);
    tern_status status;
    TERN_GOTO_IF_ERR(status, is_hf ? open_folder(path, out) : open_gguf(path, out), fail);
    TERN_GOTO_IF_ERR(status, check_proportion(out), fail);
    TERN_GOTO_IF_ERR(status, tern_params_init(&out->params, &out->config), fail);
    TERN_GOTO_IF_ERR(status,
                     tern_param_sources_find(&out->params, &out->config,
                                             is_hf ? TERN_NAMING_HF : TERN_NAMING_GGUF, out->file,
                                             &out->sources),
                     fail);
    out->dtype = main_dtype(out);
    return TERN_OK;
fail:
    tern_pretrained_close(out);
    return status;
}

void tern_pretrained_close(struct tern_pretrained *pretrained)
{
    tern_free(pretrained->sources);
    tern_params_fini(&pretrained->params);
    tern_tensor_file_close(pretrained->safetensors);
    tern_gguf_close(pretrained->gguf);
    *pretrained = (struct tern_pretrained){0};
}
