"""Training: layers, models, data sets, loaders, optimizers, schedules, the loop, checkpoints.

    from ferry import train
    net = train.sequential([train.flatten(), train.linear(784, 128, activation="relu"),
                            train.linear(128, 10)])
    model = train.Model(device, net, (28, 28, 1))
    data = train.Dataset.synthetic_digits(2000)
    loader = train.Loader(device, data, batch=100, scale=1 / 255)
    result = train.fit(model, train.Optimizer(model, "adam"), loader, epochs=2)

Options are the fields of C's structs (include/ferry/train/), as keywords: train.Loader(device,
data, batch=64, shuffle=1). An unknown one is a TypeError that lists them.
"""

from __future__ import annotations

import math
import sys
import time
from typing import Any, Callable, Dict, Iterator, List, Mapping, Optional, Sequence, Tuple, Union

from ferry import _c
from ferry._device import Device, as_device, device_of
from ferry._layer import make_custom
from ferry._record import Tape
from ferry._tensor import Tensor, copied
from ferry._types import NAMES, Handle, Shape, check_callable, plain


def init(kind: Union[str, Any], value: float = 0.0) -> Any:
    """The initial values of a parameter: ("normal", 0.02), "kaiming_uniform", ..."""
    return _c.fy_init_t(kind, value) if isinstance(kind, str) else kind


# ---- layers ----


class Layer(Handle):
    """A description of a part of a network; a container or a model takes it over."""

    def __init__(self, handle: Any) -> None:
        self._as_parameter_ = handle


def _maker(name: str, parameters: Sequence[str], struct: Optional[str] = None) -> Any:
    function = getattr(_c, f"fy_layer_{name}")

    def make(*arguments: Any, **options: Any) -> Layer:
        values = list(arguments)
        for parameter in parameters[len(values) :]:
            if parameter not in options:
                raise TypeError(f"{name} needs {', '.join(parameters)}")
            values.append(options.pop(parameter))
        if len(values) > len(parameters):
            raise TypeError(f"{name} takes {', '.join(parameters)}; options are keywords")
        if struct is not None:
            values.append(getattr(_c, struct)(**options))
        elif options:
            raise TypeError(f"{name} has no option {next(iter(options))!r}")
        return Layer(function(*values))

    make.__name__ = make.__qualname__ = name
    fields = getattr(_c, struct)._fields_ if struct else []
    shown = ", ".join([*parameters, *(f"{field}=..." for field in fields)])
    make.__doc__ = f"{name}({shown})\n\n{function.__doc__.partition(chr(10) * 2)[2]}"
    return make


linear = _maker("linear", ("inputs", "outputs"), "fy_linear_options_t")
tied_linear = _maker("tied_linear", ("inputs", "outputs", "weight_name"))
attention = _maker("attention", ("width", "heads"), "fy_attention_options_t")
transformer_block = _maker("transformer_block", ("width", "heads"), "fy_transformer_options_t")
embedding = _maker("embedding", ("count", "width"), "fy_embedding_options_t")
position_embedding = _maker("position_embedding", ("count", "width"), "fy_embedding_options_t")
class_token = _maker("class_token", ("width",), "fy_embedding_options_t")
conv2d = _maker("conv2d", ("inputs", "outputs", "kernel_h", "kernel_w"), "fy_conv2d_options_t")
batch_norm = _maker("batch_norm", ("channels",), "fy_batch_norm_options_t")
layer_norm = _maker("layer_norm", ("width",), "fy_layer_norm_options_t")
rms_norm = _maker("rms_norm", ("width",), "fy_layer_norm_options_t")
group_norm = _maker("group_norm", ("groups", "channels"), "fy_layer_norm_options_t")
dropout = _maker("dropout", ("p",))
dropout2d = _maker("dropout2d", ("p",))
adaptive_avg_pool2d = _maker("adaptive_avg_pool2d", ("height", "width"))
global_avg_pool2d = _maker("global_avg_pool2d", ())
flatten = _maker("flatten", ())
select = _maker("select", ("axis", "index"))
log_softmax = _maker("log_softmax", ())
op = _maker("op", ("op_name",))
identity = _maker("identity", ())


