"""What the pages of classes, and the stub of the synchronous clients, show of what is wrapped.

Methods of the synchronous clients are assignments, ``send = wrap_waiting(Producer.send)``, and
``takes`` gives a method the parameters of another class, such as a consumer's options: in the
source they have neither parameters nor docstrings. They get those of what they wrap. A base that
nobody can import is left out.
"""

from copy import copy
from textwrap import fill
from typing import Any

from griffe import (
    Attribute,
    Class,
    Expr,
    ExprCall,
    ExprName,
    ExprSubscript,
    Extension,
    Function,
    GriffeLoader,
    Module,
    Parameters,
)


class Faces(Extension):
    """An extension of what reads the source."""

    def on_package(self, *, pkg: Module, loader: GriffeLoader, **_: Any) -> None:
        """See Extension: the whole package has been read."""
        if pkg.name != "rockhopper":
            return
        sync = pkg["client.sync"]
        faces = (pkg["client.consumer"], pkg["client.app.app"], *sync.modules.values())
        for module in faces:
            for cls in module.classes.values():
                for member in list(cls.members.values()):
                    _unwrap(cls, member, loader)
        homes = (pkg, sync)
        exported = {home[str(name)].canonical_path for home in homes for name in home.exports or ()}
        for path in exported:
            if isinstance(found := loader.modules_collection[path], Class):
                found.extra["site"]["hides_bases"] = any(
                    _is_ours(base) and base not in exported for base in map(_path, found.bases)
                )


def _path(base: str | Expr) -> str:
    return base if isinstance(base, str) else base.canonical_path


def _is_ours(path: str) -> bool:
    return path.startswith("rockhopper.")


def _unwrap(cls: Class, member: Any, loader: GriffeLoader) -> None:
    if isinstance(member, Attribute):
        model = _wrapped(member.value, loader)
        if isinstance(model, Function):
            method = Function(
                member.name,
                lineno=member.lineno,
                parameters=model.parameters,
                returns=_waited_for(model.returns),
                docstring=model.docstring,
            )
            cls.set_member(member.name, method)
    elif isinstance(member, Function):
        for decorator in member.decorators:
            if isinstance(model := _wrapped(decorator.value, loader), Class):
                _give_parameters(member, model, loader)


def _give_parameters(member: Function, model: Class, loader: GriffeLoader) -> None:
    """Show the parameters of *model*, with its docstring or those of its fields."""
    if member.extra["site"].get("is_unwrapped"):
        return
    member.extra["site"]["is_unwrapped"] = True
    init: Any = model.all_members["__init__"]
    _unwrap(model, init, loader)
    own = {each.name: each for each in member.parameters}
    member.parameters = Parameters(*(own.get(each.name, each) for each in init.parameters))
    member.docstring = member.docstring or init.docstring
    if member.docstring is not None and "dataclass" in model.labels:
        fields = {name: each.docstring for name, each in model.all_members.items()}
        lines = [
            fill(
                f"{each.name}: {said.value}", 90, initial_indent=" " * 4, subsequent_indent=" " * 8
            )
            for each in init.parameters
            if (said := fields.get(each.name)) is not None
        ]
        docstring = copy(member.docstring)
        docstring.value = "\n".join([docstring.value, "", "Args:", *lines])
        member.docstring = docstring


def _wrapped(value: Any, loader: GriffeLoader) -> Any:
    """What *value*, a call with one name of ours, is about."""
    if not (isinstance(value, ExprCall) and len(value.arguments) == 1):
        return None
    if not (isinstance(name := value.arguments[0], Expr) and _is_ours(name.canonical_path)):
        return None
    of, _, last = name.canonical_path.rpartition(".")
    found = loader.modules_collection[of].all_members[last]
    return found.final_target if found.is_alias else found


def _waited_for(returns: str | Expr | None) -> str | Expr | None:
    if isinstance(returns, ExprSubscript) and str(returns.left).startswith("Async"):
        returns = copy(returns)
        returns.left = ExprName("Iterator")
    return returns
