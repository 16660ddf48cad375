"""The project's own sources as data: modules, functions, comments and imports, by `ast`."""

import ast
import io
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TypeAlias

ROOT = Path(__file__).parents[1]
PRODUCT = ("txlog", "spark_plugin", "pyspark_txlog")
BESIDE = ("tests", "benchmarks", "examples")

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Definition: TypeAlias = Function | ast.ClassDef
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Import:
    """One imported module, or one `module.name` of a from-import, with its line."""

    target: str
    line: int
    in_function: bool
    types_only: bool


@dataclass(frozen=True)
class Module:
    """A source file."""

    path: Path

    @property
    def place(self) -> str:
        """The path below the root, for messages."""
        return self.path.relative_to(ROOT).as_posix()

    @property
    def name(self) -> str:
        """The name by which it is imported."""
        return self.place.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def text(self) -> str:
        """The source of the module."""
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the module."""
        return ast.parse(self.text)

    @cached_property
    def functions(self) -> tuple[Function, ...]:
        """Functions and methods at any depth."""
        kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
        return tuple(node for node in ast.walk(self.tree) if isinstance(node, kinds))

    @cached_property
    def comments(self) -> tuple[tuple[int, str], ...]:
        """(line, text) of every comment."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return tuple((t.start[0], t.string) for t in tokens if t.type == tokenize.COMMENT)

    @cached_property
    def docstrings(self) -> tuple[tuple[int, str], ...]:
        """(line, text) of every docstring."""
        owners = (node for node in ast.walk(self.tree) if isinstance(node, DOCUMENTED))
        return tuple(
            (owner.body[0].lineno, text) for owner in owners if (text := ast.get_docstring(owner))
        )

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        """Every import; those in functions and under TYPE_CHECKING are marked."""
        return tuple(_imports(self.tree, in_function=False, types_only=False))


def length(node: Definition) -> int:
    """The number of lines from the signature to the last line."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _imports(node: ast.AST, *, in_function: bool, types_only: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            for target in _targets(child):
                yield Import(target, child.lineno, in_function, types_only)
            continue
        inside = in_function or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        guarded = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        yield from _imports(child, in_function=inside, types_only=types_only or guarded)


def _targets(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [f"{node.module or ''}.{alias.name}" for alias in node.names]


@cache
def modules(*folders: str) -> tuple[Module, ...]:
    """Every source file below these folders of the project."""
    return tuple(module for folder in folders for module in _modules_of(folder))


@cache
def _modules_of(folder: str) -> tuple[Module, ...]:
    """Cached by folder, so that each file is parsed once."""
    return tuple(Module(path) for path in sorted((ROOT / folder).rglob("*.py")))


@cache
def product_graph() -> dict[str, frozenset[str]]:
    """Product module -> the product modules that it imports on loading."""
    names = {module.name for module in modules(*PRODUCT)}
    graph: dict[str, frozenset[str]] = {}
    for module in modules(*PRODUCT):
        loaded = (i.target for i in module.imports if not (i.in_function or i.types_only))
        found = (named for target in loaded if (named := nearest(target, names)))
        graph[module.name] = frozenset(found) - {module.name}
    return graph


def nearest(target: str, names: set[str]) -> str | None:
    """The module that `target` names or is defined in: `a.b` for `a.b.Name`."""
    while target and target not in names:
        target = target.rpartition(".")[0]
    return target or None
