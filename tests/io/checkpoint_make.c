/* checkpoint_make.c - writes checkpoints and, beside them, the plain bytes of their tensors, for
 * the h5py oracle.
 *
 *   io_checkpoint_make FOLDER      FOLDER/run/ckpt/step-0000000{1,2,3},
 * FOLDER/expected/GROUP@NAME.bin */
#include "io/checkpoint.h"
#include "runtime/base/mem.h"
#include "tests/io/checkpoint_fixture.h"

#include <stdio.h>

static tern_status write_expected(const struct fixture *fixture, const char *folder)
{
    char path[TERN_PATH_BYTES], name[2 * TERN_CKPT_NAME_BYTES];
    TERN_RETURN_IF_ERR(tern_file_make_folder(folder));
    for (int i = 0; i < fixture->count; i++) {
        const struct fixture_tensor *tensor = &fixture->tensors[i];
        snprintf(name, sizeof name, "%s@%s.bin", tensor->group, tensor->name);
        for (char *at = name; *at != '\0'; at++) {
            *at = *at == '/' ? '+' : *at;
        }
        TERN_RETURN_IF_ERR(tern_path_join(path, folder, name));
        TERN_RETURN_IF_ERR(tern_file_replace(path, tensor->data, tensor->bytes));
    }
    return TERN_OK;
}

static tern_status make(const char *folder)
{
    char run[TERN_PATH_BYTES], expected[TERN_PATH_BYTES];
    struct fixture fixture;
    TERN_RETURN_IF_ERR(tern_path_join(run, folder, "run"));
    TERN_RETURN_IF_ERR(tern_path_join(expected, folder, "expected"));
    fixture_make(&fixture, 11, false);
    tern_status status = write_expected(&fixture, expected);
    static const struct {
        int ranks;
        enum tern_ckpt_compression kind;
        int level;
    } kinds[] = {{1, TERN_CKPT_NONE, 1}, {3, TERN_CKPT_ZSTD, 1}, {8, TERN_CKPT_ZSTD, 7}};
    for (int i = 0; i < 3 && status == TERN_OK; i++) {
        status = fixture_write(&fixture, run, i + 1, kinds[i].ranks, kinds[i].kind, kinds[i].level,
                               i, 5);
    }
    fixture_free(&fixture);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: io_checkpoint_make FOLDER\n");
        return TERN_EXIT_USAGE;
    }
    tern_status status = make(argv[1]);
    if (status != TERN_OK) {
        fprintf(stderr, "io_checkpoint_make: %s\n", tern_detail());
    }
    return tern_status_exit_code(status);
}
