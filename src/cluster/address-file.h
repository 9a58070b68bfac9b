/* SPDX-License-Identifier: Apache-2.0 */
/*
 * address-file.h - a master's address in a file, by which those who cannot know it beforehand find
 * it: one line, HOST:PORT. It is there whole or not at all.
 */
#ifndef CLUSTER_ADDRESS_FILE_H
#define CLUSTER_ADDRESS_FILE_H

#include "base/base.h"
#include "cluster/wait.h"
#include "store/mooncake/address.h"

enum { ADDRESS_FILE_LINE_BYTES = 512 };

/* Write a line (an address, or what a donor lends; below ADDRESS_FILE_LINE_BYTES) beside the file's
 * place, then move it there; what was there is replaced. IO: logged. */
NODISCARD enum tarn_status address_file_publish(const char *path, const char *line);

/* Remove the file if it still holds the line: another may have published there since. */
void address_file_withdraw(const char *path, const char *line);

/* Wait until the file is there and holds an address. IO: the time is over; the log says what was
 * missing. Outcomes: AGAIN (told to end). */
NODISCARD enum tarn_status address_file_wait(const char *path, struct wait *wait,
                                             char out_address[ADDRESS_TEXT_BYTES_MAX + 1]);

#endif