def custom(
    forward: Callable[..., Tensor],
    params: Optional[Mapping[str, Any]] = None,
    *,
    shape: Optional[Callable[[tuple], Shape]] = None,
    macs: Union[int, Callable[[tuple], int]] = 0,
    name: str = "custom",
) -> Layer:
    """A layer of yours: forward(x, *parameters) returns its result, by ops that have gradients.

        def scaled(x, weight):
            return ferry.call("my_op", x * weight)  # registered ops, too

        train.custom(scaled, {"weight": ([128], ("constant", 1.0))}, name="scaled")

    params: name to a shape (initially zeros), or to (shape, init), whose fans are those of a filter
    [outputs, ..., inputs]. shape(dims) returns the result's dims for an input's, the batch first;
    None: they are equal. macs: multiply-accumulates of one call, or a function of the input's dims;
    for plans. An exception of `forward` ends the call of the model.
    """
    check_callable("custom", "forward", forward)
    if shape is not None:
        check_callable("custom", "shape", shape)
    if not hasattr(macs, "__index__"):
        check_callable("custom", "macs", macs)
    return Layer(make_custom(forward, dict(params or {}), shape, macs, name))


def _pool(name: str) -> Any:
    function = getattr(_c, f"fy_layer_{name}")

    def make(kernel: int, **attrs: Any) -> Layer:
        chosen = {"kernel_h": kernel, "kernel_w": kernel, **attrs}
        return Layer(function(_c.fy_pool2d_attrs_t(**chosen)))

    make.__name__ = make.__qualname__ = name
    fields = ", ".join(_c.fy_pool2d_attrs_t._fields_)
    make.__doc__ = f"{name}(kernel, ...): a square window; fields: {fields}. Stride 0: the kernel."
    return make


max_pool2d = _pool("max_pool2d")
avg_pool2d = _pool("avg_pool2d")


def _children(layers: Union[Sequence[Layer], Mapping[str, Layer]]) -> list:
    if isinstance(layers, Mapping):
        return list(layers.items())
    return [(str(i), layer) for i, layer in enumerate(layers)]


def sequential(layers: Union[Sequence[Layer], Mapping[str, Layer]]) -> Layer:
    """Layers in order, named "0", "1", ... or by the keys of a dict. Takes them over."""
    return Layer(_c.fy_layer_sequential(_children(layers)))


def branches(
    layers: Union[Sequence[Layer], Mapping[str, Layer]],
    join: str = "add",
    activation: str = "none",
) -> Layer:
    """Layers on the same input, whose results are joined: "add", "mul" or "concat"."""
    return Layer(_c.fy_layer_branches(join, _children(layers), activation))


def residual(body: Layer, shortcut: Optional[Layer] = None, activation: str = "none") -> Layer:
    """activation(body(x) + shortcut(x)); without a shortcut: x."""
    return Layer(_c.fy_layer_residual(body, shortcut, activation))


def checkpoint(child: Layer) -> Layer:
    """The child, computed again in the backward: its inner results are not kept."""
    return Layer(_c.fy_layer_checkpoint(child))


# ---- models ----


