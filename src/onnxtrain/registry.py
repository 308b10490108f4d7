"""The common form of the four tables: gradient rules, rewritings, losses, optimizers.

Each entry is a small pure function (or value) found by name. A second registration of a name raises. The error for an
unknown name lists the nearest and all known names.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeVar, cast

from onnxtrain.cache import clear_caches
from onnxtrain.errors import OnnxTrainError, ParameterError

T = TypeVar("T")
#: The type of an entry, so that a type checker sees a decorated class unchanged.
E = TypeVar("E")


#: The characters of all known names from which a message lists only the nearest, and how many it lists then.
_LONG, _SHOWN = 700, 12


def did_you_mean(name: object, known: Iterable[str], synonyms: Mapping[str, str] = MappingProxyType({})) -> str:
    """Return the end of an error message that lists the nearest known name, then the known names.

    `synonyms` maps names of other libraries, in lower-case letters and digits, to our names; they take precedence over
    similar names.

    Examples
    --------
    >>> did_you_mean("sqared_error", ["squared_error", "huber"])
    "Did you mean 'squared_error'? Known: huber, squared_error."
    >>> did_you_mean("MSE", ["squared_error", "huber"], {"mse": "squared_error"})
    "Did you mean 'squared_error'? Known: huber, squared_error."
    """
    names = sorted(set(known))
    folded = {n.casefold(): n for n in names}  # 'x' is near 'X'
    same = synonyms.get("".join(filter(str.isalnum, str(name).casefold())))
    near = [same] if same in names else difflib.get_close_matches(str(name).casefold(), folded, n=1)
    hint = f"Did you mean {folded.get(near[0], near[0])!r}? " if near else ""
    some = names
    if sum(map(len, names)) > _LONG:
        some = sorted(difflib.get_close_matches(str(name), names, n=_SHOWN, cutoff=0))
    others = f" and {len(names) - len(some)} others" if len(some) < len(names) else ""
    return f"{hint}Known: {', '.join(some) or 'none'}{others}."


def is_of_package(definition: object) -> bool:
    """Whether a function or a class is of this package; a user's function may read anything."""
    return (getattr(definition, "__module__", None) or "").partition(".")[0] == "onnxtrain"


def _shown(made_of: object) -> str:
    """Return the module and name of a function or a class; the representation of any other entry."""
    name = getattr(made_of, "__qualname__", None)
    return repr(made_of) if name is None else f"{getattr(made_of, '__module__', '')}.{name}"


def code_of(definition: object) -> object:
    """Return an identity of a function or class: its code and the constants in it."""
    if isinstance(definition, type):
        parts = {name: part for name, part in vars(definition).items() if name not in _NO_TEXT}
        return definition.__qualname__, {name: code_of(getattr(part, "fget", part)) for name, part in parts.items()}
    return getattr(definition, "__code__", None) or repr(definition)


#: Attributes of a class that depend on where and when it was defined.
_NO_TEXT = frozenset({"__dict__", "__weakref__", "__abstractmethods__", "_abc_impl", "__dataclass_fields__"})


class Registry(Mapping[str, T]):
    """A table of named entries.

    Parameters
    ----------
    kind : str
        The noun for an entry in messages: ``"loss"``, ``"gradient rule"``.
    error : type
        The error that :meth:`find` raises for an unknown name.
    synonyms : mapping of str to str
        Names of other libraries for this error, as for :func:`did_you_mean`.

    Examples
    --------
    >>> from onnxtrain.errors import LossError
    >>> shapes = Registry("shape", LossError)
    >>> @shapes.register("circle", "disc")
    ... def circle(radius):
    ...     return 3.14 * radius**2
    >>> shapes.find("disc") is circle
    True
    """

    def __init__(self, kind: str, error: type[OnnxTrainError], synonyms: Mapping[str, str] = MappingProxyType({})):
        self.kind = kind
        self.error = error
        self.synonyms = synonyms
        self._entries: dict[str, T] = {}
        self._definitions: dict[str, object] = {}

    def register(self, *names: str, override: bool = False, definition: object = None) -> Callable[[E], E]:
        """Return a decorator that registers its argument under all `names`.

        Parameters
        ----------
        *names : str
        override : bool
            Whether to replace another entry of this name. The same source may always be registered again, as when a
            notebook cell is run twice.
        definition : function or class, optional
            The source of the entry, if it is not the entry itself.
        """
        self.check_names(names)

        def decorate(entry: E) -> E:
            made_of = entry if definition is None else definition
            if definition is not None and not callable(definition):
                raise ParameterError(f"The {self.kind} {names[0]!r} must be a function, got {definition!r:.80}.")
            for name in names:
                if name in self._entries and not override and code_of(self._definitions[name]) != code_of(made_of):
                    raise ParameterError(
                        f"The {self.kind} {name!r} is already registered: {_shown(self._definitions[name])}. "
                        "Pass override=True to replace it."
                    )
            self._entries.update(dict.fromkeys(names, cast(T, entry)))
            clear_caches()  # cached results may use the former entry
            self._definitions.update(dict.fromkeys(names, made_of))
            return entry

        return decorate

    def check_names(self, names: Sequence[object]) -> None:
        """Raise if there is no name, or one is not a string, as when a decorator is used without parentheses."""
        for name in names:
            if not isinstance(name, str):
                bare = ' Give the decorator the name in parentheses: ("name").' if callable(name) else ""
                if isinstance(name, (list, tuple)) and name:
                    bare = f" Pass them one by one: {', '.join(map(repr, name))}."
                if hasattr(name, "SerializeToString"):
                    bare = " The decorator registers a function. For the gradient of a model, use onnx_derivative(onx)."
                raise ParameterError(f"The name of a {self.kind} must be a string, got {name!r:.80}.{bare}")
            if not name:
                raise ParameterError(f"The name of a {self.kind} must not be empty.")
        if not names:
            raise ParameterError(f"A {self.kind} must be registered under a name. Pass one or more names.")

    def unregister(self, name: str) -> None:
        """Remove the entry named `name`.

        Raises
        ------
        OnnxTrainError
            There is no such entry. The class of the error is the same as in :meth:`find`.
        """
        self.find(name)
        del self._entries[name], self._definitions[name]
        clear_caches()

    def find(self, name: str) -> T:
        """Return the entry named `name`; raise an error that proposes the nearest name if there is none."""
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise self.error(f"Unknown {self.kind} {name!r}. {self.hint(name)}") from None

    def hint(self, name: object) -> str:
        """Return the end of a message about an unknown name: the nearest name, and all names."""
        return did_you_mean(name, self._entries, self.synonyms)

    def __getitem__(self, name: str) -> T:
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Registry({self.kind!r}, {len(self)} entries)"
