"""Registries of an experiment's axes. To add a member, write its file and add its row."""

from dlobd.channel import TRANSPORTS
from dlobd.registry import Registry, Row

_TENSORFLOW = ("tensorflow",)

MODELS = Registry(
    "models",
    Row(
        "softmax-regression",
        "SoftMax regression: one dense layer, cross-entropy",
        "softmax:build",
        dataset="mnist",
        memory_mb=0,
    ),
    Row("mlp", "one hidden layer of 128 ReLU units", "mlp:build", dataset="mnist", memory_mb=0),
    Row("lenet", "LeNet as in Caffe's MNIST example", "lenet:build", dataset="mnist", memory_mb=256),
    Row("cifar10-quick", "CIFAR-10 Quick, Caffe's example", "cifar10_quick:build", dataset="cifar10", memory_mb=256),
    Row(
        "alexnet-cifar",
        "AlexNet for CIFAR-10 as in tf_cnn_benchmarks",
        "alexnet_cifar:build",
        dataset="cifar10",
        memory_mb=256,
    ),
    Row("resnet20", "ResNet-20 for CIFAR-10", "resnet:resnet20", dataset="cifar10", memory_mb=256),
    Row("resnet56", "ResNet-56 for CIFAR-10", "resnet:resnet56", dataset="cifar10", memory_mb=768),
    Row("vgg16-cifar", "VGG-16 for CIFAR-10, with batch normalisation", "vgg_cifar:build", dataset="cifar10"),
    room="dlobd.job.models",
    needs=_TENSORFLOW,
    group="dlobd.models",
)

DATASETS = Registry(
    "datasets",
    Row("mnist", "MNIST handwritten digits, 28x28 grey, 60,000 + 10,000", "mnist:Mnist"),
    Row(
        "cifar10",
        "CIFAR-10 photographs, 32x32 colour, 50,000 + 10,000",
        "cifar10:Cifar10",
        data_file="cifar-10/data_batch_1.bin",
        without_data="it has not been fetched; fetch it with `dlobd data fetch cifar10`, or use "
        "dataset=cifar10-partial",
    ),
    Row(
        "cifar10-partial",
        "CIFAR-10, partial: 10,000 of 50,000 training and 1,000 of 10,000 test images",
        "cifar10:Cifar10Partial",
        data_file="cifar-10/data_batch_1.bin.gz",
        without_data="its files come with a checkout of dlobd, not with an installed package; fetch the whole set "
        "with `dlobd data fetch cifar10`, and use dataset=cifar10",
        part_of="cifar10",
    ),
    Row("synthetic", "generated images of any shape, number and number of classes", "synthetic:Synthetic"),
    room="dlobd.job.datasets",
    group="dlobd.datasets",
)

OPTIMISERS = Registry(
    "optimisers",
    Row("sgd", "stochastic gradient descent", "optimisation:Sgd"),
    Row("momentum", "gradient descent with momentum (heavy ball)", "optimisation:Momentum"),
    room="dlobd.job.training",
    needs=_TENSORFLOW,
)

LOSSES = Registry(
    "losses",
    Row(
        "softmax-cross-entropy",
        "cross-entropy of the softmax of the logits",
        "optimisation:softmax_cross_entropy",
    ),
    room="dlobd.job.training",
    needs=_TENSORFLOW,
)

SCHEDULES = Registry(
    "schedules",
    Row("constant", "constant learning rate", "optimisation:constant"),
    Row("step", "learning rate x learning_rate_decay_factor every num_epochs_per_decay epochs", "optimisation:step"),
    Row("cosine", "learning rate falls to 0 along half a cosine", "optimisation:cosine"),
    room="dlobd.job.training",
    needs=_TENSORFLOW,
)

LAUNCHERS = Registry(
    "launchers",
    Row("tfos", "TensorFlowOnSpark", "tfos:TfosLauncher", ("tensorflowonspark", "pyspark")),
    Row(
        "tfos-stock",
        "TensorFlowOnSpark as published, with a replacement for pkg_resources",
        "tfos_stock:TfosStockLauncher",
        ("tensorflowonspark", "pyspark"),
    ),
    Row("barrier", "Spark's barrier mode, trainers in child processes", "barrier:BarrierLauncher"),
    Row(
        "distributor",
        "spark-tensorflow-distributor as published: barrier mode, trainers in the Python workers",
        "distributor:DistributorLauncher",
        ("spark_tensorflow_distributor", "pyspark"),
    ),
    Row(
        "torch-distributor",
        "pyspark's TorchDistributor",
        unavailable="it starts PyTorch's launcher; dlobd's trainers use TensorFlow",
    ),
    Row("native", "plain processes on local files: no Spark, YARN, HDFS", "native:NativeLauncher"),
    room="dlobd.job.launchers",
)

SCHEDULERS = Registry(
    "schedulers",
    Row("yarn", "Spark on YARN", "yarn:command", ("pyspark",)),
    Row("standalone", "Spark's own Master and Workers, without YARN", "standalone:standalone", ("pyspark",)),
    Row("local-cluster", "Master and Workers in the driver's JVM, for tests", "standalone:local_cluster", ("pyspark",)),
    Row("none", "no Spark; for launcher native", "none:command"),
    room="dlobd.run.schedulers",
)

