"""The straight-line code that reads and writes one struct.

A struct gets up to two bodies, one for its flexible versions and one for the older ones, so that no field
asks again which encoding is in force. Within a body, neighbouring fields of fixed size that exist in the
same versions are packed and unpacked in one step, together with an empty section of tagged fields.
"""

from __future__ import annotations

from collections.abc import Iterator

from tools.generator.schema import FIXED, NUMBERS, STRUCT, Field, Message, Struct
from tools.generator.source import Source, condition, is_default, is_set, literal, local, optional, snake_case


class Body:
    """One encoding (flexible or not) of one struct."""

    def __init__(self, source: Source, struct: Struct, versions: set[int], flexible: bool, least: Least):
        self._source = source
        self._struct = struct
        self._versions = versions
        self._flexible = flexible
        self._least = least
        self._compact = "compact_" if flexible else ""
        present = [field for field in struct.fields if field.versions & versions]
        self._plain = [field for field in present if field.tag is None]
        self._tagged = sorted(
            (field for field in present if field.tag is not None), key=lambda field: field.tag or 0
        )

    # Reading

    def read(self) -> None:
        line = self._source.line
        tags_read = False
        blocks = list(self._blocks())
        for index, (test, fields) in enumerate(blocks):
            with self._source.block(f"if {test}:" if test else None):
                runs = list(self._runs(fields))
                for place, run in enumerate(runs):
                    if not run[0].fixed:
                        self._read_field(run[0])
                        continue
                    final = test is None and index == len(blocks) - 1 and place == len(runs) - 1
                    tags_read = self._flexible and final
                    self._read_run(run, with_tags=tags_read)
            if test:
                with self._source.block("else:"):
                    for field in fields:
                        line(f"{local(field)} = {literal(field)}")
        if self._flexible:
            self._read_tags(tags_read)
        arguments = ", ".join(
            local(field) if field.versions & self._versions else literal(field)
            for field in self._struct.fields
        )
        line(f"return {self._struct.name}({arguments}), position")

    def _read_run(self, run: list[Field], with_tags: bool) -> None:
        line = self._source.line
        targets = [local(field) for field in run] + (["tags"] if with_tags else [])
        name, size = run_format(run, "B" if with_tags else "")
        line(f"{', '.join(targets)}{',' if len(targets) == 1 else ''} = unpack_{name}(buffer, position)")
        line(f"position += {size}")
        for field in run:
            if field.kind == "uuid":
                line(f"{local(field)} = make_uuid({local(field)})")

    def _read_field(
        self, field: Field, target: str | None = None, place: str = "position", limit: str = "limit"
    ) -> None:
        """Read one field of variable size (or a tagged one of any kind) and move `place` past it."""
        line = self._source.line
        target = target or local(field)
        among = field.versions & self._versions
        if field.array:
            self._read_array(field, target, place, limit)
        elif field.kind == STRUCT:
            call = f"{field.struct}.read(buffer, {place}, {limit}, version)"
            if field.tag is None and field.nullable & among:
                self._no_partial_nullability(field, among)
                with self._source.block(f"if buffer[{place}] == 0xFF:"):
                    line(f"{target} = None")
                    line(f"{place} += 1")
                with self._source.block(f"elif buffer[{place}] == 1:"):
                    line(f"{target}, {place} = {call.replace(place, place + ' + 1', 1)}")
                with self._source.block("else:"):
                    line(f'raise DecodeError("{self._struct.name}.{field.name} has an unknown marker")')
            else:
                line(f"{target}, {place} = {call}")
        elif field.kind in FIXED:
            name, size = run_format([field])
            line(f"{target}, = unpack_{name}(buffer, {place})")
            line(f"{place} += {size}")
            if field.kind == "uuid":
                line(f"{target} = make_uuid({target})")
        else:
            reader = self._helper("read", field, field.kind, among)
            line(f"{target}, {place} = {reader}(buffer, {place}, {limit})")

    def _read_array(self, field: Field, target: str, place: str, limit: str) -> None:
        line = self._source.line
        among = field.versions & self._versions
        reader = self._helper("read", field, "count", among)
        line(f"count, {place} = {reader}(buffer, {place}, {limit}, {self._least_element(field)})")
        nullable = bool(field.nullable & among)
        if nullable:
            with self._source.block("if count < 0:"):
                line(f"{target} = None")
        with self._source.block("else:" if nullable else None):
            if field.kind in NUMBERS:
                code, size = NUMBERS[field.kind]
                line(f'{target}, {place} = read_numbers(buffer, {place}, "{code}", {size}, count)')
            elif field.kind == "uuid":
                line(f"{target}, {place} = read_uuids(buffer, {place}, count)")
            else:
                line(f"{target} = []")
                with self._source.block("for _ in range(count):"):
                    element = self._element(field)
                    if field.kind == STRUCT:
                        line(f"{element}, {place} = {field.struct}.read(buffer, {place}, {limit}, version)")
                    else:
                        line(
                            f"{element}, {place} = read_{self._compact}{field.kind}(buffer, {place}, {limit})"
                        )
                    line(f"{target}.append({element})")

    def _read_tags(self, tags_read: bool) -> None:
        line = self._source.line
        if not tags_read:
            line("tags = buffer[position]")
            line("position += 1")
        for field in self._tagged:
            line(f"{local(field)} = {literal(field)}")
        with self._source.block("if tags:"):
            if not self._tagged:
                line("position = skip_tags(buffer, position - 1, limit)")
                return
            line("tags, position = read_tag_count(buffer, position - 1, limit)")
            line("tag = -1")
            with self._source.block("for _ in range(tags):"):
                line("tag, start, end = read_tag(buffer, position, limit, tag)")
                for number, field in enumerate(self._tagged):
                    test = condition(field.versions, self._versions)
                    word = "elif" if number else "if"
                    with self._source.block(f"{word} tag == {field.tag}{f' and {test}' if test else ''}:"):
                        self._read_field(field, place="start", limit="end")
                with self._source.block("else:"):
                    line("start = end")
                with self._source.block("if start != end:"):
                    line(f'raise DecodeError("a tagged field of {self._struct.name} has the wrong size")')
                line("position = end")

    # Writing

    def write(self) -> None:
        line = self._source.line
        tags_written = False
        blocks = list(self._blocks())
        for index, (test, fields) in enumerate(blocks):
            with self._source.block(f"if {test}:" if test else None):
                runs = list(self._runs(fields))
                for place, run in enumerate(runs):
                    if not run[0].fixed:
                        self._write_field(run[0])
                        continue
                    final = test is None and index == len(blocks) - 1 and place == len(runs) - 1
                    tags_written = self._flexible and final and not self._tagged
                    name, _ = run_format(run, "x" if tags_written else "")
                    line(f"out += pack_{name}({', '.join(_packed(field) for field in run)})")
        if not self._flexible or tags_written:
            if not blocks:
                line("pass")
            return
        if not self._tagged:
            line("out.append(0)")
            return
        with self._source.block(f"if {' and '.join(is_default(f, f'self.{f.name}') for f in self._tagged)}:"):
            line("out.append(0)")
            line("return")
        line("tagged: list[tuple[int, bytearray]] = []")
        for field in self._tagged:
            test = condition(field.versions, self._versions)
            present = is_set(field, f"self.{field.name}")
            with self._source.block(f"if {present}{f' and {test}' if test else ''}:"):
                line("value = bytearray()")
                self._write_field(field, out="value")
                line(f"tagged.append(({field.tag}, value))")
        line("write_tags(out, tagged)")

    def _write_field(self, field: Field, out: str = "out") -> None:
        line = self._source.line
        among = field.versions & self._versions
        attribute = f"self.{field.name}"
        if field.array:
            self._write_array(field, out)
        elif field.kind == STRUCT:
            if field.tag is None and field.nullable & among:
                self._no_partial_nullability(field, among)
                with self._source.block(f"if {attribute} is None:"):
                    line(f"{out}.append(0xFF)")
                with self._source.block("else:"):
                    line(f"{out}.append(1)")
                    line(f"{attribute}.write({out}, version, cuts)")
            else:
                line(f"{attribute}.write({out}, version, cuts)")
        elif field.kind in FIXED:
            name, _ = run_format([field])
            line(f"{out} += pack_{name}({_packed(field)})")
        else:
            writer = self._helper("write", field, field.kind, among)
            more = ", cuts" if field.kind == "records" else ""
            line(f"{writer}({out}, {attribute}{more})")

    def _write_array(self, field: Field, out: str) -> None:
        line = self._source.line
        among = field.versions & self._versions
        attribute = f"self.{field.name}"
        element = self._element(field)
        if field.nullable:
            refused = condition(among - field.nullable, among) if among - field.nullable else "never"
            with self._source.block(f"if {attribute} is None:"):
                if refused != "never":
                    with self._source.block(f"if {refused}:" if refused else None):
                        line(f'raise EncodeError("{field.name} is null, which this version does not allow")')
                if refused is not None:
                    line(f"{out} += {'bytes(1)' if self._flexible else repr(bytes([255] * 4))}")
        with self._source.block("else:" if field.nullable else None):
            line(f"write_{self._compact}count({out}, len({attribute}))")
            if field.kind in NUMBERS:
                line(f'write_numbers({out}, "{NUMBERS[field.kind][0]}", {attribute})')
            elif field.kind == "uuid":
                line(f"write_uuids({out}, {attribute})")
            elif field.kind == STRUCT:
                with self._source.block(f"for {element} in {attribute}:"):
                    line(f"{element}.write({out}, version, cuts)")
            else:
                with self._source.block(f"for {element} in {attribute}:"):
                    line(f"write_{self._compact}{field.kind}({out}, {element})")

    # What both need

    def _blocks(self) -> Iterator[tuple[str | None, list[Field]]]:
        """Neighbouring fields that exist in the same versions, with the test for those versions."""
        block: list[Field] = []
        for field in self._plain:
            if block and condition(block[0].versions, self._versions) != condition(
                field.versions, self._versions
            ):
                yield condition(block[0].versions, self._versions), block
                block = []
            block.append(field)
        if block:
            yield condition(block[0].versions, self._versions), block

    def _runs(self, fields: list[Field]) -> Iterator[list[Field]]:
        """Neighbouring fields of fixed size; every other field on its own."""
        run: list[Field] = []
        for field in fields:
            if run and not (run[-1].fixed and field.fixed):
                yield run
                run = []
            run.append(field)
        if run:
            yield run

    def _helper(self, verb: str, field: Field, kind: str, among: set[int]) -> str:
        """The function of `wire` for this field, chosen by version where only some versions allow null."""
        strict = f"{verb}_{self._compact}{kind}"
        lenient = f"{verb}_{self._compact}nullable_{kind}"
        nullable = field.nullable & among
        if not nullable:
            return strict
        test = condition(nullable, among)
        return lenient if test is None else f"({lenient} if {test} else {strict})"

    def _element(self, field: Field) -> str:
        """The name of one element of an array; it differs by type, so that mypy can follow."""
        name = snake_case(field.struct) if field.struct else f"{field.kind}_value"
        return name + "_" if name in {local(other) for other in self._struct.fields} else name

    def _least_element(self, field: Field) -> str:
        """The fewest bytes of one element, as an expression of the version where versions differ."""
        expression = ""
        previous = None
        for version in sorted(field.versions & self._versions):
            size = self._least.element(field, version)
            if size < 1:
                raise ValueError(f"{field.struct} may be empty, so no count of it can be bounded")
            if size != previous:
                expression = f"{size} if version >= {version} else {expression}" if expression else str(size)
            previous = size
        return expression

    def _no_partial_nullability(self, field: Field, among: set[int]) -> None:
        if not among <= field.nullable:
            raise ValueError(f"{self._struct.name}.{field.name} is nullable in some versions only")


