"""The whole conformance suite, unchanged, on three etcd servers whose leaders are killed all the while."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.services.etcd import EtcdCluster

ROOT = Path(__file__).parents[2]
SECONDS_OF_PEACE = 5.0
"""Longer than the suite's sessions: a new leader lets every lease live for its whole time again."""
LEAST_KILLS = 5
OPTIONS = ("-q", "-p", "tests.services.unclear", "-p", "no:cacheprovider", "--timeout", "120")


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_contract_is_kept_while_leaders_are_killed(tmp_path: Path) -> None:
    with EtcdCluster(tmp_path / "etcd") as cluster, (tmp_path / "suite.log").open("w+") as log:
        suite = subprocess.Popen(
            [sys.executable, "-m", "pytest", "tests/conformance/metadata", "-k", "etcd-cluster", *OPTIONS],
            cwd=ROOT,
            env=os.environ | {"DRAY_TEST_ETCD": ",".join(cluster.addresses)},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        kills = 0
        try:
            while suite.poll() is None:
                leader = cluster.leader()
                leader.kill()
                cluster.leader()
                leader.start()
                kills += 1
                time.sleep(SECONDS_OF_PEACE)  # the pace of the faults
        finally:
            suite.kill()
            suite.wait()
        log.seek(0)
        assert suite.returncode == 0, log.read()[-5000:]
        assert kills >= LEAST_KILLS
