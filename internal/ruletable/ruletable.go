// Package ruletable is the table of Prometheus's rules about Drydock: the recording rules and the alerts, and why others of
// KubeVirt's do not exist. The PrometheusRule of virt-controller, the file of rules in the manifests and the index of
// runbooks are made of it.
//
// It owns names, expressions, labels and texts. It must not know how a rule gets to Prometheus.
package ruletable

import (
	"maps"
	"slices"
	"strconv"
	"time"
)

// Recording is a rule that computes a metric.
type Recording struct {
	// Name is KubeVirt's.
	Name   string
	Expr   string
	Labels map[string]string
	// Help is a sentence.
	Help string
}

// Severity is how urgent an alert is, or how much it concerns Drydock itself.
type Severity string

// These are KubeVirt's.
const (
	Critical Severity = "critical"
	Warning  Severity = "warning"
	Info     Severity = "info"
	// None is only for Alert.Impact.
	None Severity = "none"
)

// Alert is an alerting rule. Several may have one name, with other severities.
type Alert struct {
	Name string
	Expr string
	// For is how long the expression must have held.
	For      time.Duration
	Severity Severity
	// Impact is the effect on Drydock's own health, as the label operator_health_impact.
	Impact Severity
	// Summary and Description are sentences, with Prometheus's templates. Description may be empty.
	Summary, Description string
}

// Missing is an alert or recording rule of KubeVirt's that does not exist here.
type Missing struct {
	Name string
	// Why is a sentence.
	Why string
}

// Foreign is a metric of another program that rules need.
type Foreign struct {
	Name, By string
	Labels   []string
}

// Runbooks is the folder of the alerts' pages in the repository.
const Runbooks = "docs/runbooks"

// Recordings lists the recording rules in the order in which they are computed.
func Recordings() []Recording { return slices.Concat(ofComponents, ofGuests, ofOthers, oldNames) }

// Alerts lists the alerts.
func Alerts() []Alert {
	return slices.Concat(aboutNodes, aboutComponents, aboutVMs, aboutGuests, aboutDrydock)
}

// MissingAlerts lists the alerts of KubeVirt's that do not exist here.
func MissingAlerts() []Missing { return slices.Clone(missingAlerts) }

// MissingRecordings lists the recording rules of KubeVirt's that do not exist here and are no metric either.
func MissingRecordings() []Missing { return slices.Clone(missingRecordings) }

// Foreigns lists the metrics of other programs that rules need.
func Foreigns() []Foreign { return slices.Clone(foreigns) }

// Groups returns the rules as Prometheus's configuration and a PrometheusRule have them: maps, lists and strings.
func Groups() []any {
	var records, alerts []any
	for _, r := range Recordings() {
		rule := map[string]any{"record": r.Name, "expr": r.Expr}
		if len(r.Labels) > 0 {
			rule["labels"] = texts(r.Labels)
		}
		records = append(records, rule)
	}
	for i := range Alerts() {
		alerts = append(alerts, Alerts()[i].rule())
	}
	return []any{
		map[string]any{"name": "drydock.records", "rules": records},
		map[string]any{"name": "drydock.alerts", "rules": alerts},
	}
}

// partOf has the labels by which consoles of KubeVirt find its alerts.
var partOf = map[string]string{"kubernetes_operator_part_of": "kubevirt", "kubernetes_operator_component": "kubevirt"}

func (a *Alert) rule() map[string]any {
	labels := maps.Clone(partOf)
	labels["severity"], labels["operator_health_impact"] = string(a.Severity), string(a.Impact)
	annotations := map[string]string{"summary": a.Summary, "runbook_url": Page(a.Name)}
	if a.Description != "" {
		annotations["description"] = a.Description
	}
	rule := map[string]any{"alert": a.Name, "expr": a.Expr, "labels": texts(labels), "annotations": texts(annotations)}
	if a.For > 0 {
		rule["for"] = forText(a.For)
	}
	return rule
}

// Page returns the path of an alert's page.
func Page(alert string) string { return Runbooks + "/" + alert + ".md" }

// forText writes whole hours and minutes as Prometheus reads them.
func forText(d time.Duration) string {
	if d%time.Hour == 0 {
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/time.Minute)) + "m"
}

func texts(in map[string]string) map[string]any {
	out := make(map[string]any, len(in))
	for key, value := range in {
		out[key] = value
	}
	return out
}
