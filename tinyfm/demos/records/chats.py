"""Conversations: messages of a system, a user and an assistant."""

import reprlib
from pathlib import Path
from typing import NamedTuple

from tinyfm.demos.records.reading import (
    Fields,
    Place,
    Reading,
    Records,
    field,
    json_object,
    numbered_lines,
    text,
)
from tinyfm.errors import InputError
from tinyfm.objectives.causal_lm import ROLES

Message = dict[str, str]  # {"role": one of ROLES, "content": text}


class Chat(NamedTuple):
    """A conversation. kind: what sort it is, where that is known."""

    messages: tuple[Message, ...]
    kind: str = ""


def read_chats(path: str | Path, *, skip: bool = False) -> Records[Chat]:
    """Read JSON lines of {"messages": [{"role": ..., "content": ...}, ...]}.

    Raises InputError, naming file and line: no JSON, no list of messages, a role that is not
    system, user or assistant, a blank content, no turn of the assistant, no record at all, and all
    that `read_lines` raises.
    """
    reading = Reading(path, skip)
    rows = reading.step(numbered_lines(path), json_object)
    return reading.done(reading.step(rows, _chat))


def _chat(fields: Fields, place: Place) -> Chat:
    given = field(fields, "messages", place)
    if not isinstance(given, list) or not given:
        raise InputError(f"{place}: 'messages' is no list of messages; write it as [{{...}}, ...]")
    messages = tuple(_message(message, place) for message in given)
    if all(message["role"] != "assistant" for message in messages):
        raise InputError(f"{place}: no turn of the assistant, so that there is nothing to learn; "
                         "add one or leave the record out")  # fmt: skip
    return Chat(messages)


def _message(message: object, place: Place) -> Message:
    if not isinstance(message, dict):
        raise InputError(
            f"{place}: message {reprlib.repr(message)} is no object; write it as "
            '{"role": ..., "content": ...}'
        )
    role = field(message, "role", place)
    if role not in ROLES:
        raise InputError(
            f"{place}: role {reprlib.repr(role)} is unknown; use one of {', '.join(ROLES)}"
        )
    return {"role": role, "content": text(field(message, "content", place), "content", place)}
