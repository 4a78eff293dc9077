"""A pickle of `torch.save` read by an interpreter of our own, which calls nothing that it names.

Python's and torch's unpicklers build whatever they are told to: a key that takes 2⁶⁰ steps to hash, a tensor far larger
than the file. This one knows the few instructions and types that checkpoints are made of, and counts its steps.
"""

import math
import pickletools
import re
import sys
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from typing import IO, Any

from torch import Tensor

# What tensors and plain containers are made of.
DATA = re.compile(
    r"argparse\.Namespace|collections\.(OrderedDict|Counter)|builtins\.(set|bytearray|complex)"
    r"|_codecs\.encode|torch(\.cuda|\.storage)?\.\w+Storage|torch\._utils\._rebuild_(tensor|tensor_v2|parameter)"
    r"|torch\.(Size|Tensor|device|nn\.parameter\.Parameter|u?int\d+|b?float\d+|bool)"
)
# Functions that make the scalars of numpy in fairseq's statistics, which nothing here reads.
NUMPY = re.compile(r"numpy\.(dtype|ndarray|_?core\.multiarray\.(scalar|_reconstruct))")
STEPS = 1_000_000  # a checkpoint of 72 layers with its optimizer takes about 170,000
MOST_DIMENSIONS = 16
SIMPLE = (str, int, bool, type(None))
LARGEST_KEY = 2**60  # a larger integer can have the hash of another one
CONSTANTS = {
    "INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT", "UNICODE", "BINUNICODE",
    "SHORT_BINUNICODE", "BINUNICODE8", "STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES",
    "BINBYTES8",
}  # fmt: skip
VALUES = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY: dict[str, Callable[[], Any]] = {"EMPTY_LIST": list, "EMPTY_DICT": dict, "EMPTY_TUPLE": tuple, "EMPTY_SET": set}


class RefusedPickleError(ValueError):
    """The pickle names what could run code, or is no honest checkpoint's; any other error means that it is damaged."""


class Inert:
    """Stands for an instance of a class that is not needed."""


class Named:
    """Stands for a class or function of this name."""

    def __init__(self, name: str) -> None:
        self.name = name


