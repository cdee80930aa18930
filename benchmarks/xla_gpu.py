"""Compile a step for GPUs with XLA, and count its kernels. Needs no GPU.

    python -m tox -e py313-xla [-- --record]

TensorFlow writes the StableHLO of a step with ``jit_compile=True``. The CUDA plugin of JAX, which compiles for a
described device, makes the kernels of it. For the bare optimizer, Keras's LossScaleOptimizer and scalekeeper's the
script prints the kernels, how many of them read each gradient, the bytes that they move, the conditionals and the
values in float64. It fails if scalekeeper reads gradients more than once more than the bare optimizer, or more often
than Keras's class, or has a conditional or float64. ``--record`` writes the figures to benchmarks/results/.
"""

from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

import itertools
import math
import os
import re

os.environ["JAX_PLATFORMS"] = "cpu"  # with any other, JAX looks for a GPU

import tensorflow as tf
from jax.experimental import topologies
from jax.interpreters import mlir
from jaxlib import xla_client
from jaxlib.mlir import ir
from step_overhead import INNER, SETS

from scalekeeper import LossScaleOptimizer
from scalekeeper_test_support.benchmark_results import machine, parser, record
from scalekeeper_test_support.installed_keras import compiled, upstream

# Figures of NVIDIA's data sheets, and those that cudaGetDeviceProperties returns.
GPUS: Dict[str, Dict[str, Any]] = {
    "V100": {
        "capability": 7,
        "cores": 80,
        "lanes": 64,
        "shared": 98304,
        "optin": 98304,
        "bandwidth": 898 * 10**9,
        "cache": 6 * 2**20,
        "ghz": 1.53,
        "memory": 16 * 2**30,
    },
    "A100": {
        "capability": 8,
        "cores": 108,
        "lanes": 64,
        "shared": 167936,
        "optin": 166912,
        "bandwidth": 2039 * 10**9,
        "cache": 40 * 2**20,
        "ghz": 1.41,
        "memory": 80 * 2**30,
    },
    "H100": {
        "capability": 9,
        "cores": 132,
        "lanes": 128,
        "shared": 233472,
        "optin": 232448,
        "bandwidth": 3352 * 10**9,
        "cache": 50 * 2**20,
        "ghz": 1.98,
        "memory": 80 * 2**30,
    },
}
_DESCRIPTION = """
gpu_device_info {{
  cuda_compute_capability {{ major: {capability} }}
  core_count: {cores}
  fpus_per_core: {lanes}
  shared_memory_per_core: {shared}
  shared_memory_per_block: 49152
  shared_memory_per_block_optin: {optin}
  memory_bandwidth: {bandwidth}
  l2_cache_size: {cache}
  clock_rate_ghz: {ghz}
  device_memory_size: {memory}
  threads_per_block_limit: 1024
  threads_per_warp: 32
  threads_per_core_limit: 2048
  thread_dim_limit_x: 1024
  thread_dim_limit_y: 1024
  thread_dim_limit_z: 64
  block_dim_limit_x: 2147483647
  block_dim_limit_y: 65535
  block_dim_limit_z: 65535
  registers_per_core_limit: 65536
  registers_per_block_limit: 65536
}}
platform_name: "CUDA"
dnn_version_info {{ major: 9 }}
device_description_str: "{name}"
"""
# They start no kernel.
_STARTS_NOTHING = frozenset(["parameter", "constant", "tuple", "get-tuple-element", "bitcast"])
_RUNS_COMPUTATIONS = frozenset(["call", "conditional", "while", "async-start"])
_INSTRUCTION = re.compile(r"\s*(?:ROOT )?(%\S+) = (\(.*?\)|\S+) ([\w-]+)\(([^)]*)\)(.*)")


class Instruction(NamedTuple):
    """One line of a computation in HLO."""

    name: str
    shape: str
    opcode: str
    operands: Sequence[str]
    computations: Sequence[str]
    arguments: str


class Kernels(NamedTuple):
    """What a compiled step runs: kernels, how often they read each gradient, bytes, conditionals, values in float64."""

    launches: int
    passes: float
    bytes: int
    conditionals: int
    float64: int


def stablehlo_of_step(optimizer: Any, shapes: Sequence[Tuple[int, ...]]) -> str:
    """Return the StableHLO of a step whose first arguments are the gradients."""
    variables = [tf.Variable(tf.ones(shape)) for shape in shapes]
    grads = [tf.ones(shape) for shape in shapes]
    unscales = hasattr(optimizer, "get_unscaled_gradients")  # Keras 3's own class does it when it applies them

    def step(*grads: Any) -> Any:
        optimizer.apply_gradients(zip(optimizer.get_unscaled_gradients(grads) if unscales else grads, variables))
        return tf.constant(0)

    if hasattr(optimizer, "build"):
        optimizer.build(variables)
    text = str(compiled(step).experimental_get_compiler_ir(*grads)(stage="stablehlo"))
    # JAX's compiler does not know this operation, which returns its operand
    return re.sub(r"mhlo\.copy (%\S+) : (\S+)", r"stablehlo.reshape \1 : (\2) -> \2", text)


def compiled_for(gpu: str, text: str) -> str:
    """Return the optimized HLO of a StableHLO module for a GPU."""
    description = _DESCRIPTION.format(name=gpu, **GPUS[gpu])
    topology = topologies.get_topology_desc(platform="cuda", target_config=description, topology="1x1x1")
    device: Any = topology.devices[0]
    with mlir.make_ir_context():
        module = ir.Module.parse(text)
        executable = device.client.compile(module, xla_client.DeviceList((device,)), xla_client.CompileOptions())
    return str(executable.hlo_modules()[0].to_string())


