/* SPDX-License-Identifier: Apache-2.0 */
/*
 * yaml.h - a configuration file in YAML 1.1, read within limits; a fence around libyaml.
 *
 * Scalars stay the text that was written: what `on` or `8000` means is the reader's to say.
 * Refused, each with its line: what is no UTF-8, anchors and aliases, tags, %TAG, a second
 * document, keys that are no text or come twice, NUL bytes, and more than the limits below.
 *
 * libyaml allocates by itself, bounded by the text's length; all else is mem_alloc. One thread a
 * tree.
 */
#ifndef CODEC_YAML_H
#define CODEC_YAML_H

#include "base/base.h"

enum { YAML_BYTES_MAX = 1 << 16, YAML_DEPTH_MAX = 8, YAML_NODES_MAX = 1024 };
enum { YAML_REASON_BYTES = 192 };

enum yaml_kind {
    YAML_IS_EMPTY, /* nothing, ~ or null without quotes */
    YAML_IS_TEXT,
    YAML_IS_LIST,
    YAML_IS_MAPPING
};

struct yaml_node {
    enum yaml_kind kind;
    uint32_t line;                 /* where it begins, from 1; of a member: its key's */
    const char *key;               /* of a member of a mapping, else NULL */
    const char *text;              /* of a text, else NULL; UTF-8, terminated */
    const struct yaml_node *child; /* the first item or member, in the order of the text */
    const struct yaml_node *next;  /* the next one beside it */
};

struct yaml_tree;

struct yaml_fault {
    uint32_t line; /* from 1 */
    char reason[YAML_REASON_BYTES];
};

/* Read one document. INVALID: *out_fault (written then alone) says where and why; NO_MEMORY. */
NODISCARD enum tarn_status yaml_read(const char *chars, size_t length_bytes,
                                     struct yaml_tree **out_tree, struct yaml_fault *out_fault);
void yaml_destroy(struct yaml_tree *tree); /* NULL is fine */

/* NULL when the text holds nothing but comments. Lives as long as the tree. */
const struct yaml_node *yaml_root(const struct yaml_tree *tree);

#endif
