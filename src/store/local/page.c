/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/page.h"

#include "base/log.h"
#include "codec/checksum.h"
#include "obs/metric.h"
#include "store/local/lease.h"
#include "store/local/near.h"
#include "store/local/space.h"

enum {
    PUT_PIECE_BYTES = 128 << 10,  /* hashed and written while it is in the processor's cache */
    WINDOW_PIECE_BYTES = 4 << 10, /* hashed and copied: so small that both overlap */
    COPY_PIECE_BYTES = 32 << 10,
    PIECE_SPANS = 64,
    QUARANTINES_MAX = 16, /* by one process in a minute: past it, its own memory is suspect */
};

static const uint64_t QUARANTINE_WINDOW_NS = 60000000000;

/* ---- checksum: seeded from the key, over the bytes and over what they are ---- */

static void seal_begin(struct checksum_state *state, const struct page_name *name)
{
    const uint64_t high = name->digest[1];
    checksum_begin(state, name->digest[0] ^ (high << 32 | high >> 32));
}

static struct checksum seal_end(struct checksum_state *state, const struct page_name *name,
                                uint64_t place, uint64_t ctl)
{
    const uint64_t trailer[4] = { name->digest[0], name->digest[1], place, ctl_generation(ctl) };
    checksum_add(state, trailer, sizeof(trailer));
    return checksum_end(state);
}

/* ---- spans ---- */

static uint64_t spans_bytes(const struct page_io *io)
{
    uint64_t total_bytes = 0;
    for (uint32_t i = 0; i < io->span_count; i++) {
        if (io->spans[i].size_bytes > POOL_PAGE_BYTES_MAX)
            return UINT64_MAX;
        total_bytes += io->spans[i].size_bytes;
    }
    return total_bytes;
}

/* Walks spans in pieces. */
struct span_walk {
    const struct page_io *io;
    uint32_t span_index;
    uint64_t span_offset;
};

/* Cut off at most max_bytes and max_count pieces; returns how many. */
static uint32_t walk_next(struct span_walk *walk, struct tarn_span *pieces, uint32_t max_count,
                          uint64_t max_bytes)
{
    uint32_t count = 0;
    while (count < max_count && max_bytes > 0 && walk->span_index < walk->io->span_count) {
        const struct tarn_span *span = &walk->io->spans[walk->span_index];
        uint64_t size_bytes = span->size_bytes - walk->span_offset;
        if (size_bytes > max_bytes)
            size_bytes = max_bytes;
        if (size_bytes > 0)
            pieces[count++] =
                (struct tarn_span){ (uint8_t *)span->base + walk->span_offset, size_bytes };
        walk->span_offset += size_bytes;
        max_bytes -= size_bytes;
        if (walk->span_offset == span->size_bytes) {
            walk->span_index++;
            walk->span_offset = 0;
        }
    }
    return count;
}

/* ---- put ---- */

static bool is_intact(const struct pool_view *view)
{
    return !view->env.is_intact || view->env.is_intact(view->env.context);
}

/* Write the bytes of a reserved slot, through the window or by the kernel, and work out their
 * checksum. */
static enum tarn_status bytes_write(struct pool_view *view, const struct page_io *io,
                                    uint64_t offset, uint8_t *window, struct checksum_state *sum)
{
    struct span_walk walk = { .io = io };
    struct tarn_span pieces[PIECE_SPANS];
    const uint64_t piece_bytes = window ? WINDOW_PIECE_BYTES : PUT_PIECE_BYTES;
    for (;;) {
        const uint32_t count = walk_next(&walk, pieces, PIECE_SPANS, piece_bytes);
        if (count == 0)
            break;
        uint64_t moved_bytes = 0;
        for (uint32_t i = 0; i < count; i++) {
            checksum_add(sum, pieces[i].base, pieces[i].size_bytes);
            if (window)
                shm_copy_in(window + moved_bytes, pieces[i].base, pieces[i].size_bytes);
            moved_bytes += pieces[i].size_bytes;
        }
        if (window)
            window += moved_bytes;
        else
            TRY(view->env.write(view->env.context, offset, pieces, count));
        offset += moved_bytes;
    }
    return !window || is_intact(view) ? TARN_OK : TARN_IO; /* the guard's zeros may have taken it */
}

static void header_write(struct pool_header *header, const struct page_name *name, uint64_t place,
                         uint32_t stamp)
{
    shm_store(&header->digest[0], name->digest[0]);
    shm_store(&header->digest[1], name->digest[1]);
    shm_store(&header->place, place);
    shm_store_half(&header->stamp, stamp);
    shm_store_half(&header->chain, chain_make(name->depth, 0));
}