def computations_of(hlo: str) -> Dict[str, List[Instruction]]:
    """Return the instructions of each computation by its name; that of the entry is ENTRY."""
    found: Dict[str, List[Instruction]] = {}
    for line in hlo.splitlines():
        if line.endswith("{") and not line.startswith(" "):
            name = "ENTRY" if line.startswith("ENTRY") else line.split()[0]
            found[name] = []
        elif _INSTRUCTION.match(line):
            name_of_value, shape, opcode, inside, rest = _INSTRUCTION.match(line).groups()  # type: ignore[union-attr]
            called = re.findall(r"(?:to_apply|calls|body|condition|\w+_computation)=(%[\w.-]+)", rest)
            called += re.findall(r"%[\w.-]+", "".join(re.findall(r"branch_computations=\{(.*?)\}", rest)))
            operands = re.findall(r"%[\w.-]+", inside)
            found[name].append(Instruction(name_of_value, shape, opcode, operands, called, inside))
    return found


def executed(computations: Mapping[str, List[Instruction]], name: str = "ENTRY") -> Iterator[Instruction]:
    """Yield the instructions of a computation and of those that it runs, but not the insides of kernels."""
    for each in computations[name]:
        yield each
        for called in each.computations if each.opcode in _RUNS_COMPUTATIONS else ():
            yield from executed(computations, called)


def bytes_of(shape: str) -> int:
    """Return the size of a shape as HLO writes it: f32[8]{0}, or a tuple of such."""
    total = 0
    for dtype, sizes in re.findall(r"\b(pred|[a-z]+\d+)\[([\d,]*)\]", shape):
        width = 8 if dtype == "pred" else int(re.sub(r"\D", "", dtype))
        total += math.prod(int(size) for size in sizes.split(",") if size) * width // 8
    return total


def bytes_read(kernel: Instruction, computations: Mapping[str, List[Instruction]], shapes: Mapping[str, str]) -> int:
    """Return the size of the operands of a kernel; of one that it takes slices of, only those count."""
    total = 0
    inside = computations[kernel.computations[0]] if kernel.opcode == "fusion" else []
    names = {int(each.arguments): each.name for each in inside if each.opcode == "parameter"}
    for index, operand in enumerate(kernel.operands):
        users = [each for each in inside if names.get(index) in each.operands]
        if users and all(each.opcode == "slice" for each in users):
            total += sum(bytes_of(each.shape) for each in users)
        else:
            total += bytes_of(shapes[operand])
    return total


def kernels_of(hlo: str, gradients: int) -> Kernels:
    """Count what a compiled step runs, whose first parameters are the gradients."""
    computations = computations_of(hlo)
    instructions = list(executed(computations))
    shapes = {each.name: each.shape for each in instructions}
    is_gradient = {
        each.name for each in computations["ENTRY"] if each.opcode == "parameter" and int(each.arguments) < gradients
    }
    launched = [each for each in instructions if each.opcode not in _STARTS_NOTHING | _RUNS_COMPUTATIONS]
    return Kernels(
        len(launched),
        sum(operand in is_gradient for each in launched for operand in each.operands) / gradients,
        sum(bytes_read(each, computations, shapes) + bytes_of(each.shape) for each in launched),
        sum(each.opcode == "conditional" for each in instructions),
        len(re.findall(r"= f64\[", hlo)),
    )


def main() -> None:
    arguments = parser(__doc__, seconds=0.0)
    arguments.add_argument("--sets", nargs="*", default=list(SETS))
    arguments.add_argument("--gpus", nargs="*", default=list(GPUS))
    arguments.add_argument("--keep", metavar="FOLDER", help="write the optimized HLO of every step to this folder")
    options = arguments.parse_args()
    print(machine())
    rows = []
    wrong = []
    for name, inner in itertools.product(options.sets, INNER):
        make = getattr(tf.keras.optimizers, inner)
        wrapped: Dict[str, Callable[[], Any]] = {
            "bare": lambda make=make: make(1e-6),
            "own": lambda make=make: upstream(make(1e-6)),
            "ours": lambda make=make: LossScaleOptimizer(make(1e-6), "dynamic"),
        }
        texts = {who: stablehlo_of_step(made(), SETS[name]) for who, made in wrapped.items()}
        for gpu in options.gpus:
            found = {}
            for who, text in texts.items():
                hlo = compiled_for(gpu, text)
                if options.keep:
                    with open(os.path.join(options.keep, f"{name}-{inner}-{gpu}-{who}.hlo"), "w") as stream:
                        stream.write(hlo)
                found[who] = kernels_of(hlo, len(SETS[name]))
                print(f"{name:<5} {inner:<5} {gpu} {who:<5} {found[who]}", flush=True)
            bare, own, ours = (found[who] for who in ("bare", "own", "ours"))
            rows.append({"set": name, "optimizer": inner, "gpu": gpu, **{who: list(found[who]) for who in found}})
            if ours.passes > min(bare.passes + 1, own.passes) or ours.conditionals or ours.float64:
                wrong.append(f"{name} {inner} {gpu}: {ours}")
    if wrong:
        raise SystemExit("\n".join(wrong))
    if options.record:
        record("gpu_xla", rows)


if __name__ == "__main__":
    main()
