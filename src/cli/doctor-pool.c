/* SPDX-License-Identifier: Apache-2.0 */
/* What a server's options name: model, port, connector, pool; and pages through it. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/doctor-probe.h"
#include "cli/doctor.h"
#include "config/value.h"
#include "obs/metric.h"
#include "os/clock.h"
#include "serve/connector.h"
#include "serve/listen.h"
#include "serve/pool.h"
#include "store/local/create.h"
#include "store/local/file.h"

enum { PROBE_POOL_PATH_BYTES = 64, PROBE_DEADLINE_MS = 5000 };

void doctor_check_model(struct doctor *doctor)
{
    const char *path = doctor->options->model;
    struct stat stat_of;
    char shown[32];
    if (!path) {
        doctor_say(doctor, "model", DOCTOR_NOTE, "name it, as for tarn serve, to have it looked at",
                   "none is named");
        return;
    }
    if (stat(path, &stat_of) != 0 || access(path, R_OK) != 0) {
        doctor_say(doctor, "model", DOCTOR_FAILED, NULL, "%.300s: %s", path,
                   strerrordesc_np(errno));
        return;
    }
    value_print_size((uint64_t)stat_of.st_size, shown, sizeof(shown));
    doctor_say(doctor, "model", DOCTOR_OK, NULL, "%.300s, %s", path, shown);
}

void doctor_check_port(struct doctor *doctor)
{
    const char *host = option_text(doctor->options, OPTION_HOST);
    const uint64_t port = option_number(doctor->options, OPTION_PORT);
    int fd = -1;
    doctor_log_catch(doctor);
    const enum tarn_status status = listen_bind(host, (uint16_t)port, &fd);
    doctor_log_release(doctor);
    if (fd >= 0)
        (void)close(fd);
    if (status != TARN_OK)
        doctor_say(doctor, "port", DOCTOR_FAILED,
                   "stop what has it, or take another with --host and --port", "%s",
                   doctor->last_error);
    else
        doctor_say(doctor, "port", DOCTOR_OK, NULL, "%.100s port %" PRIu64 " is free", host, port);
}

static void probe_say(struct doctor *doctor, enum tarn_status status,
                      const struct probe_result *result, bool was_full, const char *where)
{
    char size[32];
    value_print_size(result->bytes, size, sizeof(size));
    if (status != TARN_OK && was_full)
        doctor_say(doctor, "write and read", DOCTOR_WARNING,
                   "make it larger; to a distributed pool lend memory (tarn donor, "
                   "--global-segment-size)",
                   "nothing could be saved, there is no room in %s", where);
    else if (status == TARN_OK)
        doctor_say(doctor, "write and read", DOCTOR_OK, NULL,
                   "%u blocks (%s) were saved in %.1f ms and loaded, equal byte for byte, in %.1f "
                   "ms, through %s",
                   result->block_count, size, (double)result->save_ns / (double)NS_PER_MS,
                   (double)result->load_ns / (double)NS_PER_MS, where);
    else
        doctor_say(doctor, "write and read", DOCTOR_FAILED, NULL, "%s, through %s%s%s",
                   result->reason, where, doctor->last_error[0] ? "; " : "", doctor->last_error);
}

void doctor_probe(struct doctor *doctor, const struct tarn_connector_ops *ops, const char *pool,
                  const char *where)
{
    struct tarn_connector_options options;
    struct probe_result result;
    serve_pool_options(doctor->options, doctor->pool, &options);
    options.role = TARN_ROLE_BOTH; /* it does not decide whether the pool works */
    options.lookup_deadline_ms = PROBE_DEADLINE_MS;
    options.load_deadline_ms = PROBE_DEADLINE_MS;
    if (pool) {
        options.pool = pool;
        options.pool_size_bytes = POOL_BYTES_MIN;
    }
    const int64_t full_before = metric_get(METRIC_SAVE_FAILED_FULL);
    doctor_log_catch(doctor);
    const enum tarn_status status = probe_connector(ops, &options, &result);
    doctor_log_release(doctor);
    probe_say(doctor, status, &result, metric_get(METRIC_SAVE_FAILED_FULL) > full_before, where);
}

/* A pool that is not there is not made: one beside it shows that it could be. */
static void probe_beside(struct doctor *doctor, const struct tarn_connector_ops *ops,
                         const char *directory)
{
    char folder[PATH_MAX];
    char path[PATH_MAX + PROBE_POOL_PATH_BYTES];
    (void)snprintf(folder, sizeof(folder), "%s/tarn-doctor-XXXXXX", directory);
    if (!mkdtemp(folder)) {
        doctor_say(doctor, "pool", DOCTOR_FAILED, "name a place that this user may write to",
                   "%.300s: %s", directory, strerrordesc_np(errno));
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/p", folder);
    doctor_probe(doctor, ops, path, "a pool of our own beside it");
    (void)unlink(path);
    (void)rmdir(folder);
}

static void local_check(struct doctor *doctor, const struct tarn_connector_ops *ops)
{
    struct pool_place place;
    char path[2 * POOL_PATH_BYTES];
    const struct pool_options options = { .path = doctor->pool->choice == POOL_NAMED
                                                      ? doctor->pool->path
                                                      : NULL };
    doctor_log_catch(doctor);
    const enum tarn_status status = place_init(&place, &options);
    doctor_log_release(doctor);
    if (status != TARN_OK) {
        doctor_say(doctor, "pool", DOCTOR_FAILED, NULL, "%s", doctor->last_error);
        return;
    }
    const char *directory = place.is_default ? "/dev/shm" : place.directory;
    const uint64_t size_bytes = doctor->pool->size_bytes;
    (void)snprintf(path, sizeof(path), "%s/%s", place.directory, place.name);
    const bool is_there = access(path, F_OK) == 0;
    doctor_check_shared_memory(doctor, directory,
                               is_there     ? 0
                               : size_bytes ? size_bytes
                                            : POOL_BYTES_MIN);
    doctor_say(doctor, "pool", DOCTOR_OK, NULL, "%.400s %s", path,
               is_there ? "is there" : "is not there yet; the first server makes it");
    if (is_there)
        doctor_probe(doctor, ops, NULL, "it");
    else
        probe_beside(doctor, ops, directory);
}

void doctor_check_pool(struct doctor *doctor)
{
    struct serve_connector connector;
    if (doctor->pool->choice == POOL_NONE) {
        doctor_say(doctor, "pool", DOCTOR_NOTE, NULL, "none, as it was asked for (%s)",
                   option_origin(doctor->options, OPTION_POOL));
        return;
    }
    doctor_log_catch(doctor);
    const enum tarn_status status =
        serve_connector_choose(doctor->options, tarn_connector_ops(TARN_ABI_VERSION), &connector);
    doctor_log_release(doctor);
    if (status != TARN_OK) {
        doctor_say(doctor, "connector", DOCTOR_FAILED, NULL, "%s", doctor->last_error);
        return;
    }
    doctor_say(doctor, "connector", DOCTOR_OK, NULL, "%s%s", connector.table.name,
               connector.is_module ? ", from a module" : "");
    if (connector.is_tarn && !doctor_check_distributed(doctor, &connector.table))
        local_check(doctor, &connector.table);
    else if (!connector.is_tarn)
        doctor_probe(doctor, &connector.table, NULL, connector.table.name);
}
