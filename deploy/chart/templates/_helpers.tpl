{{- define "atoll.port" -}}
{{- if .Values.address -}}{{- splitList ":" .Values.address | last -}}{{- else -}}7443{{- end -}}
{{- end -}}
