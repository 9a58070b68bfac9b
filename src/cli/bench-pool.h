/* SPDX-License-Identifier: Apache-2.0 */
/* bench-pool.h - `tarn bench pool`: the local pool beside memcpy, in one run. */
#ifndef CLI_BENCH_POOL_H
#define CLI_BENCH_POOL_H

/* argv[0] is "pool". Exit status as in command.h; with --check, 1 when a row misses its bar. */
int bench_pool(int argc, char **argv);

#endif
