{{/* The release's own name, with the chart's behind it where it does not say it already. */}}
{{- define "worker.name" -}}
{{- if contains .Chart.Name .Release.Name -}}
{{- .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" (.Release.Name | trunc 35 | trimSuffix "-") .Chart.Name -}}
{{- end -}}
{{- end -}}

{{/* Of this release's pods, and of no other model's. */}}
{{- define "worker.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "worker.image" -}}
{{- $tag := .Values.image.tag | default (printf "%s%s" .Chart.AppVersion (ternary "-cuda" "" .Values.gpu.enabled)) -}}
{{- printf "%s:%s" .Values.image.repository $tag -}}
{{- end -}}

{{- define "worker.kind" -}}
{{- ternary "StatefulSet" "Deployment" .Values.exactlyOnce -}}
{{- end -}}

{{/* The ConfigMap's data. Helm reads every number as a float, and would write 1048576 as 1.048576e+06. */}}
{{- define "worker.settings" -}}
{{- $settings := .Values.settings -}}
{{- if .Values.exactlyOnce -}}
{{- $id := printf "%s-{hostname}" (required "settings.KAFKA__GROUP_ID must be set" $settings.KAFKA__GROUP_ID) -}}
{{- $once := dict "DELIVERY__GUARANTEE" "exactly_once" "DELIVERY__TRANSACTIONAL_ID" $id -}}
{{- $settings = merge (deepCopy $settings) $once -}}
{{- end -}}
{{- range $name, $value := $settings }}
{{- if kindIs "map" $value }}
WORKER_{{ $name }}: {{ $value | toJson | quote }}
{{- else if kindIs "slice" $value }}
WORKER_{{ $name }}: {{ join "," $value | quote }}
{{- else if and (kindIs "float64" $value) (eq $value (floor $value)) }}
WORKER_{{ $name }}: {{ $value | int64 | quote }}
{{- else }}
WORKER_{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
{{- range $name, $value := .Values.environment }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}

{{- define "worker.nothing-else" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}
