/* SPDX-License-Identifier: Apache-2.0 */
#include "codec/yaml.h"

#include <stdio.h>
#include <string.h>

#include <yaml.h>

#include "base/alloc.h"

struct yaml_tree {
    struct yaml_node nodes[YAML_NODES_MAX]; /* the root first */
    char *texts[2 * YAML_NODES_MAX];        /* owned: keys and scalars */
    size_t node_count;
    size_t text_count;
};

/* A container that is being read. */
struct level {
    struct yaml_node *container;
    struct yaml_node *last; /* child so far */
    const char *key;        /* read, and its value not yet */
    uint32_t key_line;
};

struct builder {
    struct yaml_tree *tree;
    struct level levels[YAML_DEPTH_MAX];
    size_t depth;
    size_t document_count;
    struct yaml_fault *fault;
};

static enum tarn_status refuse(const struct builder *builder, size_t line, const char *reason)
{
    builder->fault->line = (uint32_t)line;
    (void)snprintf(builder->fault->reason, YAML_REASON_BYTES, "%s", reason);
    return TARN_INVALID;
}

static size_t line_of(yaml_mark_t mark)
{
    return mark.line + 1;
}

/* A copy that the tree owns; NULL when memory ran out. */
static const char *text_keep(struct yaml_tree *tree, const yaml_char_t *chars, size_t length_bytes)
{
    char *copy = mem_alloc(length_bytes + 1, 1);
    if (!copy)
        return NULL;
    if (length_bytes > 0)
        memcpy(copy, chars, length_bytes);
    tree->texts[tree->text_count++] = copy;
    return copy;
}

static struct level *level_open(struct builder *builder)
{
    struct level *level = builder->depth > 0 ? &builder->levels[builder->depth - 1] : NULL;
    ASSERT(!level || level->container);
    return level;
}

/* The key that waits for its value must be new in its mapping. */
static bool key_is_new(const struct level *level)
{
    for (const struct yaml_node *node = level->container->child; node; node = node->next)
        if (strcmp(node->key, level->key) == 0)
            return false;
    return true;
}

/* Append a node to the open container, or make it the root. */
static enum tarn_status node_add(struct builder *builder, enum yaml_kind kind, size_t line,
                                 struct yaml_node **out_node)
{
    struct yaml_tree *tree = builder->tree;
    struct level *level = level_open(builder);
    if (tree->node_count == YAML_NODES_MAX)
        return refuse(builder, line, "there are more values than a configuration has");
    struct yaml_node *node = &tree->nodes[tree->node_count++];
    *node = (struct yaml_node){ .kind = kind, .line = (uint32_t)line };
    if (level && level->container->kind == YAML_IS_MAPPING) {
        node->key = level->key;
        node->line = level->key_line;
        level->key = NULL;
    }
    if (level && level->last)
        level->last->next = node;
    else if (level)
        level->container->child = node;
    if (level)
        level->last = node;
    *out_node = node;
    return TARN_OK;
}

static bool awaits_key(const struct level *level)
{
    return level && level->container->kind == YAML_IS_MAPPING && !level->key;
}

static enum tarn_status key_read(struct builder *builder, struct level *level,
                                 const yaml_event_t *event)
{
    const yaml_char_t *chars = event->data.scalar.value;
    const size_t length_bytes = event->data.scalar.length;
    const size_t line = line_of(event->start_mark);
    for (size_t i = 0; i < length_bytes; i++)
        if (chars[i] < ' ' || chars[i] == 0x7f)
            return refuse(builder, line, "a key has control characters");
    level->key = text_keep(builder->tree, chars, length_bytes);
    level->key_line = (uint32_t)line;
    if (!level->key)
        return TARN_NO_MEMORY;
    if (key_is_new(level))
        return TARN_OK;
    char reason[YAML_REASON_BYTES];
    (void)snprintf(reason, sizeof(reason), "key '%.100s' is here twice", level->key);
    return refuse(builder, line, reason);
}

static bool is_null(const yaml_event_t *event)
{
    static const char *const spellings[] = { "", "~", "null", "Null", "NULL" };
    if (event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE)
        return false;
    for (size_t i = 0; i < LENGTH_OF(spellings); i++)
        if (strcmp((const char *)event->data.scalar.value, spellings[i]) == 0)
            return true;
    return false;
}

static enum tarn_status scalar_read(struct builder *builder, const yaml_event_t *event)
{
    const size_t line = line_of(event->start_mark);
    struct level *level = level_open(builder);
    struct yaml_node *node = NULL;
    if (memchr(event->data.scalar.value, '\0', event->data.scalar.length))
        return refuse(builder, line, "a text has a NUL byte");
    if (awaits_key(level)) {
        /* Room for the node, so that a tree has at most two texts a node. */
        if (builder->tree->node_count == YAML_NODES_MAX)
            return node_add(builder, YAML_IS_EMPTY, line, &node);
        return key_read(builder, level, event);
    }
    if (is_null(event))
        return node_add(builder, YAML_IS_EMPTY, line, &node);
    TRY(node_add(builder, YAML_IS_TEXT, line, &node));
    node->text = text_keep(builder->tree, event->data.scalar.value, event->data.scalar.length);
    return node->text ? TARN_OK : TARN_NO_MEMORY;
}