class Model(Handle):
    """Layers with parameters on a device. model(x) is its result.

    shape: of one sample. Options: name, dtype, seed, recompute, drop_bias, low, ...
    """

    _instead = "save(path), and load(path) into another model of the same layers"

    def __init__(
        self, device: Union[Device, str], layer: Layer, shape: Shape, **options: Any
    ) -> None:
        chosen = _c.fy_model_options_t(**options)
        self._as_parameter_ = _c.fy_model_create(as_device(device), layer, shape, chosen)

    @classmethod
    def open(cls, device: Union[Device, str], name: str, **options: Any) -> "Model":
        """A known model: "lenet", "resnet18", "gpt", ... (Model.names())."""
        chosen = _c.fy_model_options_t(**options)
        return cls._of(_c.fy_model_open(as_device(device), name, chosen))

    @staticmethod
    def names() -> List[str]:
        """The names of the known models."""
        found: List[str] = []
        while name := _c.fy_model_name_at(len(found)):
            found.append(name)
        return found

    def __call__(self, x: Tensor) -> Tensor:
        return _c.fy_model_forward(self, x)

    def train(self, is_training: bool = True) -> "Model":
        """Training: dropout draws, batch norm uses the batch. False: evaluation."""
        _c.fy_model_set_training(self, bool(is_training))
        return self

    def watch(self, tape: Tape) -> None:
        """Watches all parameters; once for each tape."""
        _c.fy_model_watch(self, tape)

    def backward(self, tape: Tape, loss: Tensor, seed: Optional[Tensor] = None) -> None:
        """tape.backward(loss), with zeros for parameters on which the loss does not depend."""
        _c.fy_model_backward(self, tape, loss, _c.fy_backward_options_t(seed=seed))

    def _named(self, function: Any, count: int, field: str) -> Dict[str, Tensor]:
        found: Dict[str, Tensor] = {}
        for index in range(count):
            param = function(self, index)
            found[param.name] = getattr(param, field)
        return found

    def parameters(self) -> Dict[str, Tensor]:
        """The parameters by name, as tapes watch them. Those of convolutions are O, H, W, I."""
        return self._named(_c.fy_model_param, _c.fy_model_query(self).nparams, "value")

    def gradients(self) -> Dict[str, Tensor]:
        """Their gradients."""
        return self._named(_c.fy_model_param, _c.fy_model_query(self).nparams, "grad")

    def buffers(self) -> Dict[str, Tensor]:
        """The buffers: running statistics."""
        return self._named(_c.fy_model_buffer, _c.fy_model_query(self).nbuffers, "value")

    def info(self) -> Dict[str, Any]:
        """name, device, params, nparams, nbytes, macs, out_dims, is_training, ..."""
        info = _c.fy_model_query(self)
        facts = {k: v for k, v in plain(info).items() if k not in ("values", "grads", "buffers")}
        facts.pop("rng")
        facts["out_dims"] = facts["out_dims"][: info.out_rank]
        return {**facts, "device": device_of(info.device)}

    def save(self, path: Any) -> None:
        """Parameters and buffers as a safetensors file: one download of all."""
        _c.fy_model_save(self, path)

    def load(self, path: Any) -> None:
        """Everything is checked before the first byte changes."""
        _c.fy_model_load(self, path)

    def __repr__(self) -> str:
        """A table, one line a layer."""
        size, text = _c.fy_model_describe(self)
        return text[:size].decode()


# ---- data ----


class Dataset(Handle):
    """Samples and labels in host memory; it never changes after it is made."""

    _instead = "make it in each process, from files or arrays"

    def __init__(self, samples: Any, labels: Any, classes: int = 0) -> None:
        """A copy of host tensors or arrays: samples [n, ...] u8, f32 or i32; labels [n] i32 with
        `classes` (0: the largest + 1), or f32 [n, targets] of a regression.
        """
        from ferry._tensor import tensor

        x = tensor(samples)
        y = tensor(labels)
        if y.ndim not in (1, 2) or 0 in y.shape[1:] or y.shape[:1] != x.shape[:1]:
            raise ValueError(
                f"labels of shape {y.shape} for samples of shape {x.shape}: [n], or [n, each]"
            )
        is_regression = y.dtype in ("f32", "f64", "f16", "bf16")
        values = () if is_regression else memoryview(y.reshape(-1)).tolist()
        wrong = [value for value in values if not 0 <= value < 2**31 - 1]
        if wrong:
            raise ValueError(f"the label {wrong[0]}: classes are 0 to {2**31 - 2}")
        y = tensor(y, dtype="f32" if is_regression else "i32")
        if y.ndim == 1 and is_regression:
            y = y.reshape(-1, 1)
        info = _c.fy_dataset_info_t(
            samples=x.shape[0],
            rank=x.ndim - 1,
            dims=x.shape[1:],
            dtype=x.dtype,
            classes=classes or (max(values, default=-1) + 1),
            targets=y.shape[1] if is_regression else 0,
            labels=y.shape[1] if not is_regression and y.ndim == 2 else 0,
        )
        self._as_parameter_ = _c.fy_dataset_create(info, x, y)

    @classmethod
    def open(cls, name: str, directory: Any = None, test: bool = False) -> "Dataset":
        """A known set, "mnist", "cifar10" or "airfoil"; without a directory a generated one."""
        return cls._of(_c.fy_dataset_open(name, directory, bool(test)))

    @classmethod
    def synthetic_digits(cls, samples: int, seed: int = 1) -> "Dataset":
        """Generated images [28, 28, 1] of digits, which a network can learn."""
        return cls._of(_c.fy_dataset_synthetic_digits(samples, seed))

    @classmethod
    def read_text(cls, path: Any, context: int) -> "Dataset":
        """Text as bytes: samples of `context` tokens, and as labels the byte after each."""
        return cls._of(_c.fy_dataset_read_text(path, context))

    def split(self, first: int, seed: int = 1) -> Tuple["Dataset", "Dataset"]:
        """`first` random samples (seed below 0: the first ones), and the others."""
        a, b = _c.fy_dataset_split(self, first, seed)
        return Dataset._of(a), Dataset._of(b)

    def info(self) -> Dict[str, Any]:
        """samples, dims, dtype, classes, targets."""
        info = _c.fy_dataset_query(self)
        return {**plain(info), "dims": list(info.dims[: info.rank]), "dtype": NAMES[info.dtype]}

    def __len__(self) -> int:
        return _c.fy_dataset_query(self).samples


