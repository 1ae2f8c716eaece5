/* tokens_file.c - opening and checking token shards: Megatron pairs and llm.c files. */
#include "io/tokens_file.h"

#include "runtime/base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum {
    CHECKED_SEQUENCES_MAX = 1 << 20
}; /* of an index, when not asked to check all */

static const char megatron_magic[9] = "MMIDIDX\0";

static const struct {
    int code;
    const char *name;
    int bytes; /* 0: not a token type */
    bool is_signed;
} megatron_dtypes[] = {{1, "uint8", 1, false},  {2, "int8", 0, true},   {3, "int16", 2, true},
                       {4, "int32", 4, true},   {5, "int64", 8, true},  {6, "float64", 0, true},
                       {7, "float32", 0, true}, {8, "uint16", 2, false}};

static const struct {
    int32_t magic, version;
    int bytes;
    const char *dtype;
} llmc_kinds[] = {{20240520, 1, 2, "uint16"}, {20240801, 7, 4, "uint32"}};

static uint64_t read_u64(const uint8_t *at)
{
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

static int64_t read_i64(const uint8_t *at)
{
    return (int64_t)read_u64(at);
}

static int32_t read_i32(const uint8_t *at)
{
    int32_t value;
    memcpy(&value, at, sizeof value);
    return value;
}

/* Maps a file of at least `least` bytes; "what" says what those are. */
static tern_status map_file(const char *path, int64_t least, const char *what, struct tern_map *out)
{
    int64_t bytes;
    TERN_RETURN_IF_ERR(tern_file_size(path, &bytes));
    if (bytes < least) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: ends at byte %" PRId64 "; expected at least %" PRId64 " bytes: %s",
                         path, bytes, least, what);
    }
    return tern_map_open(path, out);
}

/* ---- Megatron ---- */

struct index {
    const char *path;
    struct tern_map map;
    int64_t sequences, documents; /* documents: entries of its table, one more than there are */
    const uint8_t *sizes, *pointers, *document_starts;
};

static tern_status read_index_header(struct index *index, struct tern_shard *shard)
{
    const uint8_t *data = index->map.data;
    if (memcmp(data, megatron_magic, sizeof megatron_magic) != 0) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 0: found %02x %02x %02x %02x %02x %02x %02x %02x %02x; expected "
                         "\"MMIDIDX\" and two "
                         "zeros (a Megatron index)",
                         index->path, data[0], data[1], data[2], data[3], data[4], data[5], data[6],
                         data[7], data[8]);
    }
    if (read_u64(data + 9) != 1) {
        return tern_fail(TERN_ERR_INPUT, "%s: byte 9: found version %" PRIu64 "; expected 1",
                         index->path, read_u64(data + 9));
    }
    for (size_t i = 0; i < sizeof megatron_dtypes / sizeof megatron_dtypes[0]; i++) {
        if (megatron_dtypes[i].code == data[17] && megatron_dtypes[i].bytes > 0) {
            shard->item_bytes = megatron_dtypes[i].bytes;
            shard->is_signed = megatron_dtypes[i].is_signed;
            shard->dtype = megatron_dtypes[i].name;
            return TERN_OK;
        }
    }
    return tern_fail(TERN_ERR_INPUT,
                     "%s: byte 17: found dtype code %d; expected 1 (uint8), 3 (int16), 4 (int32), "
                     "5 (int64) or 8 (uint16)",
                     index->path, data[17]);
}

static tern_status read_index_tables(struct index *index)
{
    const uint8_t *data = index->map.data;
    uint64_t bytes = index->map.bytes;
    uint64_t sequences = read_u64(data + 18);
    uint64_t documents = read_u64(data + 26);
    if (sequences == 0 || sequences > bytes / 12) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 18: found %" PRIu64 " sequences; expected 1 to %" PRIu64
                         " in a file of %" PRIu64 " bytes",
                         index->path, sequences, bytes / 12, bytes);
    }
    if (documents < 2 || documents > bytes / 8) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 26: found %" PRIu64 " document borders; expected 2 to %" PRIu64
                         " in a file of %" PRIu64 " bytes",
                         index->path, documents, bytes / 8, bytes);
    }
    uint64_t expected = TERN_MEGATRON_HEADER_BYTES + sequences * 12 + documents * 8;
    if (bytes != expected &&
        bytes != expected + sequences) { /* one more byte a sequence: multimodal modes */
        return tern_fail(TERN_ERR_INPUT,
                         "%s: ends at byte %" PRIu64 "; expected %" PRIu64 " bytes for %" PRIu64
                         " sequences and %" PRIu64 " document borders",
                         index->path, bytes, expected, sequences, documents);
    }
    index->sequences = (int64_t)sequences;
    index->documents = (int64_t)documents;
    index->sizes = data + TERN_MEGATRON_HEADER_BYTES;
    index->pointers = index->sizes + sequences * 4;
    index->document_starts = index->pointers + sequences * 8;
    return TERN_OK;
}

