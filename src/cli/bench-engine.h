/* SPDX-License-Identifier: Apache-2.0 */
/* bench-engine.h - `tarn bench engine`: prefill and decode beside libllama, in one run. */
#ifndef CLI_BENCH_ENGINE_H
#define CLI_BENCH_ENGINE_H

/* argv[0] is "engine". Exit status as in command.h; with --check, 1 when a row misses its bar. */
int bench_engine(int argc, char **argv);

#endif
