"""The metadata store: its contract, its engines, and the schema of its keys."""

import os

# gRPC's handlers of fork crash the child while other threads are at work in gRPC: a third of Spark's launches
# in a compactor on Oxia. No process here forks without exec, so none needs them. This has to be said before
# gRPC is loaded, which the engines below do.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")
