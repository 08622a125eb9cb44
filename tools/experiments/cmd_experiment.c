/* `ferry experiment`: picks the experiment. What each shows and how to read it:
 * docs/experiments.md. */
#include "tools/experiments/side_by_side.h"

#include "tools/cli/tool.h"

int cmd_experiment(int argc, char **argv)
{
    static const command_t experiments[] = {
        { "roundtrip",
          "a matrix product on the host, resident on the device, and with copies every time",
          exp_roundtrip },
        { "vectorize", "one matrix product asked for in 65536, 256, 4 requests and in one",
          exp_vectorize },
        { "minibatch", "linear regression by gradient descent with four batch sizes",
          exp_minibatch },
        { "link",
          "transfers by size and mode; with --overlap, a loop that keeps both ways and the device "
          "busy",
          exp_link },
        { "batchsize",
          "do batch sizes need to be powers of two? MobileNetV3-Large, time of an image",
          exp_batchsize },
        { "parallel",
          "lenet on 1, 2, 4 devices: shards, gradients summed by peer transfers, the same "
          "parameters",
          exp_parallel },
        { "speedups",
          "ways to train faster, each measured without and with, and what must hold checked",
          exp_speedups },
    };
    if (argc > 2 && argv[1][0] != '-' && side_by_side_devices(argc - 1, argv + 1) > 1)
        return side_by_side(argc - 1, argv + 1);
    return run_command(
        "ferry experiment",
        "Experiments about moving data and asking for work. Several --device: side by side.",
        experiments, sizeof experiments / sizeof *experiments, argc, argv);
}
