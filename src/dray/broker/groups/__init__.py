"""Consumer groups: the coordinators as pure state machines, the assignors, and what runs them.

`consumer/` is the KIP-848 protocol, `classic/` the older one where clients assign among themselves. Both are
functions from a state and an event to a new state, an answer and effects: no clock, no storage, no tasks.
"""