class Loader(Handle):
    """The batches of a data set on a device: `for x, y in loader:` is one epoch.

    A loop that ends early has used up its epoch: the next one has all batches of the next epoch.
    After seek, or a fit that ended within an epoch, it has the rest. A new loop ends an older one.
    Batches are yours to keep: of a loader with resident=0 they are copies on the device.
    Options: batch, drop_last, shuffle, seed, resident, workers, depth, scale, mean, std, pad, ...
    """

    def __init__(self, device: Union[Device, str], dataset: Dataset, **options: Any) -> None:
        chosen = _c.fy_loader_options_t(**options)
        lengths = {len(options[name]) for name in ("mean", "std") if name in options}
        if len(lengths) > 1:
            raise ValueError(f"mean and std have {lengths} values: give one for each channel")
        if lengths and not chosen.channels:
            chosen.channels = lengths.pop()
        self._as_parameter_ = _c.fy_loader_create(as_device(device), dataset, chosen)
        self._loop: Any = None  # the loop that goes on; None: seek or fit moved the loader last

    def __iter__(self) -> Iterator[Tuple[Tensor, Tensor]]:
        self._end_loop()
        self._loop = loop = object()
        return self._batches(loop)

    def _batches(self, loop: object) -> Iterator[Tuple[Tensor, Tensor]]:
        own = (lambda t: t) if _c.fy_loader_query(self).is_resident else copied
        while True:
            if self._loop is not loop:
                raise RuntimeError("the loader has moved on: another loop, seek or fit began")
            x, y = _c.fy_loader_next(self)
            if x is None:
                self._loop = None
                return
            yield own(x), own(y)

    def _end_loop(self) -> None:
        """A loop that has had batches, and did not get to the end, has used up its epoch."""
        at = _c.fy_loader_query(self)
        if self._loop is not None and at.step:
            self.seek(at.epoch + 1)
        self._loop = None

    def seek(self, epoch: int, step: int = 0) -> None:
        """The next batch is number `step` of `epoch`, both from 0."""
        _c.fy_loader_seek(self, epoch, step)
        self._loop = None

    def info(self) -> Dict[str, Any]:
        """samples, batch, steps of an epoch, epoch and step of the next batch, ..."""
        info = _c.fy_loader_query(self)
        return {**plain(info), "dims": list(info.dims[: info.rank])}

    def __len__(self) -> int:
        return _c.fy_loader_query(self).steps


# ---- optimizers ----


