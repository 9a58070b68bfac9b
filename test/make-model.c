/* SPDX-License-Identifier: Apache-2.0 */
/* make-model - write a random model. Usage: make-model FILE [name=value…]; without FILE, the names.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"
#include "lib/random-model.h"

static const char *const flaws[] = {
    [RANDOM_MODEL_SOUND] = "none",
    [RANDOM_MODEL_ROPE_SCALING] = "rope-scaling",
    [RANDOM_MODEL_ROPE_FREQS] = "rope-freqs",
    [RANDOM_MODEL_SLIDING_WINDOW] = "sliding-window",
    [RANDOM_MODEL_BIAS] = "bias",
    [RANDOM_MODEL_ARCHITECTURE] = "architecture",
    [RANDOM_MODEL_MISSING_TENSOR] = "missing-tensor",
    [RANDOM_MODEL_WRONG_SHAPE] = "wrong-shape",
};

struct number {
    const char *name;
    uint32_t *value;
};

static bool set_flaw(struct random_model *model, const char *name)
{
    for (size_t i = 0; i < LENGTH_OF(flaws); i++) {
        if (strcmp(flaws[i], name) == 0) {
            model->flaw = (enum random_model_flaw)i;
            return true;
        }
    }
    return false;
}

static bool set_number(const struct number *numbers, const char *argument)
{
    for (; numbers->name; numbers++) {
        const size_t length = strlen(numbers->name);
        if (strncmp(argument, numbers->name, length) == 0 && argument[length] == '=') {
            char *end;
            *numbers->value = (uint32_t)strtoul(argument + length + 1, &end, 10);
            return end != argument + length + 1 && *end == '\0';
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    struct random_model model = random_model_tiny();
    uint32_t theta = (uint32_t)model.rope_theta;
    uint32_t seed = (uint32_t)model.seed;
    uint32_t tied = model.tied;
    const struct number numbers[] = {
        { "layers", &model.layer_count },
        { "heads", &model.head_count },
        { "kv-heads", &model.kv_head_count },
        { "head-dim", &model.head_dim },
        { "ff-dim", &model.feed_forward_dim },
        { "vocab", &model.vocab_count },
        { "ctx", &model.context_tokens },
        { "theta", &theta },
        { "seed", &seed },
        { "tied", &tied },
        { NULL, NULL },
    };
    if (argc < 2) {
        for (const struct number *number = numbers; number->name; number++)
            printf("%s=%u\n", number->name, *number->value);
        for (size_t i = 0; i < LENGTH_OF(flaws); i++)
            printf("flaw=%s\n", flaws[i]);
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        const bool flaw = strncmp(argv[i], "flaw=", 5) == 0;
        if (!(flaw ? set_flaw(&model, argv[i] + 5) : set_number(numbers, argv[i]))) {
            (void)fprintf(stderr, "make-model: what is %s? Run it without arguments.\n", argv[i]);
            return 2;
        }
    }
    model.rope_theta = (float)theta;
    model.seed = seed;
    model.tied = tied;
    return random_model_write(&model, argv[1]) ? 0 : 1;
}
