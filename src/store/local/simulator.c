/* SPDX-License-Identifier: Apache-2.0 */
#include "store/local/simulator.h"

#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

#include "base/alloc.h"
#include "obs/metric.h"
#include "store/local/check.h"
#include "store/local/lease.h"
#include "store/local/name.h"
#include "store/local/page.h"
#include "store/local/process.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#elif defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

enum {
    PROCESSES_MAX = 4,
    THREADS = 2,
    STACK_BYTES = 256 << 10,
    FRAMES_MAX = 14,
    FRAME_SLOTS = 4,
    IMAGE_BYTES = 96 << 10,
    DATA_BYTES = FRAMES_MAX * POOL_FRAME_BYTES,
    PAGE_BYTES_MAX = 12 << 10,
    KEYS_MAX = 24,
    ROOMY_KEYS = 12, /* fewer than frames: even with a chunk for each page there is room */
    TEXTS = 10,      /* more than there are entries */
    LEASES = 3,
    LEASE_PAGES = 6,
    STEPS_MAX = 8000,       /* of a schedule */
    CALL_STEPS_MAX = 20000, /* of one call, in its own thread */
    DOOM_STEPS_MAX = 120,
    STOP_TURNS_MAX = 1000,
};

enum thread_state { THREAD_NONE, THREAD_RUNNABLE, THREAD_ENDED };

struct sim_lease {
    struct pool_lease *lease; /* NULL: unused */
    bool is_void; /* its process held an expired lease beside it: others may ignore all its pins */
    uint32_t count;
    uint32_t slots[LEASE_PAGES];
    uint64_t ctls[LEASE_PAGES];
};

struct sim_thread {
    ucontext_t context;
    uint8_t *stack;
    void *sanitizer; /* what a sanitizer keeps of a stack */
    struct sim_process *process;
    enum thread_state state;
    uint32_t doom_steps; /* left to live, once the process is killed */
    uint32_t paused_turns;
    uint64_t call_steps;
    struct sim_lease leases[LEASES];
    uint8_t bytes[PAGE_BYTES_MAX];
};

struct sim_process {
    struct pool_view view;
    bool has_view;
    bool is_killed;
    bool is_closing; /* the second thread is asked to end */
    uint32_t stopped_turns;
    struct sim_thread threads[THREADS];
};

static struct {
    struct simulation *out;
    uint8_t *image;
    uint8_t *data;
    struct pool_geometry geometry;
    uint64_t random;
    uint64_t now_ns;
    uint32_t kill_one_in; /* 0: never */
    uint32_t switch_one_in;
    uint32_t stop_one_in;
    uint32_t process_count;
    uint32_t spawns_left;
    uint32_t key_count;
    uint32_t size_kinds;
    struct sim_process *byte_owners[POOL_PROCESSES];
    struct sim_process processes[PROCESSES_MAX];
    struct sim_thread *current; /* NULL: the scheduler itself */
    ucontext_t scheduler;
    void *scheduler_sanitizer;
    uint32_t known_ids[64]; /* namespace ids ever given out, + 1 */
    uint32_t known_texts[64];
} sim;

static uint32_t draw(uint32_t limit)
{
    sim.random ^= sim.random << 13;
    sim.random ^= sim.random >> 7;
    sim.random ^= sim.random << 17;
    return (uint32_t)((sim.random >> 32) * limit >> 32);
}

static void violation(const char *text)
{
    if (!sim.out->violation)
        sim.out->violation = text;
}

/* ---- switching between stacks ---- */

static void scheduler_enter(struct sim_thread *from)
{
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(from->state == THREAD_ENDED ? NULL : &from->sanitizer, NULL, 0);
#elif defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(sim.scheduler_sanitizer, 0);
#endif
    (void)swapcontext(&from->context, &sim.scheduler);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(from->sanitizer, NULL, NULL);
#endif
}

