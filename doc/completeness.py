"""What the documentation must hold: every public name, no error instead of text, no link that leads nowhere."""

from __future__ import annotations

import inspect
import re
from collections.abc import Container, Iterable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import onnxtrain
from onnxtrain import errors, optim, rows, testing


def public_names() -> Iterator[str]:
    """Return every public name of the package, and of the classes among them every method and attribute."""
    for module in (onnxtrain, errors, optim, rows, testing):
        for name in getattr(module, "__all__", None) or defined_in(module):
            value = getattr(module, name)
            if callable(value):  # no module, no table
                yield f"{module.__name__}.{name}"
            if inspect.isclass(value):
                yield from (f"{module.__name__}.{name}.{member}" for member in members(value))


def defined_in(module) -> list[str]:
    """Return the public names that a module without ``__all__`` defines itself."""
    own = (name for name, value in vars(module).items() if getattr(value, "__module__", "") == module.__name__)
    return [name for name in own if not name.startswith("_")]


def members(cls: type) -> Iterator[str]:
    """Return the public methods and properties of a class, and the attributes that its docstring lists."""
    for name in dir(cls):
        if not name.startswith("_") and not _is_of_python(cls, name):
            value = inspect.getattr_static(cls, name)
            if isinstance(value, property) or callable(getattr(cls, name)):
                yield name
    section = re.search(
        r"^Attributes\n-+\n(.*?)(?=^[^\n]+\n-+$|\Z)", inspect.getdoc(cls) or "", re.DOTALL | re.MULTILINE
    )
    for names in re.findall(r"^(\w.*?)(?: :.*)?$", section[1] if section else "", re.MULTILINE):
        yield from names.split(", ")


def _is_of_python(cls: type, name: str) -> bool:
    home = next((base.__module__ for base in cls.__mro__ if name in vars(base)), "builtins")
    return home in ("builtins", "enum")


def undocumented(names: Iterable[str], inventory: Container[str]) -> list[str]:
    """Return the names that the inventory of the documentation lacks."""
    return sorted({name for name in names if name not in inventory})


def shown_errors(folder: Path) -> list[str]:
    """Return where a page reads ERROR or WARNING, as docutils and themes do if a part is missing, or shows markup.

    Code inside of bold or emphasized text is shown with its marks: docutils does not nest them.
    """
    return [
        f"{page.relative_to(folder)}:{number}: {line.strip()[:100]}"
        for page in sorted(folder.rglob("*.html"))
        for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1)
        if re.search(r"\b(ERROR|WARNING)\b|<(strong|em)>[^<]*``", line)
    ]


def hidden_arguments(folder: Path) -> list[str]:
    """Return the pages on which a class has the arguments ``*args, **kwargs``: no class of the package has them."""
    shown = re.compile(r'<dl class="py class">\s*<dt.*?</dt>', re.DOTALL)
    return [
        str(page.relative_to(folder))
        for page in sorted(folder.rglob("*.html"))
        for heading in shown.findall(page.read_text(encoding="utf-8"))
        if "*args,**kwargs" in re.sub(r"<[^>]+>|\s", "", heading)
    ]


class _Page(HTMLParser):
    """The anchors of a page, and the addresses that it refers to."""

    def __init__(self, path: Path):
        super().__init__()
        self.anchors: set[str] = set()
        self.addresses: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.anchors |= {value for name in ("id", "name") if (value := found.get(name))}
        self.addresses += [value for name in ("href", "src") if (value := found.get(name))]


def broken_links(folder: Path) -> list[str]:
    """Return the links, pictures and scripts of the pages that lead to no file, or to no anchor of a page."""
    pages = {path.resolve(): _Page(path) for path in folder.rglob("*.html") if "_static" not in path.parts}
    broken = set()
    for path, page in pages.items():
        for address in page.addresses:
            scheme, host, to, _, anchor = urlsplit(address)
            target = (path.parent / unquote(to)).resolve() if to else path
            known = pages.get(target)
            if (
                scheme
                or host
                or (target.exists() and (not anchor or known is None or unquote(anchor) in known.anchors))
            ):
                continue
            broken.add(f"{path.relative_to(folder.resolve())}: {address}")
    return sorted(broken)
