"""Registries of an experiment's axes. To add a member, write its file and add its row."""

from __future__ import annotations

from dlobd.channel import TRANSPORTS
from dlobd.registry import Registry, Row

MODELS = Registry(
    "models",
    [
        Row(
            "softmax-regression",
            "SoftMax regression: one dense layer, cross-entropy",
            "dlobd.job.models.softmax:build",
            ("tensorflow",),
        ),
        Row("mlp", "one hidden layer of 128 ReLU units", "dlobd.job.models.mlp:build", ("tensorflow",)),
        Row("lenet", "LeNet as in Caffe's MNIST example", "dlobd.job.models.lenet:build", ("tensorflow",)),
        Row(
            "cifar10-quick", "CIFAR-10 Quick, Caffe's example", "dlobd.job.models.cifar10_quick:build", ("tensorflow",)
        ),
        Row(
            "alexnet-cifar",
            "AlexNet for CIFAR-10 as in tf_cnn_benchmarks",
            "dlobd.job.models.alexnet_cifar:build",
            ("tensorflow",),
        ),
        Row("resnet20", "ResNet-20 for CIFAR-10", "dlobd.job.models.resnet:resnet20", ("tensorflow",)),
        Row("resnet56", "ResNet-56 for CIFAR-10", "dlobd.job.models.resnet:resnet56", ("tensorflow",)),
        Row(
            "vgg16-cifar",
            "VGG-16 for CIFAR-10, with batch normalisation",
            "dlobd.job.models.vgg_cifar:build",
            ("tensorflow",),
        ),
    ],
    group="dlobd.models",
)

DATASETS = Registry(
    "datasets",
    [
        Row("mnist", "MNIST handwritten digits, 28x28 grey, 60,000 + 10,000", "dlobd.job.datasets.mnist:Mnist"),
        Row(
            "cifar10",
            "CIFAR-10 photographs, 32x32 colour, 50,000 + 10,000",
            "dlobd.job.datasets.cifar10:Cifar10",
            data_file="cifar-10/data_batch_1.bin",
            without_data="it has not been fetched; fetch it with `dlobd data fetch cifar10`, or use "
            "dataset=cifar10-partial",
        ),
        Row(
            "cifar10-partial",
            "CIFAR-10, partial: 10,000 of 50,000 training and 1,000 of 10,000 test images",
            "dlobd.job.datasets.cifar10:Cifar10Partial",
            data_file="cifar-10/data_batch_1.bin.gz",
            without_data="its files come with a checkout of dlobd, not with an installed package; fetch the whole set "
            "with `dlobd data fetch cifar10`, and use dataset=cifar10",
            part_of="cifar10",
        ),
        Row(
            "synthetic",
            "generated images of any shape, number and number of classes",
            "dlobd.job.datasets.synthetic:Synthetic",
        ),
    ],
    group="dlobd.datasets",
)

LAUNCHERS = Registry(
    "launchers",
    [
        Row("tfos", "TensorFlowOnSpark", "dlobd.job.launchers.tfos:TfosLauncher", ("tensorflowonspark", "pyspark")),
        Row(
            "tfos-stock",
            "TensorFlowOnSpark as published, only made importable",
            "dlobd.job.launchers.tfos_stock:TfosStockLauncher",
            ("tensorflowonspark", "pyspark"),
        ),
        Row(
            "barrier",
            "Spark's barrier mode, trainers in child processes",
            "dlobd.job.launchers.barrier:BarrierLauncher",
        ),
        Row(
            "distributor",
            "spark-tensorflow-distributor as published: barrier mode, trainers in the Python workers",
            "dlobd.job.launchers.distributor:DistributorLauncher",
            ("spark_tensorflow_distributor", "pyspark"),
        ),
        Row(
            "torch-distributor",
            "pyspark's TorchDistributor",
            unavailable="it starts PyTorch's launcher; dlobd's trainers use TensorFlow",
        ),
        Row(
            "native",
            "plain processes on local files: no Spark, YARN, HDFS",
            "dlobd.job.launchers.native:NativeLauncher",
        ),
    ],
)

