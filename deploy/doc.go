// Package deploy has files for other programs: Prometheus alerts (alerts.yaml) and a Grafana dashboard (grafana.json).
// Its only code is tests, which compare the names in these files with the metrics of a server and with the runbook.
package deploy
