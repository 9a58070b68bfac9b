/* SPDX-License-Identifier: Apache-2.0 */
/*
 * format.h - what lies where in a pool file, format version 1. docs/pool.md tells it in words.
 *
 *   superblock   4 KiB        never changes after creation, checksummed
 *   live words   4 KiB        boot, clock, estimates
 *   processes    64 x 64 B    one for each process slot
 *   frames       8 B each     which chunk a frame of 2 MiB belongs to
 *   names        4096 x 8 B   states of the namespaces; their texts follow, 480 B each
 *   headers      64 B each    one for each page slot: the only truth about a page
 *   buckets      64 B each    the index: a hint
 *   page data    frames
 *
 * Everything is derived from two numbers, frame_count and frame_slots; a file that says otherwise
 * is refused. All words are of the host's width and order, which the superblock names. There are no
 * pointers, process ids or locks of user space in the file.
 */
#ifndef STORE_LOCAL_FORMAT_H
#define STORE_LOCAL_FORMAT_H

#include "store/local/shm.h"
#include "store/store.h"

enum {
    POOL_FORMAT_VERSION = 1,
    POOL_PROCESSES = 64,
    POOL_NAME_WORDS = 60, /* of a namespace's text */
    POOL_UNIT_BYTES = 4096,
    POOL_CHUNK_FRAMES_MAX = 32,
    POOL_CHUNKS_MIN = 3, /* a pool smaller than so many chunks of a class does not take its pages */
    POOL_BUCKET_WORDS = 8,
    POOL_WINDOW_BUCKETS = 4, /* probed for one key */
#ifdef POOL_SIMULATE         /* small, so that everything runs out all the time */
    POOL_FRAME_BYTES = 16 << 10,
    POOL_NAMESPACES = 8,
#else
    POOL_FRAME_BYTES = 2 << 20,
    POOL_NAMESPACES = 4096,
#endif
    POOL_FRAME_SLOTS_MAX = POOL_FRAME_BYTES / POOL_UNIT_BYTES,
    POOL_FRAMES_MAX = 1 << 24, /* 32 TiB */
    POOL_PAGE_BYTES_MAX = POOL_FRAME_BYTES * POOL_CHUNK_FRAMES_MAX,
};

/* At offset 0. */
struct pool_superblock {
    char magic[8]; /* "TARNPOOL" */
    uint32_t version;
    uint32_t header_bytes; /* sizeof(struct pool_superblock) */
    uint32_t word_bytes;   /* 8 */
    uint32_t byte_order;   /* POOL_BYTE_ORDER as the creator's processor writes it */
    uint32_t frame_bytes;  /* POOL_FRAME_BYTES */
    uint32_t frame_slots;  /* page headers a frame: the smallest page is frame_bytes / this */
    uint64_t frame_count;
    uint64_t file_bytes;
    uint64_t checksum_low; /* XXH3-128 of all bytes before it */
    uint64_t checksum_high;
};

enum { POOL_LIVE_OFFSET = 4096 };

#define POOL_MAGIC      "TARNPOOL"
#define POOL_BYTE_ORDER UINT32_C(0x01020304)

/* The words that change. */
struct pool_live {
    shm_word boot[2];       /* the boot in which the words below were last made good */
    shm_word tick;          /* logical clock of use: about one a lookup */
    shm_word names_epoch;   /* changes whenever a namespace comes or goes */
    shm_word used_bytes;    /* of committed pages; an estimate */
    shm_word holds_foreign; /* not 0: some pages are of another boot, or came with a copied file */
    shm_word reserved[2];
};

/* One for each process slot. Whether its process lives is told by the lock on its byte alone. */
struct pool_process {
    shm_word is_used;   /* its holder may have left something behind */
    shm_word lease_ns;  /* when its oldest copy lease was taken (CLOCK_MONOTONIC); 0: none */
    shm_word shown_pid; /* for people to read; decides nothing */
    shm_word reserved[5];
};

enum page_state {
    PAGE_FREE,
    PAGE_RESERVED,  /* owner writes it */
    PAGE_COMMITTED, /* immutable and visible */
    PAGE_EVICTING,  /* owner is taking it away */
    PAGE_QUARANTINED,
    PAGE_STATE_COUNT,
};

