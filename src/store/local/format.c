/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/format.h"

#include "codec/checksum.h"

enum {
    ALIGN_BYTES = 4096,
    PROCESS_OFFSET = POOL_LIVE_OFFSET + 4096,
    FRAME_UNITS = POOL_FRAME_BYTES / POOL_UNIT_BYTES
};

static uint64_t round_up(uint64_t value, uint64_t step)
{
    return (value + step - 1) / step * step;
}

enum tarn_status geometry_init(uint64_t frame_count, uint64_t frame_slots,
                               struct pool_geometry *out_geometry)
{
    if (frame_count == 0 || frame_count > POOL_FRAMES_MAX || frame_slots == 0 ||
        frame_slots > POOL_FRAME_SLOTS_MAX || frame_count * frame_slots >= UINT32_MAX)
        return TARN_INVALID;

    const uint64_t slot_count = frame_count * frame_slots;
    uint64_t bucket_count = (2 * slot_count + POOL_BUCKET_WORDS - 1) / POOL_BUCKET_WORDS;
    if (bucket_count < 2 * POOL_WINDOW_BUCKETS)
        bucket_count = 2 * POOL_WINDOW_BUCKETS;

    struct pool_geometry geometry = {
        .frame_count = (uint32_t)frame_count,
        .frame_slots = (uint32_t)frame_slots,
        .slot_count = (uint32_t)slot_count,
        .bucket_count = (uint32_t)bucket_count,
        .process_offset = PROCESS_OFFSET,
    };
    uint64_t end = PROCESS_OFFSET + POOL_PROCESSES * sizeof(struct pool_process);
    geometry.frame_offset = end;
    end = round_up(end + frame_count * sizeof(shm_word), ALIGN_BYTES);
    geometry.name_state_offset = end;
    end += POOL_NAMESPACES * sizeof(shm_word);
    geometry.name_text_offset = end;
    end = round_up(end + POOL_NAMESPACES * sizeof(struct pool_name), ALIGN_BYTES);
    geometry.header_offset = end;
    end = round_up(end + slot_count * sizeof(struct pool_header), ALIGN_BYTES);
    geometry.bucket_offset = end;
    end += bucket_count * sizeof(struct pool_bucket);
    geometry.data_offset = round_up(end, POOL_FRAME_BYTES);
    geometry.file_bytes = geometry.data_offset + frame_count * POOL_FRAME_BYTES;
    *out_geometry = geometry;
    return TARN_OK;
}

enum tarn_status geometry_fit(uint64_t file_bytes, uint32_t frame_slots,
                              struct pool_geometry *out_geometry)
{
    uint64_t low = 0;
    uint64_t high = file_bytes / POOL_FRAME_BYTES;
    if (high > POOL_FRAMES_MAX)
        high = POOL_FRAMES_MAX;
    while (low < high) {
        const uint64_t middle = low + (high - low + 1) / 2;
        struct pool_geometry geometry;
        if (geometry_init(middle, frame_slots, &geometry) == TARN_OK &&
            geometry.file_bytes <= file_bytes)
            low = middle;
        else
            high = middle - 1;
    }
    return geometry_init(low, frame_slots, out_geometry) == TARN_OK ? TARN_OK : TARN_NO_SPACE;
}

static struct checksum superblock_sum(const struct pool_superblock *super)
{
    struct checksum_state state;
    checksum_begin(&state, POOL_FORMAT_VERSION);
    checksum_add(&state, super, offsetof(struct pool_superblock, checksum_low));
    return checksum_end(&state);
}

void superblock_make(const struct pool_geometry *geometry, struct pool_superblock *out_super)
{
    struct pool_superblock super = {
        .version = POOL_FORMAT_VERSION,
        .header_bytes = sizeof(super),
        .word_bytes = sizeof(shm_word),
        .byte_order = POOL_BYTE_ORDER,
        .frame_bytes = POOL_FRAME_BYTES,
        .frame_slots = geometry->frame_slots,
        .frame_count = geometry->frame_count,
        .file_bytes = geometry->file_bytes,
    };
    memcpy(super.magic, POOL_MAGIC, sizeof(super.magic));
    const struct checksum sum = superblock_sum(&super);
    super.checksum_low = sum.low;
    super.checksum_high = sum.high;
    *out_super = super;
}

static const char *superblock_fault(const struct pool_superblock *super)
{
    if (memcmp(super->magic, POOL_MAGIC, sizeof(super->magic)) != 0)
        return "it is no Tarn pool";
    if (super->byte_order != POOL_BYTE_ORDER || super->word_bytes != sizeof(shm_word))
        return "it was made on a machine of another byte order or word size";
    if (super->version != POOL_FORMAT_VERSION)
        return "it is a pool of another format version";
    const struct checksum stored = { super->checksum_low, super->checksum_high };
    if (!checksum_equal(stored, superblock_sum(super)))
        return "its first block is damaged";
    if (super->header_bytes != sizeof(*super) || super->frame_bytes != POOL_FRAME_BYTES)
        return "its geometry is not one of this version";
    return NULL;
}

enum tarn_status superblock_check(const struct pool_superblock *super, uint64_t file_bytes,
                                  struct pool_geometry *out_geometry, const char **out_reason)
{
    const char *fault = superblock_fault(super);
    struct pool_geometry geometry = { 0 };
    if (!fault && geometry_init(super->frame_count, super->frame_slots, &geometry) != TARN_OK)
        fault = "its geometry is out of range";
    if (!fault && geometry.file_bytes != super->file_bytes)
        fault = "its geometry does not add up";
    if (!fault && file_bytes < geometry.file_bytes)
        fault = "it is shorter than it says";
    if (fault) {
        *out_reason = fault;
        return TARN_UNSUPPORTED;
    }
    *out_geometry = geometry;
    return TARN_OK;
}

uint32_t chunk_pages(const struct pool_geometry *geometry, uint32_t units, uint32_t frames)
{
    if (units == 0 || frames == 0 || frames > POOL_CHUNK_FRAMES_MAX)
        return 0;
    const uint32_t by_size = frames * FRAME_UNITS / units;
    const uint32_t by_headers = frames * geometry->frame_slots;
    return by_size < by_headers ? by_size : by_headers;
}

enum tarn_status class_of(const struct pool_geometry *geometry, uint64_t length_bytes,
                          struct page_class *out_class)
{
    enum { WASTE_PART = 16 };
    if (length_bytes == 0 || length_bytes > POOL_PAGE_BYTES_MAX)
        return TARN_NO_SPACE;
    const uint32_t units = (uint32_t)((length_bytes + POOL_UNIT_BYTES - 1) / POOL_UNIT_BYTES);
    struct page_class best = { 0 };
    uint32_t best_waste = UINT32_MAX;
    for (uint32_t frames = 1; frames <= POOL_CHUNK_FRAMES_MAX; frames++) {
        const uint32_t chunk_units = frames * FRAME_UNITS;
        if (chunk_units < units)
            continue;
        /* of a chunk, in millionths, so that chunks of different sizes compare */
        const uint32_t waste = (uint32_t)((uint64_t)(chunk_units % units) * 1000000 / chunk_units);
        if (waste < best_waste) {
            best_waste = waste;
            best = (struct page_class){ units, frames, chunk_pages(geometry, units, frames) };
        }
        if (waste <= 1000000 / WASTE_PART)
            break;
    }
    if (best.pages == 0 || geometry->frame_count < POOL_CHUNKS_MIN * best.frames)
        return TARN_NO_SPACE;
    *out_class = best;
    return TARN_OK;
}