static int64_t place_of(const struct index *index, const uint8_t *at)
{
    return at - index->map.data;
}

/* Sequence i lies right after the one before, which ended at byte `end` of the .bin; *end_out:
 * where it ends. */
static tern_status check_sequence(const struct index *index,
                                  const struct tern_shard *shard,
                                  int64_t i,
                                  int64_t end,
                                  int64_t *end_out)
{
    const uint8_t *size_at = index->sizes + i * 4;
    const uint8_t *pointer_at = index->pointers + i * 8;
    int64_t size = read_i32(size_at);
    if (size < 0) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %" PRId64 ": found size %" PRId64 " of sequence %" PRId64
                         "; expected 0 or more",
                         index->path, place_of(index, size_at), size, i);
    }
    if (read_i64(pointer_at) != end) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %" PRId64 ": found sequence %" PRId64 " at byte %" PRId64
                         " of the .bin; expected %" PRId64 ", right after the one before",
                         index->path, place_of(index, pointer_at), i, read_i64(pointer_at), end);
    }
    *end_out = end + size * shard->item_bytes;
    return TERN_OK;
}

static tern_status check_index(const struct index *index,
                               const struct tern_shard *shard,
                               bool check_all)
{
    int64_t end = 0;
    int64_t last = index->sequences - 1;
    bool is_short = check_all || index->sequences <= CHECKED_SEQUENCES_MAX;
    for (int64_t i = 0; i < (is_short ? index->sequences : 1); i++) {
        TERN_RETURN_IF_ERR(check_sequence(index, shard, i, end, &end));
    }
    if (!is_short) {
        int64_t start = read_i64(index->pointers + last * 8);
        if (start < 0 || start > (int64_t)shard->map.bytes) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: byte %" PRId64 ": found the last sequence at byte %" PRId64
                             " of the .bin; expected 0 to %zu",
                             index->path, place_of(index, index->pointers + last * 8), start,
                             shard->map.bytes);
        }
        TERN_RETURN_IF_ERR(check_sequence(index, shard, last, start, &end));
    }
    if (end != (int64_t)shard->map.bytes) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: ends at byte %zu; expected %" PRId64 " bytes, as %s says",
                         shard->path, shard->map.bytes, end, index->path);
    }
    int64_t before = 0;
    for (int64_t d = 0; d < (is_short ? index->documents : 1); d++) {
        const uint8_t *at = index->document_starts + d * 8;
        int64_t found = read_i64(at);
        if (found < before || found > index->sequences || (d == 0 && found != 0)) {
            return tern_fail(TERN_ERR_INPUT,
                             "%s: byte %" PRId64 ": found document border %" PRId64
                             "; expected %" PRId64 " to %" PRId64,
                             index->path, place_of(index, at), found, before,
                             d == 0 ? 0 : index->sequences);
        }
        before = found;
    }
    const uint8_t *at = index->document_starts + (index->documents - 1) * 8;
    if (read_i64(at) != index->sequences) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte %" PRId64 ": found last document border %" PRId64
                         "; expected %" PRId64,
                         index->path, place_of(index, at), read_i64(at), index->sequences);
    }
    return TERN_OK;
}

static tern_status open_megatron(const char *index_path, bool check_all, struct tern_shard *shard)
{
    struct index index = {.path = index_path};
    shard->format = "Megatron";
    TERN_RETURN_IF_ERR(
        map_file(index_path, TERN_MEGATRON_HEADER_BYTES, "a Megatron index header", &index.map));
    tern_status status;
    TERN_GOTO_IF_ERR(status, read_index_header(&index, shard), close_index);
    TERN_GOTO_IF_ERR(status, read_index_tables(&index), close_index);
    TERN_GOTO_IF_ERR(status, map_file(shard->path, shard->item_bytes, "one token", &shard->map),
                     close_index);
    TERN_GOTO_IF_ERR(status, check_index(&index, shard, check_all), close_index);
    shard->data = shard->map.data;
    shard->tokens = (int64_t)shard->map.bytes / shard->item_bytes;
    shard->documents = index.documents - 1;
    shard->sequences = index.sequences;
close_index:
    tern_map_close(&index.map);
    return status;
}

/* Tokens before each document: sizes of its sequences added up. */
static tern_status add_sizes(const struct index *index, int64_t *borders)
{
    int64_t tokens = 0, document = 0, documents = index->documents - 1;
    for (int64_t i = 0; i <= index->sequences; i++) {
        while (document <= documents && read_i64(index->document_starts + document * 8) == i) {
            borders[document++] = tokens;
        }
        tokens += i < index->sequences ? read_i32(index->sizes + i * 4) : 0;
    }
    return document == documents + 1
               ? TERN_OK
               : tern_fail(TERN_ERR_INPUT,
                           "%s: document border %" PRId64 " is %" PRId64
                           "; expected borders to ascend to %" PRId64 " sequences",
                           index->path, document, read_i64(index->document_starts + document * 8),
                           index->sequences);
}