static enum tarn_status container_open(struct builder *builder, enum yaml_kind kind, size_t line)
{
    struct yaml_node *node = NULL;
    if (awaits_key(level_open(builder)))
        return refuse(builder, line, "a key is not a text");
    if (builder->depth == YAML_DEPTH_MAX)
        return refuse(builder, line, "mappings and lists are nested too deep");
    TRY(node_add(builder, kind, line, &node));
    builder->levels[builder->depth++] = (struct level){ .container = node };
    return TARN_OK;
}

static enum tarn_status plain_check(const struct builder *builder, const yaml_event_t *event,
                                    const yaml_char_t *anchor, const yaml_char_t *tag)
{
    if (anchor)
        return refuse(builder, line_of(event->start_mark),
                      "an anchor (&name) is not taken here; write each value out");
    if (tag)
        return refuse(builder, line_of(event->start_mark),
                      "a tag (!name) is not taken here; leave it out");
    return TARN_OK;
}

static enum tarn_status document_open(struct builder *builder, const yaml_event_t *event)
{
    if (builder->document_count++ > 0)
        return refuse(builder, line_of(event->start_mark),
                      "a second document (---) begins; a file has one");
    if (event->data.document_start.tag_directives.start !=
        event->data.document_start.tag_directives.end)
        return refuse(builder, line_of(event->start_mark), "%TAG is not taken here; leave it out");
    return TARN_OK;
}

static enum tarn_status event_read(struct builder *builder, const yaml_event_t *event)
{
    const size_t line = line_of(event->start_mark);
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        return document_open(builder, event);
    case YAML_ALIAS_EVENT:
        return refuse(builder, line, "an alias (*name) is not taken here; write the value out");
    case YAML_SCALAR_EVENT:
        TRY(plain_check(builder, event, event->data.scalar.anchor, event->data.scalar.tag));
        return scalar_read(builder, event);
    case YAML_SEQUENCE_START_EVENT:
        TRY(plain_check(builder, event, event->data.sequence_start.anchor,
                        event->data.sequence_start.tag));
        return container_open(builder, YAML_IS_LIST, line);
    case YAML_MAPPING_START_EVENT:
        TRY(plain_check(builder, event, event->data.mapping_start.anchor,
                        event->data.mapping_start.tag));
        return container_open(builder, YAML_IS_MAPPING, line);
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        builder->depth--;
        return TARN_OK;
    case YAML_NO_EVENT:
    case YAML_STREAM_START_EVENT:
    case YAML_STREAM_END_EVENT:
    case YAML_DOCUMENT_END_EVENT:
        return TARN_OK;
    }
    return TARN_OK;
}

/* What libyaml did not like. */
static enum tarn_status parser_fault(const struct builder *builder, const yaml_parser_t *parser,
                                     const char *chars, size_t length_bytes)
{
    if (parser->error == YAML_MEMORY_ERROR)
        return TARN_NO_MEMORY;
    size_t line = line_of(parser->problem_mark);
    if (parser->error == YAML_READER_ERROR) { /* it knows the byte alone */
        line = 1;
        for (size_t i = 0; i < length_bytes && i < parser->problem_offset; i++)
            line += chars[i] == '\n';
    }
    char reason[YAML_REASON_BYTES];
    (void)snprintf(reason, sizeof(reason), "no YAML: %s%s%s",
                   parser->context ? parser->context : "", parser->context ? ", " : "",
                   parser->problem ? parser->problem : "it cannot be read");
    return refuse(builder, line, reason);
}

static enum tarn_status tree_read(struct builder *builder, yaml_parser_t *parser, const char *chars,
                                  size_t length_bytes)
{
    for (bool at_end = false; !at_end;) {
        yaml_event_t event;
        if (!yaml_parser_parse(parser, &event))
            return parser_fault(builder, parser, chars, length_bytes);
        const enum tarn_status status = event_read(builder, &event);
        at_end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
        TRY(status);
    }
    return TARN_OK;
}

static void tree_destroy_at(struct yaml_tree **tree)
{
    yaml_destroy(*tree);
}

enum tarn_status yaml_read(const char *chars, size_t length_bytes, struct yaml_tree **out_tree,
                           struct yaml_fault *out_fault)
{
    CLEANUP(tree_destroy_at)
    struct yaml_tree *tree = mem_alloc(1, sizeof(*tree));
    struct builder builder = { .tree = tree, .fault = out_fault };
    yaml_parser_t parser;
    if (!tree)
        return TARN_NO_MEMORY;
    if (length_bytes > YAML_BYTES_MAX)
        return refuse(&builder, 1, "it is longer than 64 KiB");
    if (!yaml_parser_initialize(&parser))
        return TARN_NO_MEMORY;
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)chars, length_bytes);
    const enum tarn_status status = tree_read(&builder, &parser, chars, length_bytes);
    yaml_parser_delete(&parser);
    TRY(status);
    *out_tree = TAKE(tree);
    return TARN_OK;
}

void yaml_destroy(struct yaml_tree *tree)
{
    for (size_t i = 0; tree && i < tree->text_count; i++)
        mem_free(tree->texts[i]);
    mem_free(tree);
}

const struct yaml_node *yaml_root(const struct yaml_tree *tree)
{
    return tree->node_count > 0 ? &tree->nodes[0] : NULL;
}
