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