DEPLOY_MODES = Registry(
    "deploy-modes",
    Row("client", "the driver runs beside spark-submit"),
    Row("cluster", "the driver runs in the ApplicationMaster's container"),
)

CHANNELS = Registry("channels", *(Row(transport.name, transport.title) for transport in TRANSPORTS.values()))
"""Transports of a channel. The registry `libraries` lists their implementations."""

LIBRARIES = Registry(
    "libraries",
    Row("auto", "first library that supports both the exchange and the channel"),
    Row("tensorflow", "TensorFlow's own gRPC, only for TensorFlow's exchanges", needs=_TENSORFLOW),
    Row("sockets", "TCP sockets of the standard library", "sockets:SocketsChannel"),
    Row("grpc", "gRPC, one call per message", "grpc:GrpcChannel", ("grpc",)),
    Row("ucx", "UCX (libucp) through dlobd's own binding", "ucx.channel:UcxChannel", ("cffi",)),
    Row("mpi", "MPICH through mpi4py, only for exchange mpi", needs=("mpi4py",)),
    room="dlobd.network.channels",
)
"""Libraries that carry a channel's bytes."""

EXCHANGES = Registry(
    "exchanges",
    Row("tf-ring", "TensorFlow's ring all-reduce (MultiWorkerMirroredStrategy)", "tf_ring:TfRing"),
    Row("tf-ps", "TensorFlow's parameter servers on the first ranks, outside the TensorFlow step", "tf_ps:TfPs"),
    Row("ring", "dlobd's ring all-reduce, outside the TensorFlow step", "over_mesh:Ring"),
    Row("halving-doubling", "dlobd's halving and doubling, outside the TensorFlow step", "over_mesh:HalvingDoubling"),
    Row("ps", "dlobd's parameter servers, synchronous, outside the TensorFlow step", "ps.exchange:ParameterServer"),
    Row(
        "ps-async",
        "dlobd's parameter servers, asynchronous: no rank waits for another rank",
        "ps.exchange:AsynchronousParameterServer",
    ),
    Row("mpi", "MPI_Allreduce as a reference, outside the TensorFlow step", "mpi:MpiAllReduce", ("mpi4py",)),
    room="dlobd.network.exchanges",
    needs=_TENSORFLOW,
)

PLANES = Registry(
    "planes",
    Row("exchange", "only the gradient exchange uses the channel"),
    Row("all", "Spark and HDFS use the channel too, for example IPoIB for all sockets"),
)
"""Traffic that should use the channel. The verdict covers all traffic."""

AUGMENTATIONS = Registry(
    "augmentations",
    Row("none", "unchanged training images"),
    Row(
        "flip-crop",
        "random flip and random crop after padding by 4 pixels (He et al. 2015)",
        "augmentation:flip_crop",
        _TENSORFLOW,
    ),
    room="dlobd.job.training",
)
"""Changes of training images, batch by batch. Test images are unchanged."""

DEVICES = Registry(
    "devices",
    Row("cpu", "the cores of an executor's container"),
    Row("gpu", "one GPU per rank, requested from YARN or Spark; not tested on a GPU yet"),
)

PAGE_CACHES = Registry(
    "page-caches",
    Row("as-is", "unchanged; the report shows the cached fraction"),
    Row("warm", "dlobd reads the training files' blocks into the page cache before the window"),
    Row("cold", "the kernel drops the training files' blocks before the window; not on an external cluster"),
)
"""State of the training files in the DataNodes' page caches at the start of the window."""

INPUTS = Registry(
    "inputs",
    Row("feed", "Spark reads HDFS and feeds the trainers' queues (InputMode.SPARK)"),
    Row("read", "each trainer reads HDFS through WebHDFS into tf.data (InputMode.TENSORFLOW)"),
)

PLACES = Registry(
    "places",
    Row("external", "an external YARN cluster, given its HADOOP_CONF_DIR", "external:ExternalHadoop"),
    Row("this-machine", "processes on this machine, with files in a local directory", "this_machine:ThisMachine"),
    Row("spark-workers", "Spark's Master and Workers, with HDFS of the embedded cluster", "standalone:StandaloneSpark"),
    Row("embedded", "the embedded cluster's YARN and HDFS", "embedded:EmbeddedHadoop"),
    room="dlobd.run.place",
)
"""Places that can run a job. dlobd uses the first place that supports the experiment; no setting selects it."""

VIEWS = Registry(
    "views",
    Row("overview", "one screen: headline, layers, phases, possible savings, warnings", "overview:overview"),
    Row("breakdown", "wall time by layer and by cause of waits", "views:breakdown"),
    Row("findings", "possible savings, with their upper bounds", "views:findings"),
    Row("training", "throughput, steps, epochs, time to accuracy", "views:training"),
    Row("anatomy", "events from submit to the first step, and from the last step to the exit", "views:anatomy"),
    Row("resources", "CPU, memory, disk, network; Spark's task metrics", "views:resources"),
    Row("words", "meanings of the words of the overview", "views:words"),
    room="dlobd.report.terminal",
)
"""Views of `dlobd show`. The first view is the default; `--full` shows all other views, in this order."""

REGISTRIES = {found.kind: found for found in list(globals().values()) if isinstance(found, Registry)}
"""Registries by kind. Experiments are TOML files, which `dlobd.experiment.files.titles` lists."""