class InertUnpickler:
    """Reads pickles one after the other.

    Tensors, containers and `argparse.Namespace` come out as they are, instances of other classes as [`Inert`]. Entries
    of dictionaries and sets under keys other than text, small integers, booleans and None are left out.

    Args:
        storage: gives the elements of a storage, one-dimensional, for what a pickle calls a persistent id.
    """

    def __init__(self, storage: Callable[[Any], Tensor]) -> None:
        self.storage = storage
        self.steps = 0
        self.operations: dict[str, Callable[[Any], Any]] = {
            "MARK": lambda _: self.marks.append(len(self.stack)),
            "POP": lambda _: self.pop(),
            "POP_MARK": lambda _: self.since_mark(),
            "DUP": lambda _: self.stack.append(self.stack[-1]),
            **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), self.put),
            "MEMOIZE": lambda _: self.put(len(self.memo)),
            **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), lambda index: self.stack.append(self.memo[index])),
            "LIST": lambda _: self.stack.append(self.since_mark()),
            "TUPLE": lambda _: self.stack.append(tuple(self.since_mark())),
            "DICT": lambda _: self.dictionary(self.since_mark()),
            "TUPLE1": lambda _: self.tuple_of(1),
            "TUPLE2": lambda _: self.tuple_of(2),
            "TUPLE3": lambda _: self.tuple_of(3),
            "APPEND": lambda _: self.extend([self.pop()]),
            "APPENDS": lambda _: self.extend(self.since_mark()),
            "ADDITEMS": lambda _: self.extend(self.since_mark()),
            "SETITEM": lambda _: self.set_items(self.last(2)),
            "SETITEMS": lambda _: self.set_items(self.since_mark()),
            "GLOBAL": lambda name: self.stack.append(named(*name.split(" ", 1))),
            "INST": lambda name: self.instance(named(*name.split(" ", 1)), self.since_mark()),
            "STACK_GLOBAL": lambda _: self.stack.append(named(*self.last(2))),
            "REDUCE": lambda _: self.instance(*self.last(2)),
            "NEWOBJ": lambda _: self.instance(*self.last(2)),
            "NEWOBJ_EX": lambda _: self.instance(*self.last(3)[:2]),
            "BUILD": lambda _: self.build(self.pop()),
            "BINPERSID": lambda _: self.stack.append(self.storage(self.pop())),
        }

    def load(self, stream: IO[bytes]) -> Any:
        """The object of the pickle at the position of a stream, which is then behind it.

        Raises:
            RefusedPickleError: see there.
            Exception: any other: the pickle is damaged.
        """
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}
        for opcode, argument, _ in pickletools.genops(stream):
            self.count(1)
            if opcode.name in CONSTANTS:
                self.stack.append(argument)
            elif opcode.name in VALUES:
                self.stack.append(VALUES[opcode.name])
            elif opcode.name in EMPTY:
                self.stack.append(EMPTY[opcode.name]())
            elif opcode.name not in ("PROTO", "FRAME", "STOP"):
                self.operations[opcode.name](argument)
        return self.pop()

    def count(self, steps: int) -> None:
        """Each instruction is a step, and each entry that one of them copies."""
        self.steps += steps
        if self.steps > STEPS:
            raise RefusedPickleError(f"refused: unpickling it takes more than {STEPS:,} steps, as no model needs")

    def pop(self) -> Any:
        return self.stack.pop()

    def last(self, count: int) -> list[Any]:
        items = self.stack[-count:]
        if len(items) < count:
            raise ValueError("its pickle takes what is not there")
        del self.stack[-count:]
        return items

    def since_mark(self) -> list[Any]:
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def put(self, index: int) -> None:
        self.memo[index] = self.stack[-1]

    def tuple_of(self, count: int) -> None:
        self.stack.append(tuple(self.last(count)))

    def extend(self, items: list[Any]) -> None:
        target = self.stack[-1]
        if isinstance(target, set):
            target.update(filter(is_simple, items))
        elif isinstance(target, list):
            target.extend(items)
        elif not isinstance(target, Inert):
            raise ValueError(f"its pickle appends to a {type(target).__name__}")

    def dictionary(self, items: list[Any]) -> None:
        self.stack.append({})
        self.set_items(items)

    def set_items(self, items: list[Any]) -> None:
        """Keys and values in turn."""
        target = self.stack[-1]
        if isinstance(target, dict):
            target.update((key, value) for key, value in zip(items[::2], items[1::2], strict=True) if is_simple(key))
        elif not isinstance(target, Inert):
            raise ValueError(f"its pickle sets entries of a {type(target).__name__}")

    def instance(self, made: Any, arguments: Any) -> None:
        """What a call of a class or function gives."""
        if not isinstance(made, Named):
            raise ValueError(f"its pickle calls a {type(made).__name__}")
        if made.name == "argparse.Namespace":
            value: Any = Namespace()
        elif made.name == "collections.OrderedDict":
            value = OrderedDict()
            for key, entry in arguments[0] if arguments else ():
                self.count(1)
                value.update({key: entry} if is_simple(key) else {})
        elif made.name in ("torch._utils._rebuild_tensor", "torch._utils._rebuild_tensor_v2"):
            value = tensor(*arguments[:4])
        elif made.name == "torch._utils._rebuild_parameter":
            value = arguments[0]
        else:
            value = Inert()
        self.stack.append(value)

    def build(self, state: Any) -> None:
        """The attributes of an instance, of which only those of `Namespace` matter."""
        target = self.stack[-1]
        if isinstance(target, Namespace):
            self.count(len(state))
            vars(target).update({name: value for name, value in state.items() if isinstance(name, str)})
        elif not isinstance(target, Inert | OrderedDict | Tensor):
            raise ValueError(f"its pickle changes a {type(target).__name__}")


def is_simple(key: Any) -> bool:
    """Whether it has a hash that comes at once, and that others do not have on purpose."""
    return isinstance(key, SIMPLE) and not (isinstance(key, int) and abs(key) >= LARGEST_KEY)


def named(module: str, name: str) -> Named:
    """What a pickle names.

    Raises:
        RefusedPickleError: it is neither data nor a class that can be done without.
    """
    # Protocol 2 has the names of Python 2, where subprocess is called commands.
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    full = f"{module}.{name}"
    if not (DATA.fullmatch(full) or NUMPY.fullmatch(full) or _is_foreign_class(full)):
        raise RefusedPickleError(f"refused: unpickling it would call {full}, which can run any code")
    return Named(full)


def _is_foreign_class(name: str) -> bool:
    """Whether it looks like a class of some package: functions are called, and the standard library runs programs."""
    package, last = name.split(".")[0], name.split(".")[-1]
    return package not in sys.stdlib_module_names and package != "torch" and last[:1].isupper()


def tensor(elements: Tensor, offset: int, size: Any, stride: Any) -> Tensor:
    """A tensor on the elements of a storage, within their number.

    Raises:
        ValueError: it reaches beyond them, or repeats them.
    """
    size, stride = tuple(size), tuple(stride)
    count = len(elements)
    plain = len(size) == len(stride) <= MOST_DIMENSIONS and min(offset, 0, *size, *stride) == 0
    if not plain or max(size, default=0) > count or math.prod(size) > count:
        raise ValueError(f"a tensor of shape {list(size[:MOST_DIMENSIONS])} is no part of its storage of {count}")
    if math.prod(size) and offset + sum((n - 1) * step for n, step in zip(size, stride, strict=True)) >= count:
        raise ValueError(f"a tensor of shape {list(size)} reaches beyond its storage of {count}")
    return elements.as_strided(size, stride, offset)


__all__ = ["Inert", "InertUnpickler", "Named", "RefusedPickleError"]
