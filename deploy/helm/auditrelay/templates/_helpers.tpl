{{- define "auditrelay.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "auditrelay.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "auditrelay.name" . -}}
{{- ternary .Release.Name (printf "%s-%s" .Release.Name $name) (contains $name .Release.Name) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "auditrelay.selector" -}}
app.kubernetes.io/name: {{ include "auditrelay.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: relay
{{- end -}}

{{- define "auditrelay.labels" -}}
{{ include "auditrelay.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "auditrelay.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end -}}

{{- define "auditrelay.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "auditrelay.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{/* Not empty if the journal is on a NATS cluster. */}}
{{- define "auditrelay.cluster" -}}
{{- dig "journal" "url" "" .Values.config -}}
{{- end -}}

{{/* Not empty if each relay has a volume of its own. */}}
{{- define "auditrelay.stateful" -}}
{{- if or (not (include "auditrelay.cluster" .)) .Values.persistence.inCluster -}}true{{- end -}}
{{- end -}}

{{- define "auditrelay.replicas" -}}
{{- if include "auditrelay.cluster" . -}}
{{- default 3 .Values.replicas -}}
{{- else if gt (int (default 1 .Values.replicas)) 1 -}}
{{- fail "replicas: only one relay works on a disk; for several, set config.journal.url to a NATS cluster" -}}
{{- else -}}
1
{{- end -}}
{{- end -}}

{{- define "auditrelay.scheme" -}}
{{- ternary "HTTPS" "HTTP" (ne .Values.admin.tls.secretName "") -}}
{{- end -}}

{{/* The port of the console, if it listens for others than the pod itself. */}}
{{- define "auditrelay.console" -}}
{{- $listen := dig "console" "listen" "" .Values.config -}}
{{- if not (regexMatch "^(127\\.|localhost:|\\[::1\\])" $listen) -}}{{ regexFind "[0-9]+$" $listen }}{{- end -}}
{{- end -}}

{{/* What the chart sets. A person's config is merged over it; the schema keeps the two apart. */}}
{{- define "auditrelay.own" -}}
{{- $admin := printf "%s-admin" (include "auditrelay.fullname" .) -}}
# The folder of a volume belongs to root, and kubelets open it to a group, if not to everybody. The relay makes
# one of its own in it, for itself alone.
data_dir: /var/lib/auditrelay/data
ingest:
  listen: ":3100"
  {{- if .Values.tls.secretName }}
  tls:
    cert_file: /etc/auditrelay/tls/tls.crt
    key_file: /etc/auditrelay/tls/tls.key
    {{- if .Values.tls.requireClientCertificates }}
    client_ca_file: /etc/auditrelay/tls/ca.crt
    {{- end }}
  {{- else }}
  behind_proxy: true
  {{- end }}
  limits:
    in_flight_bytes: 192MiB
admin:
  listen: ":9100"
  hosts:
    - {{ $admin }}
    - {{ $admin }}.{{ .Release.Namespace }}
    - {{ $admin }}.{{ .Release.Namespace }}.svc
    - {{ $admin }}.{{ .Release.Namespace }}.svc.cluster.local
  {{- if .Values.admin.tls.secretName }}
  tls:
    cert_file: /etc/auditrelay/admin-tls/tls.crt
    key_file: /etc/auditrelay/admin-tls/tls.key
  {{- end }}
  {{- if .Values.admin.tokenSecret.name }}
  token: ${AUDITRELAY_ADMIN_TOKEN}
  {{- end }}
audit:
  origin: auditrelay.local/{{ .Release.Namespace }}/{{ include "auditrelay.fullname" . }}
  {{- if .Values.auditKeySecret.name }}
  key_env: AUDITRELAY_AUDIT_KEY
  {{- end }}
log:
  format: json
{{- end -}}

{{- define "auditrelay.config" -}}
{{- if not .Values.config.environments -}}
{{- fail "config.environments: name at least one environment; `auditrelay config init` explains the configuration" -}}
{{- end -}}
{{- if and .Values.persistence.inCluster (not (include "auditrelay.cluster" .)) -}}
{{- fail "persistence.inCluster: it is for relays that share a journal; set config.journal.url to a NATS cluster, or leave it out: a relay on a disk has its volume in any case" -}}
{{- end -}}
{{- include "auditrelay.agree" . -}}
{{- with .Values.resources.limits -}}
{{- $limit := include "auditrelay.bytes" (toString (ternary (int64 .memory) (default "0" .memory) (kindIs "float64" .memory))) | float64 -}}
{{- if and (gt $limit 0.0) (ge (include "auditrelay.bytes" $.Values.goMemLimit | float64) $limit) -}}
{{- fail (printf "goMemLimit: %s has to be below resources.limits.memory, %v, or the kernel kills the relay before it saves memory" $.Values.goMemLimit .memory) -}}
{{- end -}}
{{- end -}}
{{- if and (include "auditrelay.cluster" .) (not .Values.auditKeySecret.name) (not (dig "audit" "sign_command" "" .Values.config)) -}}
{{- fail "auditKeySecret.name: relays that share a journal need one signing key; make it with `auditrelay trail keygen`, and put it into a secret" -}}
{{- end -}}
{{- if and .Values.auditKeySecret.name (dig "audit" "sign_command" "" .Values.config) -}}
{{- fail "auditKeySecret.name: set it or config.audit.sign_command, not both" -}}
{{- end -}}
{{- include "auditrelay.noSecrets" (dict "value" .Values.config "path" "config") -}}
{{- mustMergeOverwrite (include "auditrelay.own" . | fromYaml) (deepCopy .Values.config) | toYaml -}}
{{- end -}}

{{/* Fails where values contradict each other: one of them would count for nothing, or Kubernetes would refuse both. */}}
{{- define "auditrelay.agree" -}}
{{- if and .Values.tls.requireClientCertificates (not .Values.tls.secretName) -}}
{{- fail "tls.requireClientCertificates: without tls.secretName nobody would be asked for a certificate; set it, or have the proxy that ends TLS ask" -}}
{{- end -}}
{{- range $name := concat (keys .Values.env) (keys .Values.secretEnv) | sortAlpha -}}
{{- if and (hasKey $.Values.env $name) (hasKey $.Values.secretEnv $name) -}}
{{- fail (printf "env.%s: it is in secretEnv, too; keep one of them" $name) -}}
{{- end -}}
{{- if has $name (list "AUDITRELAY_CONFIG" "GOMEMLIMIT" "AUDITRELAY_ADMIN_TOKEN" "AUDITRELAY_AUDIT_KEY") -}}
{{- fail (printf "%s: the chart sets this variable itself, from goMemLimit, admin.tokenSecret and auditKeySecret; use those" $name) -}}
{{- end -}}
{{- end -}}
{{- with .Values.service -}}
{{- if and .loadBalancerSourceRanges (ne .type "LoadBalancer") -}}
{{- fail (printf "service.loadBalancerSourceRanges: Kubernetes refuses it for a service of type %s; set service.type to LoadBalancer, or use networkPolicy.ingestFrom" .type) -}}
{{- end -}}
{{- if and .externalTrafficPolicy (eq .type "ClusterIP") -}}
{{- fail "service.externalTrafficPolicy: Kubernetes refuses it for a service of type ClusterIP; set service.type to LoadBalancer or NodePort" -}}
{{- end -}}
{{- end -}}
{{- $stop := toString (dig "shutdown_timeout" "30s" .Values.config) -}}
{{- $leaves := ternary 5.0 0.0 (ne (include "auditrelay.cluster" .) "") -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) (addf $leaves (include "auditrelay.seconds" $stop | float64)) -}}
{{- fail (printf "terminationGracePeriodSeconds: %v has to be longer than config.shutdown_timeout, %s, and on a cluster by five seconds more, or the kubelet kills the relay before it has stopped" .Values.terminationGracePeriodSeconds $stop) -}}
{{- end -}}
{{- $journal := dig "journal" "max_bytes" "10GiB" .Values.config -}}
{{- $journal = toString (ternary (int64 $journal) $journal (kindIs "float64" $journal)) -}}
{{- if not (include "auditrelay.cluster" .) -}}
{{- if le (include "auditrelay.bytes" .Values.persistence.size | float64) (include "auditrelay.bytes" (nospace $journal) | float64) -}}
{{- fail (printf "persistence.size: %s has to be more than config.journal.max_bytes, %s, or the disk is full before the journal is" .Values.persistence.size $journal) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* A duration of the configuration in seconds. */}}
{{- define "auditrelay.seconds" -}}
{{- $sum := 0.0 -}}
{{- range regexFindAll "[0-9.]+(ms|s|m|h)" . -1 -}}
{{- $unit := regexFind "[a-z]+$" . -}}
{{- $sum = addf $sum (mulf (float64 (trimSuffix $unit .)) (get (dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0) $unit)) -}}
{{- end -}}
{{- $sum -}}
{{- end -}}

{{/* A quantity of Kubernetes, of GOMEMLIMIT or of the configuration in bytes. */}}
{{- define "auditrelay.bytes" -}}
{{- $powers := dict "" 1.0 "B" 1.0 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "E" 1e18 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 "Ei" 1152921504606846976.0 -}}
{{- $unit := regexReplaceAll "^[0-9.]+" . "" -}}
{{- mulf (float64 (regexFind "^[0-9.]+" .)) (get $powers (ternary $unit (trimSuffix "B" $unit) (eq $unit "B"))) -}}
{{- end -}}

{{/* Fails if a secret of the configuration is written out: it would stand in a ConfigMap. */}}
{{- define "auditrelay.noSecrets" -}}
{{- $path := .path -}}
{{- if kindIs "map" .value -}}
{{- range $key, $value := .value -}}
{{- $at := printf "%s.%s" $path $key -}}
{{- if and (not (or (kindIs "map" $value) (kindIs "slice" $value) (kindIs "invalid" $value))) (regexMatch "(?i)^(secret|client_secret|password|token|api_key|application_key|bearer_token|hash_key|cookie|.*auth|.*authorization|.*-(key|token|secret))$" $key) -}}
{{- if not (regexMatch "^(file:/.+|.*\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}.*)$" (toString $value)) -}}
{{- fail (printf "%s: a ConfigMap is no place for a secret; write ${NAME} with NAME in secretEnv, or file:PATH" $at) -}}
{{- end -}}
{{- end -}}
{{- include "auditrelay.noSecrets" (dict "value" $value "path" $at) -}}
{{- end -}}
{{- else if kindIs "slice" .value -}}
{{- range $i, $value := .value -}}
{{- include "auditrelay.noSecrets" (dict "value" $value "path" (printf "%s[%d]" $path $i)) -}}
{{- end -}}
{{- else if regexMatch "://[^/@\\s]*:[^/@$\\s][^/@\\s]*@" (toString .value) -}}
{{- fail (printf "%s: a ConfigMap is no place for the password in an address; write ${NAME} with NAME in secretEnv" $path) -}}
{{- end -}}
{{- end -}}