def run_format(run: list[Field], ending: str = "") -> tuple[str, int]:
    """The name of the packing functions for a run of fixed fields, and its size in bytes."""
    codes = "".join(_CODE_NAMES[field.kind] for field in run)
    return codes + ending, sum(FIXED[field.kind][1] for field in run) + len(ending)


_CODE_NAMES = {kind: {"16s": "u", "?": "o"}.get(code, code) for kind, (code, _) in FIXED.items()}


def struct_format(name: str) -> str:
    """The `struct` format behind a name made by `run_format`."""
    return ">" + name.replace("u", "16s").replace("o", "?")


class Least:
    """The fewest bytes that a value can take in a version: what bounds the count of an array."""

    def __init__(self, message: Message) -> None:
        self._structs = {struct.name: struct for struct in message.structs}
        self._flexible = message.flexible

    def element(self, field: Field, version: int) -> int:
        """Of one element of an array (or of the field itself, if it is none)."""
        if field.kind == STRUCT:
            assert field.struct is not None
            return self._struct(field.struct, version)
        if field.kind in FIXED:
            return FIXED[field.kind][1]
        if version in self._flexible:
            return 1
        return 2 if field.kind == "string" else 4

    def _struct(self, name: str, version: int) -> int:
        flexible = version in self._flexible
        size = int(flexible)
        for field in self._structs[name].fields:
            if version not in field.versions or field.tag is not None:
                continue
            if field.array:
                size += 1 if flexible else 4
            elif field.kind == STRUCT and version in field.nullable:
                size += 1
            else:
                size += self.element(field, version)
        return size


def _packed(field: Field) -> str:
    return f"self.{field.name}.bytes" if field.kind == "uuid" else f"self.{field.name}"


def needs_declaration(field: Field) -> bool:
    """Whether mypy must be told the type of the local, since its first value does not show it."""
    return field.array or optional(field) or field.tag is not None or field.kind == "uuid"
