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
#include "os/clock.h"
#include "serve/connector.h"
#include "serve/listen.h"
#include "serve/pool.h"
#include "store/local/create.h"
#include "store/local/file.h"

enum { PROBE_POOL_PATH_BYTES = 64 };

/* The last error that was logged, in place of standard error: it becomes a finding's text. */
static char last_error[DOCTOR_TEXT_BYTES - 64];

static void error_keep(void *context, enum log_level level, const char *line)
{
    (void)context;
    if (level == LOG_ERROR)
        (void)snprintf(last_error, sizeof(last_error), "%.440s", line);
}

static void log_catch(void)
{
    last_error[0] = '\0';
    log_set_sink(error_keep, NULL);
}

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
    log_catch();
    const enum tarn_status status = listen_bind(host, (uint16_t)port, &fd);
    log_set_sink(NULL, NULL);
    if (fd >= 0)
        (void)close(fd);
    if (status != TARN_OK)
        doctor_say(doctor, "port", DOCTOR_FAILED,
                   "stop what has it, or take another with --host and --port", "%s", last_error);
    else
        doctor_say(doctor, "port", DOCTOR_OK, NULL, "%.100s port %" PRIu64 " is free", host, port);
}

static void probe_say(struct doctor *doctor, enum tarn_status status,
                      const struct probe_result *result, const char *where)
{
    char size[32];
    value_print_size(result->bytes, size, sizeof(size));
    if (status == TARN_OK)
        doctor_say(doctor, "write and read", DOCTOR_OK, NULL,
                   "%u blocks (%s) were saved in %.1f ms and loaded, equal byte for byte, in %.1f "
                   "ms, through %s",
                   result->block_count, size, (double)result->save_ns / (double)NS_PER_MS,
                   (double)result->load_ns / (double)NS_PER_MS, where);
    else
        doctor_say(doctor, "write and read", DOCTOR_FAILED, NULL, "%s, through %s%s%s",
                   result->reason, where, last_error[0] ? "; " : "", last_error);
}

static enum tarn_status probe_through(const struct doctor *doctor,
                                      const struct tarn_connector_ops *ops, const char *path,
                                      struct probe_result *out_result)
{
    struct tarn_connector_options options;
    serve_pool_options(doctor->options, doctor->pool, &options);
    options.role = TARN_ROLE_BOTH; /* it does not decide whether the pool works */
    options.lookup_deadline_ms = 5000;
    options.load_deadline_ms = 5000;
    if (path) {
        options.pool = path;
        options.pool_size_bytes = POOL_BYTES_MIN;
    }
    log_catch();
    const enum tarn_status status = probe_connector(ops, &options, out_result);
    log_set_sink(NULL, NULL);
    return status;
}

/* A pool that is not there is not made: one beside it shows that it could be. */
static void probe_beside(struct doctor *doctor, const struct tarn_connector_ops *ops,
                         const char *directory)
{
    struct probe_result result;
    char folder[PATH_MAX];
    char path[PATH_MAX + PROBE_POOL_PATH_BYTES];
    (void)snprintf(folder, sizeof(folder), "%s/tarn-doctor-XXXXXX", directory);
    if (!mkdtemp(folder)) {
        doctor_say(doctor, "pool", DOCTOR_FAILED, "name a place that this user may write to",
                   "%.300s: %s", directory, strerrordesc_np(errno));
        return;
    }
    (void)snprintf(path, sizeof(path), "%s/p", folder);
    const enum tarn_status status = probe_through(doctor, ops, path, &result);
    (void)unlink(path);
    (void)snprintf(path, sizeof(path), "%s/p.lock", folder);
    (void)unlink(path);
    (void)rmdir(folder);
    probe_say(doctor, status, &result, "a pool of our own beside it");
}

static void local_check(struct doctor *doctor, const struct tarn_connector_ops *ops)
{
    const struct pool_place *place = doctor->place;
    struct probe_result result;
    char path[2 * POOL_PATH_BYTES];
    (void)snprintf(path, sizeof(path), "%s/%s", place->directory, place->name);
    if (access(path, F_OK) == 0) {
        doctor_say(doctor, "pool", DOCTOR_OK, NULL, "%.400s is there", path);
        probe_say(doctor, probe_through(doctor, ops, NULL, &result), &result, "it");
        return;
    }
    doctor_say(doctor, "pool", DOCTOR_OK, NULL,
               "%.400s is not there yet; the first server makes it", path);
    probe_beside(doctor, ops, place->is_default ? "/dev/shm" : place->directory);
}

void doctor_check_pool(struct doctor *doctor)
{
    struct serve_connector connector;
    struct probe_result result;
    if (doctor->pool->choice == POOL_NONE) {
        doctor_say(doctor, "pool", DOCTOR_NOTE, NULL, "none, as it was asked for (%s)",
                   option_origin(doctor->options, OPTION_POOL));
        return;
    }
    log_catch();
    const enum tarn_status status =
        serve_connector_choose(doctor->options, tarn_connector_ops(TARN_ABI_VERSION), &connector);
    log_set_sink(NULL, NULL);
    if (status != TARN_OK) {
        doctor_say(doctor, "connector", DOCTOR_FAILED, NULL, "%s", last_error);
        return;
    }
    doctor_say(doctor, "connector", DOCTOR_OK, NULL, "%s%s", connector.table.name,
               connector.is_module ? ", from a module" : "");
    if (connector.is_tarn && doctor->place)
        local_check(doctor, &connector.table);
    else
        probe_say(doctor, probe_through(doctor, &connector.table, NULL, &result), &result,
                  connector.table.name);
}
