"""The grammar of expressions that decide over samples: what they may name, call and do.

Such an expression must be a function of the sample: the same in every process, on every machine and on every
day. So the syntax tree may contain only what the tables of this module list; everything else is refused by
name. A name that is called is a function, and a module's name before one of its functions or constants is the
module; all other names are columns.
"""

from __future__ import annotations

import ast
import difflib
import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import date, time, timedelta
from decimal import Decimal
from functools import partial
from inspect import signature
from operator import index
from typing import Any, NoReturn

import numpy as np

from streamplug.errors import ConfigError
from streamplug_tools.value_hash import xxh64

MAX_ITEMS = 1 << 24
"""Length of text, lists and ranges that an expression makes by a number."""
MAX_INTEGER_BITS = 1 << 16

_TIMES = (np.datetime64, np.timedelta64, date, time, timedelta)


# -- functions ----------------------------------------------------------------------------------


def _ordered(value: Any) -> Any:
    """Return a value to iterate over."""
    if isinstance(value, (set, frozenset)):
        raise TypeError("a set has another order in every process; use it with `in` and len() only")
    return value


def _in_order(values: Any, target: ast.expr) -> Any:
    """Return values to iterate over; what is unpacked into several names is checked, too."""
    _ordered(values)
    if isinstance(target, ast.Name):
        return values
    return (_checked_parts(value, target) for value in values)


def _checked_parts(value: Any, target: ast.expr) -> Any:
    if isinstance(target, (ast.List, ast.Tuple)):
        _ordered(value)
        if isinstance(value, (list, tuple)):
            for item, part in zip(value, target.elts):
                _checked_parts(item, part)
    return value


def _of_ordered(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **options: function(*map(_ordered, args), **options)


def _range(*limits: Any) -> range:
    made = range(*limits)
    _check_length(len(made))
    return made


def _check_length(length: int) -> None:
    if length > MAX_ITEMS:
        raise ValueError(f"a value would have more than {MAX_ITEMS:,} items")


def _text(value: Any = "") -> str:
    """Return `str` of a value whose text tells nothing but the value."""
    is_plain = isinstance(value, (str, int, float, Decimal, date, time, timedelta))
    is_numpy = isinstance(value, np.generic) and value.dtype.kind in "biufMmU"
    if not (is_plain or is_numpy or value is None):
        raise TypeError(
            f"the text of {type(value).__name__} is not defined by its value; use json.dumps(), .decode() or "
            ".tolist()"
        )
    return str(value)


def _formatted(value: Any, spec: str) -> str:
    if not spec:
        return _text(value)
    if not isinstance(value, (str, int, float, Decimal, np.number)):
        raise TypeError(f"the format {spec!r} is for numbers and text, not {type(value).__name__}")
    return format(value, spec)


def _multiply(left: Any, right: Any) -> Any:
    for items, times in ((left, right), (right, left)):
        if isinstance(items, (str, bytes, list, tuple)) and hasattr(times, "__index__"):
            _check_length(len(items) * index(times))
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right.bit_length())
    return left * right


def _modulo(left: Any, right: Any) -> Any:
    if isinstance(left, (str, bytes)):
        raise TypeError("text is not formatted with %; use an f-string, such as f'{name}/{number}'")
    return left % right


