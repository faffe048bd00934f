// Package deploy has what an operator gives to other programs: the alerts of Prometheus (alerts.yaml) and the dashboard of Grafana
// (grafana.json). It has no code but its tests: they compare what these name with the metrics of a server, and with the runbook.
package deploy
