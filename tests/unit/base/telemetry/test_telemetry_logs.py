from __future__ import annotations

import asyncio
import io
import json
import logging
from random import Random
from typing import Any

import pytest
import structlog

from dray.base.runtime import SystemRuntime
from dray.base.telemetry import bind_request, configure_logging, current_request
from dray.base.telemetry.logs import WARNINGS_A_MINUTE


class FixedRuntime(SystemRuntime):
    now = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.random = Random(1)

    def wall_ms(self) -> int:
        return 1_700_000_000_123

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def set_up():
    """Configures logging into a buffer."""
    output = io.StringIO()

    def configure(format="json", level="info"):
        configure_logging(format, level, FixedRuntime(), output)
        return output

    return configure


def lines(output: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_json_line_says_when_what_where_and_how_bad(set_up):
    output = set_up()
    structlog.get_logger("dray.room").warning("it broke", stream=7)
    assert lines(output) == [
        {
            "timestamp": "2023-11-14T22:13:20.123Z",
            "level": "warning",
            "logger": "dray.room",
            "event": "it broke",
            "stream": 7,
        }
    ]


def test_a_line_that_cannot_be_written_costs_nothing_else() -> None:
    """A terminal that is gone, or a pipe that nobody reads."""

    class Gone(io.StringIO):
        def flush(self) -> None:
            raise OSError("Input/output error")

    configure_logging("json", "info", FixedRuntime(), Gone())
    structlog.get_logger("dray.room").info("it goes on")
    structlog.get_logger("dray.room").exception("and on")
    logging.getLogger("library").warning("and on")


def test_every_line_of_a_request_names_it_and_lines_outside_do_not(set_up):
    output = set_up()
    log = structlog.get_logger("dray.room")

    async def request(number: int) -> None:
        bind_request(number, "Produce", "client", "10.0.0.1:5")
        await asyncio.sleep(0)
        log.info("first")
        await asyncio.sleep(0)
        log.info("second")

    async def scenario() -> None:
        await asyncio.gather(request(1), request(2))
        log.info("outside")

    asyncio.run(scenario())
    written = lines(output)
    assert [line.get("correlation_id") for line in written] == [1, 2, 1, 2, None]
    one, two = written[0], written[1]
    assert one["trace_id"] == written[2]["trace_id"], "one trace id for the whole request"
    assert one["trace_id"] != two["trace_id"]
    assert len(one["trace_id"]) == 32
    assert (one["api"], one["client_id"], one["peer"]) == ("Produce", "client", "10.0.0.1:5")
    assert "trace_id" not in written[4]


def test_a_trace_id_is_made_only_when_a_line_is_written(set_up):
    set_up()

    async def scenario() -> None:
        bind_request(1, "Fetch", None, "p")
        structlog.get_logger("x").debug("below the level")
        request = current_request()
        assert request is not None
        assert request.trace_id is None
        structlog.get_logger("x").info("now")
        assert request.trace_id is not None

    asyncio.run(scenario())


@pytest.mark.parametrize("format", ["json", "console"])
def test_secrets_are_masked_wherever_they_hide(set_up, format):
    output = set_up(format)
    structlog.get_logger("x").info(
        "settings",
        sasl_password="hunter2",
        config={"aws_secret_access_key": "hunter2", "inner": [{"Token": "hunter2"}], "region": "eu"},
        Credential="hunter2",
    )
    assert "hunter2" not in output.getvalue()
    assert "eu" in output.getvalue()


@pytest.mark.parametrize("format", ["json", "console"])
def test_a_traceback_shows_no_local_variables(set_up, format):
    output = set_up(format)

    def login(credential: str) -> None:
        raise KeyError("refused")

    try:
        login("hunter" + "2")
    except KeyError:
        structlog.get_logger("x").exception("failed")
    assert "refused" in output.getvalue()
    assert "Traceback" in output.getvalue()
    assert "hunter2" not in output.getvalue()


def test_other_libraries_write_the_same_lines(set_up):
    output = set_up()
    logging.getLogger("asyncio").warning("slow %s", "callback")
    (line,) = lines(output)
    assert (line["event"], line["logger"], line["level"]) == ("slow callback", "asyncio", "warning")


def test_the_level_is_kept_and_configuring_again_replaces(set_up):
    set_up(level="debug")
    output = set_up(level="error")
    structlog.get_logger("x").warning("no")
    logging.getLogger("x").warning("no")
    structlog.get_logger("x").error("yes")
    assert [line["event"] for line in lines(output)] == ["yes"]


@pytest.mark.parametrize(("format", "level"), [("xml", "info"), ("json", "chatty")])
def test_unknown_formats_and_levels_are_refused(set_up, format, level):
    with pytest.raises(ValueError, match="unknown"):
        set_up(format, level)


def test_a_console_line_is_for_people(set_up):
    output = set_up("console")
    structlog.get_logger("dray.room").info("listening", port=9092)
    assert "listening" in output.getvalue()
    assert "port=9092" in output.getvalue()
    assert "\x1b[" not in output.getvalue(), "no colours into a file"


UNPRINTABLE = [
    "\x1b[2Jname",
    "\x07",
    "a\x1b]0;b c\x07",
    "\x9b31m",
    "\u202egnp.exe",
    "\udc9b",
    "two\nlines",
    "\r",
    "\0",
]


class Odd:
    def __repr__(self) -> str:
        return "odd\x1b[2J"


@pytest.mark.parametrize("name", UNPRINTABLE)
def test_names_that_clients_choose_do_not_steer_a_terminal(set_up, name):
    output = set_up("console")
    log = structlog.get_logger("dray.room")

    async def request() -> None:
        bind_request(1, "Produce", name, "peer")
        log.info("in a request")

    asyncio.run(request())
    log.info("seen", name=name, names=[name], by={name: name}, odd=Odd())
    log.info(f"seen {name}")
    logging.getLogger("library").warning("of a library: %s", name)
    try:
        raise ValueError(name)
    except ValueError as error:
        log.exception("failed", error=error)
        log.error("failed", error=str(error), stack_info=True)
    written = output.getvalue()
    assert all(character.isprintable() for character in written.replace("\n", "")), repr(written)
    assert repr(name).strip("'") in written, "it is shown all the same"
    written.encode()


def test_text_that_can_be_shown_is_shown_as_it_is(set_up):
    output = set_up("console")
    structlog.get_logger("dray.room").info("größer", name="naïve→漢字", path="C:\\new")
    assert "größer" in output.getvalue()
    assert "name=naïve→漢字 path=C:\\new" in output.getvalue()


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error"])
def test_the_audit_log_is_written_at_any_level(set_up, level):
    output = set_up("json", level)
    for name in ("dray.audit", "dray.console.audit", "dray.room"):
        structlog.get_logger(name).info("seen")
        structlog.get_logger(name).bind(more=1).info("seen")
    expected = ["dray.audit"] * 2 + ["dray.console.audit"] * 2
    expected += ["dray.room"] * 2 if level in ("debug", "info") else []
    assert [line["logger"] for line in lines(output)] == expected


# --- how many lines


@pytest.mark.parametrize(("level", "a_minute"), [("warning", 10), ("error", 10), ("info", 60)])
def test_lines_of_one_event_have_a_rate_and_what_was_dropped_is_counted(set_up, level, a_minute):
    """A hundred a second for ten minutes, as many clients bring about while a store fails."""
    output = set_up()
    log = structlog.get_logger("dray.room")
    for _ in range(600):
        for number in range(100):
            getattr(log, level)("a request failed", number=number)
        FixedRuntime.now += 1
    log.warning("something else")
    *written, other = lines(output)
    assert len(written) in (11 * a_minute - 1, 11 * a_minute), "a minute's worth at once, then its rate"
    dropped = sum(line.get("more_since_the_last_line", 0) for line in written)
    assert 59_000 < len(written) + dropped <= 60_000
    assert other["event"] == "something else"


def test_events_of_two_rooms_do_not_take_each_others_room(set_up):
    output = set_up()
    for name in ("dray.one", "dray.two"):
        for _ in range(20):
            structlog.get_logger(name).warning("it broke")
    assert len(lines(output)) == 20


def test_an_audit_and_what_is_asked_for_at_level_debug_are_complete(set_up):
    output = set_up(level="debug")
    for _ in range(200):
        structlog.get_logger("dray.acls.audit").info("denied")
        structlog.get_logger("dray.room").debug("records were not appended")
    assert len(lines(output)) == 400


@pytest.mark.parametrize("room", ["uvicorn.error", "asyncio"])
def test_lines_of_other_libraries_have_a_rate_for_each_logger(set_up, room):
    output = set_up()
    for number in range(1000):
        logging.getLogger(room).warning("broken by client %d", number)
    assert len(lines(output)) == WARNINGS_A_MINUTE
    FixedRuntime.now += 60
    logging.getLogger(room).warning("broken")
    assert lines(output)[-1]["event"] == f"broken (more since the last line: {1000 - WARNINGS_A_MINUTE})"


@pytest.mark.parametrize("format", ["json", "console"])
def test_no_line_is_long_whatever_clients_choose(set_up, format):
    output = set_up(format)
    name = "x" * 100_000

    async def request() -> None:
        bind_request(1, "Produce", name, "10.0.0.1:5")
        log = structlog.get_logger("dray.broker.api")
        log.info("many", names=[name] * 5000, one=name, pairs={name: {name: name}}, error=ValueError(name))
        try:
            raise KeyError(name)
        except KeyError:
            log.exception("failed")
        logging.getLogger("asyncio").error(name)

    asyncio.run(request())
    assert len(output.getvalue()) < 60_000
    assert "Traceback" in output.getvalue(), "a traceback keeps its head,"
    assert "KeyError" in output.getvalue(), "and its reason"