SCHEDULERS = Registry(
    "schedulers",
    [
        Row("yarn", "Spark on YARN", "dlobd.run.schedulers.yarn:YarnScheduler", ("pyspark",)),
        Row(
            "standalone",
            "Spark's own Master and Workers, without YARN",
            "dlobd.run.schedulers.standalone:StandaloneScheduler",
            ("pyspark",),
        ),
        Row(
            "local-cluster",
            "Master and Workers in the driver's JVM, for tests",
            "dlobd.run.schedulers.standalone:LocalClusterScheduler",
            ("pyspark",),
        ),
        Row("none", "no Spark; for launcher native", "dlobd.run.schedulers.none:NoScheduler"),
    ],
)

DEPLOY_MODES = Registry(
    "deploy-modes",
    [
        Row("client", "the driver runs beside spark-submit"),
        Row("cluster", "the driver runs in the ApplicationMaster's container"),
    ],
)

CHANNELS = Registry("channels", [Row(transport.name, transport.title) for transport in TRANSPORTS.values()])
"""Transports of a channel. The registry `libraries` has the code that carries them."""

LIBRARIES = Registry(
    "libraries",
    [
        Row("auto", "first library that the exchange can use and that carries the channel"),
        Row("tensorflow", "TensorFlow's own gRPC, only for TensorFlow's exchanges", needs=("tensorflow",)),
        Row("sockets", "TCP sockets of the standard library", "dlobd.network.channels.sockets:SocketsChannel"),
        Row("grpc", "gRPC, a call per message", "dlobd.network.channels.grpc:GrpcChannel", ("grpc",)),
        Row(
            "ucx",
            "UCX (libucp), by dlobd's own binding",
            "dlobd.network.channels.ucx.channel:UcxChannel",
            ("cffi",),
        ),
        Row("mpi", "MPICH by mpi4py, only for exchange mpi", needs=("mpi4py",)),
    ],
)
"""Libraries that carry a channel's bytes."""

EXCHANGES = Registry(
    "exchanges",
    [
        Row(
            "tf-ring",
            "TensorFlow's ring all-reduce (MultiWorkerMirroredStrategy)",
            "dlobd.network.exchanges.tf_ring:TfRing",
            ("tensorflow",),
        ),
        Row(
            "tf-ps",
            "TensorFlow's parameter servers: accumulators on the first ranks, beside the step",
            "dlobd.network.exchanges.tf_ps:TfPs",
            ("tensorflow",),
        ),
        Row(
            "ring",
            "dlobd's ring all-reduce, beside the step",
            "dlobd.network.exchanges.over_mesh:Ring",
            ("tensorflow",),
        ),
        Row(
            "halving-doubling",
            "dlobd's recursive halving and doubling, beside the step",
            "dlobd.network.exchanges.over_mesh:HalvingDoubling",
            ("tensorflow",),
        ),
        Row(
            "ps",
            "dlobd's parameter servers, synchronous, beside the step",
            "dlobd.network.exchanges.ps.exchange:ParameterServer",
            ("tensorflow",),
        ),
        Row(
            "ps-async",
            "dlobd's parameter servers, asynchronous: no rank waits for another",
            "dlobd.network.exchanges.ps.exchange:AsynchronousParameterServer",
            ("tensorflow",),
        ),
        Row(
            "mpi",
            "MPI_Allreduce, the reference, beside the step",
            "dlobd.network.exchanges.mpi:MpiAllReduce",
            ("tensorflow", "mpi4py"),
        ),
    ],
)

PLANES = Registry(
    "planes",
    [
        Row("exchange", "only the gradient exchange uses the channel"),
        Row("all", "Spark and HDFS use it as well, as if IPoIB carries every socket"),
    ],
)
"""Traffic for which the channel is requested. All traffic gets a verdict."""

OPTIMISERS = Registry(
    "optimisers",
    [
        Row("sgd", "stochastic gradient descent", "dlobd.job.training.optimisation:Sgd", ("tensorflow",)),
        Row(
            "momentum",
            "gradient descent with momentum (heavy ball)",
            "dlobd.job.training.optimisation:Momentum",
            ("tensorflow",),
        ),
    ],
)

