{{- define "locket.name" -}}
{{ ternary .Release.Name (printf "%s-locket" .Release.Name) (contains "locket" .Release.Name) | trunc 50 | trimSuffix "-" }}
{{- end }}

{{- define "locket.selector" -}}
app.kubernetes.io/name: locket
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "locket.labels" -}}
{{ include "locket.selector" . }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /* The number of servers that share a log; empty for the other engines. */ -}}
{{- define "locket.replicas" -}}
{{- if eq .Values.engine "cluster" }}{{ .Values.cluster.replicas }}{{ else if eq .Values.engine "etcd" }}{{ .Values.etcd.replicas }}{{ end }}
{{- end }}

{{- /* The secret with the certificate for the log: of the nodes, or for etcd. */ -}}
{{- define "locket.nodesSecret" -}}
{{- if eq .Values.engine "cluster" }}{{ .Values.cluster.secret }}{{ else if eq .Values.engine "etcd" }}{{ .Values.etcd.secret }}{{ end }}
{{- end }}

{{- /* The list of the nodes of etcd in the pods. */ -}}
{{- define "locket.nodes" -}}
{{- range $i := until (int .Values.cluster.replicas) }}{{ if $i }},{{ end }}{{ printf "%[1]s-%[2]d=%[1]s-%[2]d.%[1]s-nodes:8894" (include "locket.name" $) $i }}{{ end }}
{{- end }}

{{- /* The pods of all engines. */ -}}
{{- define "locket.pod" -}}
metadata:
  labels: {{- include "locket.labels" . | nindent 4 }}
spec:
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  containers:
    - name: locket
      image: {{ printf "%s:%s" .Values.image.repository (.Values.image.tag | default .Chart.AppVersion) | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args:
        - server
        - --grpc-address=:8891
        - --http-address=:8892
        - --ops-address=:8893
        - --ops-insecure
        {{- if ne .Values.engine "mysql" }}
        - --data=/var/lib/locket/data
        {{- else if .Values.mysql.tls }}
        - --database-ca=/etc/locket/database/ca.crt
        {{- end }}
        {{- if eq .Values.engine "cluster" }}
        - --node=$(POD_NAME)
        {{- if .Values.cluster.join }}
        - --join={{ .Values.cluster.join }}.{{ include "locket.name" . }}-nodes:8894
        {{- else }}
        - --cluster={{ include "locket.nodes" . }}
        {{- end }}
        - --cluster-cert=/etc/locket/nodes/tls.crt
        - --cluster-key=/etc/locket/nodes/tls.key
        - --cluster-ca=/etc/locket/nodes/ca.crt
        {{- else if eq .Values.engine "etcd" }}
        - --etcd={{ join "," .Values.etcd.endpoints }}
        - --etcd-prefix={{ .Values.etcd.prefix }}
        {{- if .Values.etcd.secret }}
        - --etcd-cert=/etc/locket/nodes/tls.crt
        - --etcd-key=/etc/locket/nodes/tls.key
        - --etcd-ca=/etc/locket/nodes/ca.crt
        {{- end }}
        - --peer-address=:8894
        - --peer-advertise=$(POD_NAME).{{ include "locket.name" . }}-nodes:8894
        {{- end }}
        {{- if and (eq .Values.engine "mysql") .Values.mysql.secret }}
        - --database-password-file=/etc/locket/database/password
        {{- end }}
        {{- if .Values.tls.secret }}
        - --tls-cert=/etc/locket/tls/tls.crt
        - --tls-key=/etc/locket/tls/tls.key
        - --tls-client-ca=/etc/locket/tls/ca.crt
        {{- else }}
        - --insecure
        {{- end }}
        {{- if .Values.rules }}
        - --auth-rules=/etc/locket/rules/rules.yaml
        {{- end }}
        {{- range $name, $value := .Values.settings }}
        - {{ printf "--%s=%s" $name $value | quote }}
        {{- end }}
      env:
        {{- if include "locket.replicas" . }}
        - name: POD_NAME
          valueFrom: {fieldRef: {fieldPath: metadata.name}}
        {{- end }}
        {{- if eq .Values.engine "mysql" }}
        # LOCKET_DATA of the image would be a second place for the data.
        - {name: LOCKET_DATA, value: ""}
        - name: LOCKET_DATABASE
          value: {{ .Values.mysql.database | quote }}
        {{- end }}
        - name: GOMEMLIMIT
          valueFrom: {resourceFieldRef: {resource: limits.memory, divisor: "1"}}
      ports:
        - {name: grpc, containerPort: 8891}
        - {name: http, containerPort: 8892}
        - {name: ops, containerPort: 8893}
        {{- if include "locket.replicas" . }}
        - {name: nodes, containerPort: 8894}
        {{- end }}
      {{- if eq .Values.engine "cluster" }}
      # A pod waits for all others when it starts for the first time, and for a majority later.
      {{- else }}
      # --database-wait (1m) is the longest start.
      {{- end }}
      startupProbe:
        httpGet: {path: /healthz, port: ops}
        periodSeconds: 2
        failureThreshold: {{ ternary 300 60 (eq .Values.engine "cluster") }}
      livenessProbe:
        httpGet: {path: /healthz, port: ops}
        periodSeconds: 10
        failureThreshold: 6
        timeoutSeconds: 5
      readinessProbe:
        httpGet: {path: /readyz, port: ops}
        periodSeconds: 2
        timeoutSeconds: 2
      securityContext:
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        {{- if include "locket.nodesSecret" . }}
        - {name: nodes, mountPath: /etc/locket/nodes, readOnly: true}
        {{- end }}
        {{- if ne .Values.engine "mysql" }}
        - {name: data, mountPath: /var/lib/locket}
        {{- else if .Values.mysql.secret }}
        - {name: database, mountPath: /etc/locket/database, readOnly: true}
        {{- end }}
        {{- if .Values.tls.secret }}
        - {name: tls, mountPath: /etc/locket/tls, readOnly: true}
        {{- end }}
        {{- if .Values.rules }}
        - {name: rules, mountPath: /etc/locket/rules, readOnly: true}
        {{- end }}
  volumes:
    {{- with include "locket.nodesSecret" . }}
    - name: nodes
      secret: {secretName: {{ . | quote }}, defaultMode: 0440}
    {{- end }}
    {{- if and (eq .Values.engine "mysql") .Values.mysql.secret }}
    - name: database
      secret: {secretName: {{ .Values.mysql.secret | quote }}, defaultMode: 0440}
    {{- end }}
    {{- if .Values.tls.secret }}
    - name: tls
      secret: {secretName: {{ .Values.tls.secret | quote }}, defaultMode: 0440}
    {{- end }}
    {{- if .Values.rules }}
    - name: rules
      configMap: {name: {{ include "locket.name" . }}-rules}
    {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  topologySpreadConstraints:
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: {{ ternary "DoNotSchedule" "ScheduleAnyway" (eq .Values.engine "cluster") }}
      labelSelector:
        matchLabels: {{- include "locket.selector" . | nindent 10 }}
{{- end }}
