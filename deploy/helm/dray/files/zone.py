"""Write the zone of this pod's node to a file: a label of the node, which only Kubernetes' API knows."""

import json
import ssl
import urllib.request
from os import environ
from pathlib import Path

account = Path(environ.get("ACCOUNT", "/var/run/secrets/kubernetes.io/serviceaccount"))
host, port = environ["KUBERNETES_SERVICE_HOST"], environ["KUBERNETES_SERVICE_PORT"]
node, label = environ["NODE_NAME"], environ["NODE_LABEL"]
request = urllib.request.Request(
    f"https://{f'[{host}]' if ':' in host else host}:{port}/api/v1/nodes/{node}",
    headers={"Authorization": f"Bearer {(account / 'token').read_text().strip()}"},
)
trust = ssl.create_default_context(cafile=account / "ca.crt")
with urllib.request.urlopen(request, timeout=30, context=trust) as answer:
    zone = json.load(answer)["metadata"].get("labels", {}).get(label)
if not zone:
    raise SystemExit(f"node {node} has no label {label}: give it one, or name another in zone.nodeLabel")
Path(environ.get("ZONE_FILE", "/var/lib/dray/zone")).write_text(zone)