/* A page slot's header, on a cache line of its own. */
struct pool_header {
    shm_word ctl;         /* state, attached, owner, generation: see ctl_make() */
    shm_word pins;        /* bit p: process slot p holds a lease */
    shm_word digest[2];   /* below: written while RESERVED, immutable from then on */
    shm_word checksum[2]; /* of the bytes and of what they are: page_seal() */
    shm_word place;       /* namespace id (32), length in bytes (32) */
    shm_half stamp;       /* live tick of the last use; changes */
    shm_half chain;       /* depth (20), tenant (12) */
};

struct pool_bucket {
    shm_word words[POOL_BUCKET_WORDS]; /* tag (32), slot + 1 (32); 0: free */
};

struct pool_name {
    shm_word text[POOL_NAME_WORDS];
};

_Static_assert(sizeof(struct pool_superblock) == 64, "a superblock has no padding");
_Static_assert(sizeof(struct pool_live) == 64, "live words fill a cache line");
_Static_assert(sizeof(struct pool_process) == 64, "a process slot is a cache line");
_Static_assert(sizeof(struct pool_header) == 64, "a page header is a cache line");
_Static_assert(sizeof(struct pool_bucket) == 64, "a bucket is a cache line");
_Static_assert(STORE_NAMESPACE_BYTES_MAX < sizeof(struct pool_name), "a text fits its entry");

/* Where things are, in private memory: once made, the file is not asked again. */
struct pool_geometry {
    uint32_t frame_count;
    uint32_t frame_slots;
    uint32_t slot_count;
    uint32_t bucket_count;
    uint64_t process_offset;
    uint64_t frame_offset;
    uint64_t name_state_offset;
    uint64_t name_text_offset;
    uint64_t header_offset;
    uint64_t bucket_offset;
    uint64_t data_offset; /* = bytes of metadata */
    uint64_t file_bytes;
};

/* Outcomes: INVALID for counts out of range. */
NODISCARD enum tarn_status geometry_init(uint64_t frame_count, uint64_t frame_slots,
                                         struct pool_geometry *out_geometry);

/* The largest pool of at most `file_bytes`, metadata included. Outcomes: NO_SPACE (not one frame).
 */
NODISCARD enum tarn_status geometry_fit(uint64_t file_bytes, uint32_t frame_slots,
                                        struct pool_geometry *out_geometry);

void superblock_make(const struct pool_geometry *geometry, struct pool_superblock *out_super);

/* Check a private copy of a file's first bytes. On failure *out_reason, a static text, says what is
 * wrong. Outcomes: UNSUPPORTED. */
NODISCARD enum tarn_status superblock_check(const struct pool_superblock *super,
                                            uint64_t file_bytes, struct pool_geometry *out_geometry,
                                            const char **out_reason);

/* ---- ctl: state (3), attached (1), owner (7), generation (53) ---- */

enum { CTL_ATTACHED = 8 };

static inline uint64_t ctl_make(enum page_state state, uint32_t owner, uint64_t generation)
{
    return (uint64_t)state | (uint64_t)owner << 4 | generation << 11;
}

static inline enum page_state ctl_state(uint64_t ctl)
{
    return (enum page_state)(ctl & 7);
}

static inline uint32_t ctl_owner(uint64_t ctl)
{
    return (uint32_t)(ctl >> 4) & 127;
}

static inline uint64_t ctl_generation(uint64_t ctl)
{
    return ctl >> 11;
}

static inline bool ctl_is_owned(uint64_t ctl)
{
    return ctl_state(ctl) == PAGE_RESERVED || ctl_state(ctl) == PAGE_EVICTING;
}

/* Whether both name one committed page: ATTACHED may differ. */
static inline bool ctl_same_page(uint64_t a, uint64_t b)
{
    return ((a ^ b) & ~(uint64_t)CTL_ATTACHED) == 0;
}

/* ---- frame words: state (3), owner (7), frames (6), units (16), head (32) ---- */