static void thread_enter(struct sim_thread *thread)
{
    sim.current = thread;
#if defined(__SANITIZE_ADDRESS__)
    void *saved = NULL;
    __sanitizer_start_switch_fiber(&saved, thread->stack, STACK_BYTES);
#elif defined(__SANITIZE_THREAD__)
    __tsan_switch_to_fiber(thread->sanitizer, 0);
#endif
    (void)swapcontext(&sim.scheduler, &thread->context);
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(saved, NULL, NULL);
#endif
    sim.current = NULL;
}

static _Noreturn void thread_end(struct sim_thread *thread)
{
    thread->state = THREAD_ENDED;
    scheduler_enter(thread);
    ASSERT(false);
    __builtin_unreachable();
}

static void thread_main(void);

static void thread_start(struct sim_process *process, uint32_t index)
{
    struct sim_thread *thread = &process->threads[index];
    thread->process = process;
    thread->state = THREAD_RUNNABLE;
    thread->call_steps = 0;
    thread->paused_turns = 0;
    ASSERT(getcontext(&thread->context) == 0);
    thread->context.uc_stack.ss_sp = thread->stack;
    thread->context.uc_stack.ss_size = STACK_BYTES;
    thread->context.uc_link = NULL;
    makecontext(&thread->context, thread_main, 0);
#if defined(__SANITIZE_THREAD__)
    thread->sanitizer = __tsan_create_fiber(0);
#else
    thread->sanitizer = NULL;
#endif
}

/* ---- the hooks ---- */

static void kill_process(struct sim_process *process)
{
    process->is_killed = true;
    sim.out->kill_count++;
    if (draw(2) == 0)
        process->stopped_turns = draw(STOP_TURNS_MAX); /* its other thread is deep in the kernel */
    for (uint32_t i = 0; i < THREADS; i++)
        process->threads[i].doom_steps = draw(DOOM_STEPS_MAX);
}

static struct sim_lease *lease_at(struct sim_process *process, uint32_t number)
{
    return &process->threads[number / LEASES].leases[number % LEASES];
}

static void lease_check(const struct pool_view *view, const struct sim_lease *lease)
{
    for (uint32_t i = 0; i < lease->count; i++) {
        const uint64_t ctl = atomic_load(&view->headers[lease->slots[i]].ctl);
        if (ctl_generation(ctl) != ctl_generation(lease->ctls[i]) ||
            (ctl_state(ctl) != PAGE_COMMITTED && ctl_state(ctl) != PAGE_EVICTING))
            violation("a slot was reused under a pin");
    }
}

/* A leased slot stays what it was, for 10 s. */
static void leases_check(struct sim_process *process)
{
    const struct pool_view *view = &process->view;
    if (view->process >= POOL_PROCESSES)
        return;
    const uint64_t oldest_ns = atomic_load(&view->processes[view->process].lease_ns);
    const bool has_expired = oldest_ns != 0 && sim.now_ns - oldest_ns >= LEASE_NS_MAX;
    for (uint32_t i = 0; i < THREADS * LEASES; i++) {
        struct sim_lease *lease = lease_at(process, i);
        lease->is_void = lease->is_void || has_expired;
        if (lease->lease && !lease->is_void)
            lease_check(view, lease);
    }
}

static void all_leases_check(void)
{
    for (uint32_t p = 0; p < sim.process_count; p++) {
        if (sim.processes[p].has_view) /* also one that is dying: its locks and pins still hold */
            leases_check(&sim.processes[p]);
    }
}

void simulator_wait(void)
{
    struct sim_thread *thread = sim.current;
    ASSERT(thread);
    if (thread->process->is_killed && thread->doom_steps-- == 0)
        thread_end(thread);
    scheduler_enter(thread);
}

void simulator_step(void)
{
    struct sim_thread *thread = sim.current;
    if (!thread)
        return;
    sim.out->step_count++;
    sim.now_ns += draw(200000);
    all_leases_check();
    if (++thread->call_steps > CALL_STEPS_MAX)
        violation("a call takes too many steps");
    if (sim.out->violation)
        thread_end(thread);
    if (thread->process->is_killed) {
        if (thread->doom_steps-- == 0)
            thread_end(thread);
    } else if (sim.kill_one_in > 0 && draw(sim.kill_one_in) == 0) {
        kill_process(thread->process);
        thread_end(thread);
    }
    if (draw(sim.switch_one_in) == 0)
        scheduler_enter(thread);
}