static enum tarn_status page_commit(struct pool_view *view, const struct page_name *name,
                                    uint32_t slot, uint64_t reserved)
{
    view_lock(&view->put_lock);
    const enum tarn_status status = index_insert(view, name, slot);
    view_unlock(&view->put_lock);
    TRY(status);
    if (shm_cas(&view->headers[slot].ctl, reserved,
                ctl_make(PAGE_COMMITTED, 0, ctl_generation(reserved))))
        return TARN_OK;
    index_remove(view, name, slot);
    return TARN_AGAIN;
}

/* Fill a reserved slot and commit it. */
static enum tarn_status page_fill(struct pool_view *view, const struct page_io *io, uint64_t place,
                                  uint32_t slot, uint64_t reserved)
{
    struct pool_header *header = &view->headers[slot];
    struct checksum_state sum;
    uint64_t offset;
    const uint32_t length_bytes = (uint32_t)(place >> 32);
    TRY(view_page_offset(view, slot, length_bytes, &offset));
    uint8_t *window = near_write(view, offset, length_bytes, ctl_generation(reserved) > 1);
    seal_begin(&sum, &io->name);
    if (SHM_MAKES(SHM_MISTAKE_COMMIT_FIRST))
        TRY(page_commit(view, &io->name, slot, reserved));
    TRY(bytes_write(view, io, offset, window, &sum));
    const struct checksum seal = seal_end(&sum, &io->name, place, reserved);
    shm_store(&header->checksum[0], seal.low);
    shm_store(&header->checksum[1], seal.high);
    if (SHM_MAKES(SHM_MISTAKE_COMMIT_FIRST))
        return TARN_OK;
    return page_commit(view, &io->name, slot, reserved);
}

static enum tarn_status put_absent(struct pool_view *view, const struct page_io *io,
                                   uint64_t length_bytes, uint32_t stamp)
{
    uint32_t slot;
    uint64_t ctl;
    struct page_class page;
    if (class_of(&view->geometry, length_bytes, &page) != TARN_OK) {
        LOG_LIMITED(
            LOG_WARN,
            "pool: pages of %llu bytes do not fit it: there must be room for %d chunks, each "
            "a run of 1 to %d frames of %d bytes, in its %u frames",
            (unsigned long long)length_bytes, POOL_CHUNKS_MIN, POOL_CHUNK_FRAMES_MAX,
            POOL_FRAME_BYTES, view->geometry.frame_count);
        return TARN_NO_SPACE;
    }
    view_lock(&view->put_lock);
    enum tarn_status status = space_reserve(view, &page, &slot, &ctl);
    view_unlock(&view->put_lock);
    TRY(status);
    const uint64_t place = place_make(io->name.namespace_id, (uint32_t)length_bytes);
    header_write(&view->headers[slot], &io->name, place, stamp);
    status = page_fill(view, io, place, slot, ctl);
    if (status == TARN_OK) {
        (void)shm_add(&view->live->used_bytes, length_bytes);
        return TARN_OK;
    }
    space_free(view, slot, ctl);
    return status == TARN_MISS ? TARN_AGAIN : status;
}

enum tarn_status page_put(struct pool_view *view, const struct page_io *io, uint32_t stamp,
                          bool *out_was_present)
{
    uint32_t slot;
    uint64_t ctl;
    if (index_find(view, &io->name, &slot, &ctl) == TARN_OK) {
        *out_was_present = true;
        return TARN_OK;
    }
    view_own(view);
    const enum tarn_status status = put_absent(view, io, spans_bytes(io), stamp);
    view_disown(view);
    TRY(status);
    *out_was_present = false;
    return TARN_OK;
}

/* ---- get ---- */

/* A page's header in private memory, and where its bytes are. */
struct page_copy {
    uint32_t slot;
    uint64_t ctl;
    uint64_t place;
    uint64_t offset;
    struct checksum seal;
};

static enum tarn_status header_copy(const struct pool_view *view, struct page_copy *copy)
{
    const struct pool_header *header = &view->headers[copy->slot];
    copy->place = shm_load(&header->place);
    copy->seal.low = shm_load(&header->checksum[0]);
    copy->seal.high = shm_load(&header->checksum[1]);
    const uint32_t length_bytes = (uint32_t)(copy->place >> 32);
    return length_bytes > 0 ? view_page_offset(view, copy->slot, length_bytes, &copy->offset)
                            : TARN_MISS;
}

static bool is_still(const struct pool_view *view, const struct page_copy *copy)
{
    shm_read_fence();
    if (!is_intact(view))
        return false; /* what was copied may be the guard's zeros */
    return SHM_MAKES(SHM_MISTAKE_NO_LAST_LOOK) ||
           ctl_same_page(shm_load(&view->headers[copy->slot].ctl), copy->ctl);
}

