#!/usr/bin/env bash
# Re-pins every dependency: names, versions and hashes, no index addresses. Needs `uv` on the PATH.
set -euo pipefail
cd "$(dirname "$0")/.."
options=(--generate-hashes --no-emit-index-url --no-emit-find-links --universal --python-version 3.11
         --custom-compile-command "tools/lock.sh" --quiet "$@")
uv pip compile "${options[@]}" pyproject.toml --group build --output-file requirements/run.lock
uv pip compile "${options[@]}" pyproject.toml --extra pipeline --extra aws --group build \
   --constraint requirements/run.lock --output-file requirements/pipeline.lock
uv pip compile "${options[@]}" pyproject.toml --extra pipeline --extra aws --group build --group dev \
   --constraint requirements/pipeline.lock --output-file requirements/dev.lock
uv pip compile "${options[@]}" --group docs --output-file requirements/docs.lock
uv pip compile "${options[@]}" --group dist --output-file requirements/dist.lock