enum frame_state {
    FRAME_EMPTY,
    FRAME_CLAIMED,  /* head of a chunk that owner is making or taking apart */
    FRAME_ACTIVE,   /* head of a chunk */
    FRAME_DRAINING, /* head of a chunk that owner empties: no new reservations */
    FRAME_TAIL,     /* belongs to the chunk whose head it names */
    FRAME_STATE_COUNT,
};

static inline uint64_t frame_make(enum frame_state state, uint32_t owner, uint32_t frames,
                                  uint32_t units)
{
    return (uint64_t)state | (uint64_t)owner << 3 | (uint64_t)frames << 10 | (uint64_t)units << 16;
}

static inline uint64_t frame_make_tail(uint32_t head)
{
    return (uint64_t)FRAME_TAIL | (uint64_t)head << 32;
}

static inline enum frame_state frame_state(uint64_t word)
{
    return (enum frame_state)(word & 7);
}

static inline uint32_t frame_owner(uint64_t word)
{
    return (uint32_t)(word >> 3) & 127;
}

static inline uint32_t frame_frames(uint64_t word)
{
    return (uint32_t)(word >> 10) & 63;
}

static inline uint32_t frame_units(uint64_t word)
{
    return (uint32_t)(word >> 16) & 0xffff;
}

static inline uint32_t frame_head(uint64_t word)
{
    return (uint32_t)(word >> 32);
}

/* ---- name states: state (2), owner (7), length (9), generation (20), tag (26) ---- */

enum name_state { NAME_FREE, NAME_WRITING, NAME_READY };

enum { NAME_GENERATIONS = 1 << 20 };

static inline uint64_t name_make(enum name_state state, uint32_t owner, uint32_t length_bytes,
                                 uint32_t generation)
{
    return (uint64_t)state | (uint64_t)owner << 2 | (uint64_t)length_bytes << 9 |
           (uint64_t)generation << 18;
}

static inline enum name_state name_state(uint64_t word)
{
    return (enum name_state)(word & 3);
}

static inline uint32_t name_owner(uint64_t word)
{
    return (uint32_t)(word >> 2) & 127;
}

static inline uint32_t name_length(uint64_t word)
{
    return (uint32_t)(word >> 9) & 511;
}

static inline uint32_t name_generation(uint64_t word)
{
    return (uint32_t)(word >> 18) & (NAME_GENERATIONS - 1);
}

static inline uint32_t name_tag(uint64_t word)
{
    return (uint32_t)(word >> 38);
}

/* A namespace id, as page headers carry it: entry (12), generation (20). An id never comes to mean
 * another text: an entry gets a new generation with each new text. */
static inline uint32_t name_id(uint32_t entry, uint64_t word)
{
    return entry | name_generation(word) << 12;
}

/* ---- header fields ---- */

static inline uint64_t place_make(uint32_t namespace_id, uint32_t length_bytes)
{
    return (uint64_t)namespace_id | (uint64_t)length_bytes << 32;
}

enum { DEPTH_MAX = (1 << 20) - 1 };

static inline uint32_t chain_make(uint32_t depth, uint32_t tenant)
{
    return (depth < DEPTH_MAX ? depth : DEPTH_MAX) | tenant << 20;
}

static inline uint32_t chain_depth(uint32_t chain)
{
    return chain & DEPTH_MAX;
}

/* ---- page classes ---- */

/* What pages of one rounded size live in. */
struct page_class {
    uint32_t units;  /* size of a page in POOL_UNIT_BYTES */
    uint32_t frames; /* of a chunk */
    uint32_t pages;  /* in a chunk */
};

/* How many pages of `units` fit `frames`; 0 for senseless arguments. */
uint32_t chunk_pages(const struct pool_geometry *geometry, uint32_t units, uint32_t frames);

/* The class of pages of `length_bytes`: the chunk is the smallest that wastes at most 1/16.
 * Outcomes: NO_SPACE (empty, too large, or the pool has less than POOL_CHUNKS_MIN such chunks). */
NODISCARD enum tarn_status class_of(const struct pool_geometry *geometry, uint64_t length_bytes,
                                    struct page_class *out_class);

#endif