SCHEDULES = Registry(
    "schedules",
    [
        Row("constant", "constant learning rate", "dlobd.job.training.optimisation:constant", ("tensorflow",)),
        Row(
            "step",
            "learning rate x learning_rate_decay_factor every num_epochs_per_decay epochs",
            "dlobd.job.training.optimisation:step",
            ("tensorflow",),
        ),
        Row(
            "cosine",
            "learning rate falls to 0 along half a cosine",
            "dlobd.job.training.optimisation:cosine",
            ("tensorflow",),
        ),
    ],
)

LOSSES = Registry(
    "losses",
    [
        Row(
            "softmax-cross-entropy",
            "cross-entropy of the softmax of the logits",
            "dlobd.job.training.optimisation:softmax_cross_entropy",
            ("tensorflow",),
        )
    ],
)

AUGMENTATIONS = Registry(
    "augmentations",
    [
        Row("none", "unchanged training images"),
        Row(
            "flip-crop",
            "random flip and random crop after padding by 4 pixels (He et al. 2015)",
            "dlobd.job.training.augmentation:flip_crop",
            ("tensorflow",),
        ),
    ],
)
"""Changes of training images, batch by batch. Test images are unchanged."""

DEVICES = Registry(
    "devices",
    [
        Row("cpu", "the cores of an executor's container"),
        Row(
            "gpu",
            "one GPU per rank, requested from YARN or Spark; not tested on a GPU yet",
        ),
    ],
)

PAGE_CACHES = Registry(
    "page-caches",
    [
        Row("as-is", "unchanged; the report has the cached share"),
        Row("warm", "dlobd reads the training files' blocks before the window"),
        Row("cold", "the kernel drops the training files' blocks before the window; not on an external cluster"),
    ],
)
"""State of the training files in the DataNodes' page caches at the start of the window."""

INPUTS = Registry(
    "inputs",
    [
        Row("feed", "Spark reads HDFS and feeds the trainers' queues (InputMode.SPARK)"),
        Row("read", "each trainer reads HDFS by WebHDFS into tf.data (InputMode.TENSORFLOW)"),
    ],
)

PLACES = Registry(
    "places",
    [
        Row("external", "an external YARN cluster, by its HADOOP_CONF_DIR", "dlobd.run.place.external:ExternalKind"),
        Row("this-machine", "plain processes, files in a directory", "dlobd.run.place.this_machine:ThisMachineKind"),
        Row(
            "spark-workers",
            "Spark's own Master and Workers, HDFS of the embedded cluster",
            "dlobd.run.place.standalone:StandaloneKind",
        ),
        Row("embedded", "the embedded cluster's YARN and HDFS", "dlobd.run.place.embedded:EmbeddedKind"),
    ],
)
"""Places where a job runs. The first that can run an experiment is used; no setting names it."""

VIEWS = Registry(
    "views",
    [
        Row("overview", "one screen: verdict, layers, findings, warnings", "dlobd.report.terminal.overview:overview"),
        Row("breakdown", "where the wall time went", "dlobd.report.terminal.views:breakdown"),
        Row("findings", "possible savings, with their upper bounds", "dlobd.report.terminal.views:findings"),
        Row("training", "throughput, steps, epochs, time to accuracy", "dlobd.report.terminal.views:training"),
        Row("anatomy", "what happened from submit to first step, and back", "dlobd.report.terminal.views:anatomy"),
        Row("resources", "CPU, memory, disk, network; Spark's task metrics", "dlobd.report.terminal.views:resources"),
    ],
)
"""Views of `dlobd show`: by default the first, with `--full` the others in this order."""

REGISTRIES: dict[str, Registry] = {
    registry.kind: registry
    for registry in (
        MODELS,
        DATASETS,
        OPTIMISERS,
        LOSSES,
        SCHEDULES,
        LAUNCHERS,
        SCHEDULERS,
        DEPLOY_MODES,
        CHANNELS,
        LIBRARIES,
        EXCHANGES,
        PLANES,
        AUGMENTATIONS,
        DEVICES,
        PAGE_CACHES,
        INPUTS,
        PLACES,
        VIEWS,
    )
}
"""Axis to registry. Experiments are TOML files and are listed by `dlobd.experiment.files.experiments`."""