class Optimizer(Handle):
    """sgd, adam, adamw, adadelta, rmsprop, lars or lamb; one request updates all parameters.

    target: a Model, or a list of (parameter, gradient) tensors. Options: lr, weight_decay,
    momentum, beta1, beta2, eps, nesterov, ...; the others have PyTorch's defaults. groups: (prefix,
    lr_scale, weight_decay_scale) for parameters of a model by name. loss_scaling: True, or its
    options.
    """

    _instead = "train.save_checkpoint, and load_checkpoint into another optimizer"

    def __init__(
        self,
        target: Union[Model, Sequence[Tuple[Tensor, Tensor]]],
        kind: str = "sgd",
        groups: Sequence[Tuple[str, float, float]] = (),
        loss_scaling: Union[bool, Mapping[str, Any], None] = None,
        **options: Any,
    ) -> None:
        chosen = _c.fy_optimizer_defaults(kind)
        _set(chosen, "optimizers have no option", options)
        chosen.groups = groups
        if loss_scaling:
            given = {} if loss_scaling is True else loss_scaling
            chosen.loss_scaling = _c.fy_loss_scaling_options_t(**given)
        if isinstance(target, Model):
            self._as_parameter_ = _c.fy_optimizer_create_model(chosen, target)
        else:
            pairs = list(target)
            if not pairs:
                raise ValueError("an optimizer needs a Model, or (parameter, gradient) tensors")
            values, grads = zip(*pairs, strict=True)
            self._as_parameter_ = _c.fy_optimizer_create(chosen, values, grads)

    def step(self) -> None:
        """Updates all parameters. Light."""
        _c.fy_optimizer_step(self)

    @property
    def lr(self) -> float:
        """The learning rate; setting it is one light request, from the next step on."""
        return _c.fy_optimizer_get(self).lr

    @lr.setter
    def lr(self, value: float) -> None:
        _c.fy_optimizer_set_lr(self, value)

    def options(self) -> Dict[str, Any]:
        """All values as they are now."""
        facts = plain(_c.fy_optimizer_get(self))
        facts["kind"] = _c.fy_optimizer_name(facts["kind"])
        return {k: v for k, v in facts.items() if k not in ("groups", "ngroups", "loss_scaling")}


def schedule(kind: str, lr: float, total_steps: int = 0, **fields: Any) -> Any:
    """A learning rate by the step: "constant", "step", "cosine", "cyclic", "one-cycle", "range".

    Fields: warmup_steps, step_size, gamma, min_lr, ... The rate at a step: ferry.train.lr_at.
    """
    value = _c.fy_schedule_defaults(kind, lr, total_steps)
    _set(value, "schedules have no field", fields)
    _c.fy_schedule_check(value)
    return value


def _set(struct: Any, refusal: str, given: Mapping[str, Any]) -> None:
    """Sets fields other than the first, which is the kind."""
    known = struct._fields_[1:]
    for name, value in given.items():
        if name not in known:
            raise TypeError(f"{refusal} {name!r}; they have: {', '.join(known)}")
        setattr(struct, name, value)


def lr_at(value: Any, step: int) -> float:
    """The learning rate of a schedule at a step, from 0."""
    return _c.fy_schedule_lr(value, step)


# ---- the loop ----


