/* SPDX-License-Identifier: Apache-2.0 */
/* bench.c - `tarn bench WHAT`: measure a part beside what it competes with, in one run. */
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "cli/bench-engine.h"
#include "cli/bench-mooncake.h"
#include "cli/bench-pool.h"
#include "cli/command.h"

static const struct command benches[] = {
    { "engine", "--model FILE.gguf [options]", "prefill and decode, beside libllama",
      bench_engine },
    { "mooncake", "[options]", "a distributed pool, beside Mooncake's own Python package",
      bench_mooncake },
    { "pool", "[options]", "the local pool's puts, gets and lookups, beside memcpy", bench_pool },
};

static int usage_print(void)
{
    (void)fputs("usage: tarn bench WHAT [options]; --help after WHAT says which\n\n", stdout);
    for (size_t i = 0; i < LENGTH_OF(benches); i++)
        (void)printf("  %-8s %s\n", benches[i].name, benches[i].summary);
    return EXIT_STATUS_OK;
}

int bench_command(int argc, char **argv)
{
    if (argc < 2) {
        log_error("which bench? engine, mooncake or pool; see tarn bench --help");
        return EXIT_STATUS_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0)
        return usage_print();
    for (size_t i = 0; i < LENGTH_OF(benches); i++) {
        if (strcmp(argv[1], benches[i].name) == 0)
            return benches[i].run(argc - 1, argv + 1);
    }
    log_error("tarn bench does not know '%.100s': engine, mooncake or pool; see tarn bench --help",
              argv[1]);
    return EXIT_STATUS_USAGE;
}
