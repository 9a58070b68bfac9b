/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/command.h"
#include "config/option.h"

static const char manual_head[] = ".TH TARN 1 \"\" \"Tarn\" \"User Commands\"\n"
                                  ".SH NAME\n"
                                  "tarn \\- a shared pool of KV-cache pages, and a server on it\n"
                                  ".SH SYNOPSIS\n";

static const char manual_serve[] =
    ".SH SERVING\n"
    "\\fBtarn serve\\fR loads a GGUF file and answers OpenAI's HTTP API on one address:\n"
    "\\fI/v1/chat/completions\\fR, \\fI/v1/completions\\fR, \\fI/v1/models\\fR, and besides them\n"
    "\\fI/tokenize\\fR, \\fI/detokenize\\fR, \\fI/health\\fR, \\fI/version\\fR and "
    "\\fI/metrics\\fR\n"
    "(Prometheus text). What it has computed of a prompt it saves to the pool, and what any "
    "server\n"
    "of the same user on the same host has saved it loads instead of computing.\n"
    ".PP\n"
    "SIGTERM and SIGINT let running requests finish, for at most \\fB\\-\\-drain\\-deadline\\fR;\n"
    "a second one ends the server at once. While the model is still being loaded they end the "
    "start.\n"
    "Either way the exit status is 0.\n"
    ".SH OPTIONS OF TARN SERVE\n"
    "A flag wins over the environment, which wins over the configuration file, which wins over "
    "the\n"
    "default, shown in brackets; \\fB\\-\\-print\\-config\\fR shows which one it was. The "
    "variable\n"
    "of \\fB\\-\\-max\\-batch\\-size\\fR is \\fBTARN_MAX_BATCH_SIZE\\fR, and so for the others.\n"
    "Sizes take B, KiB, MiB, GiB or TiB, times ms or s.\n";

static const char manual_file[] =
    ".SH CONFIGURATION FILE\n"
    "YAML, named by \\fB\\-\\-config\\fR or \\fBTARN_CONFIG\\fR: a mapping of sections, each a\n"
    "mapping of keys. A key is an option\\(cqs name with _ for \\-, without the section\\(cqs name "
    "in\n"
    "front. The key \\fIpath\\fR is what a section is about: in \\fImodel\\fR the GGUF file, in\n"
    "\\fIpool\\fR what \\fB\\-\\-pool\\fR takes; it may also stand alone, as in \\fIpool: "
    "none\\fR.\n"
    "Values are written as after a flag. Unknown keys, keys that come twice, anchors, aliases, "
    "tags\n"
    "and second documents are refused with their line.\n";

static const char manual_pool[] =
    ".SH LOOKING INTO A POOL\n"
    "\\fBtarn pool stat\\fR shows sizes, page slots by state, the processes in it, and whether it "
    "is\n"
    "valid; \\fBtarn pool ls\\fR shows whose pages it holds. Both take the pool\\(cqs file, or "
    "look\n"
    "into this user\\(cqs default pool, and may be run while servers use it. With\n"
    "\\fB\\-\\-verify\\fR every page\\(cqs checksum is checked.\n";

static const char manual_doctor[] =
    ".SH WHETHER IT WOULD WORK\n"
    "\\fBtarn doctor\\fR takes what \\fBtarn serve\\fR takes, looks at memory, limits, clock, "
    "port,\n"
    "connector and pool, writes and reads pages through all of it, and says in plain words what "
    "it\n"
    "found and what to do. It exits 1 if a server would not work. With \\fB\\-\\-json\\fR it "
    "prints\n"
    "an object: \\fIok\\fR, and \\fIchecks\\fR, each with \\fIcheck\\fR, \\fIresult\\fR (ok, "
    "note, warning\n"
    "or failed), \\fItext\\fR and maybe \\fIadvice\\fR.\n";

static const char manual_master[] =
    ".SH DISTRIBUTED POOLS\n"
    "\\fBtarn serve \\-\\-pool mooncake://\\fR\\fIHOST\\fR\\fB:\\fR\\fIPORT\\fR joins the pool of "
    "a "
    "Mooncake\n"
    "master, which the servers of many hosts share; \\fImooncake://file://PATH\\fR waits until a "
    "file\n"
    "holds the master\\(cqs address. \\fBMOONCAKE_CONFIG_PATH\\fR in the environment names a "
    "Mooncake\n"
    "client\\(cqs configuration; beside a flag it is refused unless both name one master, and it "
    "wins\n"
    "over the configuration file. \\fBtarn pool stat "
    "mooncake://\\fR\\fIHOST\\fR\\fB:\\fR\\fIPORT\\fR "
    "shows where\n"
    "the blocks are, by the host that lends the memory.\n"
    ".PP\n"
    "\\fBtarn master\\fR runs \\fBmooncake_master\\fR until SIGTERM or SIGINT and publishes its "
    "address.\n"
    "It has no authentication and no encryption: let only hosts of the pool reach its ports.\n"
    ".PP\n"
    "\\fBtarn donor\\fR lends memory to a pool until SIGTERM or SIGINT; it puts and gets nothing. "
    "The\n"
    "blocks that lie in its memory are lost when it leaves.\n"
    ".SH OPTIONS OF TARN MASTER\n";

static const char manual_donor[] = ".SH OPTIONS OF TARN DONOR\n";

static const char manual_tail[] =
    ".SH EXIT STATUS\n"
    "0 when all went well, 1 after a failure, 2 when called wrongly. The cause is one line on\n"
    "standard error.\n";

enum tarn_status manual_print(struct text *out)
{
    TRY(text_append(out, "%s", manual_head));
    for (size_t i = 0; i < command_count; i++)
        TRY(text_append(out, "%s.B tarn %s\n%s\n", i ? ".br\n" : "", commands[i].name,
                        commands[i].arguments));
    TRY(text_append(out, ".SH COMMANDS\n"));
    for (size_t i = 0; i < command_count; i++)
        TRY(text_append(out, ".TP\n.B %s\n%s\n", commands[i].name, commands[i].summary));
    TRY(text_append(out, "%s", manual_serve));
    TRY(options_print_manual(OPTIONS_OF_SERVE, out));
    TRY(text_append(out, "%s%s%s%s", manual_file, manual_doctor, manual_pool, manual_master));
    TRY(options_print_manual(OPTIONS_OF_MASTER, out));
    TRY(text_append(out, "%s", manual_donor));
    TRY(options_print_manual(OPTIONS_OF_DONOR, out));
    return text_append(out, "%s", manual_tail);
}
