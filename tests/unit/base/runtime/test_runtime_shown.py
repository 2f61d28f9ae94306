"""What others choose is shown without doing anything to a page or a terminal."""

from __future__ import annotations

import unicodedata

from dray.base.runtime.shown import printable


def test_no_control_character_comes_through() -> None:
    every = "".join(map(chr, range(0x250))) + "\u200b\u2028\u2029\u202e\u2066\ufeff"
    for lines in (True, False):
        shown = printable(every, lines=lines)
        odd = {
            character for character in shown if unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp")
        }
        assert odd == ({"\t", "\n"} if lines else set())


def test_a_text_cannot_move_the_cursor_or_break_a_row() -> None:
    assert printable("a\x1b[2Jb\nc\td\re\x9bf\u202eg") == "a\\x1b[2Jb\\nc\\td\\re\\x9bf\\u202eg"
    assert printable("Zürich ☃ [bold]x[/bold]") == "Zürich ☃ [bold]x[/bold]"