bool simulator_makes(enum shm_mistake mistake)
{
    return sim.out->mistake == mistake;
}

/* ---- the world of a view ---- */

static uint64_t env_now_ns(void *context)
{
    (void)context;
    return sim.now_ns;
}

static bool env_process_take(void *context, uint32_t byte)
{
    struct sim_process *process = context;
    simulator_step();
    struct sim_process *owner = sim.byte_owners[byte];
    const bool is_gone_by_pid = simulator_makes(SHM_MISTAKE_PID_LIVENESS) && owner &&
                                owner->threads[0].state == THREAD_ENDED;
    if (owner && owner != process && !is_gone_by_pid)
        return false;
    sim.byte_owners[byte] = process;
    return true;
}

static void env_process_release(void *context, uint32_t byte)
{
    simulator_step();
    if (sim.byte_owners[byte] == context)
        sim.byte_owners[byte] = NULL;
}

static enum tarn_status env_write(void *context, uint64_t offset, const struct tarn_span *spans,
                                  uint32_t count)
{
    (void)context;
    if (sim.current && !sim.out->is_roomy && draw(50) == 0)
        return TARN_IO;
    for (uint32_t i = 0; i < count; i++) {
        for (uint64_t done = 0; done < spans[i].size_bytes; done += POOL_UNIT_BYTES) {
            const uint64_t left = spans[i].size_bytes - done;
            simulator_step();
            memcpy(sim.data + offset + done, (const uint8_t *)spans[i].base + done,
                   left < POOL_UNIT_BYTES ? left : POOL_UNIT_BYTES);
        }
        offset += spans[i].size_bytes;
    }
    return TARN_OK;
}

static bool env_window_open(void *context, uint64_t offset, uint64_t size_bytes)
{
    (void)context;
    simulator_step();
    ASSERT(offset + size_bytes <= (uint64_t)sim.geometry.frame_count * POOL_FRAME_BYTES);
    return draw(3) > 0;
}

static enum tarn_status env_populate(void *context, uint64_t offset, uint64_t size_bytes)
{
    (void)context;
    simulator_step();
    ASSERT(offset + size_bytes <= (uint64_t)sim.geometry.frame_count * POOL_FRAME_BYTES);
    return sim.current && !sim.out->is_roomy && draw(20) == 0 ? TARN_NO_SPACE : TARN_OK;
}

static struct pool_env env_of(struct sim_process *process)
{
    return (struct pool_env){
        .now_ns = env_now_ns,
        .process_take = env_process_take,
        .process_release = env_process_release,
        .write = env_write,
        .populate = env_populate,
        .window = sim.data,
        .window_open = env_window_open,
        .context = process,
    };
}

/* ---- what is put, and what must come back ---- */

static uint64_t mix(uint64_t value)
{
    value = (value ^ value >> 33) * UINT64_C(0xff51afd7ed558ccd);
    return value ^ value >> 33;
}

static uint32_t key_bytes(uint32_t key)
{
    static const uint32_t sizes[] = { 4096, 4000, 8192, 12288, 7000 };
    return sizes[mix(key) % sim.size_kinds];
}

static void key_fill(uint32_t text, uint32_t key, uint8_t *bytes)
{
    for (uint32_t i = 0; i < key_bytes(key); i++)
        bytes[i] = (uint8_t)mix(((uint64_t)text << 40) + ((uint64_t)key << 20) + (i / 64) + 1);
}

static bool key_matches(uint32_t text, uint32_t key, const uint8_t *bytes)
{
    static uint8_t expected[PAGE_BYTES_MAX];
    key_fill(text, key, expected);
    return memcmp(bytes, expected, key_bytes(key)) == 0;
}

static struct page_name key_name(uint32_t id, uint32_t key)
{
    return (struct page_name){
        .digest = { mix(key + UINT64_C(1)), mix(key + UINT64_C(1000)) },
        .namespace_id = id,
        .depth = key,
    };
}

