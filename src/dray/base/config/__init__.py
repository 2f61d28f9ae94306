"""How rooms say what an operator may set (`setting`), and of which kinds that is (`kinds`).

`dray.daemons.config` puts their settings together, and reads them.
"""
