"""Consumer groups that come from a source: a migrator follows them (`follower.py`) and keeps copies in the
store (`copy.py`, `copies.py`); the coordinator lets such a group in once it has moved (`gate.py`).
"""
