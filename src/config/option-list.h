/* SPDX-License-Identifier: Apache-2.0 */
/*
 * option-list.h - every option of `tarn serve`, `tarn master` and `tarn donor`:
 *   X(id, type, name, argument, default, least, most, when unset, help)
 * Flag --name; of `tarn serve` also environment variable TARN_NAME (capitals, _ for -). Limits are
 * in the type's unit; 0, 0 means none. A choice's argument is its list of values. From this table
 * come the parser, the configuration file's keys, --help, --print-config and the manual page.
 *
 * SECTION(title, key) heads the rows below it. `key` is their section in the file, "" keeps them
 * out of it; two headings may share a key. A row's key is its name with _ for -, without the
 * section's own name in front: in section donation, --donation-segment-size is segment_size. The
 * row that is called like its section (--pool) is the key `path`.
 */
#ifndef CONFIG_OPTION_LIST_H
#define CONFIG_OPTION_LIST_H

#define OPTION_LIST(SECTION, X)                                                                    \
    SECTION("Server", "server")                                                                    \
    X(HOST, TEXT, "host", "ADDRESS", "127.0.0.1", 0, 0, "",                                        \
      "address to listen on; anything but loopback lets others in")                                \
    X(PORT, COUNT, "port", "N", "8000", 0, 65535, "", "port to listen on; 0 takes a free one")     \
    X(MAX_CONNECTIONS, COUNT, "max-connections", "N", "256", 1, 4096, "",                          \
      "HTTP connections open at once")                                                             \
    X(MAX_WAITING, COUNT, "max-waiting", "N", "256", 1, 65536, "",                                 \
      "requests alive at once, waiting and running; more are answered with 503")                   \
    X(MAX_TOKENS_DEFAULT, COUNT, "max-tokens-default", "N", "", 1, 1048576,                        \
      "completions 16; chat the rest of the context, at most 1024",                                \
      "tokens to generate when a request does not say")                                            \
    X(DRAIN_DEADLINE, TIME, "drain-deadline", "TIME", "30s", 0, 86400000, "",                      \
      "how long SIGTERM lets running requests finish")                                             \
    X(LOG_LEVEL, CHOICE, "log-level", "error|warning|info|debug", "info", 0, 0, "",                \
      "lines to write to standard error")                                                          \
    SECTION("Model and memory", "model")                                                           \
    X(CTX, COUNT, "ctx", "TOKENS", "", 2, 1048576, "the model's, at most 8192",                    \
      "longest prompt and answer together")                                                        \
    X(PAGE_TOKENS, COUNT, "page-tokens", "TOKENS", "32", 1, 1024, "",                              \
      "tokens of a page, the unit that is cached and shared")                                      \
    X(KV_TYPE, CHOICE, "kv-type", "f16|f32", "f16", 0, 0, "", "number format of keys and values")  \
    X(KV_SIZE, SIZE, "kv-size", "SIZE", "", 1, 0,                                                  \
      "enough for --max-batch-size requests of half the context, within a quarter of the memory "  \
      "available",                                                                                 \
      "memory for keys and values")                                                                \
    X(MAX_BATCH_SIZE, COUNT, "max-batch-size", "N", "16", 1, 1024, "",                             \
      "requests computed together")                                                                \
    X(MAX_BATCH_TOKENS, COUNT, "max-batch-tokens", "TOKENS", "512", 1, 65536, "",                  \
      "tokens computed in one pass; at least --max-batch-size and --page-tokens together")         \
    X(PREFILL_CUT, COUNT, "prefill-cut", "TOKENS", "0", 0, 1048576, "",                            \
      "end one prefill chunk of every prompt at this token; 0: nowhere. For comparing a replayed " \
      "run with a cold one")                                                                       \
    X(THREADS, COUNT, "threads", "N", "", 1, 512,                                                  \
      "up to the cores, less one when there are more than two; fewer while others use them",       \
      "threads that compute")                                                                      \
    X(POLL, BOOL, "poll", "on|off", "off", 0, 0, "",                                               \
      "idle compute threads spin instead of sleeping")                                             \
    X(KERNEL, CHOICE, "kernel", "auto|portable|avx2|avx512", "auto", 0, 0, "", "attention code")   \
    X(WEIGHT_COPY, BOOL, "weight-copy", "on|off", "off", 0, 0, "",                                 \
      "f16 copies of Q4_1, Q5_0 and Q5_1 weights for large batches: prefill up to 3 times as "     \
      "fast, more memory, logits not as near to llama.cpp's")                                      \
    X(BACKEND_DIR, TEXT, "backend-dir", "DIR", "", 0, 0, "where Tarn was built with them",         \
      "directory of ggml's CPU modules")                                                           \
    SECTION("Shared pool", "pool")                                                                 \
    X(POOL, TEXT, "pool", "none|PATH[,size=SIZE]|mooncake://HOST:PORT", "", 0, 0,                  \
      "the user's default pool on this host",                                                      \
      "pool of pages to share with other servers; it is created if it is not there. mooncake:// "  \
      "joins that of a Mooncake master")                                                           \
    X(CONNECTOR, TEXT, "connector", "PRESET", "tarn", 0, 0, "",                                    \
      "what connects the engine to a pool: tarn, which is Tarn's own, or a module")                \
    X(CONNECTOR_MODULE, TEXT, "connector-module", "PATH.so", "", 0, 0, "the preset's",             \
      "shared object that has the connector")                                                      \
    X(CONNECTOR_SYMBOL, TEXT, "connector-symbol", "NAME", "", 0, 0, "the preset's",                \
      "function of the module that returns its table (tarn_connector_entry in tarn.h)")            \
    X(MODEL_KEY, TEXT, "model-key", "TEXT", "", 0, 0,                                              \
      "the file's name and a digest of its contents",                                              \
      "what the pool calls the weights; equal keys must mean equal weights")                       \
    X(CACHE_PREFIX, TEXT, "cache-prefix", "TEXT", "tarn", 0, 0, "",                                \
      "first part of every key; a new one forgets everything")                                     \
    X(ROLE, CHOICE, "role", "both|producer|consumer", "both", 0, 0, "",                            \
      "a producer only saves, a consumer only loads")                                              \
    X(TRANSFER_BATCH_SIZE, COUNT, "transfer-batch-size", "PAGES", "64", 1, 65536, "",              \
      "pages of one call to the pool")                                                             \
    X(STAGE_THROUGH_HOST, CHOICE, "stage-through-host", "auto|off|on", "auto", 0, 0, "",           \
      "copy pages through memory of the pool's own: auto where its store needs it or could still " \
      "write into pages after a load was given up, off only pages it cannot move otherwise")       \
    X(STAGING_BUFFER, SIZE, "staging-buffer", "SIZE", "512MiB", 1, 0, "",                          \
      "memory for that, each for saves and for loads; less makes smaller batches")                 \
    X(LOOKUP_DEADLINE, TIME, "lookup-deadline", "TIME", "100ms", 1, 60000, "",                     \
      "a lookup that takes longer is a miss")                                                      \
    X(LOAD_DEADLINE, TIME, "load-deadline", "TIME", "2s", 1, 600000, "",                           \
      "time without progress after which a load is given up")                                      \
    X(LOAD_BYTES_PER_STEP, SIZE, "load-bytes-per-step", "SIZE", "1GiB", 1, 0, "",                  \
      "bytes to load before one pass")                                                             \
    X(LOAD_FAILURE, CHOICE, "load-failure", "recompute|fail", "recompute", 0, 0, "",               \
      "what becomes of a request whose pages could not be loaded")                                 \
    X(SAVE_GENERATED, BOOL, "save-generated", "on|off", "on", 0, 0, "",                            \
      "save pages of generated tokens too, so that the next turn of a chat finds them")            \
    X(VERIFY_TOKENS, BOOL, "verify-tokens", "on|off", "off", 0, 0, "",                             \
      "store the tokens with each page and compare them when it is loaded")                        \
    SECTION("Distributed pool", "pool")                                                            \
    X(LAUNCH_MASTER, BOOL, "launch-master", "on|off", "off", 0, 0, "",                             \
      "start a Mooncake master, for this server's lifetime")                                       \
    X(MASTER_SERVER_ADDRESS, TEXT, "master-server-address", "HOST:PORT|file://PATH", "", 0, 0,     \
      "that of --pool mooncake://",                                                                \
      "the master to join; file:// waits until the file is there and holds an address")            \
    X(MASTER_ADDRESS_FILE, TEXT, "master-address-file", "PATH", "", 0, 0, "nowhere else",          \
      "with --launch-master: publish the master's address there too, for file:// to find")         \
    X(MASTER_PORT, COUNT, "master-port", "N", "50051", 1, 65535, "", "port of a launched master")  \
    X(MASTER_LISTEN, TEXT, "master-listen", "HOST", "", 0, 0, "all addresses",                     \
      "address of this host that a launched master listens on, for clients and metrics")           \
    X(MASTER_METRICS_PORT, COUNT, "master-metrics-port", "N", "9004", 1, 65535, "",                \
      "HTTP port of the master, launched or joined")                                               \
    X(MASTER_EVICTION_RATIO, RATIO, "master-eviction-ratio", "RATIO", "0.05", 0, 0, "",            \
      "share of the objects that a launched master evicts when memory is full")                    \
    X(MASTER_TIMEOUT, TIME, "master-timeout", "TIME", "60s", 1, 3600000, "",                       \
      "how long to wait for the master, and for its address file")                                 \
    X(MOONCAKE_MASTER, TEXT, "mooncake-master", "PROGRAM", "", 0, 0,                               \
      "mooncake_master on the PATH, or of the Python package", "the program of a launched master") \
    X(METADATA_SERVER, TEXT, "metadata-server", "TEXT", "P2PHANDSHAKE", 0, 0, "",                  \
      "where Mooncake's clients find each other")                                                  \
    X(PROTOCOL, TEXT, "protocol", "NAME", "tcp", 0, 0, "",                                         \
      "how pages travel: tcp, rdma, or what else the library offers")                              \
    X(DEVICE_NAME, TEXT, "device-name", "NAMES", "auto", 0, 0, "",                                 \
      "network devices of rdma; auto: every active InfiniBand port at the fastest rate")           \
    X(GLOBAL_SEGMENT_SIZE, SIZE, "global-segment-size", "SIZE", "3355443200", 0, 0, "",            \
      "memory that each rank lends to the pool; 0 lends none")                                     \
    X(LOCAL_BUFFER_SIZE, SIZE, "local-buffer-size", "SIZE", "1GiB", 1, 0, "",                      \
      "memory of each rank's Mooncake client for transfers")                                       \
    X(CLIENT_ADDRESS, TEXT, "client-address", "HOST:PORT", "", 0, 0,                               \
      "none: each rank is a client",                                                               \
      "the mooncake_client of this host, which lends memory in this server's place")               \
    X(LOCAL_HOSTNAME, TEXT, "local-hostname", "HOST", "", 0, 0,                                    \
      "the address of the route to the master", "what others call this host")                      \
    X(TENANT_ID, TEXT, "tenant-id", "TEXT", "", 0, 0, "none",                                      \
      "tenant of the master; refused where the Mooncake library has none")                         \
    X(RUN_DIR, TEXT, "run-dir", "DIR", "", 0, 0, "a temporary one, removed at the end",            \
      "directory for mooncake.json, master.addr and mooncake_master.log")                          \
    SECTION("Donation", "donation")                                                                \
    X(DONATION_SEGMENT_SIZE, SIZE, "donation-segment-size", "SIZE", "", 1, 0, "nothing is lent",   \
      "memory to lend to a distributed pool besides, for this server's lifetime")                  \
    X(DONATION_MASTER_SERVER_ADDRESS, TEXT, "donation-master-server-address",                      \
      "HOST:PORT|file://PATH", "", 0, 0, "the pool's", "the master to lend to")                    \
    X(DONATION_METADATA_SERVER, TEXT, "donation-metadata-server", "TEXT", "P2PHANDSHAKE", 0, 0,    \
      "", "as --metadata-server")                                                                  \
    X(DONATION_PROTOCOL, TEXT, "donation-protocol", "NAME", "tcp", 0, 0, "", "as --protocol")      \
    X(DONATION_DEVICE_NAME, TEXT, "donation-device-name", "NAMES", "auto", 0, 0, "",               \
      "as --device-name")                                                                          \
    SECTION("Other", "")                                                                           \
    X(CONFIG, TEXT, "config", "FILE", "", 0, 0, "no file",                                         \
      "read options from a YAML file; flags and the environment win over it")                      \
    X(PRINT_CONFIG, SWITCH, "print-config", "", "", 0, 0, "",                                      \
      "show each option's value and where it came from, and exit")                                 \
    X(HELP, SWITCH, "help", "", "", 0, 0, "", "show this help and exit")

