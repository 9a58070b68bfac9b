/* SPDX-License-Identifier: Apache-2.0 */
/*
 * file-vocabulary.h - what libllama takes on trust when it reads a vocabulary, checked before it
 * does.
 *
 * It stops the process where tokens are there twice, and its tokenizers throw where a byte has no
 * token. So: the types and lengths of the tokenizer's values, distinct texts of bounded length,
 * special tokens inside the vocabulary, and the two kinds of tokenizer that llama models come with.
 * Pure.
 */
#ifndef ENGINE_FILE_VOCABULARY_H
#define ENGINE_FILE_VOCABULARY_H

#include "engine/file-header.h"

/* CORRUPT or UNSUPPORTED, with a reason; NO_MEMORY. */
NODISCARD enum tarn_status file_vocabulary_check(const struct file_header *header,
                                                 size_t piece_bytes_max,
                                                 char reason[FILE_REASON_BYTES_MAX]);

#endif
