"""Objects read by a fixed statement: for what every request asks for, building a query costs more than running it."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

from django.db import connection
from django.db.models import Model

M = TypeVar("M", bound=Model)


class Columns(Generic[M]):
    """The columns of a model under an alias, and the object that their values make."""

    def __init__(self, model: type[M], alias: str) -> None:
        self._model, self._alias = model, alias

    @cached_property
    def sql(self) -> str:
        return ", ".join(f'{self._alias}."{field.column}"' for field in self._model._meta.concrete_fields)

    def __len__(self) -> int:
        return len(self._model._meta.concrete_fields)

    def made(self, values: Sequence[Any]) -> M:
        """The object, as a query set would give it. `values` come through Django's connection."""
        read = list(values)
        for place, converters in self._converted:
            for convert in converters:
                read[place] = convert(read[place], None, connection)
        names = [field.attname for field in self._model._meta.concrete_fields]
        return self._model.from_db(connection.alias, names, read)

    @cached_property
    def _converted(self) -> list[tuple[int, list[Any]]]:
        found = enumerate(field.get_db_converters(connection) for field in self._model._meta.concrete_fields)
        return [(place, converters) for place, converters in found if converters]
