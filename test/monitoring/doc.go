// Package monitoring tests what Prometheus and Grafana get of Drydock, with Prometheus's own parser and engine: each rule,
// each query of a dashboard and of a runbook names only metrics and labels that are served, and each alert fires for
// its fault and for nothing else. It is a separate module because Drydock does not need Prometheus; no other module must
// link it.
package monitoring