#define MASTER_OPTION_LIST(SECTION, X)                                                             \
    SECTION("Master", "")                                                                          \
    X(MASTER_RPC_PORT, COUNT, "rpc-port", "N", "50051", 1, 65535, "",                              \
      "port that Mooncake's clients connect to")                                                   \
    X(MASTER_HTTP_PORT, COUNT, "metrics-port", "N", "9004", 1, 65535, "",                          \
      "HTTP port of the master's metrics")                                                         \
    X(MASTER_LISTEN_HOST, TEXT, "listen", "HOST", "", 0, 0, "all addresses",                       \
      "address of this host to listen on, for clients and metrics")                                \
    X(MASTER_EVICTION, RATIO, "eviction-ratio", "RATIO", "0.05", 0, 0, "",                         \
      "share of the objects to evict when memory is full")                                         \
    X(MASTER_PUBLISH, TEXT, "address-file", "PATH", "", 0, 0, "nowhere else",                      \
      "publish the master's address there too, for file:// to find; it goes at exit")              \
    X(MASTER_RUN_DIR, TEXT, "run-dir", "DIR", "", 0, 0, "a temporary one, removed at the end",     \
      "directory for master.addr and mooncake_master.log")                                         \
    X(MASTER_LOCAL_HOSTNAME, TEXT, "local-hostname", "HOST", "", 0, 0,                             \
      "that of --listen, or of the default route",                                                 \
      "what others call this host: the address to publish")                                        \
    X(MASTER_START_TIMEOUT, TIME, "master-timeout", "TIME", "60s", 1, 3600000, "",                 \
      "how long to wait until the master accepts")                                                 \
    X(MASTER_HEARTBEAT, TIME, "heartbeat", "TIME", "300s", 0, 86400000, "",                        \
      "how often to log that the master lives and where blocks lie; 0: never")                     \
    X(MASTER_PROGRAM, TEXT, "mooncake-master", "PROGRAM", "", 0, 0,                                \
      "TARN_MOONCAKE_MASTER, or mooncake_master on the PATH, or of the Python package",            \
      "the program to run")                                                                        \
    X(MASTER_HELP, SWITCH, "help", "", "", 0, 0, "", "show this help and exit")