def _power(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(max(left.bit_length(), 1) * right if abs(left) > 1 else 0)
    return left**right


def _shift(left: Any, right: Any) -> Any:
    if isinstance(left, int) and isinstance(right, int):
        _check_bits(left.bit_length() + right)
    return left << right


def _check_bits(bits: int) -> None:
    if bits > MAX_INTEGER_BITS:
        raise ValueError(f"an integer would have more than {MAX_INTEGER_BITS:,} bits")


def _no_time(value: Any) -> Any:
    """Return a value that is compared with text or a number, which no time is equal to."""
    if isinstance(value, _TIMES) or (isinstance(value, np.ndarray) and value.dtype.kind in "Mm"):
        raise TypeError(
            "a time is compared with text or a number, which it never equals; compare times with "
            "np.datetime64('2024-01-31'), and durations with np.timedelta64(5, 's')"
        )
    return value


def _datetime64(value: Any, *unit: Any) -> Any:
    """Return a time; NumPy also takes the words "now" and "today"."""
    text = value.decode("latin-1") if isinstance(value, bytes) else value
    if isinstance(text, str) and not re.match(r"[-+0-9]|nat$", text, re.IGNORECASE):
        raise ValueError(f"np.datetime64({text!r:.40}): expected a date, such as '2024-01-31'")
    return np.datetime64(text, *unit)


def _as_type(value: Any, dtype: Any) -> Any:
    dtype = np.dtype(dtype)
    if dtype.kind not in "biufMm" or (dtype.kind in "Mm" and value.dtype.kind not in "iuMm"):
        raise TypeError(
            f".astype({dtype.name!r}): expected a type of numbers, or of times for times"
        )
    return value.astype(dtype)


def _python_time(value: Any) -> Any:
    """Return a time of NumPy as Python's, in microseconds."""
    if isinstance(value, np.datetime64):
        return value.astype("M8[us]").item()
    return value.astype("m8[us]").item() if isinstance(value, np.timedelta64) else value


def _encode(text: str, encoding: str = "utf-8", errors: str = "strict") -> bytes:
    return text.encode(_checked_encoding(encoding), errors)


def _decode(data: bytes, encoding: str = "utf-8", errors: str = "strict") -> str:
    return data.decode(_checked_encoding(encoding), errors)


def _checked_encoding(name: str) -> str:
    if name not in ENCODINGS:
        raise ValueError(f"encoding {name!r:.40}: expected one of {', '.join(ENCODINGS)}")
    return name


def _replace(text: Any, old: Any, new: Any, count: int = -1) -> Any:
    if isinstance(text, (str, bytes)):
        _check_length(len(text) + text.count(old) * len(new))
    return text.replace(old, new, count)


def _of_pattern(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of `re` that refuses patterns that depend on the locale, or are printed."""
    position = list(signature(function).parameters).index("flags")

    def call(pattern: Any, *args: Any, **options: Any) -> Any:
        flags = int(options.get("flags", args[position - 1] if len(args) >= position else 0))
        if flags & re.DEBUG or re.compile(pattern, flags).flags & re.LOCALE:
            raise ValueError(f"the pattern {pattern!r:.40} depends on the locale, or is printed")
        return function(pattern, *args, **options)

    return call


# -- tables -------------------------------------------------------------------------------------


def _words(text: str) -> list[str]:
    return text.split()


ENCODINGS = ("utf-8", "ascii", "latin-1", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be")
TYPES: Mapping[str, type] = {
    kind.__name__: kind for kind in (str, bytes, int, float, bool, list, tuple, dict)
}
"""Types that `isinstance` takes."""
_ITERATING = {
    function.__name__: _of_ordered(function)
    for function in (enumerate, list, max, min, sorted, sum, tuple, zip)
}
FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    **{f.__name__: f for f in (abs, all, any, bool, chr, divmod, float, int, len, ord, round, set)},
    **_ITERATING,
    "isinstance": isinstance,
    "range": _range,
    "str": _text,
    "xxh64": xxh64,
}
_TAKES_GENERATORS = {*_ITERATING, "all", "any", "set", "math.fsum", "math.prod", ".join"}

_NUMPY_NAMES = {
    1: "array asarray float16 float32 float64 int8 int16 int32 int64 uint8 uint16 uint32 uint64 unique",
    2: "all allclose any argmax argmin array_equal average count_nonzero cumsum datetime64 diff dot isclose "
    "isin max mean median min nanmax nanmean nanmedian nanmin nanstd nansum prod ptp round std sum "
    "timedelta64 var",
    3: "clip linalg.norm percentile quantile where",
}
"""Functions of NumPy by the number of arguments by position; others that follow could be changed by them."""
_UFUNCS = (
    "abs absolute arccos arcsin arctan arctan2 ceil cos cosh exp expm1 floor fmax fmin fmod hypot isfinite "
    "isinf isnan isnat log log10 log1p log2 logical_and logical_not logical_or logical_xor maximum minimum "
    "mod negative rint sign sin sinh sqrt square tan tanh trunc"
)
_MATH = (
    "acos asin atan atan2 ceil copysign cos cosh degrees dist exp expm1 fabs floor fmod fsum gcd hypot "
    "isclose isfinite isinf isnan isqrt lcm log log10 log1p log2 pow prod radians sin sinh sqrt tan "
    "tanh trunc"
)


def _numpy_function(name: str) -> Any:
    if name == "datetime64":
        return _datetime64
    return np.linalg.norm if name == "linalg.norm" else getattr(np, name)


_MAX_ARGUMENTS = {
    **{f"np.{name}": count for count, names in _NUMPY_NAMES.items() for name in names.split()},
    **{f"np.{name}": getattr(np, name).nin for name in _words(_UFUNCS)},
}
MODULE_FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "json.dumps": json.dumps,
    "json.loads": json.loads,
    **{f"math.{name}": _of_ordered(getattr(math, name)) for name in _words(_MATH)},
    **{name: _numpy_function(name.partition(".")[2]) for name in _MAX_ARGUMENTS},
    **{
        f"re.{name}": _of_pattern(getattr(re, name))
        for name in ("findall", "fullmatch", "match", "search", "split", "sub")
    },
}
_FLAGS = "A ASCII DOTALL I IGNORECASE M MULTILINE S VERBOSE X"
CONSTANTS: Mapping[str, Any] = {
    **{f"math.{name}": getattr(math, name) for name in ("e", "inf", "nan", "pi", "tau")},
    **{f"np.{name}": getattr(np, name) for name in ("e", "inf", "nan", "newaxis", "pi")},
    **{f"re.{name}": int(getattr(re, name)) for name in _words(_FLAGS)},
}
_MODULES = {name.partition(".")[0] for name in MODULE_FUNCTIONS}
TIME_ATTRIBUTES = frozenset(
    _words("day days hour microsecond microseconds minute month second seconds year")
)
ATTRIBUTES = TIME_ATTRIBUTES | frozenset(_words("T height imag mode ndim real shape size width"))
"""Attributes of times, arrays, numbers and images."""
TIME_METHODS = frozenset(_words("date isocalendar isoformat isoweekday time total_seconds weekday"))
_ARRAY_ARGUMENTS = {
    **dict.fromkeys(
        _words("all any argmax argmin astype cumsum max mean min prod round std sum var"), 1
    ),
    "clip": 2,
}
"""Methods of arrays, and the number of their arguments by position."""
_TEXT_METHODS = (
    "capitalize casefold endswith find isalnum isalpha isascii isdecimal isdigit isidentifier islower "
    "isnumeric isprintable isspace istitle isupper lower lstrip partition removeprefix removesuffix rfind "
    "rindex rpartition rsplit rstrip split splitlines startswith strip swapcase title upper"
)
METHODS: Mapping[str, Callable[..., Any] | None] = {
    **dict.fromkeys(TIME_METHODS),
    **dict.fromkeys(_ARRAY_ARGUMENTS),
    **dict.fromkeys(_words("flatten item nonzero ravel reshape tolist transpose")),
    **dict.fromkeys(_words("bit_length count get hex index is_integer")),
    **dict.fromkeys(_words("end group groupdict groups span start")),
    **dict.fromkeys(_words(_TEXT_METHODS)),
    "astype": _as_type,
    "decode": _decode,
    "encode": _encode,
    # Views of dicts are like sets.
    "items": lambda items: list(items.items()),
    "join": lambda text, parts: text.join(_ordered(parts)),
    "keys": lambda items: list(items.keys()),
    "replace": _replace,
    "values": lambda items: list(items.values()),
}
"""Methods of text, bytes, numbers, lists, dicts, times, arrays and matches; functions in place of some."""
KEYWORDS = frozenset(
    _words(
        "abs_tol atol axis count ddof decimals default encoding ensure_ascii equal_nan errors flags keepdims "
        "maxsplit ndigits rel_tol reverse rtol seed sep sort_keys start strict"
    )
)

_OPERATORS = {"Mult": _multiply, "Mod": _modulo, "Pow": _power, "LShift": _shift}
_NODES = (
    "Expression BoolOp And Or UnaryOp Not USub UAdd Invert BinOp Add Sub Mult Div FloorDiv Mod Pow LShift "
    "RShift BitAnd BitOr BitXor MatMult Compare Eq NotEq Lt LtE Gt GtE Is IsNot In NotIn IfExp Constant "
    "Name Load Store Tuple List Dict Set ListComp SetComp DictComp GeneratorExp comprehension Subscript "
    "Slice Attribute Call keyword JoinedStr FormattedValue"
)
_ALLOWED_NODES = frozenset(_words(_NODES))
_NODE_NAMES = {
    "NamedExpr": ":=",
    "Lambda": "lambda",
    "Starred": "* before a value",
    "Await": "await",
}
_SINGLE = (type(None), bool)
_SPEC = re.compile(r"(.?[<>=^])?[-+ ]?0?\d{0,3}[,_]?(\.\d{1,3})?[bcdoxXeEfFgGs%]?", re.DOTALL)

_REASONS = {
    "hash": "it differs in every process; use xxh64(), which is always the same",
    "id": "it differs in every process; use xxh64() of a column",
    "random": "the result would differ in every process; use xxh64() of a column",
    "format": "use an f-string, such as f'{name}/{number}'",
    "zfill": "use an f-string, such as f'{number:05d}'",
    "set": "its order differs in every process; use it with `in`, `not`, comparisons, len() and bool() only",
    "generator": "write a list, or give it to any(), all(), sum(), min(), max(), sorted(), list() or tuple()",
    "lambda": "write a comprehension, such as any(x > 3 for x in scores)",
    ":=": "repeat the expression",
}


# -- check --------------------------------------------------------------------------------------


def restrict(tree: ast.Expression, text: str) -> tuple[ast.Expression, dict[str, Any]]:
    """Return the tree with functions in place of names that are called, and these by their new names.

    The new names are no Python names, so that no column can take their place.

    Args:
        tree: Syntax tree of an expression, which is changed.
        text: The expression, as errors show it.

    Raises:
        ConfigError: If the expression contains what the grammar does not.
    """
    restriction = _Restriction(text)
    return ast.fix_missing_locations(restriction.visit(tree)), restriction.functions


class _Restriction(ast.NodeTransformer):
    def __init__(self, text: str) -> None:
        self.functions: dict[str, Any] = {}
        self._text = text
        self._allowed: set[ast.AST] = set()
        """Sets and generators in places where neither their order nor their identity matters."""

    def _refuse(self, what: str, name: str = "", near: Collection[str] = ()) -> NoReturn:
        reason = next((_REASONS[part] for part in name.split(".") if part in _REASONS), "")
        if not reason and (matches := difflib.get_close_matches(name, near, 1, 0.8)):
            reason = f"did you mean {matches[0]}?"
        raise ConfigError(
            f"{self._text!r:.200}: {what} cannot be part of an expression that selects, splits, sorts or "
            f"joins samples{': ' if reason else ''}{reason} (see the page “Expressions” for what can)"
        )

    def _bind(self, name: str, value: Any) -> ast.expr:
        """Return a reference to a function or a constant."""
        self.functions[f"{name}()"] = value
        return ast.Name(f"{name}()", ast.Load())

    def _call(self, name: str, function: Any, *args: ast.expr) -> ast.expr:
        return ast.Call(self._bind(name, function), list(args), [])

    def visit(self, node: ast.AST) -> Any:
        kind = type(node).__name__
        if kind not in _ALLOWED_NODES:
            self._refuse(_NODE_NAMES.get(kind, kind), _NODE_NAMES.get(kind, kind))
        return super().visit(node)

    # -- calls and attributes -----------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> ast.expr:
        name = _dotted(node.func)
        for keyword in node.keywords:
            if keyword.arg not in KEYWORDS:
                what = f"the argument {keyword.arg}=" if keyword.arg else "** before a value"
                self._refuse(what, keyword.arg or "", KEYWORDS)
        if name == "isinstance":
            return self._visit_isinstance(node)
        if isinstance(node.func, ast.Name) or name in MODULE_FUNCTIONS:
            function = FUNCTIONS.get(name) or MODULE_FUNCTIONS.get(name)
            if function is None or (name == "set" and node not in self._allowed):
                self._refuse(f"{name}()", name, FUNCTIONS)
            self._check_arguments(name, node.args, _MAX_ARGUMENTS.get(name))
            node.func = self._bind(name, function)
        elif isinstance(node.func, ast.Attribute):
            name = self._visit_method(node, node.func)
        else:
            self._refuse("a call of a value")
        if name in _TAKES_GENERATORS:
            self._allowed.update(arg for arg in node.args if isinstance(arg, ast.GeneratorExp))
        if name in ("bool", "len"):
            self._allow_sets(node.args)
        node.args = [self.visit(arg) for arg in node.args]
        node.keywords = [self.visit(keyword) for keyword in node.keywords]
        return node

    def _check_arguments(self, name: str, args: Sequence[ast.expr], count: int | None) -> None:
        if count is not None and len(args) > count:
            self._refuse(f"{name}() with more than {count} arguments by position")
        given = args[0].value if args and isinstance(args[0], ast.Constant) else None
        if name == "np.datetime64" and isinstance(given, (str, bytes)):
            try:
                _datetime64(given)
            except ValueError as error:
                self._refuse(f"{error};")

    def _visit_method(self, node: ast.Call, method: ast.Attribute) -> str:
        """Check a call of a method, and return the method's name."""
        name = method.attr
        if name not in METHODS:
            path = _dotted(method)
            is_module = path.split(".")[0] in _MODULES
            known = MODULE_FUNCTIONS if is_module else METHODS
            self._refuse(f"{path or f'.{name}'}()", path if is_module else name, known)
        self._check_arguments(f".{name}", node.args, _ARRAY_ARGUMENTS.get(name))
        if name == "astype" and node.args:
            node.args[0] = _dtype_name(node.args[0])
        if (function := METHODS[name]) is not None:
            node.func = self._bind(f".{name}", function)
            node.args.insert(0, method.value)
        else:
            method.value = self._visit_owner(method)
        return f".{name}"

    def _visit_owner(self, node: ast.Attribute) -> ast.expr:
        value: ast.expr = self.visit(node.value)
        is_of_time = node.attr in TIME_ATTRIBUTES or node.attr in TIME_METHODS
        return self._call("a time", _python_time, value) if is_of_time else value

    def visit_Attribute(self, node: ast.Attribute) -> ast.expr:
        name = _dotted(node) or f".{node.attr}"
        if name in CONSTANTS:
            return self._bind(name, CONSTANTS[name])
        if node.attr in METHODS or name in MODULE_FUNCTIONS:
            self._refuse(f"{name} without a call")
        if node.attr not in ATTRIBUTES:
            self._refuse(name, name.strip("."), [*ATTRIBUTES, *CONSTANTS])
        node.value = self._visit_owner(node)
        return node

    def _allow_sets(self, nodes: Sequence[ast.expr]) -> None:
        self._allowed.update(node for node in nodes if not isinstance(node, ast.GeneratorExp))

    def _visit_isinstance(self, node: ast.Call) -> ast.expr:
        kinds = node.args[1:]
        if len(kinds) == 1 and isinstance(kinds[0], ast.Tuple):
            kinds = kinds[0].elts
        names = [kind.id if isinstance(kind, ast.Name) else "" for kind in kinds]
        if len(node.args) != 2 or node.keywords or not TYPES.keys() >= set(names):
            self._refuse(f"isinstance() without a value and types ({', '.join(TYPES)})")
        types = tuple(TYPES[name] for name in names)
        return self._call(
            f"isinstance {names}", lambda value: isinstance(value, types), self.visit(node.args[0])
        )

    # -- operators and literals ---------------------------------------------------------

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.expr:
        if isinstance(node.op, ast.Not):
            self._allow_sets([node.operand])
        return self._visit_children(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        if node in self._allowed:
            self._allowed.update((node.left, node.right))
        left, right, kind = self.visit(node.left), self.visit(node.right), type(node.op).__name__
        if kind in _OPERATORS:
            return self._call(kind, _OPERATORS[kind], left, right)
        return ast.BinOp(left, self.visit(node.op), right)

    def visit_Compare(self, node: ast.Compare) -> ast.expr:
        for operator, right in zip(node.ops, node.comparators):
            is_identity = isinstance(operator, (ast.Is, ast.IsNot))
            if is_identity and not (
                isinstance(right, ast.Constant) and type(right.value) in _SINGLE
            ):
                self._refuse("`is` with anything but None, True and False")
        operands = [node.left, *node.comparators]
        self._allowed.update(operands)
        made = [self.visit(operand) for operand in operands]
        for number, operator in enumerate(node.ops):
            if isinstance(operator, (ast.Eq, ast.NotEq, ast.In, ast.NotIn)):
                for one, other in ((number, number + 1), (number + 1, number)):
                    if _is_plain(operands[other]) and not _is_plain(operands[one]):
                        made[one] = self._call("no time", _no_time, made[one])
        return ast.Compare(made[0], node.ops, made[1:])

    def visit_Set(self, node: ast.Set | ast.SetComp) -> ast.expr:
        if node not in self._allowed:
            self._refuse("{…}", "set")
        return self._visit_children(node)

    def visit_SetComp(self, node: ast.SetComp) -> ast.expr:
        return self.visit_Set(node)

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.expr:
        if node not in self._allowed:
            self._refuse("(… for …)", "generator")
        return self._visit_children(node)

    def visit_comprehension(self, node: ast.comprehension) -> ast.comprehension:
        for part in ast.walk(node.target):
            if not isinstance(part, (ast.Name, ast.Tuple, ast.List, ast.expr_context)):
                self._refuse(f"`for {ast.unparse(node.target)}`")
        in_order, target = partial(_in_order, target=node.target), ast.unparse(node.target)
        node.iter = self._call(f"for {target} in", in_order, self.visit(node.iter))
        node.ifs = [self.visit(condition) for condition in node.ifs]
        if node.is_async:
            self._refuse("async")
        return node

    def visit_Dict(self, node: ast.Dict) -> ast.expr:
        if None in node.keys:
            self._refuse("** before a value")
        return self._visit_children(node)

    def visit_FormattedValue(self, node: ast.FormattedValue) -> ast.expr:
        parts = node.format_spec.values if isinstance(node.format_spec, ast.JoinedStr) else []
        spec = "".join(str(getattr(part, "value", "{")) for part in parts)
        if node.conversion not in (-1, ord("s")) or not _SPEC.fullmatch(spec):
            self._refuse(f"the format of {ast.unparse(node.value)} in an f-string")
        value = self._call("f-string", _formatted, self.visit(node.value), ast.Constant(spec))
        return ast.FormattedValue(value, -1)

    def _visit_children(self, node: ast.expr) -> ast.expr:
        """Visit all parts of a node."""
        made: ast.expr = super().generic_visit(node)  # type: ignore[assignment]  # it returns the node
        return made


def _is_plain(node: ast.expr) -> bool:
    """Return whether a node is text or a number, or a list of such."""
    if isinstance(node, (ast.List, ast.Set, ast.Tuple)):
        return any(map(_is_plain, node.elts))
    if isinstance(node, ast.UnaryOp):
        return _is_plain(node.operand)
    return isinstance(node, ast.Constant) and isinstance(node.value, (str, int, float))


def _dotted(node: ast.expr) -> str:
    """Return ``a.b.c`` for names with dots; else an empty string."""
    if isinstance(node, ast.Attribute):
        owner = _dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return node.id if isinstance(node, ast.Name) else ""


def _dtype_name(node: ast.expr) -> ast.expr:
    """Return the name of a dtype that is written as a type, as text."""
    name = _dotted(node)
    if name.startswith("np.") and name in MODULE_FUNCTIONS:
        name = name.removeprefix("np.")
    elif name not in ("bool", "float", "int"):
        return node
    return ast.Constant({"int": "int64", "float": "float64"}.get(name, name))