static void spans_cut(uint32_t key, void *bytes, struct tarn_span spans[2])
{
    const uint32_t size_bytes = key_bytes(key);
    const uint32_t cut = draw(size_bytes);
    spans[0] = (struct tarn_span){ bytes, cut };
    spans[1] = (struct tarn_span){ (uint8_t *)bytes + cut, size_bytes - cut };
}

/* An id stands for one text for ever. */
static void id_check(uint32_t id, uint32_t text)
{
    for (uint32_t i = 0; i < LENGTH_OF(sim.known_ids); i++) {
        if (sim.known_ids[i] == 0) {
            sim.known_ids[i] = id + 1;
            sim.known_texts[i] = text;
        }
        if (sim.known_ids[i] != id + 1)
            continue;
        if (sim.known_texts[i] != text)
            violation("a namespace id came to mean another text");
        return;
    }
}

/* ---- what processes do ---- */

static void put_one(struct sim_thread *thread, uint32_t id, uint32_t text, uint32_t key)
{
    struct tarn_span spans[2];
    bool was_present = false;
    key_fill(text, key, thread->bytes);
    spans_cut(key, thread->bytes, spans);
    const struct page_io io = { key_name(id, key), spans, 2 };
    struct pool_view *view = &thread->process->view;
    const enum tarn_status status = page_put(view, &io, view_tick(view), &was_present);
    if (status == TARN_OK && !was_present)
        sim.out->put_count++;
    if (status != TARN_OK && sim.out->is_roomy)
        violation("a put failed though there was room");
}

static void get_one(struct sim_thread *thread, uint32_t id, uint32_t text, uint32_t key)
{
    struct tarn_span spans[2];
    memset(thread->bytes, 0xee, sizeof(thread->bytes));
    spans_cut(key, thread->bytes, spans);
    const struct page_io io = { key_name(id, key), spans, 2 };
    const enum tarn_status status = page_get(&thread->process->view, &io);
    if (status == TARN_CORRUPT)
        violation("a page failed its checksum");
    if (status != TARN_OK)
        return;
    sim.out->hit_count++;
    if (!key_matches(text, key, thread->bytes))
        violation("a key returned other bytes than were put under it");
}

static void lease_take(struct sim_thread *thread, uint32_t id, uint32_t key)
{
    struct sim_process *process = thread->process;
    struct sim_lease *lease = &thread->leases[draw(LEASES)];
    struct page_name names[LEASE_PAGES];
    struct pool_lease *taken;
    uint32_t count = 0;
    if (lease->lease || lease_begin(&process->view, &taken) != TARN_OK)
        return;
    for (uint32_t i = 0; i < LEASE_PAGES; i++)
        names[i] = key_name(id, (key + i) % sim.key_count);
    *lease = (struct sim_lease){ .lease = taken };
    lease_extend(taken, names, LEASE_PAGES, view_tick(&process->view), &count);
    const struct lease_block *block = LIST_ITEM(taken->blocks.next, struct lease_block, link);
    for (uint32_t i = 0; i < count; i++) {
        const struct pool_header *header = &process->view.headers[block->slots[i]];
        lease->slots[i] = block->slots[i];
        lease->ctls[i] = atomic_load(&header->ctl);
        if (!lease->is_void && atomic_load(&header->digest[0]) != names[i].digest[0])
            violation("a lease names another page");
    }
    lease->count = count;
}

static void lease_drop(struct sim_lease *lease)
{
    struct pool_lease *taken = lease->lease;
    lease->lease = NULL;
    lease_release(taken);
}

/* Each thread has keys of its own: two that put one key at once would make two pages. */
static void act_roomy(struct sim_thread *thread, uint32_t id)
{
    const struct sim_process *process = thread->process;
    const uint32_t number =
        (uint32_t)(process - sim.processes) * THREADS + (thread == &process->threads[1]);
    const uint32_t key = number + draw(2) * PROCESSES_MAX * THREADS;
    thread->call_steps = 0;
    if (key < ROOMY_KEYS)
        put_one(thread, id, 0, key);
}