#define DONOR_OPTION_LIST(SECTION, X)                                                              \
    SECTION("Donor", "")                                                                           \
    X(DONOR_MASTER, TEXT, "master", "HOST:PORT|file://PATH", "", 0, 0, "that of --config",         \
      "the master to lend to; file:// waits until the file is there and holds an address")         \
    X(DONOR_SEGMENT_SIZE, SIZE, "segment-size", "SIZE", "", 1, 0, "that of --config",              \
      "memory to lend")                                                                            \
    X(DONOR_CONFIG, TEXT, "config", "FILE", "", 0, 0, "MOONCAKE_CONFIG_PATH",                      \
      "a Mooncake client's configuration (JSON); the flags win over it")                           \
    X(DONOR_METADATA_SERVER, TEXT, "metadata-server", "TEXT", "", 0, 0,                            \
      "that of --config, or P2PHANDSHAKE", "where Mooncake's clients find each other")             \
    X(DONOR_PROTOCOL, TEXT, "protocol", "NAME", "", 0, 0, "that of --config, or tcp",              \
      "how pages travel: tcp, rdma, or what else the library offers")                              \
    X(DONOR_DEVICE, TEXT, "device", "NAMES", "", 0, 0, "that of --config, or auto",                \
      "network devices of rdma; auto: every active InfiniBand port at the fastest rate")           \
    X(DONOR_LOCAL_HOSTNAME, TEXT, "local-hostname", "HOST", "", 0, 0,                              \
      "that of --config, or the address of the route to the master", "what others call this host") \
    X(DONOR_HTTP_PORT, COUNT, "metrics-port", "N", "9004", 1, 65535, "",                           \
      "HTTP port of the master, which knows what blocks lie here")                                 \
    X(DONOR_MASTER_TIMEOUT, TIME, "master-timeout", "TIME", "60s", 1, 3600000, "",                 \
      "how long to wait for the master, and for its address file")                                 \
    X(DONOR_READY_FILE, TEXT, "ready-file", "FILE", "", 0, 0, "none",                              \
      "write the host and the bytes lent there once they are; it goes at exit")                    \
    X(DONOR_HEARTBEAT, TIME, "heartbeat", "TIME", "300s", 0, 86400000, "",                         \
      "how often to log that the memory is still lent; 0: never")                                  \
    X(DONOR_HELP, SWITCH, "help", "", "", 0, 0, "", "show this help and exit")

#endif
