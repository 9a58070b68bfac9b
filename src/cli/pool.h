/* SPDX-License-Identifier: Apache-2.0 */
/* pool.h - `tarn pool stat` and `tarn pool ls`: what a pool holds, and whether it is valid. */
#ifndef CLI_POOL_H
#define CLI_POOL_H

/* argv[0] is "pool". Exit status as in command.h; 1 also when the pool is not valid. */
int pool_command(int argc, char **argv);

#endif