static void act(struct sim_thread *thread)
{
    struct sim_process *process = thread->process;
    char text_chars[16];
    uint32_t id;
    const uint32_t text = draw(8) > 0 || sim.out->is_roomy ? 0 : draw(TEXTS);
    const uint32_t key = draw(sim.key_count);
    (void)snprintf(text_chars, sizeof(text_chars), "tarn/text %u", text);
    thread->call_steps = 0;
    if (name_intern(&process->view, text_chars, &id) != TARN_OK)
        return;
    id_check(id, text);
    if (sim.out->is_roomy) {
        act_roomy(thread, id);
        return;
    }
    thread->call_steps = 0;
    const uint32_t choice = draw(16);
    const struct page_name name = key_name(id, key);
    if (choice < 6)
        put_one(thread, id, text, key);
    else if (choice < 10)
        get_one(thread, id, text, key);
    else if (choice < 12)
        lease_take(thread, id, key);
    else if (choice < 14)
        lease_drop(&thread->leases[draw(LEASES)]);
    else if (choice < 15)
        (void)(page_remove(&process->view, &name) == TARN_OK);
    else if (draw(4) == 0)
        sim.now_ns += draw(12) * UINT64_C(1000000000);
    else
        (void)process_reclaim(&process->view, 0);
}

static void first_thread(struct sim_thread *thread)
{
    struct sim_process *process = thread->process;
    if (process_join(&process->view, 0) != TARN_OK)
        return;
    process->view.verify = draw(2) == 0;
    thread_start(process, 1);
    const uint32_t act_count = 10 + draw(30);
    for (uint32_t i = 0; i < act_count; i++)
        act(thread);
    process->is_closing = true;
    while (process->threads[1].state == THREAD_RUNNABLE)
        simulator_wait();
    for (uint32_t i = 0; i < THREADS * LEASES; i++)
        lease_drop(lease_at(process, i));
    process_leave(&process->view);
}

static void second_thread(struct sim_thread *thread)
{
    while (!thread->process->is_closing)
        act(thread);
}

static void thread_main(void)
{
    struct sim_thread *thread = sim.current;
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
#endif
    if (thread == &thread->process->threads[0])
        first_thread(thread);
    else
        second_thread(thread);
    thread_end(thread);
}

/* ---- the scheduler ---- */

static bool is_running(const struct sim_process *process)
{
    for (uint32_t i = 0; i < THREADS; i++) {
        if (process->threads[i].state == THREAD_RUNNABLE)
            return true;
    }
    return false;
}

/* The kernel has finished with a process: its memory and its locks are gone. */
static void process_bury(struct sim_process *process)
{
    for (uint32_t byte = 0; byte < POOL_PROCESSES; byte++) {
        if (sim.byte_owners[byte] == process)
            sim.byte_owners[byte] = NULL;
    }
    view_deinit(&process->view);
    process->has_view = false;
    for (uint32_t i = 0; i < THREADS; i++) {
        process->threads[i].state = THREAD_NONE;
#if defined(__SANITIZE_THREAD__)
        if (process->threads[i].sanitizer)
            __tsan_destroy_fiber(process->threads[i].sanitizer);
#endif
        process->threads[i].sanitizer = NULL;
    }
}

static enum tarn_status view_start(struct sim_process *process)
{
    const struct pool_env env = env_of(process);
    TRY(view_init(&process->view, &sim.geometry, sim.image, sim.data, &env));
    view_seed(&process->view, draw(UINT32_MAX));
    process->has_view = true;
    process->is_killed = false;
    process->is_closing = false;
    process->stopped_turns = 0;
    for (uint32_t i = 0; i < THREADS * LEASES; i++)
        *lease_at(process, i) = (struct sim_lease){ 0 };
    return TARN_OK;
}

static enum tarn_status process_start(struct sim_process *process)
{
    sim.spawns_left--;
    TRY(view_start(process));
    thread_start(process, 0);
    return TARN_OK;
}