class ProgressBar:
    """One line on standard error, drawn again at most ten times a second; on a terminal only."""

    def __init__(self, file: Any = None) -> None:
        self.file = file or sys.stderr
        self._drawn, self._last = 0, 0.0

    def __call__(self, event: Dict[str, Any]) -> None:
        now = time.monotonic()
        if now - self._last < 0.1 and not event["is_epoch_end"]:
            return
        self._last = now
        epoch, step, steps = event["epoch"] + 1, event["epoch_step"], max(event["epoch_steps"], 1)
        if event["is_epoch_end"] and step == 0:  # the event counts the epoch as done
            epoch, step = epoch - 1, steps
        bar = "#" * (20 * step // steps)
        text = f"epoch {epoch}/{event['epochs']} [{bar:<20}] {step}/{steps}"
        if not math.isnan(event["loss"]):
            text += f" loss {event['loss']:.4f}"
        text += f" {event['samples_per_s']:.0f}/s"
        if event["is_epoch_end"] and not math.isnan(event["test_accuracy"]):
            text += f" test {event['test_accuracy']:.2%}"
        self.file.write("\r" + text.ljust(self._drawn) + ("\n" if event["is_epoch_end"] else ""))
        self._drawn = 0 if event["is_epoch_end"] else len(text)
        self.file.flush()

    def close(self) -> None:
        if self._drawn:
            self.file.write("\n")
            self._drawn = 0


def fit(
    model: Model,
    optimizer: Optimizer,
    loader: Loader,
    test: Optional[Loader] = None,
    *,
    progress: Optional[bool] = None,
    on_event: Optional[Callable[[Dict[str, Any]], Any]] = None,
    schedule: Any = None,
    **options: Any,
) -> Dict[str, Any]:
    """Trains: for each batch forward, loss, backward, update; after each epoch an evaluation.

    progress: a bar on standard error; by default if that is a terminal. on_event(event) is called
    after each step with a dict: epoch, epoch_step, loss, lr, ...; an exception in it, or Ctrl-C,
    ends the training after a whole step. Options: epochs (more than the loader has had; with
    resume: of the whole training), accumulate, loss ("cross_entropy", "nll", "mse"), max_steps, clip_norm, log_every, checkpoint,
    keep, resume, graph, precision, ...
    Returns steps, train_loss, test_accuracy, samples_per_s, ...
    """
    if on_event is not None:
        check_callable("fit", "on_event", on_event)
    chosen = _c.fy_train_options_t(**options, schedule=schedule)
    bar = ProgressBar() if progress or progress is None and sys.stderr.isatty() else None

    def called(event: Any) -> None:  # also without a bar: Python handles Ctrl-C in it
        if bar is None and on_event is None:
            return
        facts = plain(event)
        if bar is not None:
            bar(facts)
        if on_event is not None:
            on_event(facts)

    chosen.on_event = called
    loader._end_loop()
    if chosen.epochs > 0 and not chosen.resume:
        chosen.epochs += loader.info()["epoch"]  # fy_train_run counts those of the loader
    try:
        return plain(_c.fy_train_run(model, optimizer, loader, test, chosen))
    finally:
        if bar is not None:
            bar.close()


def evaluate(model: Model, loader: Loader, loss: str = "cross_entropy") -> Tuple[float, float]:
    """(mean loss, accuracy) over one epoch, without gradients: one sync.

    The loader is then where it was: a loop over it goes on.
    """
    return _c.fy_train_evaluate(model, loader, loss)


def find_lr(
    model: Model, optimizer: Optimizer, loader: Loader, **options: Any
) -> Tuple[float, List[Tuple[float, float]]]:
    """The learning rate range test: the suggested rate, and (rate, smoothed loss) of each step.

    Options: min_lr, max_lr, steps, ... Everything is restored afterwards, bit for bit.
    """
    chosen = _c.fy_find_lr_options_t(**options)
    points, result = _c.fy_train_find_lr(model, optimizer, loader, chosen)
    return result.lr, [(p.lr, p.smoothed) for p in points[: result.steps]]


# ---- checkpoints ----


def save_checkpoint(
    directory: Any, model: Model, optimizer: Optional[Optimizer] = None, keep: int = 3,
    **progress: Any,
) -> None:  # fmt: skip
    """Everything that a training needs to go on: "step-00001234.safetensors" in the folder.

    progress: step, epoch, epoch_step, seed, note (a text).
    """
    _c.fy_checkpoint_save(directory, model, optimizer, _c.fy_progress_t(**progress), keep)


def load_checkpoint(
    path: Any, model: Model, optimizer: Optional[Optimizer] = None
) -> Dict[str, Any]:
    """Loads a file, or the newest of a folder; returns the progress. All is checked first."""
    return plain(_c.fy_checkpoint_load(path, model, optimizer))


def clip_norm(gradients: Sequence[Tensor], max_norm: float) -> Tensor:
    """Clips all gradients together to a 2-norm; returns the norm before, on the device."""
    return _c.fy_grads_clip_norm(gradients, max_norm)
