{{- define "dray.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{/* Of a zone's brokers; it takes the root and the zone. */}}
{{- define "dray.zoneName" -}}
{{- $zone := index . 1 -}}
{{ include "dray.name" (index . 0) }}-{{ $zone.name | replace "." "-" | replace "_" "-" | lower }}
{{- end -}}

{{- define "dray.labels" -}}
app.kubernetes.io/name: dray
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end -}}

{{- define "dray.selector" -}}
app.kubernetes.io/name: dray
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "dray.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}

{{- define "dray.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "dray.name" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* What all pods have in common: the user of the image, no powers, the config and the secrets. */}}
{{- define "dray.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "dray.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{- define "dray.envFrom" -}}
{{- if .Values.existingSecret }}
envFrom:
  - secretRef: {name: {{ .Values.existingSecret | quote }}}
{{- end }}
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
{{- define "dray.podMetricsEndpoint" -}}
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
{{- toYaml (mergeOverwrite $endpoint .Values.monitoring.podMonitorEndpoint) -}}
{{- end -}}

{{/* Files of `config.http` that no pod would have. */}}
{{- define "dray.checkHttp" -}}
{{- range $key, $file := dig "http" (dict) .Values.config -}}
{{- if and (hasPrefix "/etc/dray-http/" (toString $file)) (not $.Values.httpSecret) -}}
{{- fail (printf "config.http.%s = %s: give the Secret that holds it as httpSecret" $key $file) -}}
{{- end -}}
{{- end -}}
{{- end -}}
