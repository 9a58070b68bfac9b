/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/address-file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"

enum { FILE_MODE = 0644, DETAIL_BYTES = 400 };

static bool line_write(int fd, const char *text)
{
    char line[ADDRESS_FILE_LINE_BYTES + 1];
    const int length = snprintf(line, sizeof(line), "%s\n", text);
    ASSERT(length < (int)sizeof(line));
    return write(fd, line, (size_t)length) == length && fchmod(fd, FILE_MODE) == 0 &&
           fsync(fd) == 0;
}

enum tarn_status address_file_publish(const char *path, const char *line)
{
    char beside[PATH_MAX];
    if (snprintf(beside, sizeof(beside), "%s.XXXXXX", path) >= (int)sizeof(beside)) {
        log_error("'%s' cannot be published: the path %.200s... is too long", line, path);
        return TARN_INVALID;
    }
    const int fd = mkostemp(beside, O_CLOEXEC);
    const bool is_written = fd >= 0 && line_write(fd, line);
    int error = errno;
    if (fd >= 0)
        (void)close(fd);
    if (is_written && rename(beside, path) == 0)
        return TARN_OK;
    error = is_written ? errno : error;
    if (fd >= 0)
        (void)unlink(beside);
    log_error("'%s' cannot be published in %s: %s", line, path, strerrordesc_np(error));
    return TARN_IO;
}

/* The file's first line, without spaces around it. False: errno says why there is none. */
static bool line_read(const char *path, char out_line[ADDRESS_FILE_LINE_BYTES])
{
    FILE *file = fopen(path, "re");
    if (!file)
        return false;
    char line[ADDRESS_FILE_LINE_BYTES] = "";
    const bool has_line = fgets(line, sizeof(line), file) != NULL;
    (void)fclose(file);
    const char *first = line + (has_line ? strspn(line, " \t\r\n") : 0);
    size_t length = strlen(first);
    while (length > 0 && strchr(" \t\r\n", first[length - 1]))
        length--;
    memcpy(out_line, first, length);
    out_line[length] = '\0';
    return true;
}

void address_file_withdraw(const char *path, const char *line)
{
    char found[ADDRESS_FILE_LINE_BYTES];
    if (line_read(path, found) && strcmp(found, line) == 0)
        (void)unlink(path);
}

/* Whether there is an address; if not, why. */
static bool address_look(const char *path, char out_address[ADDRESS_TEXT_BYTES_MAX + 1],
                         char out_detail[DETAIL_BYTES])
{
    char line[ADDRESS_FILE_LINE_BYTES];
    struct address address;
    if (!line_read(path, line)) {
        (void)snprintf(out_detail, DETAIL_BYTES, "%s",
                       errno == ENOENT ? "it is not there" : strerrordesc_np(errno));
        return false;
    }
    if (line[0] == '\0') {
        (void)snprintf(out_detail, DETAIL_BYTES, "it is empty");
        return false;
    }
    if (address_parse(line, &address) != TARN_OK) {
        (void)snprintf(out_detail, DETAIL_BYTES, "it holds '%.200s', which is no HOST:PORT", line);
        return false;
    }
    ASSERT(strlen(line) <= ADDRESS_TEXT_BYTES_MAX); /* it was parsed */
    memcpy(out_address, line, strlen(line) + 1);
    return true;
}

enum tarn_status address_file_wait(const char *path, struct wait *wait,
                                   char out_address[ADDRESS_TEXT_BYTES_MAX + 1])
{
    char detail[DETAIL_BYTES];
    enum tarn_status status = TARN_OK;
    while (!address_look(path, out_address, detail)) {
        status = wait_pause(wait, detail);
        if (status != TARN_OK)
            break;
    }
    if (status != TARN_STALE)
        return status;
    log_error("no master's address in %s after %" PRIu64 " s: %s. The master publishes it there "
              "with --address-file (tarn master) or --master-address-file (tarn serve)",
              path, wait_passed_ms(wait) / 1000, detail);
    return TARN_IO;
}
