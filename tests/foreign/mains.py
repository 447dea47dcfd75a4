"""Main functions in the styles of people's training scripts. Each returns its own count of steps, and its result.

As a script, it runs some of them on each node of a TFCluster.
"""

import numpy as np


def data(samples=96):
    x = np.random.default_rng(1).normal(size=(samples, 8)).astype("float32")
    return x, x.sum(axis=1, keepdims=True)


def model_of(tf, **compiled):
    tf.keras.utils.set_random_seed(7)
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), tf.keras.layers.Dense(1), tf.keras.layers.Dropout(0.1)])
    model.compile(optimizer=tf.keras.optimizers.SGD(0.05), loss="mse", metrics=["mae"], **compiled)
    return model


def weights(model):
    return float(sum(np.abs(part).sum() for part in model.get_weights()))


def fit(args, ctx):
    """Keras fit of arrays with a validation set, then evaluate and predict."""
    import tensorflow as tf

    counted = []
    seen = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: counted.append(batch))
    model = model_of(tf)
    history = model.fit(*data(), batch_size=10, epochs=3, validation_split=0.25, verbose=0, callbacks=[seen])
    found = model.evaluate(*data(), verbose=0)
    return len(counted), [history.history["loss"], found, model.predict(data()[0], verbose=0).sum()]


def fit_of_a_generator(args, ctx):
    """Keras fit of a Python generator of unknown length, and train_on_batch."""
    import tensorflow as tf

    x, y = data()
    counted = []
    seen = tf.keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: counted.append(batch))

    def batches():
        for at in range(0, 96, 12):
            yield x[at : at + 12], y[at : at + 12]

    model = model_of(tf)
    model.fit(batches(), verbose=0, callbacks=[seen])
    for _ in range(5):
        model.train_on_batch(x, y)
    return len(counted) + 5, weights(model)


def fit_in_other_ways(args, ctx):
    """Keras fit with several steps per execution, fewer in the last one; then without a tf.function."""
    import tensorflow as tf

    steps, found = 0, []
    for compiled in ({"steps_per_execution": 4}, {"run_eagerly": True}):
        model = model_of(tf, **compiled)
        model.fit(tf.data.Dataset.from_tensor_slices(data()).batch(16), epochs=2, verbose=0)
        steps += int(model.optimizer.iterations)
        found.append(weights(model))
    return steps, found


def custom(tf):
    model = model_of(tf)
    optimizer = tf.keras.optimizers.Adam(0.01)
    loss_of = tf.keras.losses.MeanSquaredError()

    @tf.function
    def train_step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        optimizer.apply_gradients(zip(tape.gradient(loss, model.trainable_variables), model.trainable_variables))
        return loss

    return model, optimizer, train_step


def custom_loop(args, ctx):
    """A loop over tf.data with a tf.function, for three epochs."""
    import tensorflow as tf

    _, _, train_step = custom(tf)
    dataset = tf.data.Dataset.from_tensor_slices(data()).batch(8).prefetch(2)
    steps, losses = 0, []
    for _ in range(3):
        for x, y in dataset:
            losses.append(float(train_step(x, y)))
            steps += 1
    return steps, losses


def generator_input(args, ctx):
    """tf.data from a Python generator, an iterator taken by hand, an early end."""
    import tensorflow as tf

    model, _, train_step = custom(tf)
    source = tf.data.Dataset.from_generator(
        lambda: zip(*data(), strict=True),
        output_signature=(tf.TensorSpec((8,), tf.float32), tf.TensorSpec((1,), tf.float32)),
    )
    batches = iter(source.repeat().batch(16))
    steps = 0
    while steps < 11:
        train_step(*next(batches))
        steps += 1
    return steps, weights(model)


def two_functions(args, ctx):
    """One tf.function for the gradients, another to apply them."""
    import tensorflow as tf

    model, optimizer, _ = custom(tf)

    @tf.function
    def gradients(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(model(x, training=True) - y))
        return tape.gradient(loss, model.trainable_variables)

    @tf.function
    def apply(given):
        optimizer.apply_gradients(zip(given, model.trainable_variables))

    steps = 0
    for x, y in tf.data.Dataset.from_tensor_slices(data()).batch(8):
        apply(gradients(x, y))
        steps += 1
    return steps, weights(model)


