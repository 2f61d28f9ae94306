{{- define "dray.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "dray.labels" -}}
{{ include "dray.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "dray.selector" -}}
app.kubernetes.io/name: dray
app.kubernetes.io/instance: {{ .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* The selector of one component's pods; it takes the root and the component. */}}
{{- define "dray.selectorOf" -}}
{{ include "dray.selector" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "dray.labelsOf" -}}
{{ include "dray.labels" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end -}}

{{- define "dray.image" -}}
{{- with .Values.image -}}
{{- $name := ternary (printf "%s/%s" .registry .repository) .repository (ne .registry "") -}}
{{- if .digest }}{{ $name }}@{{ .digest }}{{ else }}{{ $name }}:{{ .tag | default $.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{- define "dray.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "dray.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The metadata of a component's pods; it takes the root, the component and its port of health and metrics. */}}
{{- define "dray.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
labels:
  {{- include "dray.labelsOf" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  prometheus.io/scrape: "true"
  prometheus.io/port: {{ index . 2 | quote }}
  {{- if eq (include "dray.httpScheme" $root) "HTTPS" }}
  prometheus.io/scheme: https
  {{- end }}
  checksum/config: {{ toYaml $root.Values.config | sha256sum }}
  {{- with include "dray.secretSum" $root }}
  checksum/secret: {{ . }}
  {{- end }}
  {{- with $values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* Of existingSecret, whose variables a pod reads when it starts. Helm sees it in a cluster alone. */}}
{{- define "dray.secretSum" -}}
{{- if .Values.existingSecret -}}
{{- with lookup "v1" "Secret" .Release.Namespace .Values.existingSecret -}}
{{ toYaml .data | sha256sum }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Where a component's pods run, and as whom: the user of the image, with no powers. It takes the root and the component. */}}
{{- define "dray.podPlace" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
serviceAccountName: {{ include "dray.serviceAccount" $root }}
automountServiceAccountToken: false
# Variables of Services called dray-... would look like settings.
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- if $root.Values.zone.nodeLabel }}
  - maxSkew: 1
    topologyKey: {{ $root.Values.zone.nodeLabel }}
    whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" (eq (index . 1) "broker") }}
    labelSelector:
      matchLabels: {{- include "dray.selectorOf" . | nindent 8 }}
  {{- end }}
  - maxSkew: 1
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels: {{- include "dray.selectorOf" . | nindent 8 }}
{{- end -}}

{{- define "dray.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "dray.containerImage" -}}
image: {{ include "dray.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext: {{- include "dray.containerSecurity" . | nindent 2 }}
{{- with .Values.existingSecret }}
envFrom:
  - secretRef: {name: {{ . | quote }}}
{{- end }}
{{- end -}}

{{/* The Secrets that a component's pods have as files, as a list of name, Secret and directory; root and component. */}}
{{- define "dray.secretFiles" -}}
{{- $values := (index . 0).Values -}}
{{- $files := list (dict "name" "credentials" "secret" $values.existingSecret "path" "/etc/dray-credentials") -}}
{{- $files = append $files (dict "name" "http" "secret" $values.httpSecret "path" "/etc/dray-http") -}}
{{- $forwards := and $values.forwardSecret (ne (index . 1) "compactor") -}}
{{- if eq (index . 1) "broker" -}}
{{- $files = append $files (dict "name" "tls" "secret" $values.tlsSecret "path" "/etc/dray-tls") -}}
{{- end -}}
{{- if or (eq (index . 1) "migrator") (and (eq (index . 1) "broker") (not $forwards)) -}}
{{- $files = append $files (dict "name" "upstream" "secret" $values.upstreamSecret "path" "/etc/dray-upstream") -}}
{{- end -}}
{{- if $forwards -}}
{{- $files = append $files (dict "name" "forward" "secret" $values.forwardSecret "path" "/etc/dray-forward") -}}
{{- end -}}
{{- $given := list -}}
{{- range $files }}{{ if .secret }}{{ $given = append $given . }}{{ end }}{{ end -}}
{{- toJson $given -}}
{{- end -}}

{{- define "dray.volumeMounts" -}}
- {name: config, mountPath: /etc/dray, readOnly: true}
- {name: data, mountPath: /var/lib/dray}
- {name: tmp, mountPath: /tmp}
{{- range include "dray.secretFiles" . | fromJsonArray }}
- {name: {{ .name }}, mountPath: {{ .path }}, readOnly: true}
{{- end }}
{{- with (index (index . 0).Values (index . 1)).extraVolumeMounts }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "dray.volumes" -}}
{{- $root := index . 0 -}}
{{- $values := index $root.Values (index . 1) -}}
- name: config
  configMap: {name: {{ include "dray.name" $root }}}
# Locks and nothing else: what a process keeps, it keeps elsewhere.
- name: data
  emptyDir: {sizeLimit: 64Mi}
- name: tmp
  emptyDir: {sizeLimit: {{ $values.tmpSize }}}
{{- range include "dray.secretFiles" . | fromJsonArray }}
- name: {{ .name }}
  secret: {secretName: {{ .secret }}}
{{- end }}
{{- with $values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/* A store that is away restarts nobody: only readiness asks for it, and a start waits for it. */}}
{{- define "dray.probes" -}}
readinessProbe:
  httpGet: {{ include "dray.httpGet" (list . "/readyz") }}
  periodSeconds: 5
  timeoutSeconds: 5
startupProbe:
  httpGet: {{ include "dray.httpGet" (list . "/healthz") }}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {{ include "dray.httpGet" (list . "/healthz") }}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
{{- end -}}

{{/* Health and metrics, as `config.http` has them. */}}
{{- define "dray.httpScheme" -}}
{{- if dig "http" "certificate_file" "" .Values.config }}HTTPS{{ else }}HTTP{{ end -}}
{{- end -}}

{{/* Of a probe; it takes the root and the path. The kubelet verifies no certificate, and needs no token. */}}
{{- define "dray.httpGet" -}}
{path: {{ index . 1 }}, port: http, scheme: {{ include "dray.httpScheme" (index . 0) }}}
{{- end -}}

{{/* How Prometheus scrapes: over HTTPS, and with the token, where `config.http` asks for them. */}}
{{- define "dray.metricsEndpoint" -}}
{{- $endpoint := dict "port" "http" "path" "/metrics" -}}
{{- if eq (include "dray.httpScheme" .) "HTTPS" -}}
{{- $server := printf "%s.%s.svc.%s" (include "dray.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- $authority := dict "secret" (dict "name" .Values.httpSecret "key" "ca.crt") -}}
{{- $_ := set $endpoint "scheme" "https" -}}
{{- $_ := set $endpoint "tlsConfig" (dict "ca" $authority "serverName" $server) -}}
{{- end -}}
{{- with dig "http" "token_file" "" .Values.config -}}
{{- $_ := set $endpoint "authorization" (dict "credentials" (dict "name" $.Values.httpSecret "key" (base .))) -}}
{{- end -}}
{{- toYaml (mergeOverwrite $endpoint .Values.monitoring.endpoint) -}}
{{- end -}}

{{/* All listeners by name but `plaintext`: those that are given, and one for each zone, which asks as `zone.listener` does. */}}
{{- define "dray.listeners" -}}
{{- $all := deepCopy .Values.listeners -}}
{{- $like := dict -}}
{{- with .Values.zone.listener }}{{ $like = index $.Values.listeners . }}{{ end -}}
{{- range $zone, $port := .Values.zone.services -}}
{{- $_ := set $all (include "dray.zoneListener" $zone) (merge (dict "port" $port "zone" $zone) $like) -}}
{{- end -}}
{{- toJson $all -}}
{{- end -}}

{{- define "dray.zoneListener" -}}
ZONE_{{ . | upper | replace "-" "_" }}
{{- end -}}

{{- define "dray.zoneService" -}}
{{ include "dray.name" (index . 0) }}-zone-{{ index . 1 }}
{{- end -}}

{{/* Ports of the listeners, as a list of name, number, and the zone of one that is for a zone alone. */}}
{{- define "dray.ports" -}}
{{- $ports := list -}}
{{- if .Values.plaintext }}{{ $ports = append $ports (dict "name" "kafka" "port" 9092) }}{{ end -}}
{{- range $name, $listener := include "dray.listeners" . | fromJson -}}
{{- $zone := ternary "" (toString $listener.zone) (hasKey $.Values.listeners $name) -}}
{{- $ports = append $ports (dict "name" (printf "kafka-%d" (int $listener.port)) "port" (int $listener.port) "zone" $zone) -}}
{{- end -}}
{{- toJson $ports -}}
{{- end -}}

{{/* Where a broker listens, and the names that its pod advertises. */}}
{{- define "dray.listenerEnv" -}}
{{- $domain := printf "%s-brokers.%s.svc.%s" (include "dray.name" .) .Release.Namespace .Values.clusterDomain -}}
{{- if .Values.plaintext }}
- {name: DRAY_BROKER__LISTEN, value: "0.0.0.0:9092"}
- {name: DRAY_BROKER__ADVERTISED, value: "$(POD_NAME).{{ $domain }}:9092"}
{{- else }}
- {name: DRAY_BROKER__LISTEN, value: "off"}
{{- end }}
{{- range $name, $listener := include "dray.listeners" . | fromJson }}
- name: DRAY_BROKER__LISTENERS__{{ $name }}
  value: {{ merge (dict "address" (printf "0.0.0.0:%d" (int $listener.port))) (omit $listener "port") | toJson | quote }}
{{- if not (and $.Values.external.enabled (eq $name $.Values.external.listener)) }}
- name: DRAY_BROKER__ADVERTISED_LISTENERS__{{ $name }}
  value: $(POD_NAME).{{ $domain }}:{{ int $listener.port }}
{{- end }}
{{- end }}
{{- with .Values.broker.extraEnv }}
{{- toYaml . | nindent 0 }}
{{- end }}
{{- end -}}

{{/* The most brokers that there may be. */}}
{{- define "dray.mostBrokers" -}}
{{- with .Values.broker -}}
{{- ternary (max (int .replicas) (int .autoscaling.maxReplicas)) (int .replicas) .autoscaling.enabled -}}
{{- end -}}
{{- end -}}

{{/* What no pod could start with, told before anything is changed. */}}
{{- define "dray.check" -}}
{{- range $key, $file := dig "http" (dict) .Values.config -}}
{{- if and (hasPrefix "/etc/dray-http/" (toString $file)) (not $.Values.httpSecret) -}}
{{- fail (printf "config.http.%s = %s: give the Secret that holds it as httpSecret" $key $file) -}}
{{- end -}}
{{- end -}}
{{- include "dray.checkSecrets" (list "config" .Values.config) -}}
{{- if not (or .Values.plaintext .Values.listeners) -}}
{{- fail "clients have nowhere to connect: give `listeners` (values.yaml has an example), or plaintext: true for one on 9092 that asks nobody who they are" -}}
{{- end -}}
{{- include "dray.checkZones" . -}}
{{- with .Values.external -}}
{{- if and .enabled (not (hasKey $.Values.listeners .listener)) -}}
{{- fail (printf "external.listener = %s: there is no such listener; give it in `listeners`, for clients from outside alone" .listener) -}}
{{- end -}}
{{- if and .enabled (eq .type "LoadBalancer") (not (contains "{id}" .host)) -}}
{{- fail (printf "external.host = %q: each broker needs a name of its own, such as broker-{id}.kafka.example.com" .host) -}}
{{- end -}}
{{- end -}}
{{- with .Values.broker -}}
{{- if .autoscaling.enabled -}}
{{- if not (dig "requests" "cpu" "" .resources) -}}
{{- fail "broker.autoscaling needs broker.resources.requests.cpu: what it measures is a part of that" -}}
{{- end -}}
{{- if lt (int .autoscaling.maxReplicas) (int .replicas) -}}
{{- fail (printf "broker.autoscaling.maxReplicas %d is less than broker.replicas %d" (int .autoscaling.maxReplicas) (int .replicas)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and .Values.migrator.enabled (not (dig "upstream" "clusters" "" .Values.config)) -}}
{{- fail "migrator.enabled needs config.upstream.clusters: the Kafka clusters whose topics move here" -}}
{{- end -}}
{{- end -}}

{{- define "dray.checkZones" -}}
{{- with .Values.zone -}}
{{- if and .services (not .listener) (not $.Values.plaintext) -}}
{{- fail "zone.services needs zone.listener: one of `listeners`; those of the zones ask as it does" -}}
{{- end -}}
{{- if and .listener (not (hasKey $.Values.listeners .listener)) -}}
{{- fail (printf "zone.listener = %s: there is no such listener; give it in `listeners`" .listener) -}}
{{- end -}}
{{- end -}}
{{- $taken := dict "9644" "http" -}}
{{- range include "dray.ports" . | fromJsonArray -}}
{{- $port := int .port | toString -}}
{{- if hasKey $taken $port -}}
{{- fail (printf "port %s is given twice: each of `listeners` and `zone.services` needs one of its own, beside 9644" $port) -}}
{{- end -}}
{{- $_ := set $taken $port .name -}}
{{- end -}}
{{- range $zone, $port := .Values.zone.services -}}
{{- if hasKey $.Values.listeners (include "dray.zoneListener" $zone) -}}
{{- fail (printf "listeners.%s: that of the zone %s has this name; choose another" (include "dray.zoneListener" $zone) $zone) -}}
{{- end -}}
{{- if gt (len (include "dray.zoneService" (list $ $zone))) 63 -}}
{{- fail (printf "zone.services: %s is longer than the 63 letters that a Service's name may have" (include "dray.zoneService" (list $ $zone))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A ConfigMap is for everybody to read. It takes a path and what is there. */}}
{{- define "dray.checkSecrets" -}}
{{- $path := index . 0 -}}
{{- range $key, $value := index . 1 -}}
{{- $here := printf "%s.%s" $path $key -}}
{{- if and (eq $key "secrets") $value -}}
{{- fail (printf "%s would stand in a ConfigMap, in clear: put it into a Secret, as the variable DRAY_%s__NAME, and name that Secret in existingSecret" $here (trimPrefix "CONFIG__" (upper (replace "." "__" $here)))) -}}
{{- end -}}
{{- if kindIs "map" $value }}{{ include "dray.checkSecrets" (list $here $value) }}{{ end -}}
{{- end -}}
{{- end -}}
