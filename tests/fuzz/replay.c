/* replay.c - the main of a fuzz target without a fuzzer: every file of the folders or files that are named. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (file == NULL) {
        perror(path);
        return 1;
    }
    uint8_t *data = malloc(1 << 24);
    size_t bytes = data != NULL ? fread(data, 1, 1 << 24, file) : 0;
    fclose(file);
    /* a block of exactly its size: reading behind it is seen by a sanitizer */
    uint8_t *exact = malloc(bytes > 0 ? bytes : 1);
    for (size_t i = 0; i < bytes && exact != NULL; i++) {
        exact[i] = data[i];
    }
    if (exact != NULL) {
        LLVMFuzzerTestOneInput(exact, bytes);
    }
    free(exact);
    free(data);
    return exact == NULL;
}

static int replay_folder(const char *folder, int *count)
{
    DIR *dir = opendir(folder);
    int failed = dir == NULL;
    for (struct dirent *entry; dir != NULL && (entry = readdir(dir)) != NULL;) {
        char path[4096];
        if (entry->d_name[0] != '.') {
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            failed |= replay_file(path);
            *count += 1;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0, count = 0;
    for (int i = 1; i < argc; i++) {
        struct stat info;
        if (stat(argv[i], &info) == 0 && S_ISDIR(info.st_mode)) {
            failed |= replay_folder(argv[i], &count);
        } else {
            failed |= replay_file(argv[i]);
            count++;
        }
    }
    printf("%d inputs replayed\n", count);
    return failed != 0 || count == 0;
}