def adversarial(args, ctx):
    """Two tf.functions that train in turn, the first of them three times a step."""
    import tensorflow as tf

    made = tf.Variable(tf.ones(8), name="generator")
    judge = tf.Variable(tf.ones(8), name="critic")

    def stepper(mine, other, sign):
        @tf.function
        def train(x):
            with tf.GradientTape() as tape:
                loss = sign * tf.reduce_sum(mine * other * x)
            mine.assign_sub(0.01 * tape.gradient(loss, mine))

        return train

    critic, generator = stepper(judge, made, -1.0), stepper(made, judge, 1.0)
    steps = 0
    for x in tf.data.Dataset.from_tensor_slices(data()[0]).take(20):
        critic(x)
        generator(x)
        steps += 1
    return steps, [made.numpy().tolist(), judge.numpy().tolist()]


def evaluation_between(args, ctx):
    """A custom loop with an own test step after each epoch, and in the middle of it."""
    import tensorflow as tf

    model, _, train_step = custom(tf)
    error = tf.keras.metrics.MeanSquaredError()

    @tf.function
    def test_step(x, y):
        error.update_state(y, model(x, training=False))

    test = tf.data.Dataset.from_tensor_slices(data(40)).batch(10)
    steps, errors = 0, []
    for _ in range(2):
        for x, y in tf.data.Dataset.from_tensor_slices(data()).batch(8):
            train_step(x, y)
            steps += 1
            if steps % 6 == 0:
                error.reset_state()
                for x_test, y_test in test:
                    test_step(x_test, y_test)
                errors.append(float(error.result()))
    return steps, errors


def retracing(args, ctx):
    """Batches of other shapes, and a tf.function that is made again in each epoch."""
    import tensorflow as tf

    kept = tf.Variable(tf.ones((8, 1)))
    losses = []
    for epoch in range(4):

        @tf.function
        def train_step(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean(tf.square(x @ kept - y))
            kept.assign_sub(0.1 * tape.gradient(loss, kept))
            return loss

        x, y = data()
        losses += [float(train_step(x[:size], y[:size])) for size in (5, 6, 7, 5 + epoch)]
    return 16, losses


def of_an_iterator(args, ctx):
    """A strategy, whose step takes its batch from the iterator inside the tf.function, until the input ends."""
    import tensorflow as tf

    strategy = tf.distribute.MirroredStrategy(["/cpu:0"])
    dataset = strategy.experimental_distribute_dataset(tf.data.Dataset.from_tensor_slices(data()).batch(12))
    with strategy.scope():
        weight = tf.Variable(tf.ones((8, 1)))

    def replica(x, y):
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(tf.square(x @ weight - y))
        weight.assign_sub(0.1 * tape.gradient(loss, weight))

    @tf.function
    def train_step(iterator):
        strategy.run(replica, args=next(iterator))

    steps = 0
    for _ in range(2):
        iterator = iter(dataset)
        while True:
            try:
                train_step(iterator)
            except tf.errors.OutOfRangeError:
                break
            steps += 1
    return steps, weight.numpy().sum()


def loop_inside(args, ctx):
    """The whole epoch is one tf.function: from outside, its steps cannot be counted."""
    import tensorflow as tf

    kept = tf.Variable(1.0)
    seen = tf.Variable(0, trainable=False)

    @tf.function
    def loop(dataset):
        for x in dataset:
            kept.assign_sub(0.01 * tf.reduce_sum(x))
            seen.assign_add(1)

    @tf.function
    def epoch(dataset):
        loop(dataset)

    epoch(tf.data.Dataset.from_tensor_slices(data()[0]).batch(8))
    return None, [int(seen), float(kept)]


def marked(args, ctx):
    """The same, with the optional marks."""
    import tensorflow as tf

    import dlobd

    kept = tf.Variable(1.0)
    other = tf.function(lambda: kept.assign_add(1.0))
    for _ in range(7):
        with dlobd.step():
            with dlobd.span("load"):
                pass
            other()
            other()
    other()
    return 7, float(kept)


def several(args, ctx):
    """Several trainings in one main function; the counts add up."""
    parts = [fit, two_functions, adversarial, evaluation_between, retracing, of_an_iterator]
    return sum(part(args, ctx)[0] for part in parts), None


MAINS = [
    fit,
    fit_of_a_generator,
    fit_in_other_ways,
    custom_loop,
    generator_input,
    two_functions,
    adversarial,
    evaluation_between,
    retracing,
    of_an_iterator,
    loop_inside,
    marked,
    several,
]

if __name__ == "__main__":
    from pyspark import SparkContext
    from tensorflowonspark import TFCluster

    sc = SparkContext()
    cluster = TFCluster.run(sc, several, [], 2, 0, input_mode=TFCluster.InputMode.TENSORFLOW, master_node="chief")
    cluster.shutdown()
    sc.stop()
