{{/* The pod of a relay, the same on a disk and on a cluster. */}}
{{- define "auditrelay.pod" -}}
metadata:
  labels:
    {{- include "auditrelay.selector" . | nindent 4 }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- if or .Values.restartOnChange .Values.podAnnotations }}
  annotations:
    {{- if .Values.restartOnChange }}
    # Another configuration means another pod.
    checksum/config: {{ include "auditrelay.config" . | sha256sum }}
    {{- end }}
    {{- with .Values.podAnnotations }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- end }}
spec:
  serviceAccountName: {{ include "auditrelay.serviceAccount" . }}
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.image.pullSecrets }}
  imagePullSecrets:
    {{- range . }}
    - name: {{ . }}
    {{- end }}
  {{- end }}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: auditrelay
      image: {{ include "auditrelay.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [run]
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      env:
        - name: AUDITRELAY_CONFIG
          value: /etc/auditrelay/config/relay.yaml
        - name: GOMEMLIMIT
          value: {{ .Values.goMemLimit | quote }}
        {{- range $name, $value := .Values.env }}
        - name: {{ $name }}
          value: {{ $value | quote }}
        {{- end }}
        {{- range $name, $from := .Values.secretEnv }}
        - name: {{ $name }}
          valueFrom: {secretKeyRef: {name: {{ $from.secret | quote }}, key: {{ $from.key | quote }}}}
        {{- end }}
        {{- with .Values.admin.tokenSecret }}
        {{- if .name }}
        - name: AUDITRELAY_ADMIN_TOKEN
          valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
        {{- end }}
        {{- end }}
        {{- with .Values.auditKeySecret }}
        {{- if .name }}
        - name: AUDITRELAY_AUDIT_KEY
          valueFrom: {secretKeyRef: {name: {{ .name | quote }}, key: {{ .key | quote }}}}
        {{- end }}
        {{- end }}
      ports:
        - {name: ingest, containerPort: 3100}
        - {name: admin, containerPort: 9100}
        {{- with include "auditrelay.console" . }}
        - {name: console, containerPort: {{ . }}}
        {{- end }}
      # The private listener opens first, so a long start, in which the journal is read back, is no
      # reason to kill the relay.
      startupProbe:
        httpGet: {path: /healthz, port: admin, scheme: {{ include "auditrelay.scheme" . }}}
        periodSeconds: 2
        timeoutSeconds: 5
        failureThreshold: 30
      # It answers while the process serves at all, whatever else is wrong: a restart cures nothing else.
      livenessProbe:
        httpGet: {path: /healthz, port: admin, scheme: {{ include "auditrelay.scheme" . }}}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 6
      # It fails only where a push does better at another relay. The relay asks its parts for up to 5 s.
      readinessProbe:
        httpGet: {path: /readyz, port: admin, scheme: {{ include "auditrelay.scheme" . }}}
        periodSeconds: 5
        timeoutSeconds: 6
        failureThreshold: 2
      {{- if include "auditrelay.cluster" . }}
      # Load balancers learn that it leaves while it still takes pushes.
      lifecycle: {preStop: {sleep: {seconds: 5}}}
      {{- end }}
      resources:
        {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        - {name: data, mountPath: /var/lib/auditrelay}
        - {name: config, mountPath: /etc/auditrelay/config, readOnly: true}
        {{- if .Values.tls.secretName }}
        - {name: tls, mountPath: /etc/auditrelay/tls, readOnly: true}
        {{- end }}
        {{- if .Values.admin.tls.secretName }}
        - {name: admin-tls, mountPath: /etc/auditrelay/admin-tls, readOnly: true}
        {{- end }}
        {{- range $name, $from := .Values.files }}
        - {name: {{ printf "files-%s" $name }}, mountPath: {{ printf "/etc/auditrelay/files/%s" $name }}, readOnly: true}
        {{- end }}
  volumes:
    - name: config
      configMap: {name: {{ include "auditrelay.fullname" . }}-config}
    {{- if not (include "auditrelay.stateful" .) }}
    # The journal is on the cluster: here are a copy of the trail and notes, which are made again.
    - name: data
      emptyDir: {}
    {{- end }}
    {{- with .Values.tls.secretName }}
    - name: tls
      secret: {secretName: {{ . | quote }}, defaultMode: 0440}
    {{- end }}
    {{- with .Values.admin.tls.secretName }}
    - name: admin-tls
      secret: {secretName: {{ . | quote }}, defaultMode: 0440}
    {{- end }}
    {{- range $name, $from := .Values.files }}
    - name: {{ printf "files-%s" $name }}
      {{- if $from.secret }}
      secret: {secretName: {{ $from.secret | quote }}, defaultMode: 0440}
      {{- else }}
      configMap: {name: {{ $from.configMap | quote }}}
      {{- end }}
    {{- end }}
  {{- if and (include "auditrelay.cluster" .) .Values.topologySpread.enabled }}
  topologySpreadConstraints:
    {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
    - maxSkew: 1
      topologyKey: {{ . }}
      whenUnsatisfiable: {{ $.Values.topologySpread.whenUnsatisfiable }}
      labelSelector:
        matchLabels:
          {{- include "auditrelay.selector" $ | nindent 10 }}
    {{- end }}
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