/* A thread to go on with; NULL: nobody is left. */
static struct sim_thread *thread_choose(void)
{
    for (uint32_t tries = 0; tries < 64; tries++) {
        struct sim_process *process = &sim.processes[draw(sim.process_count)];
        struct sim_thread *thread = &process->threads[draw(THREADS)];
        if (thread->state != THREAD_RUNNABLE)
            continue;
        if (process->stopped_turns > 0) {
            process->stopped_turns--;
            continue;
        }
        if (thread->paused_turns > 0) {
            thread->paused_turns--;
            continue;
        }
        if (draw(sim.stop_one_in) == 0)
            *(draw(4) == 0 ? &process->stopped_turns : &thread->paused_turns) =
                draw(STOP_TURNS_MAX);
        return thread;
    }
    for (uint32_t p = 0; p < sim.process_count; p++) {
        for (uint32_t i = 0; i < THREADS; i++) {
            if (sim.processes[p].threads[i].state == THREAD_RUNNABLE)
                return &sim.processes[p].threads[i];
        }
    }
    return NULL;
}

static enum tarn_status processes_tend(void)
{
    for (uint32_t p = 0; p < sim.process_count; p++) {
        struct sim_process *process = &sim.processes[p];
        if (is_running(process))
            continue;
        if (process->has_view)
            process_bury(process);
        if (sim.spawns_left > 0 && draw(8) == 0)
            TRY(process_start(process));
    }
    return TARN_OK;
}

/* One namespace that is there from the start: two that intern it at once would make two. */
static enum tarn_status roomy_prepare(void)
{
    struct sim_process *process = &sim.processes[0];
    uint32_t id;
    TRY(view_start(process));
    if (process_join(&process->view, 0) != TARN_OK ||
        name_intern(&process->view, "tarn/text 0", &id) != TARN_OK)
        violation("an empty image is of no use");
    process_leave(&process->view);
    process_bury(process);
    return TARN_OK;
}

static enum tarn_status schedule_run(void)
{
    if (sim.out->is_roomy)
        TRY(roomy_prepare());
    for (uint32_t p = 0; p < sim.process_count; p++)
        TRY(process_start(&sim.processes[p]));
    while (!sim.out->violation && sim.out->step_count < STEPS_MAX) {
        struct sim_thread *thread = thread_choose();
        if (!thread)
            break;
        thread_enter(thread);
        TRY(processes_tend());
    }
    for (uint32_t p = 0; p < sim.process_count; p++)
        process_bury(&sim.processes[p]);
    return TARN_OK;
}

/* ---- the end: nothing may be lost ---- */

static void image_is_clean(const struct pool_view *view)
{
    static struct pool_check check;
    image_check(view, UINT64_C(1) << view->process, true, &check);
    if (check.corrupt_count > 0)
        violation("a page failed its checksum");
    if (check.fault_count > 0)
        violation("the image is not sound");
    if (check.left_count > 0 || check.pinned_count > 0)
        violation("a dead process's pins or slots did not come back");
    if (check.slots[PAGE_QUARANTINED] > 0)
        violation("a page was quarantined");
    if (check.frames[FRAME_CLAIMED] > 0 || check.frames[FRAME_DRAINING] > 0)
        violation("a dead process's frames did not come back");
    for (uint32_t byte = 0; byte < POOL_PROCESSES; byte++) {
        if (byte != view->process && atomic_load(&view->processes[byte].is_used) != 0)
            violation("a dead process's slot did not come back");
    }
}

/* Every page that is left, and room for as many as there can be. */
static void image_is_whole(struct sim_process *process)
{
    struct sim_thread *thread = &process->threads[0];
    struct pool_view *view = &process->view;
    char text[16];
    uint32_t id;
    thread->process = process;
    for (uint32_t i = 0; i < TEXTS; i++) {
        (void)snprintf(text, sizeof(text), "tarn/text %u", i);
        if (name_find(view, text, &id) != TARN_OK)
            continue;
        for (uint32_t key = 0; key < sim.key_count; key++)
            get_one(thread, id, i, key);
    }
    (void)snprintf(text, sizeof(text), "tarn/text %u", 0);
    if (name_intern(view, text, &id) != TARN_OK) {
        violation("a namespace was lost");
        return;
    }
    const uint64_t before = sim.out->put_count;
    sim.size_kinds = 1;
    for (uint32_t key = 1000; key < 1000 + sim.geometry.slot_count; key++)
        put_one(thread, id, 0, key);
    if (sim.out->put_count - before != sim.geometry.slot_count)
        violation("room was lost");
}

