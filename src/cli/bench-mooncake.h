/* SPDX-License-Identifier: Apache-2.0 */
/* bench-mooncake.h - `tarn bench mooncake`: the distributed store beside Mooncake's own Python
 * package, in one run. */
#ifndef CLI_BENCH_MOONCAKE_H
#define CLI_BENCH_MOONCAKE_H

/* argv[0] is "mooncake". Exit status as in command.h; with --check, 1 when a row misses its bar. */
int bench_mooncake(int argc, char **argv);

#endif
