"""The console: a cluster in the browser. Pages are rendered here, from the views of `dray.inspection`."""

from dray.console.app import Console, ConsoleSettings, make_app, make_login_app

__all__ = ["Console", "ConsoleSettings", "make_app", "make_login_app"]
