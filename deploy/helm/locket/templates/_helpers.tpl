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

{{- /* The pods of both engines. */ -}}
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
        {{- if eq .Values.engine "embedded" }}
        - --data=/var/lib/locket/data
        {{- else if .Values.mysql.tls }}
        - --database-ca=/etc/locket/database/ca.crt
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
      # --database-wait (1m) is the longest start.
      startupProbe:
        httpGet: {path: /healthz, port: ops}
        periodSeconds: 2
        failureThreshold: 60
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
        {{- if eq .Values.engine "embedded" }}
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
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "locket.selector" . | nindent 10 }}
{{- end }}