static enum tarn_status last_process(void)
{
    struct sim_process *process = &sim.processes[0];
    TRY(view_start(process));
    if (process_join(&process->view, 0) != TARN_OK)
        violation("no process slot is left");
    (void)process_reclaim(&process->view, 0);
    image_is_clean(&process->view);
    if (!sim.out->violation)
        image_is_whole(process);
    process_leave(&process->view);
    process_bury(process);
    return TARN_OK;
}

/* ---- one schedule ---- */

static void *memory_map(size_t size_bytes)
{
    void *at = mmap(NULL, size_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? NULL : at;
}

/* Memory that all schedules use in turn. */
static enum tarn_status memory_take(void)
{
    if (sim.image)
        return TARN_OK;
    sim.data = memory_map(DATA_BYTES);
    for (uint32_t p = 0; p < PROCESSES_MAX; p++) {
        for (uint32_t i = 0; i < THREADS; i++) {
            sim.processes[p].threads[i].stack = memory_map(STACK_BYTES);
            if (!sim.processes[p].threads[i].stack)
                return TARN_NO_MEMORY;
        }
    }
    sim.image = memory_map(IMAGE_BYTES);
    return sim.image && sim.data ? TARN_OK : TARN_NO_MEMORY;
}

static void world_choose(void)
{
    static const uint32_t kills[] = { 0, 100, 400, 1500 };
    static const uint32_t switches[] = { 1, 2, 4, 16, 64 };
    static const uint32_t stops[] = { 10, 50, 200, 1000 };
    sim.process_count = 2 + draw(PROCESSES_MAX - 1);
    sim.spawns_left = sim.process_count + draw(8);
    sim.kill_one_in = kills[draw(LENGTH_OF(kills))];
    sim.switch_one_in = switches[draw(LENGTH_OF(switches))];
    sim.stop_one_in = stops[draw(LENGTH_OF(stops))];
    sim.key_count = 4 + draw(KEYS_MAX - 3);
    sim.size_kinds = 1 + draw(5);
    sim.now_ns = 1 + draw(UINT32_MAX);
    if (!sim.out->is_roomy)
        return;
    sim.kill_one_in = 0;
    sim.key_count = ROOMY_KEYS;
    sim.size_kinds = 1;
}

enum tarn_status simulate(struct simulation *simulation)
{
    TRY(memory_take());
    const int64_t evicted_before = metric_get(METRIC_POOL_EVICTED);
    sim.out = simulation;
    sim.random = mix(simulation->seed + 1) | 1;
    memset(sim.byte_owners, 0, sizeof(sim.byte_owners));
    memset(sim.known_ids, 0, sizeof(sim.known_ids));
    memset(sim.image, 0, IMAGE_BYTES);
    memset(sim.data, 0, DATA_BYTES);
    const uint32_t frame_count = 9 + draw(FRAMES_MAX - 8);
    TRY(geometry_init(simulation->is_roomy ? FRAMES_MAX : frame_count, FRAME_SLOTS, &sim.geometry));
    ASSERT(sim.geometry.data_offset <= IMAGE_BYTES);
    world_choose();
#if defined(__SANITIZE_THREAD__)
    sim.scheduler_sanitizer = __tsan_get_current_fiber();
#endif
    TRY(schedule_run());
    if (simulation->is_roomy && metric_get(METRIC_POOL_EVICTED) != evicted_before)
        violation("a page was evicted though there was room");
    if (!simulation->violation)
        TRY(last_process());
    simulation->eviction_count = (uint64_t)(metric_get(METRIC_POOL_EVICTED) - evicted_before);
    return TARN_OK;
}
