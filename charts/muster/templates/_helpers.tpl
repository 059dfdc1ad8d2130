{{/* Names, labels and parts that several templates share. */}}

{{- define "muster.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "muster.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "muster.name" .) .Release.Name }}
{{- .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "muster.name" .) | trunc 40 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "muster.agent.fullname" -}}
{{- printf "%s-node-agent" (include "muster.fullname" .) }}
{{- end }}

{{/* Labels of every object; the component is added by whoever has one. */}}
{{- define "muster.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
app.kubernetes.io/name: {{ include "muster.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: muster
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "muster.operator.selector" -}}
app.kubernetes.io/name: {{ include "muster.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "muster.agent.selector" -}}
app.kubernetes.io/name: {{ include "muster.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: node-agent
{{- end }}

{{- define "muster.operator.labels" -}}
{{ include "muster.labels" . }}
app.kubernetes.io/component: scheduler
{{- end }}

{{- define "muster.agent.labels" -}}
{{ include "muster.labels" . }}
app.kubernetes.io/component: node-agent
{{- end }}

{{- define "muster.operator.account" -}}
{{- default (include "muster.fullname" .) .Values.operator.serviceAccount.name }}
{{- end }}

{{- define "muster.agent.account" -}}
{{- default (include "muster.agent.fullname" .) .Values.agent.serviceAccount.name }}
{{- end }}

{{/* An image by digest if there is one, else by tag. Takes [image, default tag]. */}}
{{- define "muster.image" -}}
{{- $image := index . 0 }}
{{- $name := $image.repository }}
{{- with $image.registry }}{{ $name = printf "%s/%s" . $name }}{{ end }}
{{- if $image.digest }}
{{- printf "%s@%s" $name $image.digest }}
{{- else }}
{{- printf "%s:%s" $name (default (index . 1) $image.tag) }}
{{- end }}
{{- end }}

{{/* Where the election takes place. */}}
{{- define "muster.shares-lease" -}}
{{- if and .Values.replacement.enabled .Values.replacement.shareLease }}true{{ end }}
{{- end }}
{{- define "muster.lease.namespace" -}}
{{- if include "muster.shares-lease" . }}kube-system{{ else }}{{ .Release.Namespace }}{{ end }}
{{- end }}
{{- define "muster.lease.name" -}}
{{- if include "muster.shares-lease" . }}kube-scheduler{{ else }}{{ include "muster.fullname" . }}{{ end }}
{{- end }}

{{/* The configuration file: the chart's fields, and over them the user's. */}}
{{- define "muster.configuration" -}}
{{- $profiles := list (dict "schedulerName" .Values.schedulerName) }}
{{- if .Values.replacement.enabled }}
{{- $profiles = append $profiles (dict "schedulerName" "default-scheduler") }}
{{- end }}
{{- $own := dict
  "apiVersion" "kubescheduler.config.k8s.io/v1"
  "kind" "KubeSchedulerConfiguration"
  "clientConnection" (dict "qps" -1)
  "profiles" $profiles }}
{{- mergeOverwrite $own (deepCopy .Values.configuration) | toYaml }}
{{- end }}

{{/* Whether a profile or a policy may break disruption budgets: pods are then deleted, not evicted. */}}
{{- define "muster.deletes-pods" -}}
{{- if .Values.rbac.deletePods }}true{{ end }}
{{- range .Values.configuration.profiles }}
{{- range .pluginConfig }}
{{- if and (eq .name "DefaultPreemption") (dig "args" "allowBudgetViolations" false .) }}true{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What both containers have in common. */}}
{{- define "muster.container.security" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end }}
