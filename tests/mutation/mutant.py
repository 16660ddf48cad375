"""One mutant as mutmut wrote it: what it changes, and whether it changes words only.

Words are the texts of errors and log lines: the tests pin the texts that a program may rely on, and
changes of other texts are not counted. Neither are those of a type in a `cast`, of `strict` in a
`zip`, and of the encoding of text.
"""

import ast
import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import unified_diff

import txlog.errors

SPEAKING = {name for name in vars(txlog.errors) if name[0].isupper()} | {
    *("ValueError", "TypeError", "RuntimeError", "OSError", "FileExistsError", "LookupError"),
    *("debug", "info", "warning", "error", "exception", "warn"),
}
"""Calls whose arguments are words: errors and log lines."""

ASSUMED = {"zip": "strict", "open": "encoding", "encode": "encoding", "decode": "encoding"}
"""Calls with an argument that changes nothing if the program has no bug, and text is UTF-8."""

ORIGINAL = "orig"
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Mutant:
    """A changed function."""

    name: str
    """What mutmut calls it, with its module."""
    function: str
    """The name of the changed function, with its class."""
    removed: tuple[str, ...]
    added: tuple[str, ...]
    words_only: bool
    """Whether it changes the text of an error, but not the behaviour of the program."""

    def __str__(self) -> str:
        lines = [f"  - {line}" for line in self.removed] + [f"  + {line}" for line in self.added]
        return "\n".join([f"{self.function} ({self.name})", *lines])


def mutants_of(module: str, mutated: str) -> Mapping[str, Mutant]:
    """The mutants in the text of a module that mutmut has rewritten, by name."""
    variants: dict[str, dict[str, Function]] = {}
    for node in ast.walk(ast.parse(mutated)):
        if isinstance(node, Function) and "__mutmut_" in node.name:
            function, _, number = node.name.rpartition("__mutmut_")
            variants.setdefault(function, {})[number] = node
    return {one.name: one for group in variants.items() for one in _of_function(module, *group)}


def _of_function(module: str, mangled: str, variants: dict[str, Function]) -> Iterator[Mutant]:
    original = variants.pop(ORIGINAL)
    lines, plain = _lines(original), _without_words(original)
    for number, changed in variants.items():
        changes = list(unified_diff(lines, _lines(changed), n=0))[2:]
        yield Mutant(
            name=f"{module}.{mangled}__mutmut_{number}",
            function=mangled.removeprefix("x_").removeprefix("xǁ").replace("ǁ", "."),
            removed=tuple(line[1:].strip() for line in changes if line.startswith("-")),
            added=tuple(line[1:].strip() for line in changes if line.startswith("+")),
            words_only=_without_words(changed) == plain,
        )


def _lines(function: Function) -> list[str]:
    renamed = copy.copy(function)
    renamed.name = "f"
    return ast.unparse(renamed).splitlines()


def _without_words(function: Function) -> str:
    plain = _Speechless().visit(copy.deepcopy(function))
    plain.name = "f"
    return ast.dump(plain)


class _Speechless(ast.NodeTransformer):
    """Removes the words from a function, the types from its casts, and what is assumed."""

    def visit_Raise(self, node: ast.Raise) -> ast.Raise:
        if isinstance(node.exc, ast.Call):
            node.exc.args, node.exc.keywords = [], []
        node.cause = None
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.Call:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        called = node.func.id if isinstance(node.func, ast.Name) else called
        if called in SPEAKING:
            node.args, node.keywords = [], []
        if called == "cast":
            node.args = node.args[1:]
        if called in ASSUMED:
            node.keywords = [one for one in node.keywords if one.arg != ASSUMED[called]]
        self.generic_visit(node)
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        # Only sentences contain a space: no key, name or format of the product does.
        is_sentence = isinstance(node.value, str) and " " in node.value.strip()
        return ast.Constant("") if is_sentence else node
