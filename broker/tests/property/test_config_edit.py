"""Random documents and changes of broker.xml against a model of the document."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from understudy.config.edit import Add, Change, Edited, Remove, Set, edit
from understudy.config.model import Configuration
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError

#: Elements of an address setting with texts that the editor does not judge.
FIELDS = ("dead-letter-address", "expiry-address", "max-delivery-attempts", "redelivery-delay", "page-size-bytes")
_CHARACTERS = st.characters(codec="utf-8", exclude_categories=("Cc", "Cs"), exclude_characters="\ufffe\uffff")
TEXTS = st.text(_CHARACTERS, max_size=8)
#: Match -> field -> text; the order counts.
Model = dict[str, dict[str, str]]
MODELS = st.dictionaries(
    TEXTS.filter(lambda text: "'" not in text or '"' not in text),
    st.dictionaries(st.sampled_from(FIELDS), TEXTS, max_size=3),
    max_size=4,
)
SPACES = st.sampled_from(["", " ", "\n   ", "\n\n\t", "\r\n  "])
NOTES = st.sampled_from(["", "", "<!-- a > b -->", "<?p x?>"])


@st.composite
def documents(draw: st.DrawFn) -> tuple[bytes, Model]:
    """A document, and what is in it."""
    model = draw(MODELS)
    prefix = draw(st.sampled_from(["", "q:"]))
    spaces, notes = iter(lambda: draw(SPACES), None), iter(lambda: draw(NOTES), None)

    def element(name: str, content: str, attributes: str = "") -> str:
        if not content and draw(st.booleans()):
            return f"<{prefix}{name}{attributes}{draw(st.sampled_from(['', ' ']))}/>"
        return f"<{prefix}{name}{attributes}>{content}</{prefix}{name}>"

    def escaped(text: str) -> str:
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&#62;")

    def quoted(text: str) -> str:
        quote = draw(st.sampled_from("\"'"))
        return quote + escaped(text).replace(quote, "&#34;" if quote == '"' else "&apos;") + quote

    entries = ""
    for match, fields in model.items():
        inner = "".join(
            f"{next(spaces)}{next(notes)}{next(spaces)}{element(name, escaped(text))}" for name, text in fields.items()
        )
        entries += next(spaces) + next(notes) + next(spaces)
        entries += element("address-setting", inner + (next(spaces) if inner else ""), f" match={quoted(match)}")
    body = element("address-settings", entries + (next(spaces) if entries else ""))
    declared = f'xmlns{":q" if prefix else ""}="urn:activemq:core"'
    text = f"{draw(NOTES)}<{prefix}core {declared}>{next(spaces)}{body}{next(spaces)}</{prefix}core>\n"
    return draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + text.encode(), model


def read(data: bytes) -> Model:
    """The contents of a document, by lxml."""
    root = etree.fromstring(data)
    found: Model = {}
    for setting in root[0].iterchildren("{*}address-setting"):
        found[setting.get("match", "")] = {
            etree.QName(child).localname: _text(child) for child in setting.iterchildren("{*}*")
        }
    return found


def _text(xml: etree._Element) -> str:
    return "".join(str(part) for part in xml.xpath("text()"))


def stripped(model: Model) -> Model:
    """The model without white space around texts, which stays when they are changed."""
    return {match: {name: text.strip() for name, text in fields.items()} for match, fields in model.items()}


def edited(data: bytes, *changes: Change) -> Edited:
    def check(data: bytes, read_file: Callable[[str], bytes]) -> LoadedConfig:
        return LoadedConfig(Configuration())

    def read_file(name: str) -> bytes:
        raise FileNotFoundError

    return edit(data, changes, file="broker.xml", check=check, read_file=read_file, properties={})


def place(match: str, field: str | None = None) -> str:
    quote = '"' if "'" in match else "'"
    entry = f"core/address-settings/address-setting[@match={quote}{match}{quote}]"
    return entry if field is None else f"{entry}/{field}"


@given(documents(), st.data())
@settings(max_examples=300)
def test_the_result_is_that_of_the_model(document: tuple[bytes, Model], data: st.DataObject) -> None:
    start, model = document
    assert read(start) == model
    changes = list[Change]()
    for _ in range(data.draw(st.integers(1, 5))):
        match = data.draw(st.sampled_from([*model, "new"]))
        field = data.draw(st.sampled_from(FIELDS))
        kind = data.draw(st.sampled_from(["set", "remove field", "remove", "add"]))
        text = data.draw(TEXTS)
        if kind == "set":
            changes.append(Set(place(match, field), text))
            model.setdefault(match, {})[field] = text
        elif kind == "add" and field not in model.get(match, {}):
            changes.append(Add(place(match, field), text))
            model.setdefault(match, {})[field] = text
        elif kind == "remove field" and field in model.get(match, {}):
            changes.append(Remove(place(match, field)))
            del model[match][field]
        elif kind == "remove" and match in model:
            changes.append(Remove(place(match)))
            del model[match]
    found = edited(start, *changes)
    assert stripped(read(found.after)) == stripped(model)
    for note in (b"<!--", b"<?p"):
        if not any(isinstance(change, Remove) for change in changes):
            assert found.after.count(note) == start.count(note)


@given(documents(), st.data())
@settings(max_examples=300)
def test_an_undone_change_gives_the_first_bytes(document: tuple[bytes, Model], data: st.DataObject) -> None:
    start, model = document
    text = data.draw(TEXTS.filter(str.strip))
    if model and data.draw(st.booleans()):
        match = data.draw(st.sampled_from([*model]))
        for field, old in model[match].items():
            if old.strip() and not {"&", "<", ">"} & set(old):
                assert (
                    edited(start, Set(place(match, field), text), Set(place(match, field), old.strip())).after == start
                )
    added = "added"
    if added not in model and model:
        changes = (Add(place(added, "expiry-address"), text), Remove(place(added)))
        assert edited(start, *changes).after == start


@given(st.binary(max_size=200), TEXTS)
def test_arbitrary_documents_and_paths_have_documented_errors_only(data: bytes, path: str) -> None:
    for document, place in ((data, "core/name"), (b"<core><name>a</name></core>", path), (data, path)):
        try:
            edited(document, Set(place, "x"))
        except ConfigError:
            pass
