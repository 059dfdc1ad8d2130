{{/* What no schema can say: values that contradict each other. Included once, by the Deployment. */}}
{{- define "muster.validate" -}}
{{- if eq .Values.schedulerName "default-scheduler" }}
{{- fail "schedulerName: default-scheduler is kube-scheduler's name; set replacement.enabled to schedule in its place" }}
{{- end }}
{{- with .Values.configuration.profiles }}
{{- $names := list }}
{{- range . }}{{ $names = append $names .schedulerName }}{{ end }}
{{- if not (has $.Values.schedulerName $names) }}
{{- fail (printf "configuration.profiles: none has the schedulerName %q of the value schedulerName, but %s; add one, or change the value" $.Values.schedulerName (join ", " $names)) }}
{{- end }}
{{- if and $.Values.replacement.enabled (not (has "default-scheduler" $names)) }}
{{- fail "configuration.profiles: replacement.enabled needs a profile with the schedulerName default-scheduler; add one" }}
{{- end }}
{{- if and (not $.Values.replacement.enabled) (has "default-scheduler" $names) }}
{{- fail "configuration.profiles: a profile named default-scheduler competes with kube-scheduler; set replacement.enabled, or rename it" }}
{{- end }}
{{- end }}
{{- if and .Values.assignment.enabled .Values.replacement.enabled }}
{{- fail "assignment.enabled and replacement.enabled exclude each other: a replacement schedules pods that name no scheduler anyway" }}
{{- end }}
{{- if and .Values.assignment.enabled (not (or .Values.assignment.namespaceSelector .Values.assignment.objectSelector)) }}
{{- fail "assignment.enabled: give assignment.namespaceSelector or assignment.objectSelector, or no pod is assigned" }}
{{- end }}
{{- if and .Values.metrics.serviceMonitor.enabled (not .Values.metrics.service.enabled) }}
{{- fail "metrics.serviceMonitor.enabled needs metrics.service.enabled: a ServiceMonitor finds pods by their Service" }}
{{- end }}
{{- end }}
