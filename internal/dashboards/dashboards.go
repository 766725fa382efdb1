// Package dashboards is the table of Grafana's dashboards about Drydock. The files in config/monitoring/dashboards are
// made of it.
//
// It owns titles, queries and units, and the form of a dashboard. It must not know how a dashboard gets to Grafana.
package dashboards

import (
	"encoding/json"
	"strings"
)

//go:generate go run ./main ../../config/monitoring/dashboards

// Dashboard is a page of Grafana.
type Dashboard struct {
	// Name is that of the file.
	Name, Title string
	// Variables are chosen by the reader.
	Variables []Variable
	Rows      []Row
}

// Variable is a choice among the values of a label. Queries use it as $NAME.
type Variable struct {
	// Label is one of the metric, or of its selection.
	Name, Metric, Label string
	// Several means that the reader may choose several values, or all.
	Several bool
}

// Row is a heading with panels.
type Row struct {
	Title  string
	Panels []Panel
}

// Kind is a panel's form.
type Kind string

// These are Grafana's.
const (
	Graph  Kind = "timeseries"
	Number Kind = "stat"
	Table  Kind = "table"
)

// Unit is Grafana's name of a unit.
type Unit string

// These are Grafana's.
const (
	Count          Unit = "short"
	Bytes          Unit = "bytes"
	BytesPerSecond Unit = "Bps"
	PerSecond      Unit = "cps"
	Seconds        Unit = "s"
	Ratio          Unit = "percentunit"
)

// Panel shows the values of queries.
type Panel struct {
	Title   string
	Kind    Kind
	Unit    Unit
	Queries []Query
}

// Query is an expression, and the text beside its values.
type Query struct{ Expr, Legend string }

// All lists the dashboards.
func All() []Dashboard { return []Dashboard{fleet, machine, migrations, controlPlane} }

// JSON returns a dashboard as Grafana reads it.
func (d *Dashboard) JSON() ([]byte, error) {
	text, err := json.MarshalIndent(map[string]any{
		"uid": "drydock-" + d.Name, "title": "Drydock / " + d.Title, "tags": []string{"drydock"}, "schemaVersion": 39, "editable": true,
		"refresh": "1m", "time": map[string]any{"from": "now-6h", "to": "now"},
		"templating": map[string]any{"list": d.variables()}, "panels": d.panels(),
	}, "", " ")
	return append(text, '\n'), err
}

// source is the Prometheus that the reader has chosen.
var source = map[string]any{"type": "prometheus", "uid": "${datasource}"}

func (d *Dashboard) variables() []any {
	all := []any{map[string]any{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}
	for _, v := range d.Variables {
		variable := map[string]any{
			"name": v.Name, "label": v.Name, "type": "query", "datasource": source, "refresh": 2, "sort": 1,
			"query": map[string]any{"query": "label_values(" + v.Metric + ", " + v.Label + ")", "refId": v.Name},
		}
		if v.Several {
			variable["multi"], variable["includeAll"], variable["allValue"] = true, true, ".*"
			variable["current"] = map[string]any{"text": []string{"All"}, "value": []string{"$__all"}}
		}
		all = append(all, variable)
	}
	return all
}

// Grafana's page has this many columns; a row has up to perRow panels of a kind.
const columns = 24

var (
	perRow = map[Kind]int{Graph: 3, Number: 6, Table: 2}
	height = map[Kind]int{Graph: 8, Number: 4, Table: 8}
)

func (d *Dashboard) panels() []any {
	var all []any
	y := 0
	for _, row := range d.Rows {
		all = append(all, map[string]any{"id": len(all) + 1, "type": "row", "title": row.Title, "gridPos": position(0, y, columns, 1)})
		y++
		x, tallest := 0, 0
		for i := range row.Panels {
			p := &row.Panels[i]
			width := columns / perRow[p.Kind]
			if x+width > columns {
				x, y, tallest = 0, y+tallest, 0
			}
			all = append(all, p.object(len(all)+1, position(x, y, width, height[p.Kind])))
			x, tallest = x+width, max(tallest, height[p.Kind])
		}
		y += tallest
	}
	return all
}

func position(x, y, w, h int) map[string]any { return map[string]any{"x": x, "y": y, "w": w, "h": h} }

// aboutPods reports whether the values are those of pods, and not only served by them.
func (p *Panel) aboutPods() bool { return strings.Contains(p.Queries[0].Expr, "by (pod)") }

func (p *Panel) object(id int, position map[string]any) map[string]any {
	var targets []any
	for i, q := range p.Queries {
		target := map[string]any{"refId": string(rune('A' + i)), "expr": q.Expr, "datasource": source}
		if q.Legend != "" {
			target["legendFormat"] = q.Legend
		}
		if p.Kind == Table {
			target["format"], target["instant"] = "table", true
		}
		targets = append(targets, target)
	}
	object := map[string]any{
		"id": id, "type": p.Kind, "title": p.Title, "gridPos": position, "datasource": source, "targets": targets,
		"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.Unit}, "overrides": []any{}},
	}
	switch p.Kind {
	case Graph:
		object["options"] = map[string]any{"legend": map[string]any{"displayMode": "list", "placement": "bottom"}, "tooltip": map[string]any{"mode": "multi", "sort": "desc"}}
	case Table:
		object["transformations"] = []any{map[string]any{"id": "organize", "options": map[string]any{
			"excludeByName": map[string]any{"Time": true, "Value": true, "__name__": true, "instance": true, "job": true, "pod": !p.aboutPods()},
		}}}
	}
	return object
}