/* Copy once. CORRUPT: the page was there before and after, but the copy is not what was put. */
static enum tarn_status bytes_read(const struct pool_view *view, const struct page_io *io,
                                   const struct page_copy *copy)
{
    struct checksum_state sum;
    struct span_walk walk = { .io = io };
    struct tarn_span piece;
    const uint8_t *source = view->data + copy->offset;
    if (view->verify)
        seal_begin(&sum, &io->name);
    const uint64_t piece_bytes = view->verify ? COPY_PIECE_BYTES : POOL_PAGE_BYTES_MAX;
    while (walk_next(&walk, &piece, 1, piece_bytes) > 0) {
        shm_copy_out(piece.base, source, piece.size_bytes);
        if (view->verify)
            checksum_add(&sum, piece.base, piece.size_bytes);
        source += piece.size_bytes;
    }
    if (!is_still(view, copy))
        return TARN_MISS;
    if (view->verify &&
        !checksum_equal(seal_end(&sum, &io->name, copy->place, copy->ctl), copy->seal))
        return TARN_CORRUPT;
    return TARN_OK;
}

static void quarantine_count(struct pool_view *view)
{
    metric_add(METRIC_POOL_QUARANTINED, 1);
    const uint64_t now_ns = view_now_ns(view);
    if (now_ns - atomic_load(&view->quarantine_ns) > QUARANTINE_WINDOW_NS) {
        atomic_store(&view->quarantine_ns, now_ns);
        atomic_store(&view->quarantine_count, 0);
    }
    if (atomic_fetch_add(&view->quarantine_count, 1) < QUARANTINES_MAX ||
        atomic_exchange(&view->is_off, true))
        return;
    log_error("pool: more than %d pages in a minute failed their checksum; this process stops "
              "using the pool: its memory, or the host's, may be faulty",
              QUARANTINES_MAX);
}

/* Put a page out of use. False if it changed meanwhile, and so is nobody's fault. */
static bool page_quarantine(struct pool_view *view, const struct page_name *name, uint32_t slot,
                            uint64_t ctl)
{
    if (view->process >= POOL_PROCESSES ||
        !shm_cas(&view->headers[slot].ctl, ctl, ctl_make(PAGE_QUARANTINED, 0, ctl_generation(ctl))))
        return false;
    index_remove(view, name, slot);
    LOG_LIMITED(LOG_ERROR, "pool: page %u failed its checksum twice and was put out of use", slot);
    quarantine_count(view);
    return true;
}

/* After a mismatch: read once more, with the page pinned so that nobody evicts it meanwhile. */
static enum tarn_status bytes_read_again(struct pool_view *view, const struct page_io *io,
                                         const struct page_copy *copy)
{
    struct pool_lease *lease;
    TRY(lease_begin(view, &lease)); /* a pin counts for others while its process shows a lease */
    enum tarn_status status = TARN_MISS;
    if (page_pin(view, copy->slot, copy->ctl)) {
        status = bytes_read(view, io, copy);
        page_unpin(view, copy->slot);
    }
    lease_release(lease);
    if (status == TARN_CORRUPT)
        (void)page_quarantine(view, &io->name, copy->slot, copy->ctl);
    return status;
}

enum tarn_status page_get(struct pool_view *view, const struct page_io *io)
{
    struct page_copy copy;
    TRY(index_find(view, &io->name, &copy.slot, &copy.ctl));
    TRY(header_copy(view, &copy));
    if (copy.place >> 32 != spans_bytes(io))
        return TARN_MISS;
    near_read(view, copy.offset, copy.place >> 32);
    const enum tarn_status status = bytes_read(view, io, &copy);
    return status == TARN_CORRUPT ? bytes_read_again(view, io, &copy) : status;
}

enum tarn_status page_remove(struct pool_view *view, const struct page_name *name)
{
    uint32_t slot;
    uint64_t ctl;
    TRY(index_find(view, name, &slot, &ctl));
    view_own(view);
    view_lock(&view->put_lock);
    const bool evicted = space_evict(view, slot, ctl);
    view_unlock(&view->put_lock);
    view_disown(view);
    return evicted ? TARN_OK : TARN_AGAIN;
}

enum tarn_status page_verify(const struct pool_view *view, uint32_t slot)
{
    struct checksum_state sum;
    struct page_copy copy = { .slot = slot, .ctl = shm_load(&view->headers[slot].ctl) };
    if (ctl_state(copy.ctl) != PAGE_COMMITTED)
        return TARN_MISS;
    const struct page_name name = header_name(&view->headers[slot]);
    TRY(header_copy(view, &copy));
    seal_begin(&sum, &name);
    checksum_add(&sum, view->data + copy.offset, copy.place >> 32);
    if (!is_still(view, &copy))
        return TARN_MISS;
    return checksum_equal(seal_end(&sum, &name, copy.place, copy.ctl), copy.seal) ? TARN_OK
                                                                                  : TARN_CORRUPT;
}
