/* SPDX-License-Identifier: Apache-2.0 */
/* What the host gives: memory, limits, clock. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/alloc.h"
#include "cli/doctor.h"
#include "config/value.h"
#include "os/clock.h"
#include "os/file.h"
#include "os/memory.h"

enum { SHORT_FILE_BYTES = 1 << 14, SIZE_BYTES = 32, CLOCK_READS = 10000 };

#define CLOCK_READ_NS_MAX 1000

/* A small file of /proc or /sys, without its last newline; "" when it is not there. */
static void short_file(const char *path, char out[static SHORT_FILE_BYTES])
{
    char *chars = NULL;
    size_t length_bytes = 0;
    out[0] = '\0';
    if (file_load(path, SHORT_FILE_BYTES - 1, &chars, &length_bytes) != TARN_OK)
        return;
    memcpy(out, chars, length_bytes + 1);
    out[strcspn(out, "\n")] = '\0';
    mem_free(chars);
}

void doctor_check_memory(struct doctor *doctor)
{
    uint64_t available = 0;
    char shown[SIZE_BYTES];
    char room[SIZE_BYTES];
    const uint64_t group = memory_group_headroom("/proc/self/cgroup", "/sys/fs/cgroup");
    if (memory_available(&available) != TARN_OK) {
        doctor_say(doctor, "memory", DOCTOR_WARNING, "mount /proc",
                   "/proc/meminfo does not say how much memory is available");
        return;
    }
    value_print_size(available, shown, sizeof(shown));
    value_print_size(group, room, sizeof(room));
    const uint64_t kv = option_number(doctor->options, OPTION_KV_SIZE);
    const uint64_t least = group < available ? group : available;
    const char *limit = group < available ? room : shown;
    if (kv > least)
        doctor_say(doctor, "memory", DOCTOR_FAILED, "lower --kv-size",
                   "--kv-size is %s, but only %s may be taken",
                   option_text(doctor->options, OPTION_KV_SIZE), limit);
    else
        doctor_say(doctor, "memory", DOCTOR_OK, NULL, "%s available%s%s", shown,
                   group < available ? ", limited by a control group to " : "",
                   group < available ? room : "");
}

void doctor_check_shared_memory(struct doctor *doctor, const char *directory, uint64_t wanted_bytes)
{
    struct statvfs system;
    char all[SIZE_BYTES];
    char free_size[SIZE_BYTES];
    if (statvfs(directory, &system) != 0 || access(directory, W_OK | X_OK) != 0) {
        doctor_say(doctor, "shared memory", DOCTOR_FAILED,
                   "make it a directory that this user may write to, or name a pool elsewhere "
                   "(--pool PATH)",
                   "%.300s: %s", directory, strerrordesc_np(errno));
        return;
    }
    const uint64_t free_bytes = (uint64_t)system.f_bavail * system.f_frsize;
    value_print_size((uint64_t)system.f_blocks * system.f_frsize, all, sizeof(all));
    value_print_size(free_bytes, free_size, sizeof(free_size));
    if (free_bytes < wanted_bytes)
        doctor_say(doctor, "shared memory", DOCTOR_WARNING,
                   "make it larger (/dev/shm in a container: --shm-size), ask for less "
                   "(--pool PATH,size=SIZE), or name a pool elsewhere",
                   "%.300s has %s free of %s: too little for a new pool", directory, free_size,
                   all);
    else
        doctor_say(doctor, "shared memory", DOCTOR_OK, NULL, "%.300s has %s free of %s", directory,
                   free_size, all);
}

void doctor_check_memlock(struct doctor *doctor)
{
    struct rlimit limit;
    char shown[SIZE_BYTES];
    if (getrlimit(RLIMIT_MEMLOCK, &limit) != 0)
        return;
    value_print_size(limit.rlim_cur, shown, sizeof(shown));
    if (limit.rlim_cur == RLIM_INFINITY)
        doctor_say(doctor, "memlock", DOCTOR_OK, NULL, "memory may be locked without limit");
    else
        doctor_say(doctor, "memlock", DOCTOR_NOTE, NULL,
                   "at most %s may be locked (ulimit -l): enough for a pool on this host and for "
                   "TCP; RDMA registers memory by locking it and needs more",
                   shown);
}

void doctor_check_huge_pages(struct doctor *doctor)
{
    char enabled[SHORT_FILE_BYTES];
    char shmem[SHORT_FILE_BYTES];
    short_file("/sys/kernel/mm/transparent_hugepage/enabled", enabled);
    short_file("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem);
    if (!enabled[0])
        doctor_say(doctor, "huge pages", DOCTOR_NOTE, NULL,
                   "this kernel has no transparent huge pages");
    else
        doctor_say(doctor, "huge pages", DOCTOR_NOTE, NULL,
                   "transparent huge pages: %.100s for private memory, %.100s for shared", enabled,
                   shmem[0] ? shmem : "unknown");
}

void doctor_check_clock(struct doctor *doctor)
{
    char source[SHORT_FILE_BYTES];
    short_file("/sys/devices/system/clocksource/clocksource0/current_clocksource", source);
    const uint64_t start = clock_now_ns();
    uint64_t last = start;
    for (int i = 0; i < CLOCK_READS; i++) {
        const uint64_t now = clock_now_ns();
        if (now < last) {
            doctor_say(doctor, "clock", DOCTOR_FAILED,
                       "choose another clock source (kernel option clocksource=)",
                       "the monotonic clock went back by %" PRIu64 " ns (source %.100s)",
                       last - now, source);
            return;
        }
        last = now;
    }
    const uint64_t read_ns = (last - start) / CLOCK_READS;
    if (read_ns > CLOCK_READ_NS_MAX)
        doctor_say(doctor, "clock", DOCTOR_WARNING,
                   "choose a faster clock source (kernel option clocksource=)",
                   "reading the clock takes %" PRIu64 " ns (source %.100s)", read_ns, source);
    else
        doctor_say(doctor, "clock", DOCTOR_OK, NULL,
                   "monotonic, %" PRIu64 " ns a read (source %.100s)", read_ns, source);
}
