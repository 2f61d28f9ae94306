#!/bin/sh
# Installs Dray from a checkout into a virtual environment of its own: what the image holds, and what a
# machine without containers can use as well.
#
#   deploy/image/build.sh SOURCE PREFIX [REQUIREMENTS]
#
# SOURCE is a checkout; nothing is written into it. PREFIX is the directory to make, such as /opt/dray; it
# must not be moved afterwards. REQUIREMENTS is `pipeline` (all roles, the default) or `run` (brokers alone).
# Needs Python 3.11 or newer (PYTHON names another), gcc, and the package index that pip is set up for.
set -eu

usage() {
    echo "usage: $0 SOURCE PREFIX [pipeline|run]" >&2
    exit 2
}

[ $# -ge 2 ] && [ $# -le 3 ] || usage
source=$(cd "$1" && pwd)
prefix=$2
requirements=${3:-pipeline}
python=${PYTHON:-python3}
lock="$source/requirements/$requirements.lock"

[ -f "$lock" ] || usage
if [ -e "$prefix" ]; then
    echo "$0: $prefix exists already: choose another, or remove it" >&2
    exit 2
fi

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

# What is locked is installed by hash, compilers of the core included; then the core is built with those.
"$python" -m venv "$prefix"
"$prefix/bin/python" -m pip install --quiet --no-compile --require-hashes -r "$lock"
cp -R "$source/src" "$source/pyproject.toml" "$source/setup.py" "$source/README.md" "$source/LICENSE" "$source/NOTICE" "$work/"
find "$work/src" \( -name '*.so' -o -name '_core.c' -o -name '__pycache__' -o -name '*.egg-info' \) -prune -exec rm -rf {} +
"$prefix/bin/python" -m pip install --quiet --no-deps --no-build-isolation --no-compile "$work"

# Nothing that only builds stays. pip goes last, by its own hand.
"$prefix/bin/python" -m pip uninstall --quiet --yes cython wheel
"$prefix/bin/python" -m compileall -q "$prefix/lib" >/dev/null || true
"$prefix/bin/python" -m pip uninstall --quiet --yes pip

# It is what it should be: the compiled core, the commands, the settings.
"$prefix/bin/python" -c "import dray.kafka.records._core"
"$prefix/bin/drayd" version
"$prefix/bin/drayd" config show >/dev/null