tern_status tern_shard_borders(const struct tern_shard *shard,
                               int64_t **borders_out,
                               int64_t *documents_out)
{
    char path[TERN_PATH_BYTES];
    size_t length = strlen(shard->path);
    struct index index = {.path = path};
    struct tern_shard header = *shard;
    int64_t *borders = NULL;
    if (shard->documents < 0 || length < 4) {
        return tern_fail(TERN_ERR_INPUT, "%s: has no index; expected a Megatron pair", shard->path);
    }
    snprintf(path, sizeof path, "%.*s.idx", (int)length - 4, shard->path);
    TERN_RETURN_IF_ERR(
        map_file(path, TERN_MEGATRON_HEADER_BYTES, "a Megatron index header", &index.map));
    tern_status status;
    TERN_GOTO_IF_ERR(status, read_index_header(&index, &header), close_index);
    TERN_GOTO_IF_ERR(status, read_index_tables(&index), close_index);
    borders = tern_alloc("token shards", (size_t)index.documents * sizeof *borders);
    if (borders == NULL) {
        status = tern_fail(TERN_ERR_MEMORY, "cannot allocate %" PRId64 " borders", index.documents);
        goto close_index;
    }
    TERN_GOTO_IF_ERR(status, add_sizes(&index, borders), close_index);
    *borders_out = borders;
    *documents_out = index.documents - 1;
    borders = NULL;
close_index:
    tern_free(borders);
    tern_map_close(&index.map);
    return status;
}

/* ---- llm.c ---- */

static tern_status open_llmc(struct tern_shard *shard)
{
    shard->format = "llm.c";
    shard->documents = -1;
    TERN_RETURN_IF_ERR(
        map_file(shard->path, TERN_LLMC_HEADER_BYTES,
                 "an llm.c header (there is no .idx beside it, which would make it Megatron's)",
                 &shard->map));
    const uint8_t *data = shard->map.data;
    int32_t magic = read_i32(data);
    int32_t version = read_i32(data + 4);
    int64_t tokens = read_i32(data + 8);
    const size_t kinds = sizeof llmc_kinds / sizeof llmc_kinds[0];
    size_t kind = 0;
    while (kind < kinds && llmc_kinds[kind].magic != magic) {
        kind++;
    }
    if (kind == kinds) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 0: found magic %d; expected 20240520 or 20240801 (llm.c), or an "
                         ".idx beside it (Megatron)",
                         shard->path, magic);
    }
    if (llmc_kinds[kind].version != version) {
        return tern_fail(TERN_ERR_INPUT, "%s: byte 4: found version %d; expected %d with magic %d",
                         shard->path, version, llmc_kinds[kind].version, magic);
    }
    if (tokens <= 0) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: byte 8: found %" PRId64 " tokens; expected at least 1", shard->path,
                         tokens);
    }
    shard->item_bytes = llmc_kinds[kind].bytes;
    shard->dtype = llmc_kinds[kind].dtype;
    int64_t expected = TERN_LLMC_HEADER_BYTES + tokens * shard->item_bytes;
    if ((int64_t)shard->map.bytes != expected) {
        return tern_fail(TERN_ERR_INPUT,
                         "%s: ends at byte %zu; expected %" PRId64 " bytes for %" PRId64
                         " tokens of %s",
                         shard->path, shard->map.bytes, expected, tokens, shard->dtype);
    }
    shard->data = data + TERN_LLMC_HEADER_BYTES;
    shard->tokens = tokens;
    return TERN_OK;
}

/* ---- which of them ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text);
    size_t tail = strlen(end);
    return length > tail && strcmp(text + length - tail, end) == 0;
}

tern_status tern_shard_open(const char *path, bool check_all, struct tern_shard *out)
{
    memset(out, 0, sizeof *out);
    bool has_ending = ends_with(path, ".bin") || ends_with(path, ".idx");
    int stem = (int)strlen(path) - (has_ending ? 4 : 0);
    char index_path[TERN_PATH_BYTES];
    int length = snprintf(out->path, sizeof out->path, "%.*s.bin", stem, path);
    if (length >= TERN_PATH_BYTES) {
        return tern_fail(TERN_ERR_ARGUMENT, "path '%.64s...' is longer than %d bytes", path,
                         TERN_PATH_BYTES - 1);
    }
    snprintf(index_path, sizeof index_path, "%.*s.idx", stem, path);
    tern_status status;
    if (tern_file_exists(index_path)) {
        status = open_megatron(index_path, check_all, out);
    } else if (tern_file_exists(out->path) && !ends_with(path, ".idx")) {
        status = open_llmc(out);
    } else {
        status = tern_fail(TERN_ERR_NOT_FOUND, "%s: no token shard: there is neither %s nor %s",
                           path, index_path, out->path);
    }
    if (status != TERN_OK) {
        tern_shard_close(out);
    }
    return status;
}

void tern_shard_close(struct tern_shard *shard)
{
    if (shard->map.data != NULL) {
        tern_map_close(&shard->map);
    }
    shard->data = NULL;
}
